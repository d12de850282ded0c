"""Every modality against a reference written by hand in NumPy, and every mistake by name."""

import copy

import numpy as np
import pytest
import torch

from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ObsSpec
from seqrl.models.timestep_encoders import (
    DepthModality,
    GoalModality,
    ImageModality,
    ScanModality,
    TokensModality,
    VectorModality,
)

B, L = 2, 3
GRID = ("gridworld", {})
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def linear(layer, x):
    return x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()


def leaky(x):
    return np.where(x > 0, x, 0.01 * x)


# --------------------------------------------------------------------------------------------- vector
def test_vector_of_numbers():
    modality = VectorModality("v", ObsSpec((2, 2)), num_layers=1, d_hidden=5, d_output=3)
    x = 10 * torch.randn(B, L, 2, 2) + 4
    mask = torch.tensor([[True, True, False], [True, False, False]])
    modality.update(modality.stats(x, mask))
    real = x[mask].reshape(-1, 4).double().numpy()
    mean = 0.5 * real.mean(0)  # the initial mean 0 and variance 1 count as one batch
    variance = 0.5 * (1 + (real**2).mean(0)) - mean**2
    flat = (x.reshape(B, L, 4).double().numpy() - mean) / np.sqrt(variance)
    np.testing.assert_allclose(modality.normalizer.mean.numpy(), mean, rtol=1e-3)
    expected = linear(modality.mlp[2], leaky(linear(modality.mlp[0], flat)))
    np.testing.assert_allclose(modality(x).detach().numpy(), expected, rtol=1e-2, atol=1e-3)


def test_vector_of_categories():
    modality = VectorModality("v", ObsSpec((2,), "int64", (3, 4)), normalize_inputs=False, d_output=5)
    x = torch.stack([torch.randint(0, 3, (B, L)), torch.randint(0, 4, (B, L))], -1)
    one_hot = np.concatenate([np.eye(3)[x[..., 0]], np.eye(4)[x[..., 1]]], -1)
    np.testing.assert_allclose(modality(x).detach().numpy(), linear(modality.mlp[0], one_hot), **CLOSE)


# ------------------------------------------------------------------------------------- image and depth
def test_image():
    modality = ImageModality("i", ObsSpec((6, 5, 3), "uint8"), core=GRID, d_output=7)
    x = torch.randint(0, 256, (B, L, 6, 5, 3), dtype=torch.uint8)
    planes = x.flatten(0, 1).double().numpy().transpose(0, 3, 1, 2) / 128 - 1
    features = copy.deepcopy(modality.reader.core).double()(torch.from_numpy(planes)).detach().numpy()
    np.testing.assert_allclose(
        modality(x).detach().numpy(), linear(modality.reader.linear, features).reshape(B, L, 7), **CLOSE
    )


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 1), (1, 6, 5)])
@pytest.mark.parametrize(("dtype", "unit"), [("float32", 1.0), ("uint16", 1000.0), ("uint8", 50.0)])
def test_depth_scales_clips_and_reads_no_return_as_far(shape, dtype, unit):
    largest = 4.0 * unit
    modality = DepthModality("d", ObsSpec(shape, dtype), max_depth=largest, core=GRID)
    rng = np.random.default_rng(0)
    depth = rng.uniform(0, 5 * unit, (B, L, *shape)).astype(dtype)
    if dtype == "float32":
        depth.reshape(-1)[:4] = [np.inf, -np.inf, np.nan, -1.0]
    far = np.where(np.isfinite(depth.astype(float)), depth.astype(float), largest)
    expected = (np.clip(far, 0, largest) / largest * 2 - 1).reshape(B * L, 1, 6, 5)
    seen = []
    modality.reader.core.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    modality(torch.from_numpy(depth))
    np.testing.assert_allclose(seen[0].detach().numpy(), expected, **CLOSE)
    assert seen[0].min() >= -1
    assert seen[0].max() == 1


