"""What every registered algorithm has to do, on every memory and action space."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from seqrl.algo import ALGOS
from seqrl.core.registry import SEQUENCE_ENCODERS, TIMESTEP_ENCODERS
from seqrl.core.spaces import ActionCodec
from tests.helpers import ACTION_SPACES, ENCODER_OBS, random_batch, small_algo

ALGO_NAMES = ALGOS.names()
MEMORIES = SEQUENCE_ENCODERS.names()


@pytest.fixture(params=ALGO_NAMES)
def name(request):
    return request.param


@pytest.fixture(params=sorted(ACTION_SPACES))
def action_space(request):
    return ACTION_SPACES[request.param]


def train(algo, batch, steps, first=0):
    algo.set_train()
    for step in range(first, first + steps):
        torch.manual_seed(step)
        algo.train_on_batch(algo.process_batch_for_training(batch))


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("memory", MEMORIES)
def test_learns_a_batch_by_heart(name, memory, action_space):
    """Looked at twice: so large a learning rate can throw a policy off for a step or two."""
    algo, batch = small_algo(name, memory, action_space), random_batch(action_space)
    losses = []
    for first, steps in ((0, 0), (0, 50), (50, 10)):
        train(algo, batch, steps, first)
        info = algo.log_info(algo.train_on_batch(algo.process_batch_for_training(batch), validate=True))
        assert info["Loss"] == info["loss/total"]
        losses.append(info["Loss"])
    assert min(losses[1:]) < losses[0] - 0.05


@pytest.mark.parametrize("encoder", TIMESTEP_ENCODERS.names())
def test_learns_a_batch_by_heart_through_every_timestep_encoder(name, encoder):
    space = ACTION_SPACES["discrete"]
    algo, batch = small_algo(name, "gru", space, encoder=encoder), random_batch(space, obs=ENCODER_OBS.get(encoder))
    before = algo.log_info(algo.train_on_batch(algo.process_batch_for_training(batch), validate=True))
    train(algo, batch, 40)
    after = algo.log_info(algo.train_on_batch(algo.process_batch_for_training(batch), validate=True))
    assert after["Loss"] < before["Loss"] - 0.05


def test_padding_has_no_influence(name, action_space):
    batch = random_batch(action_space)
    garbage = random_batch(action_space, seed=9)

    def corrupt(real, fake, mask):
        return torch.where(mask.view(*mask.shape, *([1] * (real.dim() - 2))), real, fake)

    inputs, other = batch.inputs, garbage.inputs
    bad = type(batch)(
        inputs=type(inputs)(
            obs={k: corrupt(v, other.obs[k], batch.input_mask) for k, v in inputs.obs.items()},
            prev_action=corrupt(inputs.prev_action, other.prev_action, batch.input_mask),
            prev_reward=corrupt(inputs.prev_reward, 1e6 * other.prev_reward, batch.input_mask),
            step=inputs.step,
        ),
        actions=corrupt(batch.actions, garbage.actions, batch.mask),
        rewards=corrupt(batch.rewards, 1e6 * garbage.rewards, batch.mask),
        terminated=corrupt(batch.terminated, ~batch.terminated, batch.mask),
        truncated=corrupt(batch.truncated, ~batch.truncated, batch.mask),
        mask=batch.mask,
    )
    assert not torch.equal(bad.rewards, batch.rewards)
    results = []
    for b in (batch, bad):
        algo = small_algo(name, action_space=action_space)
        train(algo, b, 3)
        results.append(algo.serialize())
    for key in results[0]:
        torch.testing.assert_close(results[0][key], results[1][key], atol=1e-6, rtol=1e-5)


def test_validation_changes_no_weight(name, action_space):
    algo, batch = small_algo(name, action_space=action_space), random_batch(action_space)
    train(algo, batch, 1)
    before = algo.serialize()
    algo.set_eval()
    algo.train_on_batch(algo.process_batch_for_training(batch), validate=True)
    assert same(before, algo.serialize())


@pytest.mark.parametrize("memory", MEMORIES)
def test_every_weight_learns(name, memory, action_space):
    algo, batch = small_algo(name, memory, action_space), random_batch(action_space)
    train(algo, batch, 1)
    before = {k: v.detach().clone() for k, v in algo.nets.named_parameters() if v.requires_grad}
    train(algo, batch, 3, first=1)
    still = [k for k, v in algo.nets.named_parameters() if v.requires_grad and torch.equal(before[k], v)]
    assert not still


@pytest.mark.parametrize("memory", MEMORIES)
def test_resumed_run_equals_uninterrupted_run(name, memory):
    space = ACTION_SPACES["discrete"]
    batch = random_batch(space)
    straight = small_algo(name, memory)
    train(straight, batch, 3)
    first = small_algo(name, memory)
    train(first, batch, 2)
    weights, optimizer, steps = first.serialize(), first.updater.state_tensors(), first.updater.num_steps
    second = small_algo(name, memory, seed=5)
    second.deserialize(weights)
    second.updater.load_state(optimizer, steps)
    train(second, batch, 1, first=2)
    assert same(straight.serialize(), second.serialize())
    forgetful = small_algo(name, memory, seed=5)
    forgetful.deserialize(weights)
    train(forgetful, batch, 1, first=2)
    assert not same(straight.serialize(), forgetful.serialize())


def test_two_seeded_runs_are_equal(name, action_space):
    runs = []
    for _ in range(2):
        algo = small_algo(name, action_space=action_space)
        train(algo, random_batch(action_space), 3)
        runs.append(algo.serialize())
    assert same(*runs)


def test_compute_losses_writes_nothing(name, action_space):
    algo, batch = small_algo(name, action_space=action_space), random_batch(action_space)
    algo.set_train()
    before = algo.serialize()
    losses = algo.compute_losses(algo.process_batch_for_training(batch))
    assert losses.total.requires_grad
    assert losses.total.dim() == 0
    assert all(not v.requires_grad for v in [*losses.metrics.values(), *losses.stats.values()])
    assert same(before, algo.serialize())


def test_a_nonfinite_batch_moves_no_weight(name):
    from seqrl.algo.finite_guard import NonFiniteError

    space = ACTION_SPACES["box"]
    algo, batch = small_algo(name, action_space=space), random_batch(space)
    train(algo, batch, 2)
    before = algo.serialize()
    poisoned = random_batch(space)
    poisoned.inputs.obs["state"][0, 0] = torch.nan
    train(algo, poisoned, 1)
    parameters = dict(algo.nets.named_parameters())
    assert all(torch.equal(before[k], v) for k, v in parameters.items() if v.requires_grad)
    assert all(torch.isfinite(v).all() for v in algo.serialize().values())
    with pytest.raises(NonFiniteError, match="gradient step 2") as error:
        train(algo, batch, 1)
    assert len(error.value.batches) == 2


@pytest.mark.parametrize("memory", MEMORIES)
def test_acting_equals_the_training_pass(name, memory):
    """Greedy actions, one input at a time, equal those of a row by itself; rows are reset on their own."""
    from seqrl.algo.acting import VectorPolicy

    algo = small_algo(name, memory, ACTION_SPACES["box"])
    train(algo, random_batch(ACTION_SPACES["box"]), 20)
    algo.set_eval()
    rng = np.random.default_rng(0)
    obs = {
        "image": rng.integers(0, 256, (14, 2, 2, 2), dtype=np.uint8),
        "room": rng.integers(0, 3, (14, 2)),
        "state": rng.normal(size=(14, 2, 3)).astype(np.float32),
    }
    rewards = rng.normal(size=(14, 2)).astype(np.float32)
    policy = VectorPolicy(algo, 2, deterministic=True)
    both = []
    for t in range(14):
        policy.reset(np.array([False, t == 9]))
        both.append(policy.act({k: v[t] for k, v in obs.items()}, rewards[t]))
    alone = VectorPolicy(algo, 1, deterministic=True)
    for t in range(9, 14):
        action = alone.act({k: v[t, 1:] for k, v in obs.items()}, rewards[t, 1:])
        np.testing.assert_allclose(action[0], both[t][1], atol=1e-4)


def test_robomimic_style_loop(name):
    """Dict batches, the four verbs, and get_action work as robomimic's users know them."""
    algo = small_algo(name)
    batch = random_batch(ACTION_SPACES["discrete"]).to_mapping()
    algo.set_train()
    losses = []
    for epoch in range(8):
        info = algo.train_on_batch(algo.process_batch_for_training(batch), epoch=epoch, validate=False)
        losses.append(algo.log_info(info)["Loss"])
        algo.on_epoch_end(epoch)
    assert losses[-1] < losses[0]
    algo.set_eval()
    algo.reset()
    obs = {k: v[:, 0] for k, v in batch["obs"].items()}
    if not algo.config.observation.use_prev_reward:
        algo.get_action(obs)
    action = algo.get_action(obs) if algo._acting is None else None
    assert action is None or action.shape == (4, 5)
    clone = small_algo(name, seed=3)
    clone.deserialize(algo.serialize())
    assert same(clone.serialize(), algo.serialize())


