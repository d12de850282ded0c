import numpy as np
import pytest
import torch
from torch.nn.functional import layer_norm, leaky_relu

from seqrl.models.critics import EnsembleLayerNorm, EnsembleLinear, StateActionCritics, StateCritics, discount_features
from seqrl.models.popart import PopArt

DISCOUNTS = torch.tensor([0.1, 0.9, 0.999])


def test_discount_features():
    expected = np.log1p(1 / (1 - DISCOUNTS.double().numpy()))
    np.testing.assert_allclose(discount_features(DISCOUNTS)[:, 0], expected, rtol=1e-4)
    assert torch.isfinite(discount_features(torch.ones(1))).all()


def test_ensemble_linear_is_one_layer_per_member():
    layer = EnsembleLinear(3, 5, 4)
    x = torch.randn(3, 7, 5)
    expected = torch.stack([x[c] @ layer.weight[c] + layer.bias[c] for c in range(3)])
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(
        layer.shared(x[0]), torch.stack([x[0] @ layer.weight[c] + layer.bias[c] for c in range(3)])
    )
    assert layer.weight.abs().max() <= (3 / 5) ** 0.5
    assert layer.bias.abs().max() <= (1 / 5) ** 0.5


def activated(critics, layer, x, member):
    """Return a hidden layer's output of a member: normalised first, if it is, then activated."""
    if isinstance(norm := critics.norms[layer], EnsembleLayerNorm):
        x = layer_norm(x, x.shape) * norm.scale[member, 0] + norm.bias[member, 0]
    return leaky_relu(x)


def with_norms_of_their_own(critics):
    """Return critics in double precision whose norms scale and shift."""
    with torch.no_grad():
        for norm in critics.norms:
            for weight in norm.parameters():
                weight.uniform_(0.5, 2.0)
    return critics.double()


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("actions_per_discount", [False, True])
def test_shared_first_layer_is_exact(actions_per_discount, norm):
    """Each output equals that of a plain network on the concatenation of state, action and discount."""
    critics = with_norms_of_their_own(
        StateActionCritics(6, 2, DISCOUNTS, num_critics=4, d_hidden=8, d_out=3, norm=norm)
    )
    state = torch.randn(2, 5, 6, dtype=torch.float64)
    num_h = len(DISCOUNTS) if actions_per_discount else 1
    action = torch.empty(3, 2, 5, num_h, 2, dtype=torch.float64).uniform_(-0.9, 0.9)
    got = critics(critics.share(state), action)
    assert got.shape == (3, 2, 5, 3, 4, 3)
    for k, b, t, g, c in ((0, 0, 0, 0, 0), (2, 1, 4, 2, 3), (1, 0, 3, 1, 2)):
        x = torch.cat([state[b, t], action[k, b, t, g if actions_per_discount else 0], critics.horizon[g]])
        first = torch.cat(
            [critics.first_state.weight[c], critics.first_action.weight[c], critics.first_discount.weight[c]]
        )
        hidden = activated(critics, 0, x @ first + critics.first_state.bias[c, 0], c)
        hidden = activated(critics, 1, hidden @ critics.hidden[0].weight[c] + critics.hidden[0].bias[c, 0], c)
        expected = hidden @ critics.last.weight[c] + critics.last.bias[c, 0]
        torch.testing.assert_close(got[k, b, t, g, c], expected)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_state_critics_layout(norm):
    critics = with_norms_of_their_own(StateCritics(6, 5, 3, num_critics=4, d_hidden=8, norm=norm))
    state = torch.randn(2, 7, 6, dtype=torch.float64)
    got = critics.share(state)
    assert got.shape == (2, 7, 3, 5, 4)
    hidden = activated(critics, 0, state[1, 3] @ critics.first.weight[2] + critics.first.bias[2, 0], 2)
    hidden = activated(critics, 1, hidden @ critics.hidden[0].weight[2] + critics.hidden[0].bias[2, 0], 2)
    outputs = hidden @ critics.last.weight[2] + critics.last.bias[2, 0]
    torch.testing.assert_close(got[1, 3, 1, 4, 2], outputs[1 * 5 + 4])
    chosen = torch.tensor([0, 4, 2]).view(3, 1, 1, 1).expand(3, 2, 7, 1)
    values = critics(got, torch.nn.functional.one_hot(chosen, 5).double())
    assert values.shape == (3, 2, 7, 3, 4, 1)
    torch.testing.assert_close(values[1, 1, 3, :, :, 0], got[1, 3, :, 4])
    own = torch.nn.functional.one_hot(torch.tensor([0, 4, 2]).expand(1, 2, 7, 3), 5).double()
    torch.testing.assert_close(critics(got, own)[0, 1, 3, 2, :, 0], got[1, 3, 2, 2])