# ----------------------------------------------------------------------------------------------- scan
@pytest.mark.parametrize("pooling", ["none", "mean", "max"])
@pytest.mark.parametrize("max_range", [None, 8.0])
def test_scan(pooling, max_range):
    options = {"channels": [3, 4], "kernels": [3, 2], "strides": [2, 1]}
    modality = ScanModality("s", ObsSpec((2, 9)), pooling=pooling, max_range=max_range, d_output=5, **options)
    x = 10 * torch.rand(B, L, 2, 9)
    if max_range:
        x[0, 0, 0, :3] = torch.tensor([torch.inf, torch.nan, -2.0])
    y = x.flatten(0, 1).double().numpy()
    if max_range is None:
        y = np.sign(y) * np.log1p(np.abs(y))
    else:
        y = np.clip(np.where(np.isfinite(y), y, max_range), 0, max_range) / max_range * 2 - 1
    for layer, kernel, stride in zip((modality.conv[0], modality.conv[2]), (3, 2), (2, 1), strict=True):
        weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
        steps = range(0, y.shape[-1] - kernel + 1, stride)
        y = np.stack([np.einsum("nck,ock->no", y[..., i : i + kernel], weight) + bias for i in steps], -1)
        y = leaky(y)
    y = {"none": y.reshape(B * L, -1), "mean": y.mean(-1), "max": y.max(-1)}[pooling]
    np.testing.assert_allclose(modality(x).detach().numpy(), linear(modality.linear, y).reshape(B, L, 5), **CLOSE)


def test_the_shortest_scan_is_the_shortest():
    options = {"channels": [2, 2, 2], "kernels": [5, 3, 2], "strides": [3, 2, 1]}
    with pytest.raises(ConfigError, match=r"modalities.s.kernels: .* has 16 ranges, .* need at least 17; take fewer"):
        ScanModality("s", ObsSpec((16,)), **options)
    modality = ScanModality("s", ObsSpec((17,)), **options)
    assert modality.conv(torch.zeros(1, 1, 17)).shape == (1, 2, 1)


# --------------------------------------------------------------------------------------------- tokens
def gru_reference(modality, tokens):
    """Return the last state of a GRU (Cho et al., 2014) over the embeddings of some tokens."""
    weights = {k: v.detach().double().numpy() for k, v in modality.gru.named_parameters()}
    table = modality.embedding.weight.detach().double().numpy()
    h = np.zeros(weights["weight_hh_l0"].shape[1])

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    for token in tokens:
        from_x = np.split(weights["weight_ih_l0"] @ table[token] + weights["bias_ih_l0"], 3)
        from_h = np.split(weights["weight_hh_l0"] @ h + weights["bias_hh_l0"], 3)
        reset, update = (sigmoid(from_x[i] + from_h[i]) for i in (0, 1))
        new = np.tanh(from_x[2] + reset * from_h[2])
        h = (1 - update) * new + update * h
    return h


def test_tokens_without_pads_and_unknown_ones():
    modality = TokensModality("t", ObsSpec((4,), "int32"), vocabulary=6, pad_token=3, d_hidden=5, d_output=4)
    rows = [[1, 2, 0, 5], [3, 1, 3, 2], [4, 3, 3, 3], [3, 3, 3, 3], [-7, 1, 900, 2], [3, 3, 3, 0]]
    kept = [[1, 2, 0, 5], [1, 2], [4], [], [6, 1, 6, 2], [0]]
    actual = modality(torch.tensor(rows, dtype=torch.int32).reshape(B, L, 4))
    expected = np.stack([linear(modality.linear, gru_reference(modality, row)) for row in kept])
    np.testing.assert_allclose(actual.detach().numpy(), expected.reshape(B, L, 4), **CLOSE)


def test_tokens_of_categories_know_their_vocabulary():
    modality = TokensModality("t", ObsSpec((3,), "int64", (2, 7, 4)), d_hidden=5, d_output=4)
    assert modality.embedding.num_embeddings == 7 + 1
    x = torch.stack([torch.randint(0, n, (B, L)) for n in (2, 7, 4)], -1)
    expected = [linear(modality.linear, gru_reference(modality, row)) for row in x.reshape(-1, 3).tolist()]
    np.testing.assert_allclose(modality(x).detach().numpy(), np.reshape(expected, (B, L, 4)), **CLOSE)
    single = TokensModality("t", ObsSpec((), "int64", (5,)), d_output=4)
    assert single(torch.randint(0, 5, (B, L))).shape == (B, L, 4)


