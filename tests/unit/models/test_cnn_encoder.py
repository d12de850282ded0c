"""One image: its formula in float64, the axis of its channels, its scale, and every mistake by name."""

import copy

import numpy as np
import pytest
import torch

from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.timestep_encoders import CNNTimestepEncoder

B, L, A = 2, 3, 4
RGB = ObsSpec((6, 7, 3), "uint8")
SMALL = {"core": ("gridworld", {}), "d_image": 10, "d_output": 9}


def make_inputs(obs, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    return SeqInputs(
        obs=obs,
        prev_action=scale * torch.randn(B, L, A, generator=generator),
        prev_reward=scale * torch.randn(B, L, generator=generator),
        step=torch.arange(L).expand(B, L),
    )


def pixels(spec=RGB, seed=0):
    rng = np.random.default_rng(seed)
    if spec.dtype == "uint8":
        return torch.from_numpy(rng.integers(0, 256, (B, L, *spec.shape), dtype=np.uint8))
    return torch.from_numpy(rng.random((B, L, *spec.shape)).astype(spec.dtype))


def build(spec=RGB, d_action=A, d_reward=1, **options):
    torch.manual_seed(0)
    return CNNTimestepEncoder({"rgb": spec}, d_action, d_reward, **{**SMALL, **options})


def seen_by_core(encoder, inputs):
    """Return what the core is given, ``(N, C, H, W)``."""
    seen = []
    handle = encoder.image.core.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach().clone()))
    encoder(inputs)
    handle.remove()
    return seen[0]


def linear(layer, x):
    return x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()


@pytest.mark.parametrize("reads_side", [True, False])
def test_formula(reads_side):
    encoder = build(d_action=A if reads_side else 0, d_reward=int(reads_side), activation="tanh")
    with torch.no_grad():
        encoder.norm.weight.copy_(torch.rand(9) + 0.5)
        encoder.norm.bias.copy_(torch.randn(9))
    image = pixels()
    inputs = make_inputs({"rgb": image}, scale=30.0)
    planes = image.double().numpy().reshape(B * L, 6, 7, 3).transpose(0, 3, 1, 2) / 128.0 - 1.0
    core = copy.deepcopy(encoder.image.core).double()
    x = linear(encoder.image.linear, core(torch.from_numpy(planes)).detach().numpy())
    assert x.shape == (B * L, 10)
    if reads_side:
        side = np.concatenate([inputs.prev_reward.numpy()[..., None], inputs.prev_action.numpy()], -1).astype(float)
        side = (np.sign(side) * np.log1p(np.abs(side))).reshape(B * L, 1 + A)
        side = linear(encoder.side_linear, side)
        assert side.shape == (B * L, 12)
        x = np.concatenate([x, side], -1)
    y = linear(encoder.output, np.tanh(x))
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    y = y * encoder.norm.weight.detach().numpy() + encoder.norm.bias.detach().numpy()
    np.testing.assert_allclose(encoder(inputs).detach().numpy().reshape(B * L, 9), y, rtol=1e-4, atol=1e-5)


def test_no_side_input_no_layer_for_it():
    encoder = build(d_action=0, d_reward=0)
    assert encoder.side_linear is None
    assert encoder.output.in_features == 10


@pytest.mark.parametrize(
    ("spec", "channels", "to_planes"),
    [
        (RGB, "auto", (0, 3, 1, 2)),
        (ObsSpec((3, 6, 7), "uint8"), "auto", (0, 1, 2, 3)),
        (ObsSpec((6, 6, 6), "uint8"), "first", (0, 1, 2, 3)),
        (ObsSpec((6, 6, 6), "uint8"), "last", (0, 3, 1, 2)),
        (ObsSpec((5, 7, 6), "uint8"), "last", (0, 3, 1, 2)),
    ],
)
def test_axis_of_the_channels(spec, channels, to_planes):
    encoder, image = build(spec, channels=channels), pixels(spec)
    expected = image.reshape(B * L, *spec.shape).permute(to_planes).float() / 128 - 1
    assert torch.equal(seen_by_core(encoder, make_inputs({"rgb": image})), expected)


