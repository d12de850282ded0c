"""Sinusoids and rotations against their formulas in float64."""

import numpy as np
import pytest
import torch

from seqrl.models.sequence_encoders.positions import FixedPositions, rotary_angles, rotate


@pytest.mark.parametrize("width", [1, 2, 6, 7, 64])
def test_fixed_positions_are_the_sinusoids(width):
    step = torch.tensor([[0, 1, 2, 77], [5, 6, 7, 500]])
    half = (width + 1) // 2
    angle = step.numpy()[..., None] / 10_000.0 ** (np.arange(half) / half)
    expected = np.concatenate([np.sin(angle), np.cos(angle)], axis=-1)[..., :width]
    got = FixedPositions(width)(step)
    assert got.shape == (2, 4, width)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-4)


def test_fixed_positions_tell_steps_apart_and_are_not_saved():
    positions = FixedPositions(32)
    codes = positions(torch.arange(3000)[None])[0]
    distances = torch.cdist(codes[::10], codes[::10]) + 10 * torch.eye(300)
    assert distances.min() > 0.05
    assert positions.state_dict() == {}
    assert list(positions.parameters()) == []


@pytest.mark.parametrize(("width", "base"), [(2, 10_000.0), (8, 10_000.0), (8, 100.0)])
def test_rotation_of_half_split_pairs(width, base):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 3, width))
    step = rng.integers(0, 200, (2, 5))
    theta = step[:, :, None, None] * base ** (-np.arange(0, width, 2) / width)
    pair = x[..., : width // 2] + 1j * x[..., width // 2 :]
    turned = pair * np.exp(1j * theta)
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    got = rotate(torch.tensor(x).float(), *rotary_angles(torch.tensor(step), width, base))
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-4)


def test_rotation_keeps_lengths_and_step_zero_turns_nothing():
    x = torch.randn(2, 4, 3, 8)
    cos, sin = rotary_angles(torch.tensor([[0, 3, 9, 1000], [0, 1, 2, 3]]), 8, 10_000.0)
    y = rotate(x, cos, sin)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(y[:, 0], x[:, 0])
    assert not torch.allclose(y[:, 1], x[:, 1])


@pytest.mark.parametrize("shift", [1, 50, 1500])
def test_rotated_products_depend_on_the_distance_only(shift):
    q, k = torch.randn(1, 6, 2, 16), torch.randn(1, 6, 2, 16)
    step = torch.tensor([[0, 1, 4, 9, 16, 25]])

    def scores(step):
        angles = rotary_angles(step, 16, 10_000.0)
        return torch.einsum("bqnd,bknd->bnqk", rotate(q, *angles), rotate(k, *angles))

    torch.testing.assert_close(scores(step), scores(step + shift), rtol=1e-3, atol=2e-3)
    assert not torch.allclose(scores(step), scores(2 * step), atol=1e-2)


def test_rotation_keeps_the_dtype_and_is_computed_in_float32():
    x = torch.randn(1, 2, 1, 8)
    angles = rotary_angles(torch.tensor([[3, 700]]), 8, 10_000.0)
    half = rotate(x.bfloat16(), *angles)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half, rotate(x.bfloat16().float(), *angles).bfloat16())