def masked_batch(space, seed=0):
    """Return a batch with a random mask under which the data's actions are legal, and one policy action illegal."""
    batch = random_batch(space, seed=seed)
    codec = ActionCodec(space)
    rng = np.random.default_rng(seed)
    mask = torch.from_numpy(rng.random((*batch.inputs.step.shape, codec.dim)) < 0.6)
    actions = batch.actions.clone()
    if codec.kind == "binary":
        actions[..., 1] = 0.0
        mask[:, :-1] |= actions > 0.5
    else:  # action 1 of the first factor is taken by nobody
        took = actions[..., 1] > 0.5
        actions[..., 0] = torch.where(took, 1.0, actions[..., 0])
        mask[:, :-1] |= actions > 0.5
        for part in mask.split(codec.factors, dim=-1):
            part[..., 0] = True
    mask[..., 1] = False
    inputs = replace(batch.inputs, action_mask=mask)
    return replace(batch, inputs=inputs, actions=actions)


MASKABLE = ["discrete", "multi_binary", "multi_discrete"]


@pytest.mark.parametrize("space_name", MASKABLE)
@pytest.mark.parametrize("memory", MEMORIES)
def test_illegal_actions_are_never_taken(name, memory, space_name):
    from seqrl.algo.acting import VectorPolicy

    space = ACTION_SPACES[space_name]
    algo = small_algo(name, memory, space)
    algo.set_eval()
    codec, rng = algo.codec, np.random.default_rng(0)
    for deterministic in (False, True):
        policy = VectorPolicy(algo, 200, deterministic=deterministic)
        for _ in range(3):
            mask = rng.random((200, codec.dim)) < 0.4
            for part in np.split(mask, codec._offsets[1:] if codec.factors else [], axis=-1):
                part[np.arange(200), rng.integers(0, part.shape[-1], 200)] = True
            obs = {
                "image": np.zeros((200, 2, 2), np.uint8),
                "room": np.zeros(200, np.int64),
                "state": rng.normal(size=(200, 3)).astype(np.float32),
            }
            action = policy.act(obs, np.zeros(200, np.float32), action_mask=mask)
            assert not (action.astype(bool) & ~mask).any()
            if codec.factors:
                assert (action.sum(-1) == len(codec.factors)).all()


