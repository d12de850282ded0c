"""The off-policy actor-critic: where gradients go, and that what it learns is what dynamic programming says."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch

from seqrl.algo import algo_factory
from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ActionCodec
from seqrl.core.tensors import SeqBatch
from tests.helpers import ACTION_SPACES, random_batch, small_algo


def gradients(algo, loss):
    algo.nets.zero_grad()
    loss.backward()
    moved = {
        name.split(".")[0] for name, p in algo.nets.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0
    }
    algo.nets.zero_grad()
    return moved


@pytest.mark.parametrize("space", sorted(ACTION_SPACES))
def test_gradients_go_where_they_should(space):
    """Own-action term: actor and trunk, no critic. Critic loss: critic and trunk. Targets: nothing."""
    algo = small_algo("actor_critic", action_space=ACTION_SPACES[space])
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES[space]))
    (_, online), _ = algo.actor_terms(algo.look(batch)).losses.values()
    assert gradients(algo, online.sum()) == {"actor", "trunk"}
    p = algo.look(batch)
    targets = algo.targets(batch, algo.next_values(p).detach())
    ((_, error),) = algo.critic_terms(p, targets).losses.values()
    assert gradients(algo, error.sum()) == {"critic", "trunk"}
    assert not any(p.requires_grad for n, p in algo.nets.named_parameters() if n.startswith("target"))


@pytest.mark.parametrize("use_target_actor", [False, True])
@pytest.mark.parametrize("space", sorted(ACTION_SPACES))
def test_targets_are_constants_of_the_losses(space, use_target_actor):
    algo = small_algo("actor_critic", action_space=ACTION_SPACES[space], use_target_actor=use_target_actor)
    made, original = [], algo.critic_terms
    algo.critic_terms = lambda p, targets: made.append(targets) or original(p, targets)
    algo.compute_losses(algo.process_batch_for_training(random_batch(ACTION_SPACES[space])))
    assert len(made) == 1
    assert not made[0].requires_grad


def test_targets_follow_slowly():
    algo = small_algo("actor_critic", tau=0.25)
    before = {k: v.clone() for k, v in algo.target_critic.state_dict().items()}
    with torch.no_grad():
        for p in algo.critic.parameters():
            p += 1.0
    algo.on_gradient_step({"trunk/inputs": algo.trunk.stats(random_batch(ACTION_SPACES["discrete"]).inputs,
                           random_batch(ACTION_SPACES["discrete"]).input_mask)["trunk/inputs"],
                           "popart": torch.zeros(5, 7)})  # fmt: skip
    for name, p in algo.target_critic.named_parameters():
        torch.testing.assert_close(p, before[name] + 0.25)


def test_without_a_filter_it_is_behaviour_cloning_without_critics():
    algo = small_algo("actor_critic", online_coeff=0.0, offline_coeff=1.0, filter={"type": "none"})
    assert set(algo.nets) == {"trunk", "actor", "averages"}
    with pytest.raises(ConfigError, match="no critics"):
        algo.get_values(random_batch(ACTION_SPACES["discrete"]))


def test_settings_that_contradict_each_other():
    with pytest.raises(ConfigError, match=r"num_critics_td 5 exceeds critic.num_critics 4"):
        config_factory("actor_critic", {"algo": {"num_critics_td": 5}})
    with pytest.raises(ConfigError, match="both 0"):
        config_factory("actor_critic", {"algo": {"online_coeff": 0.0, "offline_coeff": 0.0}})


CHAIN_REWARDS = np.array([1.0, 0.0, -2.0, 3.0, 0.5])
GAMMAS = [0.1, 0.5, 0.9]


def chain_algo(action_space, agent="actor_critic", d_obs=5, **values):
    """Return a small agent without memory that sees ``d_obs`` numbers."""
    torch.manual_seed(0)
    config = config_factory(
        agent,
        {
            "train": {"window_steps": 5, "num_epochs": 1, "steps_per_epoch": 1200},
            "observation": {
                "use_prev_action": False,
                "use_prev_reward": False,
                "timestep_encoder": {"type": "mlp", "d_hidden": 64, "d_output": 64, "normalize_inputs": False},
            },
            "algo": {
                "sequence_encoder": {"type": "feedforward", "d_model": 64, "d_ff": 64},
                "actor": {"d_hidden": 32},
                "critic": {"d_hidden": 64},
                "gamma": GAMMAS[-1],
                "extra_gammas": GAMMAS[:-1],
                "tau": 0.05,
                "optimizer": {"learning_rate": 3e-3, "warmup_steps": 20, "schedule": "linear"},
                **values,
            },
        },
    )
    return algo_factory(agent, config, {"obs": (d_obs,)}, ActionCodec(action_space).dim, "cpu", action_space)


def chain_batch(action_space, *, terminated, loop=False):
    """Return eight passes along the chain; with ``loop`` the last state leads to the first and time runs out."""
    codec = ActionCodec(action_space)
    action_space.seed(0)
    actions = codec.encode(np.array([[action_space.sample() for _ in range(5)] for _ in range(8)]))
    ends = torch.zeros(8, 5, dtype=torch.bool)
    ends[:, -1] = terminated
    obs = torch.eye(5).expand(8, -1, -1)
    after = obs.roll(-1, dims=1)
    batch = {
        "obs": {"obs": obs},
        "next_obs": {"obs": after if loop else torch.cat([obs[:, 1:], torch.zeros(8, 1, 5)], 1)},
        "actions": torch.from_numpy(actions),
        "rewards": torch.tensor(CHAIN_REWARDS, dtype=torch.float32).expand(8, -1),
        "dones": ends,
        "truncated": ~ends,
    }
    return SeqBatch.from_mapping(batch)


def train_values(algo, batch, steps):
    algo.set_train()
    for _ in range(steps):
        algo.train_on_batch(algo.process_batch_for_training(batch))
    algo.set_eval()
    return algo.get_values(batch)["q"].mean(0).numpy()


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(("space", "n_step"), [("box", 3), ("one", 1)])
def test_values_of_a_chain_that_ends(space, n_step):
    """Q of every discount within 2 % of dynamic programming, in units of the largest value."""
    space = {"one": gym.spaces.Discrete(1), "box": gym.spaces.Box(-1, 1, (1,))}[space]
    learned = train_values(chain_algo(space, n_step=n_step), chain_batch(space, terminated=True), 1200)
    for g, gamma in enumerate(GAMMAS):
        exact = [sum(gamma**k * r for k, r in enumerate(CHAIN_REWARDS[t:])) for t in range(5)]
        np.testing.assert_allclose(learned[:, g], exact, atol=0.02 * np.abs(exact).max())


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
def test_a_time_limit_is_bootstrapped_through():
    """The same rewards for ever: the last state's value holds the discounted future, not only its reward."""
    space = gym.spaces.Discrete(1)
    learned = train_values(chain_algo(space), chain_batch(space, terminated=False, loop=True), 900)
    for g, gamma in enumerate(GAMMAS):
        cycle = [sum(gamma**k * CHAIN_REWARDS[(t + k) % 5] for k in range(400)) for t in range(5)]
        np.testing.assert_allclose(learned[:, g], cycle, atol=0.02 * np.abs(cycle).max())


