"""CQL and Cal-QL: their formulas against references, and what moves what."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from seqrl.core.errors import ConfigError
from tests.helpers import ACTION_SPACES, random_batch, small_algo

BOX, DISCRETE = ACTION_SPACES["box"], ACTION_SPACES["discrete"]


def built(space, **values):
    algo = small_algo("cql", "gru", space, **values)
    algo.set_eval()
    return algo, algo.process_batch_for_training(random_batch(space))


def test_one_state_with_three_actions():
    """The minimum of ``sum data (Q - y)^2 / 2 + R / 2``; the mean of Q over the data is that of y."""
    space = spaces.Discrete(3)
    algo = small_algo("cql", "gru", space, conservative_weight=1.0, entropy=None)
    algo.set_eval()
    batch = random_batch(space, num=10, window=1)
    action = np.repeat([0, 1, 2], [6, 3, 1])
    one = replace(
        batch,
        actions=torch.eye(3)[action][:, None],
        rewards=torch.tensor([1.0, 0.0, 2.0])[action][:, None],
        terminated=torch.ones(10, 1, dtype=torch.bool),
        truncated=torch.zeros(10, 1, dtype=torch.bool),
        mask=torch.ones(10, 1, dtype=torch.bool),
    )
    one = algo.process_batch_for_training(one)
    for weight in algo.nets.parameters():
        weight.requires_grad_(False)
    algo.critic.last.weight.zero_()  # so that there is one state
    bias = algo.critic.last.bias.requires_grad_()
    optimizer = torch.optim.LBFGS([bias], max_iter=500, tolerance_grad=1e-9, tolerance_change=1e-12)

    def closure():
        optimizer.zero_grad()
        losses = algo.compute_losses(one)
        losses.total.backward()
        return losses.total

    optimizer.step(closure)
    for q in bias.detach().flatten(1):
        assert q.tolist() == pytest.approx([1.107953, 0.187626, 0.789407], abs=1e-4)
        assert (0.6 * q[0] + 0.3 * q[1] + 0.1 * q[2]).item() == pytest.approx(0.8, abs=1e-5)


def q_of(algo, state, action):
    """Return the values (K, B, T, C) of actions (K, B, T, A), for the only discount."""
    return algo.critic(algo.critic.share(state)[:, :-1], action[:, :, :, None])[..., 0, :, 0].double()


@pytest.mark.slow
def test_the_push_on_continuous_actions_is_an_integral_of_exp_q():
    """Each of three groups of N samples estimates ``N * integral of exp Q``; here it is summed over a grid."""
    num = 3000
    algo, batch = built(BOX, num_samples=num)
    last = list(algo.actor.mlp.modules())[-1]
    with torch.no_grad():  # a policy that is nearly uniform, so that few samples tell the integral
        last.weight.zero_()
        last.bias.copy_(torch.tensor([0.0, 0.422]).repeat_interleave(algo.codec.dim))
    p = algo.look(batch)
    gap = algo.critic_terms(p, torch.zeros(*batch.rewards.shape, 1)).metrics["conservative/gap"].item()
    points = (torch.arange(8) + 0.5) / 4 - 1
    grid = torch.tensor(list(itertools.product(points.tolist(), repeat=algo.codec.dim)))
    with torch.no_grad():
        values = q_of(algo, p.state, grid[:, None, None].expand(-1, *batch.actions.shape))
        integral = values.exp().mean(0) * 2.0**algo.codec.dim
        expected = (3 * num * integral).log() - q_of(algo, p.state, batch.actions[None])[0]
    assert gap == pytest.approx(expected.mean(-1)[batch.mask].mean().item(), abs=0.02)


def test_forbidden_actions_are_not_pushed():
    algo, batch = built(DISCRETE)
    mask = torch.ones(*batch.inputs.step.shape, DISCRETE.n, dtype=torch.bool)
    mask[..., 1] = False
    taken = batch.actions.clone()
    taken[..., 0] += taken[..., 1]
    taken[..., 1] = 0.0
    masked = replace(batch, inputs=replace(batch.inputs, action_mask=mask), actions=taken)
    p = algo.look(masked)
    loss = algo.critic_terms(p, torch.zeros(*batch.rewards.shape, 1)).losses["conservative"][1]
    (gradient,) = torch.autograd.grad(loss.sum(), p.share)
    assert (gradient[:, :, :, 1] == 0).all()
    assert (gradient[:, :-1, :, 0] != 0).any()


def moved(algo, losses):
    algo.nets.zero_grad()
    losses.sum().backward(retain_graph=True)
    return {n for n, net in algo.nets.items() if any(q.grad is not None and q.grad.any() for q in net.parameters())}


@pytest.mark.parametrize("space", [BOX, DISCRETE])
def test_critics_do_not_move_the_policy_nor_the_policy_critics(space):
    algo, batch = built(space)
    p = algo.look(batch)
    critic = algo.critic_terms(p, torch.zeros(*batch.rewards.shape, 1)).losses
    assert moved(algo, critic["conservative"][1]) == {"trunk", "critic"}
    assert moved(algo, critic["critic"][1]) == {"trunk", "critic"}
    assert moved(algo, algo.actor_terms(p).losses["actor"][1]) == {"trunk", "actor"}


@pytest.mark.parametrize(("target", "direction"), [(0.0, 1), (1000.0, -1)])
def test_a_learned_weight_rises_while_the_gap_is_above_the_target(target, direction):
    algo, batch = built(BOX, target_gap=target, conservative_weight=2.0)
    assert algo.push.alpha.item() == pytest.approx(2.0)
    for _ in range(5):
        metrics = algo.train_on_batch(batch)
    assert (metrics["conservative/gap"].item() - target) * direction > 0
    assert (algo.push.alpha.item() - 2.0) * direction > 0


def test_a_fixed_weight_stays():
    algo, batch = built(BOX)
    for _ in range(5):
        algo.train_on_batch(batch)
    assert algo.push.alpha.item() == pytest.approx(5.0)


def losses_with_bound(algo, batch, bound):
    """Return the push with all returns of the data at a bound."""
    torch.manual_seed(0)
    extras = {**batch.extras, "mc_bound": torch.full_like(batch.extras["mc_bound"], bound)}
    return copy.deepcopy(algo).compute_losses(replace(batch, extras=extras)).metrics["loss/conservative"].item()


def test_calibration_never_pushes_the_policy_below_the_datas_return():
    algo, batch = built(BOX, calibrate=True)
    plain, _ = built(BOX)
    unbounded = losses_with_bound(algo, batch, -torch.inf)
    assert unbounded == pytest.approx(losses_with_bound(plain, batch, 3.0), rel=1e-6)
    assert losses_with_bound(algo, batch, 50.0) > unbounded
    high = {**batch.extras, "mc_bound": torch.full_like(batch.extras["mc_bound"], 50.0)}
    p = algo.look(replace(batch, extras=high))
    loss = algo.critic_terms(p, torch.zeros(*batch.rewards.shape, 1)).losses["conservative"][1]
    (of_data,) = torch.autograd.grad(loss.sum(), p.raw)
    assert of_data[batch.mask].sum().item() == pytest.approx(
        -5.0 * batch.mask.sum().item(), rel=1e-5
    )  # still pulled up


def test_calibration_needs_returns_of_one_discount():
    assert "mc_bound" in built(BOX, calibrate=True)[0].needs
    with pytest.raises(ConfigError, match="calibrate compares with returns of one discount"):
        built(BOX, calibrate=True, extra_gammas=[0.9])


def test_a_saturated_policy_weighs_its_samples_rightly():
    """With Q the same everywhere, each group of N samples stands for N times the volume, whatever the policy."""
    num = 2000
    algo, batch = built(BOX, num_samples=num)
    last = list(algo.actor.mlp.modules())[-1]
    with torch.no_grad():
        last.weight.zero_()  # means of 6 before the tanh: all draws lie beyond 0.99
        last.bias.copy_(torch.tensor([6.0, 0.2]).repeat_interleave(algo.codec.dim))
        algo.critic.last.weight.zero_()
        algo.critic.last.bias.zero_()
    p = algo.look(batch)
    gap = algo.critic_terms(p, torch.zeros(*batch.rewards.shape, 1)).metrics["conservative/gap"].item()
    volume = 2.0**algo.codec.dim
    assert np.log(num * volume) - 1e-3 <= gap <= np.log(3 * num * volume) + 0.3


def test_calibration_of_discrete_actions_is_refused():
    with pytest.raises(ConfigError, match="calibrate is for continuous actions"):
        built(DISCRETE, calibrate=True)


def test_an_action_is_pushed_where_it_is_legal_whatever_the_next_input_allows():
    algo, batch = built(DISCRETE)
    mask = torch.ones(*batch.inputs.step.shape, DISCRETE.n, dtype=torch.bool)
    mask[:, ::2, 1] = mask[:, 1::2, 2] = False
    taken = torch.zeros_like(batch.actions)
    taken[..., 0] = 1.0
    p = algo.look(replace(batch, inputs=replace(batch.inputs, action_mask=mask), actions=taken))
    loss = algo.critic_terms(p, torch.zeros(*batch.rewards.shape, 1)).losses["conservative"][1]
    (gradient,) = torch.autograd.grad(loss.sum(), p.share)
    pushed = (gradient[:, :, 0] != 0).all(-1)  # (B, T, A)
    assert torch.equal(pushed, mask[:, :-1])


def test_samples_are_those_of_this_and_of_the_next_input():
    algo, batch = built(BOX, num_samples=2)
    p = algo.look(batch)
    parity = torch.arange(batch.num_transitions + 1) % 2 * 2.0 - 1.0
    mean = (6.0 * parity[None, :, None, None]).expand(4, -1, 1, algo.codec.dim)
    seen = []
    algo.critic.register_forward_pre_hook(lambda _, given: seen.append(given[1]))
    p = replace(p, parameters=torch.cat([mean, torch.full_like(mean, -3.0)], -1))
    algo.critic_terms(p, torch.zeros(*batch.rewards.shape, 1))
    signs = seen[-1].sign()
    assert (signs[2:4] == parity[:-1, None, None]).all()
    assert (signs[4:6] == parity[1:, None, None]).all()


def test_calibration_bounds_the_policys_samples_alone_each_by_its_inputs_return():
    algo, batch = built(BOX, calibrate=True, num_samples=3, reward_multiplier=2.0)
    bound = torch.arange(7.0).expand(4, -1) * 10.0 + 50.0
    p = algo.look(replace(batch, extras={**batch.extras, "mc_bound": bound}))
    q, _ = algo._judged_samples(p)
    assert (q[:3] < 50.0).all()
    torch.testing.assert_close(q[3:], 2.0 * bound[:, :-1, None, None].expand_as(q[3:]))
