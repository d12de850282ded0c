"""TD3+BC and ReBRAC: their formulas against references in float64, and what moves what."""

import copy
from itertools import pairwise

import pytest
import torch

from seqrl.algo.ema import without_averages
from seqrl.algo.updater import Updater
from seqrl.core.errors import ConfigError
from tests.helpers import ACTION_SPACES, random_batch, small_algo

BOX = ACTION_SPACES["box"]


def built(**values):
    algo = small_algo("td3_bc", "gru", BOX, target_noise=0.0, **values)
    algo.set_eval()
    with torch.no_grad():  # targets of their own
        for net in (algo.target_actor, algo.target_critic):
            for weight in net.parameters():
                weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return algo, algo.process_batch_for_training(random_batch(BOX))


def q_of(critic, state, action):
    """Return the values (B, L, C) of one action per input, for the only discount."""
    return critic(critic.share(state), action[None, :, :, None])[0, :, :, 0, :, 0].double()


def reference_losses(algo, batch):
    """Return critic loss, climb and distance, written out over transitions."""
    section = algo.algo_config
    is_rebrac = section.variant == "rebrac"
    state, _ = algo.trunk(batch.inputs)
    padded = torch.cat([batch.actions, batch.actions[:, -1:]], dim=1)
    raw = q_of(algo.critic, state, padded)
    following = algo.target_actor.mlp(state).tanh()
    target = q_of(algo.target_critic, state, following)
    mu = algo.actor.mlp(state).tanh()
    own = q_of(algo.critic, state, mu)
    given = batch.extras
    critic = climb = distance = size = count = 0.0
    for b in range(len(batch.mask)):
        for t in range(int(batch.mask[b].sum())):
            value = target[b, t + 1].min()
            if is_rebrac and given["has_next_action"][b, t + 1]:
                step = following[b, t + 1].double() - given["next_action"][b, t + 1].double()
                value = value - section.critic_beta * (step**2).sum()
            y = batch.rewards[b, t].double() + section.gamma * (0.0 if batch.terminated[b, t] else 1.0) * value
            critic += ((raw[b, t] - y) ** 2).mean()
            q = own[b, t].min() if is_rebrac else own[b, t, 0]
            climb, size, count = climb - q, size + q.abs(), count + 1
            off = (mu[b, t].double() - batch.actions[b, t].double()) ** 2
            distance += off.sum() if is_rebrac else off.mean()
    return critic / count, climb / size, distance / count


@pytest.mark.parametrize("variant", ["td3_bc", "rebrac"])
def test_losses_equal_the_formulas(variant):
    algo, batch = built(variant=variant, critic_beta=0.5, actor_beta=0.3, alpha=1.7, gamma=0.9)
    losses = algo.compute_losses(batch)
    expected = [x.item() for x in reference_losses(algo, batch)]
    got = [losses.metrics[f"loss/{name}"].item() for name in ("critic", "actor_online", "actor_offline")]
    assert got == pytest.approx(expected, rel=1e-4)
    of_climb, of_distance = (1.7, 1.0) if variant == "td3_bc" else (1.0, 0.3)
    total = got[0] + of_climb * got[1] + of_distance * got[2]
    assert losses.total.item() == pytest.approx(total, rel=1e-5)


def test_only_rebrac_asks_for_the_next_action():
    assert "next_action" not in built()[0].needs
    assert "next_action" in built(variant="rebrac")[0].needs
    assert "next_action" not in built(variant="rebrac", critic_beta=0.0)[0].needs


def gradient_of_policy(algo, batch, factor):
    """Return the gradient of the policy's loss on its weights, with critics times a factor."""
    algo = copy.deepcopy(algo)
    with torch.no_grad():
        algo.critic.last.weight.mul_(factor)
        algo.critic.last.bias.mul_(factor)
    algo.compute_losses(batch).total.backward()
    return torch.cat([w.grad.flatten().double() for w in algo.actor.parameters()])


def test_the_scale_of_the_critics_does_not_count():
    algo, batch = built()
    one, many, odd = (gradient_of_policy(algo, batch, factor) for factor in (1.0, 64.0, 7.3))
    assert (many - one).abs().max() <= 1e-12 * one.abs().max()
    assert (odd - one).abs().max() <= 1e-5 * one.abs().max()


def test_no_gradient_passes_the_unit_of_values():
    algo, batch = built()
    weights = list(algo.actor.parameters())
    state, _ = algo.trunk(batch.inputs)
    q = q_of(algo.critic, state.detach(), algo.actor.mlp(state).tanh())[:, :-1, 0][batch.mask]
    expected = torch.autograd.grad(-q.mean() / q.detach().abs().mean(), weights)
    got = torch.autograd.grad(algo.actor_terms(algo.look(batch)).losses["actor_online"][1][batch.mask].mean(), weights)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


def moved_by(algo, batch, name):
    """Return the nets that a part of the loss gives a gradient to."""
    p = algo.look(batch)
    terms = algo.actor_terms(p).losses
    algo.nets.zero_grad()
    terms[name][1].sum().backward()
    return {n for n, net in algo.nets.items() if any(q.grad is not None and q.grad.any() for q in net.parameters())}


def test_the_policy_moves_no_critic():
    algo, batch = built()
    assert moved_by(algo, batch, "actor_online") == {"trunk", "actor"}
    assert moved_by(algo, batch, "actor_offline") == {"trunk", "actor"}