def test_only_the_discount_that_acts_looks_several_steps_ahead():
    """What is not bootstrapped does not hang on the target critics."""
    batch = random_batch(ACTION_SPACES["discrete"])
    algo = small_algo("actor_critic", n_step=3, extra_gammas=[0.9], gamma=0.5)
    algo.set_eval()
    processed = algo.process_batch_for_training(replace(batch, terminated=torch.zeros_like(batch.terminated)))
    p = algo.look(processed)
    with torch.no_grad():
        values = algo.next_values(p)
        targets = algo.targets(processed, values)
    r = 10.0 * batch.rewards
    torch.testing.assert_close(targets[:, 0, 0], r[:, 0] + 0.9 * values[:, 0, 0])
    returns = r[:, 0] + 0.5 * r[:, 1] + 0.25 * r[:, 2] + 0.125 * values[:, 2, 1]
    whole = batch.mask[:, :3].all(1)
    torch.testing.assert_close(targets[whole, 0, 1], returns[whole])


def test_nothing_follows_a_time_limit_that_ends_values():
    """The last reward of a window that time cut off is then all that its last action is worth."""
    batch = random_batch(ACTION_SPACES["discrete"])
    ends = torch.zeros_like(batch.terminated)
    ends[:, -1] = True
    bare = {"terminated": torch.zeros_like(ends), "truncated": ends}
    targets = {}
    for limits, flags in (("end", bare), ("bootstrap", bare), ("bootstrap", {"terminated": ends, "truncated": ~ends})):
        algo = small_algo("actor_critic", time_limits=limits)
        seen, original = [], algo.critic_terms
        algo.critic_terms = lambda p, y, seen=seen, original=original: seen.append(y) or original(p, y)
        algo.set_eval()
        algo.compute_losses(algo.process_batch_for_training(replace(batch, **flags)))
        targets[limits, "terminated" if flags is not bare else "cut"] = seen[0]
    torch.testing.assert_close(targets["end", "cut"], targets["bootstrap", "terminated"])
    last = 10.0 * batch.rewards[:, -1, None].expand(-1, 7)
    torch.testing.assert_close(targets["end", "cut"][:, -1], last)
    assert not torch.allclose(targets["bootstrap", "cut"][:, -1], last)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
