"""A policy as an ONNX file acts as the policy itself, in rows that begin episodes at any time."""

import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from scipy.stats import ks_2samp

from seqrl.algo import RolloutPolicy, algo_factory
from seqrl.algo.engine import can_act
from seqrl.algo.export import PolicyStep, export_onnx
from seqrl.algo.export_noise import Draw, GivenNoise, draws_of
from seqrl.configs import config_factory
from seqrl.conformance.cases import ACTION_SPACES, ENCODER_OBS, OBS, random_obs, small_algo
from seqrl.core.errors import CheckpointError, ConfigError, DataError
from seqrl.core.registry import DISTRIBUTIONS, SEQUENCE_ENCODERS
from seqrl.core.spaces import ActionCodec, ObsSpec
from seqrl.deploy import policy_from_onnx
from seqrl.models.distributions.continuous import DeterministicHead
from seqrl.models.sequence_encoders.feedforward import FeedForward

WINDOW = 5
slow = pytest.mark.slow


def space_of(specs):
    """Return a space of observations of such specs."""

    def leaf(spec):
        if spec.nvec is not None:
            return spaces.Discrete(spec.nvec[0]) if spec.shape == () else spaces.MultiDiscrete(spec.nvec)
        return spaces.Box(0 if spec.dtype == "uint8" else -9, 255, spec.shape, np.dtype(spec.dtype).type)

    return spaces.Dict({name: leaf(spec) for name, spec in specs.items()})


def play_both(tmp_path, algo, specs, *all_rows, steps=3 * WINDOW):
    """Return the largest difference of actions over windows in which rows are reset at random."""
    facts = export_onnx(algo, tmp_path / "policy.onnx", space_of(specs), algo.codec.space)
    assert facts["algorithm"] == algo.config.algo_name
    return max(_difference(tmp_path, algo, specs, rows, steps) for rows in all_rows)


def _difference(tmp_path, algo, specs, rows, steps):
    ours = RolloutPolicy(algo, space_of(specs), algo.codec.space)
    theirs = policy_from_onnx(tmp_path / "policy.onnx")
    ours.start_episode()
    theirs.start_episode()
    rng, worst = np.random.default_rng(0), 0.0
    for step in range(steps):
        obs = {k: v.numpy() for k, v in random_obs(rng, specs, rows).items()}
        reward = rng.normal(size=rows).astype(np.float32) if step else None
        both = (p(obs, reward=reward, batched_ob=True) for p in (ours, theirs))
        expected, given = (algo.codec.flat(actions, rows) for actions in both)
        assert expected.dtype == given.dtype
        assert expected.shape == given.shape
        worst = max(worst, float(np.abs(expected.astype(float) - given.astype(float)).max()))
        ended = rng.random(rows) < 0.2
        ours.reset_rows(ended)
        theirs.reset_rows(ended)
    return worst


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("memory", "actions"),
    [
        pytest.param("gru", "box", marks=slow),
        pytest.param("transformer", "discrete", marks=slow),
        pytest.param("gru", "multi_discrete", marks=slow),
        pytest.param("gru", "multi_binary", marks=slow),
        ("gru", "hybrid"),
        *(
            pytest.param(memory, actions, marks=slow)
            for memory in SEQUENCE_ENCODERS.names()
            for actions in ("box", "discrete")
            if (memory, actions) not in (("gru", "box"), ("transformer", "discrete"))
        ),
    ],
)
def test_it_acts_as_the_policy_itself(tmp_path, memory, actions):
    assert play_both(tmp_path, small_algo("bc", memory, ACTION_SPACES[actions], WINDOW), OBS, 16, 1) < 1e-5


@slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("memory", SEQUENCE_ENCODERS.names())
def test_images_are_read(tmp_path, memory):
    algo = small_algo("bc", memory, ACTION_SPACES["box"], WINDOW, encoder="multimodal")
    assert play_both(tmp_path, algo, ENCODER_OBS["multimodal"], 16, 1) < 1e-5


@slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    "name",
    ["actor_critic", "multitask", "iql", "td3_bc", "cql", "bcq", "edac", "fql", "bc_vae", "act", "decision_transformer",
     "hbc", "diffusion_policy", "flow_matching"],
)  # fmt: skip
def test_every_algorithm_acts_as_itself(tmp_path, name):
    limit = 1e-3 if name == "diffusion_policy" else 2e-5  # rounding grows from one denoising step to the next
    assert play_both(tmp_path, small_algo(name, "gru", ACTION_SPACES["box"], WINDOW), OBS, 3) < limit


@slow
@pytest.mark.usefixtures("unchecked_shapes")
def test_plans_of_several_discrete_actions_are_exported(tmp_path):
    for name in ("bc", "hbc"):
        algo = small_algo(name, "gru", ACTION_SPACES["discrete"], WINDOW, chunk_steps=3, execute_steps=2)
        assert play_both(tmp_path, algo, OBS, 3) < 1e-5
        assert can_act(algo, deterministic=True)


SAMPLED = (
    ("bc", "multi_discrete", None),
    ("bc", "box", "gmm"),
    ("bc", "box", "tanh_gaussian"),
    *((name, "box", None) for name in ("bc_vae", "iris", "bcq", "diffusion_policy")),
)


def sampling_algo(name, kind, distribution):
    options = {} if distribution is None else {"distribution": {"type": distribution}}
    return small_algo(name, "gru", ACTION_SPACES[kind], WINDOW, **options)


@slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(("name", "kind", "distribution"), SAMPLED)
def test_samples_are_those_of_the_noise(tmp_path, name, kind, distribution):
    """The graph and torch make the same of the same noise, and other noise gives other actions."""
    algo = sampling_algo(name, kind, distribution)
    facts = export_onnx(algo, tmp_path / "p.onnx", space_of(OBS), algo.codec.space, is_sampled=True)
    step = PolicyStep(algo, is_sampled=True).eval()
    session = onnxruntime.InferenceSession(str(tmp_path / "p.onnx"))
    given, seen = step.example(64), []
    for seed in range(2):
        rng = torch.Generator().manual_seed(seed)
        for noise_kind in facts["noise"]:
            draw = {"normal": torch.randn, "uniform": torch.rand}[noise_kind]
            given[f"noise/{noise_kind}"] = draw(given[f"noise/{noise_kind}"].shape, generator=rng)
        with torch.no_grad():
            expected = step(*given.values())[0].numpy()
        wanted = {entry.name for entry in session.get_inputs()}
        found = session.run(["action"], {k: v.numpy() for k, v in given.items() if k in wanted})[0]
        np.testing.assert_allclose(found, expected, atol=1e-4 if name == "diffusion_policy" else 1e-5)
        seen.append(found)
    assert (seen[0] != seen[1]).any()
    assert len(np.unique(seen[0], axis=0)) > 1  # every row has noise of its own


@slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(("name", "kind", "distribution"), SAMPLED[:3])
def test_samples_are_distributed_as_the_policys_own(tmp_path, name, kind, distribution):
    rows = 4000
    algo = sampling_algo(name, kind, distribution)
    export_onnx(algo, tmp_path / "p.onnx", space_of(OBS), algo.codec.space, is_sampled=True)
    ours = RolloutPolicy(algo, space_of(OBS), algo.codec.space, deterministic=False)
    ours.start_episode()
    obs = {k: v.numpy().repeat(rows, 0) for k, v in random_obs(np.random.default_rng(0), OBS, 1).items()}
    expected, found = (
        np.asarray(p(obs, batched_ob=True), np.float64).reshape(rows, -1)
        for p in (ours, policy_from_onnx(tmp_path / "p.onnx", seed=1))
    )
    for column in range(expected.shape[1]):
        assert ks_2samp(expected[:, column], found[:, column]).pvalue > 1e-4