@pytest.mark.parametrize("space_name", MASKABLE)
def test_illegal_actions_learn_nothing(name, space_name):
    """An action that is illegal everywhere gets no gradient at the policy's output, and every loss is finite."""
    space = ACTION_SPACES[space_name]
    algo = small_algo(name, action_space=space)
    batch = algo.process_batch_for_training(masked_batch(space))
    losses = algo.compute_losses(batch)
    losses.total.backward()
    assert all(torch.isfinite(v).all() for v in [losses.total, *losses.metrics.values()])
    gradient = algo.actor.mlp[-1].bias.grad.reshape(-1, algo.codec.dim)
    assert (gradient[:, 1] == 0).all()
    assert (gradient != 0).any()


@pytest.mark.parametrize("space_name", MASKABLE)
def test_a_mask_that_forbids_nothing_changes_nothing(name, space_name):
    space = ACTION_SPACES[space_name]
    batch = random_batch(space)
    free = replace(batch.inputs, action_mask=torch.ones(*batch.inputs.step.shape, ActionCodec(space).dim).bool())
    results = []
    for b in (batch, replace(batch, inputs=free)):
        algo = small_algo(name, action_space=space)
        train(algo, b, 2)
        results.append(algo.serialize())
    for key in results[0]:
        torch.testing.assert_close(results[0][key], results[1][key], atol=1e-5, rtol=1e-4)