def test_the_actor_takes_the_better_action():
    """One state, two actions worth 0 and 1: policy gradient and filtered imitation both find the better one."""
    space = gym.spaces.Discrete(2)
    for values in ({"online_coeff": 1.0, "offline_coeff": 0.0}, {"online_coeff": 0.0, "offline_coeff": 1.0}):
        algo = chain_algo(space, **values)
        batch = chain_batch(space, terminated=True)
        better = batch.actions[..., 1]
        batch = SeqBatch(**{**vars(batch), "rewards": better, "terminated": torch.ones_like(batch.terminated)})
        train_values(algo, batch, 200)
        state, _ = algo.trunk(batch.inputs)
        probs = algo.actor(state, batch.inputs).probs[:, :-1, -1, 1]
        assert probs.mean() > 0.95


def test_targets_take_the_smallest_of_few_critics_drawn_anew_at_every_input():
    values = {"critic": {"num_critics": 4}, "num_critics_td": 2, "use_popart": False, "extra_gammas": []}
    algo = small_algo("actor_critic", "gru", ACTION_SPACES["discrete"], entropy=None, **values)
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"], num=200))
    with torch.no_grad():
        algo.target_critic.last.weight.zero_()
        algo.target_critic.last.bias.copy_(torch.arange(4.0)[:, None, None].expand_as(algo.target_critic.last.bias))
    torch.manual_seed(0)
    values = algo.next_values(algo.look(batch)).flatten().round().long()
    shares = torch.bincount(values, minlength=4) / len(values)
    torch.testing.assert_close(shares, torch.tensor([1 / 2, 1 / 3, 1 / 6, 0.0]), atol=0.06, rtol=0)


def test_the_imitation_of_awac_is_that_of_its_formula():
    values = {"online_coeff": 0.0, "offline_coeff": 2.0, "filter": {"type": "exponential", "beta": 2.0}}
    values |= {"use_popart": False, "extra_gammas": [], "critic": {"num_critics": 3}}
    algo = small_algo("actor_critic", "gru", ACTION_SPACES["discrete"], entropy=None, **values)
    algo.set_eval()
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    p = algo.look(batch)
    ((weight, loss),) = algo.actor_terms(p).losses.values()
    with torch.no_grad():
        probs = algo.actor(p.state, batch.inputs).probs[:, :-1, 0].double()
        q = p.share[:, :, 0].double()  # (B, T, A, C)
        of_data = (batch.actions[..., None] * q).sum(2)
        advantage = (of_data - (probs[..., None] * q).sum(2)).mean(-1)
        expected = -(2.0 * advantage).exp() * (batch.actions * probs.log()).sum(-1)
    assert weight == 2.0
    torch.testing.assert_close(loss.double(), expected, rtol=1e-4, atol=1e-5)
