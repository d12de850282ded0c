"""Behaviour cloning: chunks, what is supervised, scaling by the data, goals, and the auto-encoder's bound."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from seqrl.algo import algo_factory
from seqrl.algo.acting import VectorPolicy
from seqrl.algo.objectives import action_chunks
from seqrl.configs import config_factory
from seqrl.core.errors import CheckpointError, ConfigError, DataError, EnvError
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.core.spaces import ObsSpec
from seqrl.core.types import ColumnStats
from tests.grids import pairwise
from tests.helpers import ACTION_SPACES, SMALL_MEMORY, random_batch, small_algo

BOX = ACTION_SPACES["box"]
STATE = {"state": ObsSpec((3,))}


def scaled_algo(action_space, algo="bc", obs=STATE, observation=None, **train):
    torch.manual_seed(0)
    values = {
        "train": {"window_steps": 6, **train},
        "observation": {"timestep_encoder": {"d_hidden": 16, "d_output": 16}, **(observation or {})},
        "algo": {"sequence_encoder": {"type": "gru", **SMALL_MEMORY["gru"]}},
    }
    width = int(np.prod(action_space.shape))
    return algo_factory(algo, config_factory(algo, values), obs, width, "cpu", action_space)


def stats(mean, std, low, high):
    return ColumnStats(*(np.asarray(x, np.float64) for x in (mean, std, low, high)))


# --------------------------------------------------------------------------------------------- chunks
def test_chunks_are_the_next_actions_and_end_with_the_window():
    actions = torch.arange(8.0).reshape(2, 4, 1)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    ahead, real = action_chunks(actions, mask, 3)
    assert ahead[0, :, :, 0].tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 0]]
    assert real[0].tolist() == [[True] * 3, [True] * 3, [True, True, False], [True, False, False]]
    assert real[1].tolist() == [[True, True, False], [True, False, False], [False] * 3, [False] * 3]


def test_a_chunk_of_one_is_the_action_itself():
    batch = random_batch(BOX)
    ahead, real = action_chunks(batch.actions, batch.mask, 1)
    assert torch.equal(ahead[:, :, 0], batch.actions)
    assert torch.equal(real[..., 0], batch.mask)


@pytest.mark.parametrize("memory", SEQUENCE_ENCODERS.names())
@pytest.mark.parametrize("execute", [1, 2, 3])
def test_a_plan_is_carried_out_and_then_made_anew(memory, execute):
    """The actions of each row are those that a policy asked at every step gave when the plan was made."""
    options = {"chunk_steps": 3, "distribution": {"type": "deterministic"}}
    algo = small_algo("bc", memory, BOX, execute_steps=execute, **options)
    algo.set_eval()
    rng = np.random.default_rng(0)
    obs = {
        "image": rng.integers(0, 256, (8, 2, 2, 2), dtype=np.uint8),
        "room": rng.integers(0, 3, (8, 2)),
        "state": rng.normal(size=(8, 2, 3)).astype(np.float32),
    }
    policy = VectorPolicy(algo, 2, deterministic=True)
    always = small_algo("bc", memory, BOX, execute_steps=1, **options)  # makes a plan at every step
    always.deserialize(algo.serialize())
    always.set_eval()
    asked = VectorPolicy(always, 2, deterministic=True)
    batch = [{k: v[t] for k, v in obs.items()} for t in range(8)]
    reset_at = 4
    plans, done = [], []
    for t in range(8):
        for each in (policy, asked):
            each.reset(np.array([False, t == reset_at]))
        memory_state = {k: v.clone() for k, v in policy._state.items() if not k.startswith("chunk/")}
        inputs_of_step = {}
        original = always._choose

        def choose(hidden, inputs, deterministic, original=original, kept=inputs_of_step):
            kept["plan"] = original(hidden, inputs, deterministic)
            return kept["plan"]

        always._choose = choose
        done.append(policy.act(batch[t]))
        asked.act(batch[t])
        asked.note_executed(done[-1])
        always._choose = original
        plans.append(inputs_of_step["plan"][:, -1].numpy())
        assert memory_state.keys() == {k for k in policy._state if not k.startswith("chunk/")}
    for row, begins in ((0, [0]), (1, [0, reset_at])):
        made = 0
        for t in range(8):
            if t in begins or t - made == execute:
                made = t
            np.testing.assert_allclose(done[t][row], plans[made][row, t - made], atol=1e-6)


def test_chunks_learn_each_of_their_actions():
    """With a memory-free policy and actions that only depend on the step ahead, each part of the plan is learned."""
    algo = small_algo("bc", "gru", BOX, chunk_steps=3, distribution={"type": "deterministic"})
    batch = random_batch(BOX)
    before = algo.compute_losses(algo.process_batch_for_training(batch)).total.detach()
    algo.set_train()
    for _ in range(120):
        algo.train_on_batch(algo.process_batch_for_training(batch))
    assert algo.compute_losses(algo.process_batch_for_training(batch)).total < 0.15 * before


def test_more_executed_than_given_is_refused():
    with pytest.raises(ConfigError, match="execute_steps 4 exceeds chunk_steps 2"):
        small_algo("bc", chunk_steps=2, execute_steps=4)


def test_chunks_longer_than_the_windows_are_refused():
    with pytest.raises(ConfigError, match=r"chunk_steps 7 exceeds train\.window_steps 6"):
        small_algo("bc", chunk_steps=7, window=6)


def test_chunks_and_action_masks_are_refused():
    space = ACTION_SPACES["discrete"]
    algo, batch = small_algo("bc", action_space=space, chunk_steps=2), random_batch(space)
    legal = torch.ones(*batch.inputs.step.shape, 5, dtype=torch.bool)
    masked = replace(batch, inputs=replace(batch.inputs, action_mask=legal))
    with pytest.raises(DataError, match="chunk_steps is 2"):
        algo.compute_losses(masked)


def test_only_the_last_step_is_supervised_if_asked():
    batch = random_batch(BOX)
    whole, last = (small_algo("bc", "gru", BOX, supervise_all_steps=s) for s in (True, False))
    num_real = batch.mask.sum(1)
    targets = last._targets(batch)
    assert torch.equal(targets.mask.sum(1), torch.ones(4, dtype=torch.int64))
    assert torch.equal(targets.mask.int().argmax(1), num_real - 1)
    assert torch.equal(whole._targets(batch).mask, batch.mask)
    changed = batch.actions.clone()
    changed[0, :-1] += 0.1  # row 0 is full: only its last action counts
    assert torch.equal(last.compute_losses(batch).total, last.compute_losses(replace(batch, actions=changed)).total)


def test_the_last_supervised_chunk_is_whole():
    batch = random_batch(BOX)
    algo = small_algo("bc", "gru", BOX, supervise_all_steps=False, chunk_steps=3)
    mask = algo._targets(batch).mask
    assert torch.equal(mask.any(-1).sum(1), torch.ones(4, dtype=torch.int64))
    assert torch.equal(mask.sum((1, 2)), batch.mask.sum(1).clamp(max=3))


# -------------------------------------------------------------------------------------------- scaling
@pytest.mark.parametrize("scaling", ["min_max", "gaussian"])
def test_observations_reach_the_networks_scaled(scaling):
    algo = scaled_algo(BOX, normalize_obs=scaling)
    mean, std, low, high = [1.0, 2.0, 3.0], [0.5, 2.0, 0.0], [-1.0, 0.0, 3.0], [4.0, 8.0, 3.0]
    algo.use_statistics({"state": stats(mean, std, low, high)}, None)
    batch = random_batch(BOX, obs=STATE)
    seen = algo.process_batch_for_training(batch).inputs.obs["state"].double().numpy()
    raw = batch.inputs.obs["state"].double().numpy()
    centre, spread = {"gaussian": (mean, [0.5, 2.0, 1.0]), "min_max": ([1.5, 4.0, 3.0], [2.5, 4.0, 1.0])}[scaling]
    expected = (raw - centre) / spread  # what does not vary is only centred
    np.testing.assert_allclose(seen, expected, atol=1e-6)


def test_actions_are_scaled_in_training_and_back_in_acting():
    """A policy that has learned a scaled action by heart gives it in the policy's own units."""
    unbounded = spaces.Box(-np.inf, np.inf, (2,))
    algo = scaled_algo(unbounded, normalize_actions="min_max")
    algo.use_statistics({}, stats([5, 0], [1, 1], [0, -300], [10, 100]))
    batch = random_batch(spaces.Box(-1.0, 1.0, (2,)), obs=STATE)
    wanted = torch.tensor([7.5, 50.0])
    batch = replace(batch, actions=wanted.expand_as(batch.actions).clone())
    processed = algo.process_batch_for_training(batch)
    np.testing.assert_allclose(processed.actions[0, 0].numpy(), [0.5, 0.75], atol=1e-6)
    assert (processed.inputs.prev_action[:, 0] == 0).all()  # an episode's first input follows no action
    algo.set_train()
    for _ in range(300):
        algo.train_on_batch(algo.process_batch_for_training(batch))
    algo.set_eval()
    action = VectorPolicy(algo, 4, deterministic=True).act({"state": batch.inputs.obs["state"][:, 0].numpy()})
    np.testing.assert_allclose(action, np.tile(wanted, (4, 1)), rtol=0.15)
    np.testing.assert_allclose(algo.codec.decode(action), action)  # no bounds: the environment's own units


