"""What the critics learn is what dynamic programming says: both agents, every kind of label, every discount."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from seqrl.core.tensors import SeqBatch
from tests.unit.algo.test_actor_critic import CHAIN_REWARDS, GAMMAS, chain_algo, chain_batch

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

SPACES = {"one": gym.spaces.Discrete(1), "two": gym.spaces.Discrete(2), "box": gym.spaces.Box(-1, 1, (1,))}


def learned_values(agent, action_space, batch, steps, **values):
    """Train on one batch, at last in small steps so that noise fades; return Q of its actions and V, ``(B, T, G)``."""
    weights = None
    for learning_rate, num_steps in ((3e-3, steps), (3e-4, 100)):
        settings = {"tau": 0.1, "optimizer": {"learning_rate": learning_rate, "warmup_steps": 20}, **values}
        algo = chain_algo(action_space, agent, batch.inputs.obs["obs"].shape[-1], **settings)
        if weights is not None:
            algo.deserialize(weights)
        algo.wants_metrics = False
        algo.set_train()
        for _ in range(num_steps):
            algo.train_on_batch(algo.process_batch_for_training(batch))
        weights = algo.serialize()
    algo.set_eval()
    learned = algo.get_values(batch)
    return learned["q"].double().numpy(), learned["v"].double().numpy()


def assert_values(learned, exact, tolerance=0.02):
    """Compare, discount by discount, in units of the largest exact value."""
    exact = np.broadcast_to(exact, learned.shape)
    for g, gamma in enumerate(GAMMAS):
        atol = tolerance * np.abs(exact[..., g]).max()
        np.testing.assert_allclose(learned[..., g], exact[..., g], rtol=0, atol=atol, err_msg=f"discount {gamma}")


def chain_values(*, loop):
    """Return the values ``(5, G)`` of the chain that ends after its fifth state, or that leads back to the first."""
    values = np.zeros((5, len(GAMMAS)))
    for g, gamma in enumerate(GAMMAS):
        for t in range(5):
            last = t + 400 if loop else 4
            values[t, g] = sum(gamma ** (k - t) * CHAIN_REWARDS[k % 5] for k in range(t, last + 1))
    return values


def two_steps(obs, actions, rewards):
    """Return a batch of episodes of two steps that terminate; ``obs`` holds the three inputs of each."""
    return SeqBatch.from_mapping(
        {
            "obs": {"obs": torch.as_tensor(obs[:, :2], dtype=torch.float32)},
            "next_obs": {"obs": torch.as_tensor(obs[:, 1:], dtype=torch.float32)},
            "actions": torch.as_tensor(actions, dtype=torch.float32),
            "rewards": torch.as_tensor(rewards, dtype=torch.float32),
            "dones": torch.tensor([False, True]).expand(len(obs), -1),
            "truncated": torch.zeros(len(obs), 2, dtype=torch.bool),
        }
    )


REWARDS = np.array([[1.0, 0.0], [-1.0, 0.5], [2.0, 3.0]])
"""Of (state, action): in state 0, action ``a`` leads to state ``1 + a``, from where either action ends the episode."""


def fork():
    """Return every pair of actions, and the optimal Q ``(4, 2, G)`` and V ``(4, 2, G)`` along it."""
    first, second = np.array([(a, b) for a in range(2) for b in range(2)]).T
    states = np.stack([np.zeros(4, int), 1 + first, np.full(4, 3)], axis=1)
    actions = np.stack([first, second], axis=1)
    rewards = REWARDS[states[:, :2], actions]
    q = np.zeros((3, 2, len(GAMMAS)))
    q[1:] = REWARDS[1:, :, None]
    q[0] = REWARDS[0, :, None] + np.array(GAMMAS) * q[1:].max(1)
    batch = two_steps(np.eye(4)[states], np.eye(2)[actions], rewards)
    return batch, q[states[:, :2], actions], q.max(1)[states[:, :2]]


def slope():
    """Return every pair of eight continuous actions, and the optimal Q and V ``(64, 2, G)`` along them.

    The first action, ``a``, pays ``-a^2`` and is the next state; there ``b`` pays ``1 + a - (b - a / 2)^2``.
    """
    a, b = (x.ravel() for x in np.meshgrid(np.linspace(-1, 1, 8), np.linspace(-1, 1, 8)))
    zero, one, gamma = np.zeros(64), np.ones(64), np.array(GAMMAS)
    obs = np.stack([np.stack([one, zero, zero], -1), np.stack([zero, one, a], -1), np.zeros((64, 3))], axis=1)
    pay = 1 + a - (b - a / 2) ** 2
    batch = two_steps(obs, np.stack([a, b], -1)[..., None], np.stack([-(a**2), pay], -1))
    q = np.stack([-(a**2)[:, None] + gamma * (1 + a)[:, None], np.tile(pay[:, None], len(gamma))], axis=1)
    v = np.stack([np.tile(gamma + gamma**2 / 4, (64, 1)), np.tile((1 + a)[:, None], len(gamma))], axis=1)
    return batch, q, v


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "label"), [("box", "hl_gauss"), ("one", "two_hot"), ("two", "hl_gauss"), ("box", "two_hot")]
)
def test_classified_values_of_a_chain_that_ends(space, label):
    """The last state leads to the first here, so a bootstrap through the termination would show."""
    batch = chain_batch(SPACES[space], terminated=True, loop=True)
    returns = {"low": -100.0, "high": 100.0, "num_bins": 101, "label": label}
    q, _ = learned_values("multitask", SPACES[space], batch, 450, returns=returns)
    assert_values(q, chain_values(loop=False))


@pytest.mark.slow
@pytest.mark.parametrize("value_space", ["symlog", "return"])
def test_classified_values_are_bootstrapped_through_a_time_limit(value_space):
    """The same batch but for the termination: rewards go round for ever."""
    space = SPACES["two"]
    batch = chain_batch(space, terminated=False, loop=True)
    returns = {"low": -20.0, "high": 20.0, "num_bins": 51, "value_space": value_space, "label": "two_hot"}
    q, _ = learned_values("multitask", space, batch, 550, returns=returns, reward_multiplier=1.0, tau=0.2)
    assert_values(q, chain_values(loop=True))


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["actor_critic", "multitask"])
def test_optimal_values_where_actions_choose_the_next_state(agent):
    """Discounts differ in the better first action; each has its own greedy policy, so V is the larger Q."""
    batch, exact_q, exact_v = fork()
    values = {"returns": {"low": -100.0, "high": 100.0, "num_bins": 101}} if agent == "multitask" else {}
    q, v = learned_values(agent, SPACES["two"], batch, 450, **values)
    assert_values(q, exact_q)
    assert_values(v, exact_v)


@pytest.mark.slow
def test_optimal_values_of_continuous_actions():
    """Within 3 %: the greedy action lies between those of the data, and the policy keeps some spread."""
    batch, exact_q, exact_v = slope()
    q, v = learned_values("actor_critic", SPACES["box"], batch, 500, offline_coeff=0.0)
    assert_values(q, exact_q, tolerance=0.03)
    assert_values(v, exact_v, tolerance=0.03)


@pytest.mark.parametrize(
    ("agent", "value_space", "expected"),
    [
        pytest.param("actor_critic", None, 50.0, id="regression", marks=pytest.mark.slow),
        pytest.param("multitask", "return", 50.0, id="return", marks=pytest.mark.slow),
        pytest.param("multitask", "symlog", np.sqrt(101) - 1, id="symlog"),
    ],
)
def test_random_returns(agent, value_space, expected):
    """0 or 100 with equal odds is worth 50; symlog space takes the mean of logarithms, and reads 9 as documented."""
    rewards = torch.tensor([0.0, 100.0]).repeat(4)[:, None]
    batch = SeqBatch.from_mapping(
        {
            "obs": {"obs": torch.ones(8, 1, 2)},
            "actions": torch.ones(8, 1, 1),
            "rewards": rewards,
            "dones": torch.ones(8, 1),
        }
    )
    values = (
        {"returns": {"low": -200.0, "high": 200.0, "value_space": value_space, "label": "two_hot"}}
        if value_space
        else {}
    )
    q, _ = learned_values(agent, SPACES["one"], batch, 150, reward_multiplier=1.0, **values)
    np.testing.assert_allclose(q, expected, rtol=0, atol=2.0)