def moving(old, new, n, beta):
    """Return a moment after one more batch, in float64."""
    step = beta / (1 - (1 - beta) ** n)
    return (1 - step) * old + step * new


def test_popart_follows_the_targets_and_ignores_padding():
    """Against the same moving rule in float64, with targets far from zero and of small spread."""
    rng = np.random.default_rng(0)
    discounts = np.array([0.9, 0.0])
    popart = PopArt(torch.tensor(discounts, dtype=torch.float32), beta=0.05)
    mean, second, square, share = np.zeros(2), np.ones(2), 0.0, 0.0
    for n in range(1, 301):
        y = rng.normal([1000.0, -3.0], [0.5, 2.0], (4, 6, 2))
        rewards = np.where(rng.random((4, 6)) < 0.2, rng.normal(0.0, 5.0, (4, 6)), 0.0)
        mask = rng.random((4, 6)) < 0.7
        padded = np.where(mask[..., None], y, np.nan)
        given = (torch.tensor(padded), torch.tensor(np.where(mask, rewards, np.nan)))
        popart.update(popart.stats(*(x.float() for x in given), torch.tensor(mask)))
        mean = moving(mean, y[mask].mean(0), n, 0.05)
        second = moving(second, (y[mask] ** 2).mean(0), n, 0.05)
        square = moving(square, (rewards[mask] ** 2).mean(), n, 0.05)
        share = moving(share, (rewards[mask] != 0).mean(), n, 0.05)
    np.testing.assert_allclose(popart.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(popart.variance, np.clip(second - mean**2, 1e-4, 1e8), rtol=2e-2)
    scale = np.sqrt(square * np.maximum(1 / (1 - discounts**2), 1 / share))
    np.testing.assert_allclose(popart.scale, scale, rtol=1e-4)
    np.testing.assert_allclose(popart.std, np.maximum(np.sqrt(second - mean**2), 0.1 * scale), rtol=2e-2)


def test_popart_normalizes_and_survives_bad_sums():
    popart = PopArt(torch.tensor([0.5]))
    popart.variance.fill_(100.0)
    values = torch.tensor([[[5.0, -10.0]]])
    torch.testing.assert_close(popart.normalize(values), values / 10)
    before = {k: v.clone() for k, v in popart.state_dict().items()}
    popart.update(torch.full((5, 1), torch.nan))
    popart.update(torch.zeros(5, 1))
    assert all(torch.equal(v, before[k]) for k, v in popart.state_dict().items())


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_the_units_of_values_grow_with_the_rewards_and_nothing_else(factor):
    """By Monte Carlo: discounted sums of independent rewards of mean 0 vary by it; a rare one sets it at once."""
    rng = np.random.default_rng(1)
    rewards = factor * rng.normal(size=(400, 200)).astype(np.float32)
    popart = PopArt(torch.tensor([0.0, 0.95]))
    ones = torch.ones(400, 200, dtype=torch.bool)
    popart.update(popart.stats(1e6 * torch.ones(400, 200, 2), torch.tensor(rewards), ones))
    returns = (rewards[:, :, None] * np.array([0.0, 0.95]) ** np.arange(200)[None, :, None]).sum(1)
    np.testing.assert_allclose(popart.scale, np.maximum(returns.std(0), 0.01), rtol=0.1)

    sparse = PopArt(torch.tensor([0.9]))
    nothing = torch.zeros(400, 200)
    for _ in range(100):
        sparse.update(sparse.stats(nothing.unsqueeze(-1), nothing, ones))
    assert sparse.scale == 1.0
    nothing[3, 7] = factor
    sparse.update(sparse.stats(nothing.unsqueeze(-1), nothing, ones))
    assert sparse.scale.item() == pytest.approx(max(factor, 0.01), rel=1e-3)


def test_weights_from_before_there_were_units_keep_their_values():
    popart = PopArt(torch.tensor([0.5, 0.9]))
    popart.load_state_dict({**popart.state_dict(), **popart.former_state(), "variance": torch.full((2,), 1e-3)})
    ones = torch.ones(2, 3, dtype=torch.bool)
    popart.update(popart.stats(torch.zeros(2, 3, 2), torch.full((2, 3), 7.0), ones))
    assert popart.scale.tolist() == [10.0, 10.0]
    torch.testing.assert_close(popart.std, popart.variance.sqrt())
