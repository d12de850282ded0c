"""Flow Q-learning's parts, each against a reference written here."""

import pytest
import torch

from seqrl.conformance.algorithms import AlgoCase

CASE = AlgoCase("fql", "gru", "box", values={"flow": {"d_hidden": 16, "num_steps": 3}, "alpha": 2.0})


@pytest.fixture(name="given")
def _given():
    algo = CASE.build()
    batch = algo.process_batch_for_training(CASE.batch())
    torch.manual_seed(0)
    with torch.no_grad():  # targets of their own
        for weight in algo.target_critic.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return algo, batch, algo.look(batch)


def masked(values, batch):
    return values[batch.mask].mean()


def test_the_flow_is_followed_in_euler_steps(given):
    algo, batch, p = given
    noise = torch.randn_like(batch.actions)
    with torch.no_grad():
        made = algo._imitated(p.state[:, :-1], noise)
        for row, t in ((0, 0), (1, 2)):
            x = noise[row, t]
            for i in range(3):
                time = torch.tensor([i / 3])
                x = x + algo.flow(x[None, None], time, p.state[row, t][None])[0, 0] / 3
            torch.testing.assert_close(made[row, t], x.clamp(-1.0, 1.0), rtol=1e-5, atol=1e-6)


def test_the_policys_losses_are_those_of_the_formula(given):
    algo, batch, p = given
    torch.manual_seed(1)
    terms = algo.actor_terms(p)
    torch.manual_seed(1)
    state, actions = p.state[:, :-1], batch.actions
    eps, time = torch.randn_like(actions), torch.rand_like(actions[..., 0])
    point = (1 - time)[..., None] * eps + time[..., None] * actions
    speed = algo.flow(point.flatten(0, 1)[:, None], time.flatten(), state.flatten(0, 1)).reshape_as(actions)
    z = torch.randn_like(actions)
    own = algo.actor.mlp(torch.cat([state, z], -1)).tanh()
    q = algo.critic(algo.critic.share(state), own[None, :, :, None])[0, :, :, 0, :, 0].mean(-1)
    expected = {
        "flow": (speed - (actions - eps)).square().mean(-1),
        "distance": (own - algo._imitated(state, z)).square().mean(-1),
        "climb": -q / masked(q.abs(), batch),
    }
    assert {name: weight for name, (weight, _) in terms.losses.items()} == {"flow": 1.0, "distance": 2.0, "climb": 1.0}
    for name, reference in expected.items():
        torch.testing.assert_close(terms.losses[name][1][batch.mask], reference[batch.mask], rtol=1e-5, atol=1e-6)


def test_climbing_moves_the_policy_alone_and_the_size_of_values_does_not_matter(given):
    algo, batch, p = given
    torch.manual_seed(1)
    loss = masked(algo.actor_terms(p).losses["climb"][1], batch)
    gradients = torch.autograd.grad(
        loss, [p for p in algo.nets.parameters() if p.requires_grad], allow_unused=True, retain_graph=True
    )
    of = dict(zip([n for n, p in algo.nets.named_parameters() if p.requires_grad], gradients, strict=True))
    assert all(g is None or not g.any() for n, g in of.items() if n.startswith(("critic", "flow", "target")))
    assert any(g is not None and g.any() for n, g in of.items() if n.startswith("actor"))
    values_of = algo.values_of
    algo.values_of = lambda raw: 7.0 * values_of(raw)
    torch.manual_seed(1)
    scaled = masked(algo.actor_terms(p).losses["climb"][1], batch)
    torch.testing.assert_close(scaled, loss, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("judge", ["mean", "min"])
def test_targets_judge_the_following_policys_actions(given, judge):
    algo, _batch, p = given
    algo.algo_config.target_value = judge
    torch.manual_seed(2)
    with torch.no_grad():
        values = algo.next_values(p)
        torch.manual_seed(2)
        z = torch.randn(*p.state[:, 1:].shape[:2], 4)
        action = algo.actor.mlp(torch.cat([p.state[:, 1:], z], -1)).tanh()
        share = algo.target_critic.share(p.state[:, 1:])
        q = algo.target_critic(share, action[None, :, :, None])[0, :, :, 0, :, 0]
    expected = q.mean(-1) if judge == "mean" else q.amin(-1)
    torch.testing.assert_close(values[..., 0], expected, rtol=1e-5, atol=1e-6)


def test_draws_over_a_window_have_noise_of_their_own(given):
    algo, batch, _ = given
    drawn = algo.policy_over(batch.inputs, 8)
    assert drawn.shape == (8, *batch.inputs.step.shape, 4)
    assert (drawn.std(0) > 1e-4).any(-1).all()


def test_the_memory_learns_through_the_action_alone(given):
    algo, batch, p = given
    weights = [w for w in algo.trunk.parameters() if w.requires_grad]
    torch.manual_seed(1)
    terms = algo.actor_terms(p).losses
    found = [
        torch.autograd.grad(masked(terms[name][1], batch), weights, allow_unused=True, retain_graph=True)
        for name in ("climb", "distance")
    ]
    state, actions = algo.look(batch).state[:, :-1], batch.actions
    torch.manual_seed(1)
    _ = torch.randn_like(actions), torch.rand_like(actions[..., 0])  # of the flow's loss
    z = torch.randn_like(actions)
    own = algo.actor.mlp(torch.cat([state, z], -1)).tanh()
    q = algo.critic(algo.critic.share(state.detach()), own[None, :, :, None])[0, :, :, 0, :, 0].mean(-1)[batch.mask]
    climb = -q.mean() / q.detach().abs().mean()
    distance = (own - algo._imitated(state, z).detach()).square().mean(-1)[batch.mask].mean()
    expected = [torch.autograd.grad(x, weights, allow_unused=True, retain_graph=True) for x in (climb, distance)]
    for one, other in zip((*found[0], *found[1]), (*expected[0], *expected[1]), strict=True):
        if other is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_greedy_acting_takes_the_noise_of_seed_0():
    algo = CASE.build()
    algo.set_eval()
    inputs = algo.process_batch_for_training(CASE.batch()).inputs.first(1)
    with torch.no_grad():
        action, _ = algo.act(inputs, algo.init_state(4), True)
        hidden, _ = algo.trunk(inputs)
        noise = torch.randn(4, generator=torch.Generator().manual_seed(0)).expand(4, 1, -1)
        own = algo.actor.mlp(torch.cat([hidden, noise], -1)).tanh()
    torch.testing.assert_close(action, own[:, 0])
