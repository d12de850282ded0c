"""Gradients against their own past: spikes are cut, what stays large gets through, a resumed run goes on exactly."""

import pytest
import torch
from torch import nn

from seqrl.algo.clipping import GradientClipper, largest_updates
from tests.helpers import ACTION_SPACES, random_batch, small_algo


def parameters(*shapes):
    return [nn.Parameter(torch.zeros(shape)) for shape in shapes]


def clip(clipper, params, gradients):
    for p, g in zip(params, gradients, strict=True):
        p.grad = None if g is None else torch.as_tensor(g, dtype=torch.float32).expand(p.shape).clone()
    total = clipper.clip()
    return total, [None if p.grad is None else p.grad.norm().item() for p in params]


def test_a_spike_is_cut_to_a_multiple_of_the_root_mean_square_and_others_stay():
    params = parameters(4, (2, 2))
    clipper = GradientClipper({"net": params}, spike=3.0, norm=None)
    for size in (1.0, 2.0, 1.0):
        assert clip(clipper, params, [size / 2, 0.1])[1] == pytest.approx([size, 0.2])
    squares = [1.0, 4.0, 1.0]
    weights = [0.999**2, 0.999, 1.0]
    expected = (sum(w * s for w, s in zip(weights, squares, strict=True)) / sum(weights)) ** 0.5
    total, norms = clip(clipper, params, [500.0, 0.1])
    assert norms == pytest.approx([3.0 * expected, 0.2], rel=1e-4)
    assert total == pytest.approx((1000.0**2 + 0.2**2) ** 0.5)
    assert clipper.ratios["net"] == pytest.approx(1000.0 / expected, rel=1e-4)
    assert clipper.norms["net"] == pytest.approx(total.item())


def test_the_past_is_adams_second_moment_summed():
    params = parameters(3, (2, 5))
    clipper = GradientClipper({"net": params}, spike=2.0, norm=0.5)
    adam, given = torch.optim.AdamW(params), torch.Generator().manual_seed(0)
    for _ in range(20):
        clip(clipper, params, [torch.randn(p.shape, generator=given) * 10 for p in params])
        adam.step()
    for p, mean_square in zip(params, clipper.mean_squares, strict=True):
        torch.testing.assert_close(adam.state[p]["exp_avg_sq"].sum(), mean_square, rtol=1e-4, atol=0.0)
    other = GradientClipper({"net": params}, spike=2.0, norm=0.5)
    other.infer_state(adam)
    torch.testing.assert_close(other.mean_squares, clipper.mean_squares, rtol=1e-4, atol=0.0)
    assert torch.equal(other.num_updates, clipper.num_updates)


def test_what_stays_large_gets_through():
    """1,000 times as large from one step to the next: the weights move faster than usual at once, and soon as usual."""
    (p,) = params = parameters(6)
    clipper, adam = GradientClipper({"net": params}, spike=3.0, norm=None), torch.optim.AdamW(params, weight_decay=0.0)
    sizes = []
    for step in range(2600):
        clip(clipper, params, [1e-4 if step < 300 else 0.1])
        adam.step()
        sizes.append(largest_updates({"net": params}, adam)["net"].item())
    assert min(sizes) >= 0.99
    assert max(sizes) <= 3.05
    assert sizes[-1] < 1.5
    assert p.grad.norm() == pytest.approx(0.1 * 6**0.5, rel=1e-3)


@pytest.mark.parametrize(("spike", "least", "most"), [(None, 12.0, 40.0), (3.0, 0.0, 6.0)])
def test_a_spike_moves_the_weights_little(spike, least, most):
    """In learning rates: how far thirty steps after it the weights are from those of the same run without it."""
    ends = []
    for size in (1e-3, 1e3):
        (p,) = params = parameters(6)
        clipper = GradientClipper({"net": params}, spike=spike, norm=None)
        adam = torch.optim.AdamW(params, lr=1.0, weight_decay=0.0)
        given = torch.Generator().manual_seed(0)
        for step in range(330):
            usual = 1e-3 * torch.randn(6, generator=given)
            clip(clipper, params, [torch.full((6,), size) if step == 300 else usual])
            adam.step()
        ends.append(p.detach().clone())
    assert least <= (ends[1] - ends[0]).abs().mean() <= most