@pytest.mark.parametrize(
    ("draw", "quantiles"),
    [
        (lambda like: torch.empty_like(like).normal_(2.0, 0.5), (1.5, 2.5)),
        (lambda like: torch.empty_like(like).normal_(std=3.0), (-3.0, 3.0)),
        (lambda like: torch.empty_like(like).exponential_(10.0), (0.01727, 0.1840)),
        (lambda like: torch.empty_like(like).uniform_(-1.0, 3.0), (-0.3654, 2.3654)),
        (lambda like: (like * 0.0).normal_(), (-1.0, 1.0)),
    ],
)
def test_noise_follows_the_arguments_of_a_draw(draw, quantiles):
    """The same shares of the normal (0.1587, 0.8413), as of the distribution that was asked for."""
    (found,) = draws_of(lambda num_rows: draw(torch.zeros(num_rows, 2)))
    levels = torch.tensor([[0.1587, 0.8413]])
    kind = {"normal": torch.tensor([[-1.0, 1.0]]), "uniform": levels}[found.kind]
    with GivenNoise([found], {found.kind: kind}):
        given = draw(torch.zeros(1, 2))
    torch.testing.assert_close(sorted(given[0].tolist()), sorted(quantiles), atol=1e-2, rtol=1e-3)


def test_a_draw_whose_value_is_not_taken_is_given_too():
    with GivenNoise([Draw("normal", (2, 3), 0)], {"normal": torch.full((4, 3), 5.0)}):
        x = torch.zeros(4, 3)
        x.normal_()
    assert (x == 5.0).all()


@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_noise_at_an_edge_takes_no_illegal_action(edge):
    with GivenNoise([Draw("uniform", (2, 3), 0)], {"uniform": torch.full((4, 3), edge)}):
        drawn = torch.empty(4, 3).exponential_().log()
    assert drawn.isfinite().all()


@pytest.mark.parametrize("draw", [lambda: torch.normal(0.0, 1.0, (2,)), lambda: torch.randint(3, (2,))])
def test_draws_without_a_formula_of_noise_are_refused(draw):
    with pytest.raises(ConfigError, match="cannot be sampled from normal or uniform noise"):
        draws_of(lambda num_rows: draw())


def test_samples_without_a_formula_of_noise_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="algorithm 'bc' cannot be exported with samples: its distribution cannot"):
        export_onnx(sampling_algo("bc", "box", "beta"), tmp_path / "p.onnx", space_of(OBS), None, is_sampled=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("gl", "gives no actions"), pytest.param("iris", "draws while it acts", marks=slow)],
)
def test_what_cannot_be_exported_says_why(tmp_path, name, reason):
    with pytest.raises(ConfigError, match=rf"algorithm '{name}' .*{reason}"):
        export_onnx(small_algo(name, "gru", ACTION_SPACES["box"], WINDOW), tmp_path / "p.onnx", space_of(OBS), None)
    assert not (tmp_path / "p.onnx").exists()


def test_code_that_depends_on_values_is_named_and_nothing_else_is_said(tmp_path, capfd, registries_as_before):
    class Branches(FeedForward):
        def forward(self, x, step, state=None):
            if (x > 1e6).any():
                x = x.clamp(max=1e6)
            return super().forward(x, step, state)

    SEQUENCE_ENCODERS.register("test_branches")(Branches)
    with pytest.raises(ConfigError, match=r"cannot be exported \(GuardOnDataDependent.*: test_export\.py:\d+\)"):
        export_onnx(small_algo("bc", "test_branches"), tmp_path / "p.onnx", space_of(OBS), None)
    assert capfd.readouterr() == ("", "")


@slow
def test_distributions_that_check_are_exported_and_check_afterwards(tmp_path, registries_as_before):
    class CheckedHead(DeterministicHead):
        def forward(self, parameters, action_mask):
            torch.distributions.Laplace(parameters, parameters.exp())  # checks that the scale is above 0
            return super().forward(parameters, action_mask)

    DISTRIBUTIONS.register("test_checked")(CheckedHead)
    algo = small_algo("bc", "gru", ACTION_SPACES["box"], WINDOW, distribution={"type": "test_checked"})
    assert play_both(tmp_path, algo, OBS, 3) < 1e-5
    with pytest.raises(ValueError, match="scale"):
        torch.distributions.Laplace(0.0, -1.0)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    algo = small_algo("actor_critic", "gru", spaces.Discrete(3, start=4), WINDOW)
    path = tmp_path_factory.mktemp("onnx") / "policy.onnx"
    export_onnx(algo, path, space_of(OBS), algo.codec.space)
    return path