def test_policy_and_targets_move_at_every_second_step_only():
    algo = small_algo("td3_bc", "gru", BOX, policy_delay=2)
    batch = algo.process_batch_for_training(random_batch(BOX))
    waits, moved, before = [], [], without_averages(algo.serialize())
    for step in range(4):
        algo.wants_metrics = step in (2, 3)
        info = algo.train_on_batch(batch)
        waits.append("loss/actor_online" not in info)
        now = without_averages(algo.serialize())
        moved.append({k.split(".")[0] for k in now if k.endswith("weight") and not torch.equal(now[k], before[k])})
        before = now
    resting = {"trunk", "critic"}
    assert moved == [resting, resting | {"actor", "target_critic", "target_actor"}] * 2
    assert waits == [True, False, False, False]  # its losses are computed where they are asked for
    assert algo.train_on_batch(batch, validate=True).keys() == info.keys() - {k for k in info if k.startswith("optim/")}


def test_all_batches_of_a_step_let_the_policy_rest_or_none():
    algo = small_algo("td3_bc", "gru", BOX, policy_delay=2)
    algo.updater = Updater(algo, accumulate_batches=2)
    batch = algo.process_batch_for_training(random_batch(BOX))
    policies = []
    for _ in range(4):
        algo.train_on_batch(batch)
        policies.append(torch.cat([w.detach().flatten() for w in algo.actor.parameters()]))
    assert [not torch.equal(a, b) for a, b in pairwise(policies)] == [False, False, True]


def test_a_policy_that_rests_takes_no_gradient_and_decays_no_weights():
    algo = small_algo("td3_bc", "gru", BOX, policy_delay=2, optimizer={"weight_decay": 0.5, "learning_rate": 0.1})
    batch = algo.process_batch_for_training(random_batch(BOX))
    for _ in range(2):
        algo.train_on_batch(batch)
    weights = [w.detach().clone() for w in algo.actor.parameters()]
    algo.wants_metrics = True  # losses of a policy at rest are for the log
    algo.train_on_batch(batch)
    assert all(torch.equal(w, old) for w, old in zip(algo.actor.parameters(), weights, strict=True))


def test_values_can_be_asked_after_a_step_in_which_the_policy_rests():
    algo = small_algo("td3_bc", "gru", BOX, policy_delay=2)
    batch = algo.process_batch_for_training(random_batch(BOX))
    algo.wants_metrics = False
    algo.train_on_batch(batch)
    assert algo.get_values(batch)["v"].shape == (4, 6, 1)
    assert algo.compute_losses(batch).total.requires_grad


def test_noise_on_targets_is_clipped_and_stays_legal(monkeypatch):
    algo = small_algo("td3_bc", "gru", BOX, target_noise=0.2, target_noise_clip=0.5)
    batch = algo.process_batch_for_training(random_batch(BOX))
    seen = []
    algo.target_critic.register_forward_hook(lambda module, args, output: seen.append(args[1][0, :, :, 0]))
    monkeypatch.setattr(torch, "randn_like", lambda x: torch.full_like(x, 9.0))
    algo.compute_losses(batch)
    mu = algo.target_actor.mlp(algo.trunk(batch.inputs)[0]).tanh()
    torch.testing.assert_close(seen[0], (mu[:, 1:] + 0.5).clamp(max=1.0))


def test_other_actions_and_policies_are_refused():
    with pytest.raises(ConfigError, match=r"'td3_bc' takes actions that are continuous; .* are discrete"):
        small_algo("td3_bc", "gru", ACTION_SPACES["discrete"])
    with pytest.raises(ConfigError, match="the policy is deterministic"):
        small_algo("td3_bc", "gru", BOX, distribution={"type": "gaussian"})


def test_the_penalty_of_rebrac_is_of_the_clipped_action(monkeypatch):
    values = {"variant": "rebrac", "critic_beta": 0.5, "target_noise": 0.2, "target_noise_clip": 0.5}
    algo = small_algo("td3_bc", "gru", BOX, **values)
    algo.set_eval()
    batch = algo.process_batch_for_training(random_batch(BOX))
    with torch.no_grad():
        list(algo.target_actor.mlp.modules())[-1].bias.fill_(3.0)  # near 1, so that noise would lead beyond it
    monkeypatch.setattr(torch, "randn_like", lambda x: torch.full_like(x, 9.0))
    p = algo.look(batch)
    with torch.no_grad():
        got = algo.next_values(p)[..., 0]
        one = torch.ones(4, 6, 1, algo.codec.dim)
        q = algo.target_critic(algo.target_critic.share(p.state[:, 1:]), one[None])[0, :, :, 0, :, 0].amin(-1)
    given = batch.extras
    off = (1.0 - given["next_action"][:, 1:]).square().sum(-1) * given["has_next_action"][:, 1:]
    torch.testing.assert_close(got, q - 0.5 * off, rtol=1e-5, atol=1e-5)


def test_the_memory_learns_from_the_climb_through_the_action_alone():
    algo, batch = built()
    weights = [w for w in (*algo.actor.parameters(), *algo.trunk.parameters()) if w.requires_grad]
    state, _ = algo.trunk(batch.inputs)
    q = q_of(algo.critic, state.detach(), algo.actor.mlp(state).tanh())[:, :-1, 0][batch.mask]
    expected = torch.autograd.grad(-q.mean() / q.detach().abs().mean(), weights, allow_unused=True)
    climb = algo.actor_terms(algo.look(batch)).losses["actor_online"][1][batch.mask].mean()
    for one, other in zip(torch.autograd.grad(climb, weights, allow_unused=True), expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)
