"""Randomizers: one draw per window, none in evaluation, and the pictures that come out, against loops in NumPy."""

import colorsys

import numpy as np
import pytest
import torch

from seqrl.core.errors import ConfigError, RegistryError
from seqrl.core.registry import IMAGE_RANDOMIZERS
from seqrl.models.image_randomizers import build_randomizers, jitter_color

NAMES = IMAGE_RANDOMIZERS.names()
SHAPE = (3, 10, 13)
OPTIONS = {"crop": {"height": 7, "width": 8}}
"""What a randomizer cannot do without."""
AMOUNTS = ("brightness", "contrast", "saturation", "hue")


def build(name, shape=SHAPE, **options):
    return build_randomizers([(name, {**OPTIONS.get(name, {}), **options})], shape)


def videos(num, length=3, shape=SHAPE, seed=0):
    return torch.rand(num, length, *shape, generator=torch.Generator().manual_seed(seed))


def draw(randomizer, x, seed=0):
    torch.manual_seed(seed)
    return randomizer(x)


# ------------------------------------------------------------------------------------------- all randomizers
@pytest.mark.parametrize("name", NAMES)
def test_one_draw_per_window(name):
    randomizer, x = build(name, share=1.0), videos(20, 1).expand(20, 4, *SHAPE)
    out = draw(randomizer, x)
    assert out.shape == (20, 4, *randomizer.output_shape)
    is_same = [bool(torch.equal(out[:, 0], out[:, t])) for t in (1, 2, 3)]
    assert is_same == [name != "noise"] * 3
    alike = draw(randomizer, x[:1].expand(20, 4, *SHAPE))
    assert len(torch.unique(alike.flatten(1), dim=0)) > 10, "windows have draws of their own"