def test_illegal_actions_are_never_taken_and_rewards_are_asked_for(file):
    policy, rng = policy_from_onnx(file), np.random.default_rng(0)
    for only in range(3):
        policy.start_episode()
        obs = {k: v.numpy()[0] for k, v in random_obs(rng, OBS, 1).items()}
        assert policy(obs, action_mask=np.eye(3, dtype=bool)[only]) == 4 + only
    with pytest.raises(DataError, match="trained to read the previous reward, and none was given"):
        policy(obs)
    with pytest.raises(DataError, match="has 2 rows, but the episode began with 1"):
        policy({k: np.stack([v, v]) for k, v in obs.items()}, reward=[0.0, 0.0], batched_ob=True)
    with pytest.raises(DataError, match=r"observation 'state' has shape \(4,\), expected \(3,\)$"):
        policy({**obs, "state": np.zeros(4, np.float32)}, reward=0.0)
    with pytest.raises(DataError, match="the observation lacks 'image', 'room'; it has state"):
        policy({"state": obs["state"]}, reward=0.0)
    with pytest.raises(DataError, match="the observation does not fit its space"):
        policy(obs["state"], reward=0.0)
    assert policy(obs, reward=1.0, action_mask=np.ones(3, bool)) in (4, 5, 6)


def test_an_action_mask_that_forbids_everything_and_foreign_categories_are_refused(file):
    policy = policy_from_onnx(file)
    obs = {k: v.numpy()[0] for k, v in random_obs(np.random.default_rng(0), OBS, 1).items()}
    with pytest.raises(DataError, match="leaves no legal action"):
        policy(obs, action_mask=[False, False, False])
    with pytest.raises(DataError, match=r"has \[2\] flags in its rows; give 3 for each of 1 rows"):
        policy(obs, action_mask=[True, False])
    for mask in (True, (), [None]):
        with pytest.raises(DataError, match="action_mask"):
            policy(obs, action_mask=mask)
    for room in (3, 1.7):
        with pytest.raises(DataError, match=r"'room' is outside its categories \[3\]"):
            policy({**obs, "room": room})


IMAGE = {"image": ObsSpec((16, 16, 3), "float32")}
LEARNED = {"type": "transformer", "positions": "learned", "max_steps": 3, "d_model": 16, "num_heads": 2, "d_ff": 16}


SCORED = {"type": "transformer", "d_model": 16, "num_heads": 2, "d_ff": 16}
TOKENS = {"type": "multimodal", "modalities": {"words": {"type": "tokens", "vocabulary": 9, "pad_token": 0}}}


@slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("memory", "encoder"),
    [
        ({**SCORED, "logit_clip": 2.0}, {"type": "mlp"}),
        ({**SCORED, "score": {"type": "alibi"}, "num_sinks": 1, "sink_bias": 1.0}, {"type": "mlp"}),
        ({"type": "gru", "d_hidden": 16}, TOKENS),
    ],
    ids=["logit_clip", "score", "tokens"],
)
def test_every_kind_of_score_and_tokens_are_exported(tmp_path, memory, encoder):
    specs = {"state": ObsSpec((3,)), "words": ObsSpec((4,), "int64", (9,) * 4)}
    config = {"train": {"window_steps": WINDOW}, "observation": {"timestep_encoder": encoder}}
    config = config_factory("bc", {**config, "algo": {"sequence_encoder": memory}})
    algo = algo_factory("bc", config, specs, 4, "cpu", ACTION_SPACES["box"])
    assert play_both(tmp_path, algo, specs, 3, 1) < 1e-5