def test_statistics_travel_with_the_weights():
    first = scaled_algo(BOX, normalize_obs="gaussian", normalize_actions="min_max")
    first.use_statistics(
        {"state": stats([1] * 3, [2] * 3, [0] * 3, [3] * 3)}, stats([0] * 4, [1] * 4, [-1] * 4, [0] * 4)
    )
    second = scaled_algo(BOX, normalize_obs="gaussian", normalize_actions="min_max")
    batch = random_batch(BOX, obs=STATE)
    with pytest.raises(CheckpointError, match=r"statistics of train\.normalize_obs"):
        second.process_batch_for_training(batch)
    second.deserialize(first.serialize())
    with pytest.raises(CheckpointError, match=r"normalizer\..* is missing.*train\.normalize_obs"):
        second.deserialize(scaled_algo(BOX).serialize())
    for a, b in zip(
        (first.process_batch_for_training(batch).actions, first.process_batch_for_training(batch).inputs.obs["state"]),
        (
            second.process_batch_for_training(batch).actions,
            second.process_batch_for_training(batch).inputs.obs["state"],
        ),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_an_unbounded_action_space_needs_scaling():
    with pytest.raises(EnvError, match=r"no bounds.*train.normalize_actions"):
        scaled_algo(spaces.Box(-np.inf, np.inf, (2,)))


@pytest.mark.parametrize(
    ("algo", "space", "message"),
    [
        ("bc", spaces.Box(-1.0, 1.0, (2,)), "this policy cannot give"),
        ("actor_critic", spaces.Box(-1.0, 1.0, (2,)), "critics do not read"),
        ("bc", spaces.MultiBinary(2), "not continuous"),
    ],
)
def test_a_scaling_that_cannot_be_is_refused(algo, space, message):
    with pytest.raises(ConfigError, match=message):
        scaled_algo(space, algo, normalize_actions="gaussian")


def test_images_and_categories_stay_as_they_are():
    obs = {"image": ObsSpec((2, 2), "uint8"), "room": ObsSpec((), "int64", (3,)), "state": ObsSpec((3,))}
    algo = scaled_algo(BOX, obs=obs, normalize_obs="min_max")
    assert algo.normalizer.names == ["state"]


def test_what_a_modality_scales_itself_is_not_scaled_before():
    obs = {"lidar": ObsSpec((40,)), "words": ObsSpec((5,), "int64"), "joints": ObsSpec((3,)), "state": ObsSpec((3,))}
    modalities = {
        "lidar": {"type": "scan", "max_range": 10.0},
        "words": {"type": "tokens", "vocabulary": 9},
        "joints": {"type": "vector"},
    }
    observation = {"timestep_encoder": {"type": "multimodal", "modalities": modalities, "d_output": 16}}
    algo = scaled_algo(BOX, obs=obs, observation=observation, normalize_obs="gaussian")
    assert algo.normalizer.names == ["joints", "state"]


# ---------------------------------------------------------------------------------------------- goals
def test_goals_are_read_and_scaled_like_their_entry():
    algo = scaled_algo(BOX, observation={"goal_keys": ["state"]}, normalize_obs="gaussian")
    algo.use_statistics({"state": stats([1] * 3, [2] * 3, [0] * 3, [3] * 3)}, None)
    batch = random_batch(BOX, obs=STATE)
    goals = [torch.full_like(batch.inputs.obs["state"], v) for v in (0.0, 5.0)]
    batches = [replace(batch, inputs=replace(batch.inputs, goal={"state": g})) for g in goals]
    seen = [algo.process_batch_for_training(b).inputs.obs["goal/state"] for b in batches]
    assert (seen[0] == -0.5).all()
    assert (seen[1] == 2.0).all()
    algo.set_eval()
    hidden = [algo.trunk(algo.process_batch_for_training(b).inputs)[0] for b in batches]
    assert not torch.allclose(*hidden)
    first = {"state": np.zeros((1, 3), np.float32)}
    actions = [VectorPolicy(algo, 1, deterministic=True).act(first, goal={"state": np.full((1, 3), v)}) for v in (0, 5)]
    assert not np.allclose(*actions)
    with pytest.raises(DataError, match="reads a goal of 'state'"):
        VectorPolicy(algo, 1, deterministic=True).act(first)


def test_a_desired_goal_is_the_goal_of_what_is_achieved():
    obs = {"achieved_goal": ObsSpec((2,)), "observation": ObsSpec((3,))}
    algo = scaled_algo(BOX, obs=obs, observation={"goal_keys": ["achieved_goal"]})
    rng = np.random.default_rng(0)
    ob = {"achieved_goal": rng.normal(size=(1, 2)), "observation": rng.normal(size=(1, 3))}
    goal = rng.normal(size=(1, 2))
    given = VectorPolicy(algo, 1, deterministic=True).act(ob, goal={"achieved_goal": goal})
    observed = VectorPolicy(algo, 1, deterministic=True).act({**ob, "desired_goal": goal})
    assert np.array_equal(given, observed)


# --------------------------------------------------------------------------------------- auto-encoder
PRIORS = pairwise(["standard", "gaussian", "gmm", "categorical"], [True, False], [1, 3])


@pytest.mark.parametrize(("prior", "is_conditioned", "chunk"), PRIORS)
def test_every_prior_learns_and_resumes(prior, is_conditioned, chunk):
    latent = {"prior": prior, "is_conditioned": is_conditioned, "d_hidden": 16, "dim": 3}
    algo = small_algo("bc_vae", "gru", BOX, latent=latent, chunk_steps=chunk)
    batch = random_batch(BOX)
    info = [algo.log_info(algo.train_on_batch(algo.process_batch_for_training(batch), validate=True))]
    algo.set_train()
    for _ in range(60):
        algo.train_on_batch(algo.process_batch_for_training(batch))
    info.append(algo.log_info(algo.train_on_batch(algo.process_batch_for_training(batch), validate=True)))
    assert info[1]["loss/nll"] < info[0]["loss/nll"]
    clone = small_algo("bc_vae", "gru", BOX, seed=3, latent=latent, chunk_steps=chunk)
    clone.deserialize(algo.serialize())
    ob = {k: v[:, 0].numpy() for k, v in batch.inputs.obs.items()}
    actions = []
    for one in (algo, clone):
        one.set_eval()
        torch.manual_seed(1)
        actions.append(VectorPolicy(one, 4, deterministic=False).act(ob))
    assert np.array_equal(*actions)