def test_two_axes_are_one_channel():
    spec = ObsSpec((6, 7), "uint8")
    image = pixels(spec)
    seen = seen_by_core(build(spec), make_inputs({"rgb": image}))
    assert torch.equal(seen, image.reshape(B * L, 1, 6, 7).float() / 128 - 1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_lie_between_0_and_1(dtype):
    spec = ObsSpec((3, 6, 7), dtype)
    image = pixels(spec)
    seen = seen_by_core(build(spec), make_inputs({"rgb": image}))
    torch.testing.assert_close(seen, image.float().flatten(0, 1) * 2 - 1)
    assert seen.min() < -0.9
    assert seen.max() > 0.9


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_numbers_as_they_are(dtype):
    spec = ObsSpec((6, 6, 3), dtype)
    image = torch.arange(B * L * 108).reshape(B, L, 6, 6, 3) % 11
    image = image.to(getattr(torch, dtype))
    seen = seen_by_core(build(spec, scale="none"), make_inputs({"rgb": image}))
    assert torch.equal(seen, image.flatten(0, 1).permute(0, 3, 1, 2).float())


def test_randomizers_work_on_0_to_1_in_training_only():
    """A crop of half the height, then the scale: in evaluation the middle of ``x / 128 - 1``."""
    spec = ObsSpec((8, 8, 3), "uint8")
    encoder = build(spec, randomizers=[("crop", {"height": 4, "width": 6})], core=("gridworld", {}))
    image = pixels(spec)
    inputs, given = make_inputs({"rgb": image}), []
    encoder.image.randomizers.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    middle = seen_by_core(encoder.eval(), inputs)
    torch.testing.assert_close(middle, image.flatten(0, 1).permute(0, 3, 1, 2).float()[:, :, 2:6, 1:7] / 128 - 1)
    assert 0.0 <= given[0].min() < 0.05
    assert 0.95 < given[0].max() <= 1.0
    torch.manual_seed(0)
    crops = [seen_by_core(encoder.train(), inputs) for _ in range(4)]
    assert any(not torch.equal(crop, middle) for crop in crops)


def test_the_batch_is_not_written():
    for spec in (RGB, ObsSpec((3, 6, 7))):
        image = pixels(spec)
        before = image.clone()
        build(spec)(make_inputs({"rgb": image}))
        assert torch.equal(image, before)


STATE, ROOM = ObsSpec((3,)), ObsSpec((), "int64", (4,))
OTHER = ObsSpec((5, 5, 3), "uint8")


@pytest.mark.parametrize(
    ("obs", "options", "expected"),
    [
        ({"state": STATE}, {}, r"timestep_encoder.type: 'cnn' reads an image .* observes state \(float32 \[3\]\); use"),
        ({"a": RGB, "b": OTHER}, {}, r"timestep_encoder.image_key: null means the only image, .* a, b; use type 'mult"),
        ({"rgb": RGB}, {"image_key": "rbg"}, r"image_key: unknown observation 'rbg'; did you mean 'rgb'\?; the policy"),
        (
            {"rgb": RGB, "state": STATE},
            {"image_key": "state"},
            r"image_key: 'state' is not an image .* state \(float32 \[3\]\); images: rgb",
        ),
        ({"state": STATE}, {"image_key": "state"}, r"there is no image: use timestep_encoder.type 'mlp'"),
        (
            {"rgb": RGB, "state": STATE, "room": ROOM},
            {},
            r"reads the image 'rgb' alone, .* state \(float32 \[3\]\), room \(int64 \[\]\); use type 'multimodal', or "
            r'set observation.keys to \["rgb"\]',
        ),
        ({"a": RGB, "b": OTHER}, {"image_key": "a"}, r"reads the image 'a' alone, but .* b \(uint8 \[5, 5, 3\]\)"),
        ({"rgb": ObsSpec((8, 8, 8), "uint8")}, {}, r"channels: 'auto' cannot tell .* \[8, 8, 8\] .* 'first' or 'last'"),
        ({"rgb": ObsSpec((8, 3, 8), "uint8")}, {}, r"channels: 'auto' cannot tell"),
        ({"rgb": ObsSpec((8, 8, 3), "int64")}, {}, r"scale: 'pixels' reads uint8 .* is int64; set .* to 'none'"),
        (
            {"rgb": RGB},
            {"scale": "none", "randomizers": [("shift", {})]},
            r"randomizers: shift work on pixels, but observation.timestep_encoder.scale is 'none'",
        ),
        ({"rgb": RGB}, {"core": ("nature", {})}, r"timestep_encoder.core: .*36 x 36, got 6 x 7.*gridworld"),
        (
            {"rgb": RGB},
            {"randomizers": [("crop", {"height": 9, "width": 3})]},
            r"observation.timestep_encoder.randomizers: .*crop",
        ),
    ],
)
def test_mistakes(obs, options, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        CNNTimestepEncoder(obs, A, 1, **{**SMALL, **options})
    assert str(caught.value).startswith("observation.timestep_encoder.")


@pytest.mark.parametrize("image_key", [None, "rgb"])
def test_an_action_mask_beside_the_image_is_legal(image_key):
    obs = {"rgb": RGB, "action_mask": ObsSpec((5,), "int8")}
    encoder = CNNTimestepEncoder(obs, 0, 0, image_key=image_key, **SMALL)
    assert list(encoder.obs) == ["rgb"]
    encoder(make_inputs({"rgb": pixels(), "action_mask": torch.ones(B, L, 5)}))