def both(tmp_path, specs, action_space, high=255.0, **values):
    """Return a policy and its file, acting in the same spaces."""
    boxes = {name: spaces.Box(-9.0, high, spec.shape) for name, spec in specs.items()}
    torch.manual_seed(0)
    seen = {"timestep_encoder": {"d_hidden": 16, "d_output": 16}}
    config = config_factory("bc", {"train": {"window_steps": WINDOW}, "observation": seen, "algo": values})
    algo = algo_factory("bc", config, specs, ActionCodec(action_space).dim, "cpu", action_space)
    export_onnx(algo, tmp_path / "policy.onnx", spaces.Dict(boxes), action_space)
    return RolloutPolicy(algo, spaces.Dict(boxes)), policy_from_onnx(tmp_path / "policy.onnx")


@pytest.mark.usefixtures("unchecked_shapes")
@slow
def test_both_refuse_bytes_for_an_image_of_floats_and_masks_of_values(tmp_path):
    memory = {"type": "gru", "d_hidden": 16}
    for policy in both(tmp_path, IMAGE, ACTION_SPACES["box"], high=1.0, sequence_encoder=memory):
        with pytest.raises(DataError, match=r"'image' is uint8 \(0 to 255\), but was an image of floats"):
            policy({"image": np.zeros((16, 16, 3), np.uint8)})
        for given in ([True] * 4, True, ()):
            with pytest.raises(DataError):
                policy({"image": np.zeros((16, 16, 3), np.float32)}, action_mask=given)
        with pytest.raises(DataError, match=r"takes no (action_)?mask"):
            policy({"image": np.zeros((16, 16, 3), np.float32)}, action_mask=[True] * 4)
        policy({"image": np.zeros((16, 16, 3), np.float32)})
    for policy in both(tmp_path, IMAGE, ACTION_SPACES["box"], high=255.0, sequence_encoder=memory):
        policy({"image": np.zeros((16, 16, 3), np.uint8)})  # such a space is that of bytes, in training too


@slow
@pytest.mark.usefixtures("unchecked_shapes")
def test_both_take_masks_in_parts_and_count_the_steps_of_each_episode(tmp_path):
    specs, actions = {"state": ObsSpec((3,))}, spaces.MultiDiscrete([2, 3])
    ours, theirs = both(tmp_path, specs, actions, sequence_encoder=LEARNED)
    obs, parts = {"state": np.zeros((2, 3), np.float32)}, (np.array([0, 1]), np.array([0, 0, 1]))
    for policy in (ours, theirs):
        assert policy({"state": obs["state"][0]}, action_mask=parts).tolist() == [1, 2]
        policy.start_episode()
        for _ in range(2):
            for step in range(ours.algo.max_step + 1):
                mask = [parts, np.array([1, 0, 0, 1, 0])] if step else None
                taken = policy(obs, batched_ob=True, action_mask=mask)
                assert step == 0 or taken.tolist() == [[1, 2], [0, 1]]
            policy.reset_rows(np.array([True, True]))
        policy(obs, batched_ob=True)


@slow
def test_a_policy_that_is_told_returns_asks_for_rewards(tmp_path):
    facts = export_onnx(
        small_algo("decision_transformer", "gru", ACTION_SPACES["discrete"], WINDOW),
        tmp_path / "p.onnx",
        space_of(OBS),
        ACTION_SPACES["discrete"],
    )
    assert facts["reads_reward"]


def test_a_file_that_is_no_policy(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist; write it with: seqrl export"):
        policy_from_onnx(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="not an ONNX file that can be run"):
        policy_from_onnx(tmp_path / "bad.onnx")


@pytest.mark.parametrize("facts", [{"format_version": 2}, {}, [1]])
def test_a_file_of_another_version_is_refused(file, tmp_path, facts):
    model = onnx.load(file)
    model.metadata_props[0].value = json.dumps(facts)
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(CheckpointError, match=r"other\.onnx: .*policy format"):
        policy_from_onnx(tmp_path / "other.onnx")


def test_acting_needs_neither_torch_nor_gymnasium(file):
    code = (
        "import sys, numpy as np; from seqrl.deploy import policy_from_onnx; "
        f"policy = policy_from_onnx({str(file)!r}); "
        "obs = {'image': np.zeros((2, 2), np.uint8), 'room': 0, 'state': np.zeros(3)}; "
        "print(policy(obs)); assert not {'torch', 'gymnasium', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() in ("4", "5", "6")
