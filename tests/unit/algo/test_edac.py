"""EDAC: its term against values known by hand and against gradients taken one by one."""

import pytest
import torch

from seqrl.core.errors import ConfigError
from seqrl.models.critics import StateActionCritics
from tests.helpers import ACTION_SPACES, random_batch, small_algo

BOX = ACTION_SPACES["box"]


def built(**values):
    values = {"critic": {"num_critics": 2}, **values}
    algo = small_algo("edac", "gru", BOX, **values)
    algo.set_eval()
    return algo, algo.process_batch_for_training(random_batch(BOX))


@pytest.mark.parametrize(
    ("second", "expected"),
    [((3.0, 0.0), 2.0), ((0.0, 0.5), 0.0), ((-2.0, 0.0), -2.0)],
    ids=["same", "apart", "against"],
)
def test_two_critics_that_are_linear_in_the_action(second, expected, monkeypatch):
    algo, batch = built()
    slopes = torch.zeros(2, algo.codec.dim)
    slopes[0, 0] = 1.0
    slopes[1, :2] = torch.tensor(second)
    monkeypatch.setattr(
        algo.critic, "action_gradients", lambda share, action: slopes.expand(*action.shape[:2], 1, *slopes.shape)
    )
    metrics = algo.compute_losses(batch).metrics
    assert metrics["loss/likeness"].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_gradients_of_all_critics_at_once_are_those_of_each(norm):
    torch.manual_seed(0)
    discounts = torch.tensor([0.9, 0.99])
    critic = StateActionCritics(4, 3, discounts, num_critics=3, d_hidden=16, norm=norm).double()
    share = critic.share(torch.randn(2, 5, 4, dtype=torch.float64))
    action = torch.rand(2, 5, 1, 3, dtype=torch.float64) - 0.5
    got = critic.action_gradients(share, action)
    for g in range(2):
        each = action.expand(-1, -1, 2, -1).clone().requires_grad_()
        q = critic(share, each[None])[0, :, :, g, :, 0]
        for c in range(3):
            (expected,) = torch.autograd.grad(q[..., c].sum(), each, retain_graph=True)
            torch.testing.assert_close(got[:, :, g, c], expected[:, :, g], rtol=1e-12, atol=1e-14)


def test_the_term_moves_critics_but_not_the_memory():
    algo, batch = built(critic={"num_critics": 2, "activation": "tanh"})
    p = algo.look(batch)
    weight, loss = algo.critic_terms(p, torch.zeros(*batch.rewards.shape, 1)).losses["likeness"]
    assert weight == 1.0
    algo.nets.zero_grad()
    loss.sum().backward()
    moved = {n for n, net in algo.nets.items() if any(q.grad is not None and q.grad.any() for q in net.parameters())}
    assert moved == {"critic"}


def test_training_lowers_the_term():
    algo, batch = built(eta=100.0)
    first = algo.compute_losses(batch).metrics["loss/likeness"].item()
    for _ in range(60):
        algo.train_on_batch(batch)
    assert algo.compute_losses(batch).metrics["loss/likeness"].item() < first - 0.5


def test_without_eta_it_is_sac_n():
    algo, batch = built(eta=0.0)
    assert "loss/likeness" not in algo.compute_losses(batch).metrics
    assert small_algo("edac", "gru", BOX).algo_config.critic.num_critics == 10


def test_targets_take_the_smallest_of_all_critics():
    algo, batch = built(critic={"num_critics": 4}, entropy=None)
    p = algo.look(batch)
    torch.manual_seed(1)
    with torch.no_grad():
        least = algo.next_values(p)
        torch.manual_seed(1)
        action = algo.actor.distribution(p.parameters[:, 1:], None).sample()
        q = algo.target_critic(algo.target_critic.share(p.state[:, 1:]), action[None])[0, ..., 0]
    torch.testing.assert_close(least, q.amin(-1))


def test_other_actions_are_refused():
    with pytest.raises(ConfigError, match=r"'edac' takes actions that are continuous; .* are discrete"):
        small_algo("edac", "gru", ACTION_SPACES["discrete"])


def test_likeness_is_a_mean_over_the_other_critics(monkeypatch):
    algo, batch = built(critic={"num_critics": 3})
    slopes = torch.zeros(3, algo.codec.dim)
    slopes[:, :2] = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 0.5]])  # cosines 1, 0, 0: 2 * 1 / 2
    monkeypatch.setattr(
        algo.critic, "action_gradients", lambda share, action: slopes.expand(*action.shape[:2], 1, *slopes.shape)
    )
    assert algo.compute_losses(batch).metrics["loss/likeness"].item() == pytest.approx(1.0, abs=1e-6)


def test_the_term_turns_gradients_and_leaves_their_lengths(monkeypatch):
    algo, batch = built(critic={"num_critics": 2})
    slopes = torch.randn(2, algo.codec.dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    monkeypatch.setattr(
        algo.critic, "action_gradients", lambda share, action: slopes.expand(*action.shape[:2], 1, *slopes.shape)
    )
    _, loss = algo.critic_terms(algo.look(batch), torch.zeros(*batch.rewards.shape, 1)).losses["likeness"]
    (gradient,) = torch.autograd.grad(loss.mean(), slopes)
    assert ((gradient * slopes).sum(-1).abs() < 1e-5).all()
    assert (gradient.norm(dim=-1) > 1e-2).all()
