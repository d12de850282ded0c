"""ONNX Runtime takes a policy's steps as PyTorch does, with the weights that it has by then."""

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from seqrl.algo import algo_factory
from seqrl.algo.acting import VectorPolicy
from seqrl.algo.engine import OnnxEngine, can_act
from seqrl.conformance.cases import ACTION_SPACES, OBS, SMALL_MEMORY, random_obs, small_algo, small_config
from seqrl.core.errors import ConfigError

WINDOW, ROWS = 5, 6
pytestmark = [pytest.mark.usefixtures("unchecked_shapes")]


def play(algo, *, deterministic=True, explores=False, steps=3 * WINDOW, moves=False, masks=False):
    """Return the largest difference of the actions of both, in rows that begin episodes at any time.

    With ``moves`` the weights change twice on the way.
    """
    algo.set_eval()
    engine = OnnxEngine(algo, deterministic=deterministic, explores=explores)
    kinds = {"deterministic": deterministic, "explores": explores}
    ours, theirs = VectorPolicy(algo, ROWS, **kinds), VectorPolicy(algo, ROWS, **kinds, engine=engine)
    rng, worst = np.random.default_rng(0), 0.0
    for step in range(steps):
        if moves and step in (WINDOW, 2 * WINDOW):
            with torch.no_grad():
                for value in algo.nets.state_dict().values():
                    if value.is_floating_point():
                        value.mul_(1.0 + 0.3 * torch.rand_like(value))
            engine.refresh()
        obs = {k: v.numpy() for k, v in random_obs(rng, OBS, ROWS).items()}
        begins = rng.random(ROWS) < 0.2
        mask = legal(algo.codec, rng) if masks else None
        reward = rng.normal(size=ROWS).astype(np.float32)
        actions = []
        for policy in (ours, theirs):
            torch.manual_seed(step)
            policy.reset(begins)
            actions.append(policy.act(obs, reward, action_mask=mask))
        worst = max(worst, float(np.abs(actions[0] - actions[1]).max()))
        executed = algo.codec.random(rng, ROWS, mask)
        for policy in (ours, theirs):
            policy.note_executed(executed)
    return worst


def legal(codec, rng):
    """Return masks that leave something legal in every factor."""
    masks = rng.random((ROWS, codec.dim)) < 0.5
    return masks | (codec.random(rng, ROWS) > 0)


slow = pytest.mark.slow
CASES = [
    ("bc", "gru", "discrete"),
    *(pytest.param(name, memory, kind, marks=slow) for name, memory, kind in (
        ("actor_critic", "transformer", "discrete"), ("bc", "mamba", "multi_discrete"),
        ("act", "feedforward", "box"), ("cql", "transformer", "discrete"),
        ("hbc", "transformer", "box"), ("bc", "gru", "hybrid"), ("bc", "hybrid", "discrete"),
        ("multitask", "lstm", "discrete"), ("iql", "identity", "multi_binary"),
        *((name, memory, "box") for name, memory in (
            ("bc", "lru"), ("decision_transformer", "gru"), ("bc_vae", "min_gru"),
            ("bcq", "mamba2"), ("fql", "gated_deltanet"), ("td3_bc", "mlstm"),
        )),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("name", "memory", "kind"), CASES)
def test_it_acts_as_the_algorithm_itself(name, memory, kind):
    algo = small_algo(name, memory, ACTION_SPACES[kind], WINDOW)
    assert play(algo, moves=True, masks=algo.codec.kind != "continuous") < 2e-5


def test_modules_of_two_names_and_statistics_are_brought_up_to_date():
    algo = small_algo("bc", "gru", ACTION_SPACES["box"], WINDOW)
    algo.nets = torch.nn.ModuleDict({"a_trunk": algo.trunk, **algo.nets})
    assert play(algo, moves=True) < 2e-5


def test_auto_is_eager_where_the_statistics_are_not_known_yet():
    config = small_config("bc", "gru", WINDOW)
    config.train.normalize_obs = "gaussian"
    algo = algo_factory("bc", config, OBS, 4, "cpu", ACTION_SPACES["box"])
    assert not can_act(algo, deterministic=True)


@slow
def test_denormal_numbers_are_still_numbers_after_it():
    algo, small = small_algo("bc", "gru", ACTION_SPACES["discrete"], WINDOW), torch.full((8,), 1e-39)
    assert can_act(algo, deterministic=True)
    assert small.mul(2.0).gt(0).all()
    play(algo, steps=1)
    assert small.mul(2.0).gt(0).all()


@pytest.mark.parametrize("memory", ["gru", pytest.param("transformer", marks=slow)])
def test_it_stacks_frames_as_the_algorithm_does(memory):
    section = {"type": memory, **SMALL_MEMORY[memory], "num_frames": 3}
    algo = small_algo("bc", memory, ACTION_SPACES["box"], WINDOW, sequence_encoder=section)
    assert algo.trunk.sequence_encoder.num_frames == 3
    assert play(algo, moves=True, masks=False) < 2e-5


@slow
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "discrete"),
        ({"boltzmann": {"share": 0.5, "temperature": 1.0}}, "discrete"),
        ({"novelty": 2.0}, "discrete"),
        ({}, "box"),
    ],
)
def test_samples_are_distributed_as_those_of_the_algorithm(options, kind):
    """Of 4,000 rows in the same state, by a two-sample test that a wrong temperature or bias would not pass."""
    algo = small_algo("actor_critic", "gru", ACTION_SPACES[kind], WINDOW, **options)
    algo.set_eval()
    kinds = {"deterministic": False, "explores": True}
    engine, rows = OnnxEngine(algo, **kinds), 4000
    obs = {k: np.repeat(v.numpy(), rows, 0) for k, v in random_obs(np.random.default_rng(0), OBS, 1).items()}
    found = []
    for made in ({}, {"engine": engine}):
        torch.manual_seed(0)
        policy = VectorPolicy(algo, rows, **kinds, **made)
        policy.reset(np.ones(rows, bool))
        for _ in range(3):
            actions = policy.act(obs, np.zeros(rows, np.float32))
            policy.note_executed(np.zeros_like(actions))
        found.append(actions.argmax(-1) if kind == "discrete" else actions[:, 0])
    assert len(np.unique(found[1])) > 1
    assert ks_2samp(*found).pvalue > 1e-3


@slow
def test_what_is_no_graph_is_refused_with_a_reason():
    algo = small_algo("iris", "gru", ACTION_SPACES["box"], WINDOW)
    assert not can_act(algo, deterministic=True)
    with pytest.raises(ConfigError, match="'iris' cannot be exported"):
        OnnxEngine(algo, deterministic=True)