def test_gradients_without_a_past_and_dead_ones_pass():
    params = parameters(2, 2)
    clipper = GradientClipper({"net": params}, spike=3.0, norm=None)
    for _ in range(50):
        clip(clipper, params, [1.0, 0.0])
    assert clip(clipper, params, [1.0, 5.0])[1] == pytest.approx([2**0.5, 5 * 2**0.5])
    dust = GradientClipper({"net": params[:1]}, spike=3.0, norm=None)
    for _ in range(50):
        clip(dust, params[:1], [1e-20])
    assert clip(dust, params[:1], [1.0])[1] == pytest.approx([3e-8 * 2**0.5])  # as far as Adam's epsilon reaches


@pytest.mark.parametrize("is_together", [True, False])
def test_norms_are_limited_after_spikes(is_together):
    nets = {"a": parameters(4), "b": parameters(9)}
    params = nets["a"] + nets["b"]
    clipper = GradientClipper(nets, spike=2.0, norm=1.0, is_together=is_together)
    _, norms = clip(clipper, params, [3.0, 0.1])
    both = (6.0**2 + 0.3**2) ** 0.5
    assert norms == pytest.approx([6.0 / both, 0.3 / both] if is_together else [1.0, 0.3], rel=1e-4)
    _, norms = clip(clipper, params, [100.0, None])
    assert norms[0] == pytest.approx(1.0, rel=1e-4)
    assert norms[1] is None
    assert clipper.num_updates.tolist() == [2.0, 1.0]


def test_a_gradient_that_is_not_finite_leaves_no_trace():
    params = parameters(4)
    clipper = GradientClipper({"net": params}, spike=3.0, norm=1.0)
    clip(clipper, params, [1.0])
    before = clipper.state_tensors()
    total, _ = clip(clipper, params, [float("nan")])
    assert not torch.isfinite(total)
    assert all(torch.equal(before[key], value) for key, value in clipper.state_tensors().items())
    params[0].grad = torch.ones(4)
    clipper.clip(torch.tensor(True))  # a loss that is not finite, whose gradient is
    assert all(torch.equal(before[key], value) for key, value in clipper.state_tensors().items())


def test_updates_are_measured_without_decay():
    params = parameters(5)
    adam = torch.optim.AdamW(params, lr=0.01, weight_decay=0.9)
    assert largest_updates({"net": params}, adam) == {}
    params[0].data.fill_(7.0)
    params[0].grad = torch.full((5,), -0.3)
    adam.step()
    assert largest_updates({"net": params}, adam)["net"] == pytest.approx(1.0, rel=1e-4)
    assert largest_updates({"net": params}, torch.optim.SGD(params, lr=0.1)) == {}


def learned(algo, batch, seeds):
    for seed in seeds:
        torch.manual_seed(seed)
        algo.train_on_batch(batch)
    return {k: v.detach().clone() for k, v in algo.nets.named_parameters()}


@pytest.mark.parametrize("is_old", [False, True])
def test_a_resumed_run_clips_as_if_it_had_not_stopped(is_old):
    """To the bit; a checkpoint from before there was a limit takes the past from Adam's moments."""
    space = ACTION_SPACES["discrete"]
    make = lambda: small_algo("bc", action_space=space, optimizer={"spike_clip": 1.0, "warmup_steps": 1})  # noqa: E731
    algo = make()
    algo.set_train()
    batch = algo.process_batch_for_training(random_batch(space))
    learned(algo, batch, range(4))
    weights, tensors = algo.serialize(), algo.updater.state_tensors()
    expected = learned(algo, batch, range(4, 8))
    other = make()
    other.set_train()
    other.deserialize(weights)
    kept = {k: v for k, v in tensors.items() if not (is_old and k.startswith("clipper"))}
    assert len(kept) == len(tensors) - 2 * is_old
    other.updater.load_state(kept, 4)
    for name, value in learned(other, batch, range(4, 8)).items():
        if is_old:
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)
        else:
            assert torch.equal(value, expected[name]), name


def test_logging_steps_tell_updates_and_spikes_of_each_network():
    algo = small_algo("actor_critic")
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    for _ in range(2):
        info = algo.train_on_batch(batch)
    for net in ("trunk", "actor", "critic"):
        assert info[f"optim/update_{net}"] > 0
        assert info[f"optim/grad_ratio_{net}"] > 0
        assert info[f"optim/grad_norm_{net}"] > 0
    assert "optim/update_target_critic" not in info
