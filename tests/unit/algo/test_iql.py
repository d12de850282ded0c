"""Implicit Q-learning: its formulas against references in float64, and what moves what."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from seqrl.algo import algo_factory
from seqrl.algo.objectives import expectile_loss
from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError, DataError
from seqrl.models.distributions import Gaussian
from tests.helpers import ACTION_SPACES, OBS, random_batch, small_algo, small_config


@pytest.mark.parametrize(("tau", "p"), [(0.9, 0.3), (0.7, 0.5), (0.5, 0.2)])
def test_the_expectile_of_a_coin(tau, p):
    """V of a bandit whose Q is 1 with probability p, else 0: ``tau p / (tau p + (1 - tau)(1 - p))``."""
    outcomes = torch.tensor([1.0, 0.0], dtype=torch.float64)
    chance = torch.tensor([p, 1 - p], dtype=torch.float64)
    v = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([v], max_iter=200, tolerance_grad=1e-14, tolerance_change=1e-16)

    def closure():
        optimizer.zero_grad()
        loss = (chance * expectile_loss(outcomes - v, tau)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert v.item() == pytest.approx(tau * p / (tau * p + (1 - tau) * (1 - p)), abs=1e-8)
    if (tau, p) == (0.9, 0.3):
        assert v.item() == pytest.approx(0.794118, abs=1e-6)


def reference_losses(algo, batch, section):
    """Return critic, value and actor loss, written out in NumPy-like loops over transitions."""
    state, _ = algo.trunk(batch.inputs)
    v = algo.value(state)[..., 0].double()
    actions = batch.actions[None, :, :, None]
    raw = algo.critic(algo.critic.share(state)[:, :-1], actions)[0, :, :, 0, :, 0].double()
    target = algo.target_critic(algo.target_critic.share(state)[:, :-1], actions)[0, :, :, 0, :, 0].double()
    log_prob = (
        algo.actor(state, batch.inputs)
        .log_prob(torch.cat([batch.actions, batch.actions[:, -1:]], dim=1).unsqueeze(2))[:, :-1, 0]
        .double()
    )
    critic = value = actor = count = 0.0
    for b in range(len(batch.mask)):
        for t in range(int(batch.mask[b].sum())):
            follows = 0.0 if batch.terminated[b, t] else 1.0
            y = section.reward_multiplier * batch.rewards[b, t].double() + section.gamma * follows * v[b, t + 1]
            u = target[b, t].min() - v[b, t]
            critic += ((raw[b, t] - y) ** 2).mean().item()
            value += (abs(section.expectile - (1.0 if u < 0 else 0.0)) * u**2).item()
            actor += (-min(torch.exp(section.beta * u), torch.tensor(section.max_weight)) * log_prob[b, t]).item()
            count += 1
    return critic / count, value / count, actor / count


@pytest.mark.parametrize("space", ["box", "discrete"])
def test_losses_equal_the_formulas(space):
    space = ACTION_SPACES[space]
    algo = small_algo("iql", "gru", space, max_weight=1.05, beta=2.0, expectile=0.8, gamma=0.9)
    algo.set_eval()
    batch = algo.process_batch_for_training(random_batch(space))
    advantage = algo.get_values(batch)["advantage"][batch.mask]
    algo.value[-1].bias.data += advantage.median()  # so that it has both signs, and some weights are clipped
    metrics = algo.compute_losses(batch).metrics
    expected = reference_losses(algo, batch, algo.algo_config)
    got = [metrics[f"loss/{name}"].item() for name in ("critic", "value", "actor")]
    assert got == pytest.approx(expected, rel=1e-4)
    weights = algo.get_values(batch)["filter_weight"][batch.mask]
    assert weights.max() == pytest.approx(1.05)
    assert weights.min() < 1.0


def gradients_of(algo, batch, name):
    """Return the nets that a loss gives a gradient to."""
    p = algo.look(batch)
    targets = algo.targets(batch, algo.next_values(p).detach())
    terms = {**algo.critic_terms(p, targets).losses, **algo.actor_terms(p).losses}
    algo.nets.zero_grad()
    terms[name][1].sum().backward()
    return {n for n, net in algo.nets.items() if any(q.grad is not None and q.grad.any() for q in net.parameters())}


def test_each_loss_reaches_its_own_head_and_the_memory():
    algo = small_algo("iql", "gru")
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    for name, head in (("critic", "critic"), ("value", "value"), ("actor", "actor")):
        assert gradients_of(algo, batch, name) == {"trunk", head}


def test_time_limits_bootstrap_and_terminations_do_not():
    algo = small_algo("iql", "gru")
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    ended = torch.zeros_like(batch.terminated)
    ended[0, 2] = True
    over = replace(batch, terminated=ended, truncated=torch.zeros_like(ended))
    cut = replace(batch, terminated=torch.zeros_like(ended), truncated=ended)
    targets = [algo.targets(b, algo.next_values(algo.look(b)).detach()) for b in (over, cut)]
    assert targets[0][0, 2] == pytest.approx(float(batch.rewards[0, 2]))
    assert targets[0][0, 2] != targets[1][0, 2]
    assert torch.equal(targets[0][1:], targets[1][1:])


def test_continuous_actions_get_a_gaussian_with_one_deviation_for_all_states():
    box = ACTION_SPACES["box"]
    algo = small_algo("iql", "gru", box)
    batch = algo.process_batch_for_training(random_batch(box))
    policy = algo.policy_over_data(algo.look(batch))
    assert isinstance(policy, Gaussian)
    assert (policy.log_std == policy.log_std[0, 0, 0]).all()
    assert policy.mean.abs().max() <= 1.0
    for _ in range(3):
        algo.train_on_batch(batch)
    moved = algo.policy_over_data(algo.look(batch)).log_std
    assert (moved != policy.log_std).all()
    assert not isinstance(
        small_algo("iql", "gru", box, distribution={"type": "tanh_gaussian"}).policy_over_data(algo.look(batch)),
        Gaussian,
    )


def test_several_discounts_have_values_of_their_own():
    algo = small_algo("iql", "gru", extra_gammas=[0.5])
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    values = algo.get_values(batch)
    assert values["v"].shape == (*batch.mask.shape, 2)
    assert not torch.allclose(values["v"][..., 0], values["v"][..., 1])
    assert algo.get_state_value(batch).equal(values["v"][..., -1])


def test_defaults_stay_where_a_run_file_sets_something_beside_them():
    values = {"critic": {"d_hidden": 64}, "optimizer": {"warmup_steps": 50}}
    section, default = config_factory("iql", {"algo": values}).algo, config_factory("iql").algo
    assert (section.critic.num_critics, default.critic.num_critics) == (2, 2)
    assert (section.optimizer.learning_rate, section.optimizer.clip) == (3e-4, "per_group")
    assert (default.optimizer.learning_rate, default.optimizer.clip) == (3e-4, "per_group")


def test_settings_out_of_range_are_named():
    for key, value in (("expectile", 1.0), ("beta", 0.0), ("max_weight", -1.0)):
        with pytest.raises(ConfigError, match=rf"algo\.{key}"):
            small_config("iql", **{key: value})


def test_it_needs_the_next_observation():
    algo = algo_factory("iql", small_config("iql"), OBS, 3, "cpu", spaces.Discrete(3))
    assert algo.needs == {"next_obs"}


@pytest.mark.parametrize("name", ["iql", "actor_critic"])
@pytest.mark.parametrize("space", ["discrete", "box"])
def test_values_of_observations_are_those_of_a_batch(name, space):
    """robomimic's verbs: at an episode's first step nothing but the observation is known."""
    algo = small_algo(name, "gru", ACTION_SPACES[space], distribution={"type": "auto"})
    algo.set_eval()
    given = random_batch(ACTION_SPACES[space])
    batch = algo.process_batch_for_training(given)
    now = {k: v[:, 0].numpy() for k, v in given.inputs.obs.items()}
    torch.testing.assert_close(
        algo.get_state_action_value(now, given.actions[:, 0]), algo.get_state_action_value(batch)[:, :1]
    )
    if (name, space) != ("actor_critic", "box"):  # its V is a mean of drawn actions
        torch.testing.assert_close(algo.get_state_value(obs_dict=now), algo.get_state_value(batch)[:, :1])
    so_far = {k: v[:, :4] for k, v in given.inputs.obs.items()}
    values = algo.get_state_action_value(so_far, given.actions[:, :4])
    assert values.shape == (len(given.actions), 4)
    torch.testing.assert_close(values[:, :1], algo.get_state_action_value(batch)[:, :1])
    with pytest.raises(DataError, match="needs actions"):
        algo.get_state_action_value(now)
    with pytest.raises(DataError, match="observations have nothing; the policy reads"):
        algo.get_state_value({})


@pytest.mark.parametrize("name", ["actor_critic", "cql", "bcq"])
def test_values_of_observations_with_a_mask_count_legal_actions_only(name):
    """Where one action is legal, a value is that of this action."""
    algo = small_algo(name, "gru", ACTION_SPACES["discrete"])
    algo.set_eval()
    given = random_batch(ACTION_SPACES["discrete"])
    now = {k: v[:, 0].numpy() for k, v in given.inputs.obs.items()}
    num, only = len(given.actions), given.actions[:, 0] > 0
    value = algo.get_state_value({**now, "action_mask": only.numpy()})
    of_action = algo.get_state_action_value(now, given.actions[:, 0])
    if name != "bcq":  # its value is another mix of the critics
        torch.testing.assert_close(value, of_action)
    assert not value.equal(algo.get_state_value(now))
    with pytest.raises(DataError, match="row 1 leaves no legal action"):
        algo.get_state_value({**now, "action_mask": only.numpy() & (np.arange(num) != 1)[:, None]})


def test_advantages_are_of_the_following_critics_and_move_none():
    algo = small_algo("iql", "gru", ACTION_SPACES["box"])
    algo.set_eval()
    with torch.no_grad():
        for weight in algo.target_critic.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["box"]))
    p = algo.look(batch)
    q = algo.target_critic(algo.target_critic.share(p.state[:, :-1]), batch.actions[None, :, :, None])[0, ..., 0, :, 0]
    torch.testing.assert_close(p.extras["q"][..., 0], q.amin(-1))
    assert not p.extras["q"].requires_grad