@pytest.mark.parametrize("name", NAMES)
def test_frames_and_windows_do_not_mix(name):
    randomizer, x = build(name, share=1.0), videos(3)
    out = draw(randomizer, x)
    other = x.clone()
    other[1, 2] = videos(1, 1, seed=5)[0, 0]
    changed = (draw(randomizer, other) != out).flatten(2).any(-1)
    assert changed.tolist() == [[False] * 3, [False, False, True], [False] * 3]


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_is_deterministic_and_draws_nothing(name):
    randomizer, x = build(name).eval(), videos(4)
    state = torch.get_rng_state()
    out = randomizer(x)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(randomizer(x), out)
    expected = x[..., 1:8, 2:10] if name == "crop" else x
    assert torch.equal(out, expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_share_of_altered_windows(name):
    x = videos(2000, 1, (3, 8, 9))
    plain = build(name, (3, 8, 9)).eval()(x)
    for share in (0.0, 0.3, 1.0):
        altered = (draw(build(name, (3, 8, 9), share=share), x) != plain).flatten(1).any(-1).float().mean()
        chance = {"shift": 1 / 81, "crop": 1 / 4}.get(name, 0.0)  # of a draw that changes nothing
        assert float(altered) == pytest.approx(share * (1 - chance), abs=0.04)


@pytest.mark.parametrize("name", NAMES)
def test_training_draws_from_the_global_generator_and_stays_in_range(name):
    randomizer, x = build(name), videos(16)
    before = x.clone()
    out = draw(randomizer, x, 1)
    assert torch.equal(out, draw(randomizer, x, 1))
    assert not torch.equal(out, draw(randomizer, x, 2))
    assert out.dtype == x.dtype
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1
    assert torch.equal(x, before), "the input is left alone"


# ------------------------------------------------------------------------------------------- shift and crop
def places(out, pictures):
    """Return for each window the offsets at which its frames all equal the cut-out of ``pictures``."""
    height, width = out.shape[-2:]
    found = []
    for window, picture in zip(out, pictures, strict=True):
        rows, columns = (n - m + 1 for n, m in zip(picture.shape[-2:], (height, width), strict=True))
        fits = [
            (i, j)
            for i in range(rows)
            for j in range(columns)
            if np.array_equal(picture[..., i : i + height, j : j + width], window)
        ]
        assert len(fits) == 1
        found.append(fits[0])
    return np.array(found)


@pytest.mark.parametrize("shape", [(3, 10, 13), (1, 9, 5), (2, 3, 3)])
def test_shift_is_edge_padding_and_a_cut(shape):
    x = videos(300, 2, shape)
    out = draw(build("shift", shape, pad=2, share=1.0), x).numpy()
    padded = np.pad(x.numpy(), [(0, 0)] * 3 + [(2, 2)] * 2, mode="edge")
    offsets = places(out, padded)
    counts = np.zeros((5, 5))
    np.add.at(counts, tuple(offsets.T), 1)
    assert counts.min() > 0
    assert counts.max() < 30  # 12 are expected


def test_shift_by_default_reaches_four_pixels():
    x = videos(800, 1)
    offsets = places(draw(build("shift"), x).numpy(), np.pad(x.numpy(), [(0, 0)] * 3 + [(4, 4)] * 2, mode="edge"))
    assert set(offsets[:, 0]) == set(offsets[:, 1]) == set(range(9))
    assert (offsets == 4).all(1).mean() == pytest.approx(0.25 + 0.75 / 81, abs=0.05)


def test_crop_is_a_cut_from_anywhere():
    x = videos(300, 2)
    offsets = places(draw(build("crop", height=8, width=10), x).numpy(), x.numpy())
    assert {tuple(o) for o in offsets} == {(i, j) for i in range(3) for j in range(4)}


def test_several_crops_follow_one_another_and_evaluation_takes_the_centre():
    x = videos(40, 2)
    crop = build("crop", height=8, width=10, num_crops=3)
    views = draw(crop, x)
    assert views.shape == (120, 2, *x.shape[2:3], 8, 10)
    offsets = places(views.numpy(), x.repeat_interleave(3, dim=0).numpy()).reshape(40, 3, 2)
    assert (offsets[:, 0] != offsets[:, 1]).any()
    assert torch.equal(crop.eval()(x), build("crop", height=8, width=10).eval()(x))


def test_crop_of_the_whole_image_is_the_identity():
    x = videos(3)
    assert torch.equal(draw(build("crop", height=10, width=13), x), x)


def test_crop_that_is_too_large():
    with pytest.raises(ConfigError) as caught:
        build("crop", height=11, width=20)
    assert str(caught.value) == (
        "image randomizer 'crop': images are 10 x 13 (height x width), so height must be in 1 to 10, got 11; "
        "width must be in 1 to 13, got 20"
    )


# ---------------------------------------------------------------------------------------- colour and noise
def grey(p):
    return 0.2989 * p[0] + 0.587 * p[1] + 0.114 * p[2]


def reference_colors(frame, brightness, contrast, saturation, hue):
    """Return ``(3, H, W)`` with other colours, pixel by pixel, by the definitions of torchvision's documentation."""
    pixels = [tuple(p) for p in frame.reshape(3, -1).T.astype(np.float64)]
    limited = lambda p: tuple(min(1.0, max(0.0, float(c))) for c in p)  # noqa: E731
    pixels = [limited(brightness * c for c in p) for p in pixels]
    mean = np.mean([grey(p) for p in pixels])
    pixels = [limited(contrast * c + (1 - contrast) * mean for c in p) for p in pixels]
    pixels = [limited(saturation * c + (1 - saturation) * grey(p) for c in p) for p in pixels]
    turned = []
    for p in pixels:
        h, s, v = colorsys.rgb_to_hsv(*p)
        turned.append(colorsys.hsv_to_rgb((h + hue) % 1.0, s, v))
    return np.array(turned).T.reshape(frame.shape)


def test_colors_equal_the_reference():
    x = videos(12, 2, (3, 5, 6))
    x[0] = 0.4  # grey
    x[1, :, 0] = 1.0
    x[2, :, 1] = x[2, :, 2]  # ties
    x[3, :, 1] = x[3, :, 0]
    x[4] = x[4].round()
    x[5] = 0.0
    low, high = torch.tensor([0.3, 0.3, 0.0, -0.5]), torch.tensor([1.7, 1.7, 2.0, 0.5])
    amounts = low + (high - low) * torch.rand(12, 4, generator=torch.Generator().manual_seed(1))
    amounts[6] = torch.tensor([1.0, 1.0, 1.0, 0.5])
    amounts[7] = torch.tensor([1.0, 1.0, 0.0, 0.0])
    out = jitter_color(x, amounts)
    for b in range(12):
        for t in range(2):
            expected = reference_colors(x[b, t].numpy(), *amounts[b].tolist())
            np.testing.assert_allclose(out[b, t].numpy(), expected, atol=2e-5)


def test_neutral_colors_are_the_identity_and_a_third_of_the_wheel_turns_the_channels():
    x = videos(2)
    torch.testing.assert_close(jitter_color(x, torch.tensor([[1.0, 1, 1, 0]] * 2)), x, rtol=0, atol=1e-6)
    turned = jitter_color(x, torch.tensor([[1.0, 1, 1, 1 / 3]] * 2))
    torch.testing.assert_close(turned, x.roll(1, dims=2), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("given", "low", "high"), [(0.4, 0.6, 1.4), (1.5, 0.0, 2.5)])
def test_range_of_the_brightness(given, low, high):
    x = torch.full((2000, 1, 3, 1, 1), 0.3)
    factors = draw(build("color", (3, 1, 1), brightness=given, contrast=0.0, saturation=0.0, hue=0.0), x) / x
    factors = factors.flatten(1)[:, 0].numpy()
    assert np.quantile(factors, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx(np.linspace(low, high, 5), abs=0.08)


@pytest.mark.parametrize(("index", "name"), list(enumerate(AMOUNTS)))
def test_every_option_moves_its_own_amount_only(index, name, monkeypatch):
    seen = {}
    monkeypatch.setattr("seqrl.models.image_randomizers.jitter_color", lambda x, a: seen.update(amounts=a) or x)
    amounts = dict.fromkeys(AMOUNTS, 0.0) | {name: 0.5}
    draw(build("color", **amounts), videos(1000, 1))
    neutral = torch.tensor([1.0, 1.0, 1.0, 0.0])
    ends = torch.stack([seen["amounts"].amin(0), seen["amounts"].amax(0)]) - neutral
    expected = torch.zeros(2, 4)
    expected[:, index] = torch.tensor([-0.5, 0.5])
    torch.testing.assert_close(ends, expected, rtol=0, atol=0.01)


def test_colors_need_three_channels():
    with pytest.raises(ConfigError, match=r"'color' needs images of 3 channels .*, got 9"):
        build("color", (9, 8, 8))


def test_noise_has_its_mean_and_deviation_and_is_limited():
    x = torch.full((50, 4, *SHAPE), 0.5)
    added = draw(build("noise", mean=0.1, std=0.05), x) - 0.5
    assert float(added.mean()) == pytest.approx(0.1, abs=1e-3)
    assert float(added.std()) == pytest.approx(0.05, abs=1e-3)
    assert len(torch.unique(added)) > 0.5 * added.numel()
    strong = draw(build("noise", std=3.0), x)
    assert (float(strong.min()), float(strong.max())) == (0.0, 1.0)


# ---------------------------------------------------------------------------------------------------- chains
def test_a_chain_passes_the_size_on():
    chain = build_randomizers(
        [("crop", {"height": 8, "width": 9}), ("shift", {"pad": 1}), ("crop", {"height": 5, "width": 9})], SHAPE
    )
    assert chain.output_shape == (3, 5, 9)
    assert [r.output_shape for r in chain.randomizers] == [(3, 8, 9), (3, 8, 9), (3, 5, 9)]
    x = videos(4)
    assert draw(chain, x).shape == (4, 3, 3, 5, 9)
    assert torch.equal(chain.eval()(x), x[..., 2:7, 2:11])
    with pytest.raises(ConfigError, match="images are 5 x 9"):
        build_randomizers([("crop", {"height": 5, "width": 9}), ("crop", {"height": 6, "width": 9})], SHAPE)


def test_a_chain_applies_in_order():
    x = videos(6)
    chain = build_randomizers([("noise", {"std": 0.2}), ("shift", {})], SHAPE)
    noise, shift = build("noise", std=0.2), build("shift")
    out = draw(chain, x)
    torch.manual_seed(0)
    assert torch.equal(out, shift(noise(x)))


def test_an_empty_chain_is_the_identity():
    chain, x = build_randomizers([], SHAPE), videos(1)
    assert chain.output_shape == SHAPE
    assert torch.equal(chain(x), x)
    with pytest.raises(RegistryError, match=r"unknown image randomizer 'colour'; did you mean 'color'\?"):
        build("colour")