# ----------------------------------------------------------------------------------------------- goal
@pytest.mark.parametrize("spec", [ObsSpec((3, 2)), ObsSpec((6,))])
def test_goals_share_their_network_and_are_joined_in_order(spec):
    num_goals = 3 if len(spec.shape) == 1 else None
    modality = GoalModality("g", spec, num_goals=num_goals, d_hidden=8, d_goal=4, d_output=5, normalize_inputs=False)
    x = torch.randn(B, L, *spec.shape)
    goals = x.reshape(B, L, 3, 2).double().numpy()
    parts = [linear(modality.mlp[2], leaky(linear(modality.mlp[0], goals[:, :, i]))) for i in range(3)]
    np.testing.assert_allclose(
        modality(x).detach().numpy(), linear(modality.linear, leaky(np.concatenate(parts, -1))), **CLOSE
    )


def test_goals_share_their_statistics():
    modality = GoalModality("g", ObsSpec((3, 2)))
    x = 5 + torch.randn(B, L, 3, 2)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    stats = modality.stats(x, mask)
    assert stats["inputs"][0, -1] == 3 * 3
    modality.update(stats)
    torch.testing.assert_close(modality.normalizer.mean, 0.5 * x[mask].mean((0, 1)), rtol=1e-3, atol=1e-4)


# ------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("cls", "spec", "options", "expected"),
    [
        (ImageModality, ObsSpec((4,)), {}, r"type: e \(float32 \[4\]\) is not an image, which has three axes"),
        (ImageModality, ObsSpec((8, 8, 8), "uint8"), {}, r"channels: 'auto' cannot tell"),
        (ImageModality, ObsSpec((8, 8, 3), "uint8"), {}, r"core: .*at least 36 x 36, got 8 x 8"),
        (DepthModality, ObsSpec((4, 4, 3)), {"max_depth": 1.0}, r"e \(float32 \[4, 4, 3\]\) is not a depth image"),
        (DepthModality, ObsSpec((4,)), {"max_depth": 1.0}, "is not a depth image"),
        (ScanModality, ObsSpec((2, 3, 4)), {}, r"type: .* is not a scan, which has the shape \(N,\) or \(C, N\)"),
        (ScanModality, ObsSpec((9,), "int64", (2,) * 9), {}, "is not a scan"),
        (TokensModality, ObsSpec((4,)), {}, r"type: e \(float32 \[4\]\) holds no integers"),
        (TokensModality, ObsSpec((4,), "uint8"), {}, r"vocabulary: e \(uint8 \[4\]\) does not say how many tokens"),
        (TokensModality, ObsSpec((2,), "int64", (3, 9)), {"vocabulary": 5}, "has 9 categories, but vocabulary is 5"),
        (GoalModality, ObsSpec((7,)), {"num_goals": 2}, r"num_goals: .* holds 7 numbers, which are not 2 goals"),
        (GoalModality, ObsSpec((2,), "int64", (3, 3)), {}, "holds categories, not goals"),
    ],
)
def test_mistakes(cls, spec, options, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        cls("e", spec, **options)
    assert str(caught.value).startswith("observation.timestep_encoder.modalities.e.")


def test_several_crops_are_read_one_by_one_and_averaged():
    torch.manual_seed(0)
    options = {"core": ("drq", {}), "d_output": 5}
    crop = {"height": 16, "width": 16}
    image = ImageModality("x", ObsSpec((3, 20, 20)), randomizers=[("crop", {**crop, "num_crops": 4})], **options)
    x = torch.rand(2, 3, 3, 20, 20)
    torch.manual_seed(1)
    averaged = image(x)
    torch.manual_seed(1)
    views = image.reader.randomizers(x)
    expected = image.reader.linear(image.reader.core(2 * views.flatten(0, 1) - 1)).reshape(2, 4, 3, 5).mean(1)
    torch.testing.assert_close(averaged, expected)
    assert image.eval()(x).shape == (2, 3, 5)
