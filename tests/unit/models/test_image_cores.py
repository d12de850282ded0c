"""Image cores: which sizes they take, what their layers compute, how they begin, and weights from a file."""

import os
import pickle
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from seqrl.core.errors import ConfigError, RegistryError
from seqrl.core.registry import IMAGE_CORES
from seqrl.models.image_cores import (
    ConvolutionalCore,
    Window,
    base,
    build_image_core,
    skip_local_weights,
    smallest_input,
)
from seqrl.models.image_cores.base import output_size
from seqrl.models.image_cores.convolutions import delta_orthogonal_
from seqrl.models.image_cores.pooling import SpatialSoftmax
from seqrl.models.image_cores.resnet import FrozenBatchNorm2d

NAMES = IMAGE_CORES.names()
POOLS = ("flatten", "mean", "spatial_softmax")


def build(name, shape, **options):
    torch.manual_seed(0)
    return build_image_core(name, options, shape)


def smallest(name, pool):
    return smallest_input(IMAGE_CORES.get(name).windows, 2 if pool == "spatial_softmax" else 1)


def images(*shape, seed=0):
    return 2 * torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) - 1


# ------------------------------------------------------------------------------------------------ all cores
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_size_works_and_one_less_is_refused(name, pool):
    size = smallest(name, pool)
    core = build(name, (3, size, size), pool=pool)
    assert core(images(2, 3, size, size)).shape == (2, core.d_output)
    for height, width in ((size - 1, size), (size, size - 1), (size - 1, size - 1)):
        expected = f"image core {name!r} with pool {pool!r} needs images of at least {size} x {size}, got "
        with pytest.raises(ConfigError, match=re.escape(f"{expected}{height} x {width};")):
            build(name, (3, height, width), pool=pool)


def test_a_core_of_ones_own_without_a_choice_of_pool_is_named_beside_the_others(registries_as_before):
    @IMAGE_CORES.register("plain")
    class Plain(ConvolutionalCore):
        windows = (Window(3, 1),)

        def __init__(self, shape):
            super().__init__(shape, 4, "flatten", 0)
            self.layer = nn.Conv2d(shape[0], 4, 3)

        def features(self, x):
            return self.layer(x)

    with pytest.raises(ConfigError, match="plain takes 3 x 3 and larger"):
        build("nature", (3, 8, 8))


@pytest.mark.parametrize("name", [n for n in NAMES if smallest(n, "flatten") > 1])
def test_the_layers_themselves_fail_at_one_less(name, monkeypatch):
    monkeypatch.setattr(base, "_check_size", lambda *_: None)
    size = smallest(name, "flatten")
    core = build(name, (3, size - 1, size - 1), pool="mean")
    with pytest.raises(RuntimeError, match="Kernel size"):
        core.features(images(1, 3, size - 1, size - 1))


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("extra", [(0, 7), (1, 0), (5, 18)])
def test_shapes_of_any_aspect_ratio(name, pool, extra):
    size = smallest(name, "spatial_softmax")
    shape = (4, size + extra[0], size + extra[1])
    core = build(name, shape, pool=pool, num_keypoints=5)
    x = images(2, *shape)
    height, width = (output_size(core.windows, n) for n in shape[1:])
    channels = {"drq": 32, "impala": 32, "resnet18": 512, "resnet50": 2048}.get(name, 64)
    assert core.features(x).shape == (2, channels, height, width)
    assert core.d_output == {"flatten": channels * height * width, "mean": channels, "spatial_softmax": 10}[pool]
    assert core(x).shape == (2, core.d_output)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_learns_and_no_buffer_moves(name):
    size = max(9, smallest(name, "spatial_softmax"))
    core = build(name, (3, size, size), pool="spatial_softmax").train()
    x = images(4, 3, size, size)
    before = {k: v.clone() for k, v in core.named_buffers()}
    y = core(x)
    y.square().sum().backward()
    dead = [k for k, p in core.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert [k for k in dead if k != "pool.maps.bias"] == [], "a bias of a softmax over positions changes nothing"
    assert all(torch.equal(v, before[k]) for k, v in core.named_buffers())
    torch.testing.assert_close(core.eval()(x), y, rtol=0, atol=0)
    torch.testing.assert_close(core(x[1:2]), y[1:2], rtol=1e-4, atol=1e-5)


def test_the_message_names_what_else_would_do(monkeypatch):
    with pytest.raises(ConfigError) as caught:
        build("nature", (3, 32, 40))
    assert str(caught.value) == (
        "image core 'nature' with pool 'flatten' needs images of at least 36 x 36, got 32 x 40; "
        "drq takes 15 x 15 and larger, gridworld takes 4 x 4 and larger, impala takes any size, "
        "resnet18 takes 33 x 33 and larger, resnet50 takes 33 x 33 and larger"
    )
    with pytest.raises(ConfigError, match=r"at least 33 x 33, got 32 x 32; .*'flatten' or 'mean' takes any size"):
        build("resnet18", (3, 32, 32))
    monkeypatch.setitem(IMAGE_CORES._entries, "a_plug_in", lambda shape: None)
    with pytest.raises(ConfigError, match=r"'drq' with pool 'flatten' .*got 9 x 9; gridworld takes 4 x 4"):
        build("drq", (3, 9, 9))
    with pytest.raises(RegistryError, match=r"unknown image core 'impalla'; did you mean 'impala'\?"):
        build("impalla", (3, 32, 32))


@pytest.mark.parametrize("name", NAMES)
def test_the_section_tells_the_smallest_size(name):
    import seqrl.configs.sections.images  # noqa: F401  (registers the sections)

    size, told = smallest(name, "flatten"), re.search(r"(\d+) x \1 and more", IMAGE_CORES.sections[name].__doc__)
    assert (int(told[1]) if told else 1) == size


def has_pixels(windows, size, output):
    """Tell whether every layer has something to work on, and at least ``output`` pixels come out."""
    for kernel, stride, padding in windows:
        if size < 1 or size + 2 * padding < kernel:
            return False
        size = len(range(0, size + 2 * padding - kernel + 1, stride))
    return size >= output


@pytest.mark.parametrize("output", [1, 2, 3])
def test_smallest_input_is_the_least_that_leaves_enough(output):
    rng = np.random.default_rng(0)
    for _ in range(50):
        windows = [Window(int(k), int(s), int(p)) for k, s, p in rng.integers((2, 1, 0), (6, 4, 2), (3, 3))]
        size = smallest_input(windows, output)
        assert has_pixels(windows, size, output)
        assert not has_pixels(windows, size - 1, output)


# ------------------------------------------------------------------------------------------------- pooling
def test_spatial_softmax_equals_a_reference_in_float64():
    torch.manual_seed(0)
    pool, x = SpatialSoftmax((6, 4, 7), 3), images(2, 6, 4, 7)
    out = pool(x)
    weight, bias = pool.maps.weight.detach().double()[:, :, 0, 0], pool.maps.bias.detach().double()
    assert out.shape == (2, 6)
    for n in range(2):
        for k in range(3):
            score = np.array(
                [[float(weight[k] @ x[n, :, i, j].double() + bias[k]) for j in range(7)] for i in range(4)]
            )
            share = np.exp(score) / np.exp(score).sum()
            mean_x = sum(share[i, j] * (-1 + 2 * j / 6) for i in range(4) for j in range(7))
            mean_y = sum(share[i, j] * (-1 + 2 * i / 3) for i in range(4) for j in range(7))
            assert out[n, 2 * k : 2 * k + 2].tolist() == pytest.approx([mean_x, mean_y], abs=1e-6)


def test_spatial_softmax_points_at_a_bright_pixel():
    pool = SpatialSoftmax((1, 5, 9), 1)
    nn.init.ones_(pool.maps.weight)
    for (row, column), expected in {(0, 8): (1, -1), (4, 0): (-1, 1), (2, 6): (0.5, 0), (1, 4): (0, -0.5)}.items():
        x = torch.zeros(1, 1, 5, 9)
        x[0, 0, row, column] = 50.0
        assert pool(x)[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert list(pool.state_dict()) == ["maps.weight", "maps.bias"]


def test_mean_pool():
    flat, mean = build("drq", (3, 20, 22)), build("drq", (3, 20, 22), pool="mean")
    x = images(2, 3, 20, 22)
    torch.testing.assert_close(mean(x), flat(x).reshape(2, 32, -1).mean(-1))


# ----------------------------------------------------------------------------------------- initial weights
@pytest.mark.parametrize(("inputs", "outputs"), [(8, 8), (3, 32)])
def test_delta_orthogonal_convolutions_scale_the_norm_by_the_gain(inputs, outputs):
    torch.manual_seed(0)
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    delta_orthogonal_(conv.weight, 1.7)
    x = images(4, inputs, 6, 5)
    torch.testing.assert_close(conv(x).square().sum(1).sqrt(), 1.7 * x.square().sum(1).sqrt())
    rest = conv.weight.detach().clone()
    rest[:, :, 1, 1] = 0
    assert not rest.any()


def test_delta_orthogonal_with_fewer_outputs_and_an_even_kernel():
    weight = torch.randn(4, 10, 8, 4)
    delta_orthogonal_(weight, 2.0)
    centre = weight[:, :, 4, 2].clone()
    torch.testing.assert_close(centre @ centre.T, 4 * torch.eye(4), rtol=1e-5, atol=1e-5)
    weight[:, :, 4, 2] = 0
    assert not weight.any()


@pytest.mark.parametrize(("name", "is_delta"), [("nature", True), ("drq", True), ("gridworld", False)])
def test_which_cores_begin_delta_orthogonal(name, is_delta):
    core = build(name, (3, 40, 40))
    for conv in (m for m in core.modules() if isinstance(m, nn.Conv2d)):
        taps = int((conv.weight.abs().sum((0, 1)) > 0).sum())
        assert (taps == 1) == is_delta
        assert bool(conv.bias.any()) == (not is_delta)
        if is_delta:
            norms = conv.weight.detach().square().sum((0, 1)).max() / min(conv.weight.shape[:2])
            assert float(norms) == pytest.approx(2.0, rel=1e-5)


# -------------------------------------------------------------------------------------------- architectures
def num_weights(core):
    return sum(p.numel() for p in core.parameters())


def test_known_sizes():
    nature = build("nature", (4, 84, 84))
    assert (nature.d_output, num_weights(nature)) == (7 * 7 * 64, 77_984)  # Mnih et al., before the linear layers
    drq = build("drq", (9, 84, 84))
    assert (drq.d_output, num_weights(drq)) == (35 * 35 * 32, 9 * 288 + 3 * 32 * 288 + 4 * 32)
    assert build("drq", (9, 84, 84), channels=8).d_output == 35 * 35 * 8
    grid = build("gridworld", (3, 7, 7))
    assert (grid.d_output, num_weights(grid)) == (4 * 4 * 64, 3 * 64 + 16 + 16 * 128 + 32 + 32 * 256 + 64)
    impala = build("impala", (3, 72, 96), use_group_norm=False)
    assert (impala.d_output, num_weights(impala)) == (9 * 12 * 32, 97_600)
    assert build("impala", (3, 64, 64), block_channels=[8, 20]).d_output == 16 * 16 * 20
    assert num_weights(build("resnet18", (3, 64, 64), pool="mean")) == 11_689_512 - 1000 * 513  # less the last layer
    assert num_weights(build("resnet50", (3, 64, 64), pool="mean")) == 25_557_032 - 1000 * 2049


@pytest.mark.parametrize("use_group_norm", [True, False])
def test_impala_equals_its_description(use_group_norm):
    core = build("impala", (3, 21, 18), use_group_norm=use_group_norm, block_channels=[16, 32])
    weights, f = iter(core.parameters()), nn.functional
    x = y = images(2, 3, 21, 18)
    for channels in (16, 32):
        y = f.conv2d(y, next(weights), next(weights), padding=1)
        y = f.max_pool2d(y, 3, 2, 1)
        for _ in range(2):
            z = f.conv2d(y.relu(), next(weights), next(weights), padding=1)
            y = y + f.conv2d(z.relu(), next(weights), next(weights), padding=1)
        y = f.group_norm(y, channels // 16, next(weights), next(weights)) if use_group_norm else y
    assert next(weights, None) is None
    torch.testing.assert_close(core(x), y.relu().flatten(1))


@pytest.mark.parametrize(("name", "activation"), [("nature", "tanh"), ("drq", "silu"), ("gridworld", "gelu")])
def test_the_activation_follows_every_convolution(name, activation):
    core, f = build(name, (3, 40, 40), activation=activation), getattr(torch, activation, None)
    f = f or getattr(nn.functional, activation)
    x = y = images(2, 3, 40, 40)
    for conv in (m for m in core.modules() if isinstance(m, nn.Conv2d)):
        y = f(nn.functional.conv2d(y, conv.weight, conv.bias, conv.stride))
    torch.testing.assert_close(core(x), y.flatten(1))


# -------------------------------------------------------------------------------------------------- resnet18
def torchvision_names():
    """Return the names of torchvision's resnet18, all but those of ``fc``, written down from its documentation."""
    norm = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    names = ["conv1.weight", *(f"bn1.{n}" for n in norm)]
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            prefix = f"layer{stage}.{block}"
            for i in (1, 2):
                names += [f"{prefix}.conv{i}.weight", *(f"{prefix}.bn{i}.{n}" for n in norm)]
            if stage > 1 and block == 0:
                names += [f"{prefix}.downsample.0.weight", *(f"{prefix}.downsample.1.{n}" for n in norm)]
    return names


def test_a_resnet50_has_torchvisions_names():
    with skip_local_weights():
        own = build("resnet50", (3, 8, 8), weights="none.pth", pool="mean").state_dict()
    blocks = [(stage, block) for stage, num in enumerate((3, 4, 6, 3), start=1) for block in range(num)]
    convs = {f"layer{s}.{b}.conv{i}.weight" for s, b in blocks for i in (1, 2, 3)}
    shortcuts = {f"layer{s}.0.downsample.0.weight" for s in (1, 2, 3, 4)}
    assert {k for k, v in own.items() if v.dim() == 4} == {"conv1.weight", *convs, *shortcuts}
    assert own["layer3.2.conv2.weight"].shape == (256, 256, 3, 3)
    assert own["layer4.0.downsample.0.weight"].shape == (2048, 1024, 1, 1)
    assert own["layer1.0.bn3.running_var"].shape == (256,)


@pytest.fixture(scope="module")
def weights_of_file():
    with skip_local_weights():
        own = build("resnet18", (3, 8, 8), weights="none.pth", pool="flatten").state_dict()
    torch.manual_seed(3)
    weights = {k: torch.randn_like(v) / max(1.0, v[0].numel() / 4) ** 0.5 for k, v in own.items()}
    weights |= {k: 0.5 + torch.rand_like(v) for k, v in own.items() if k.endswith("running_var")}
    weights |= {k: torch.tensor(7) for k in torchvision_names() if k.endswith("num_batches_tracked")}
    return weights | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


@pytest.fixture(params=["r18.safetensors", "r18.pth"])
def file(request, tmp_path, weights_of_file):
    (save_file if request.param.endswith("safetensors") else torch.save)(weights_of_file, tmp_path / request.param)
    return str(tmp_path / request.param)


def write(path, weights):
    torch.save(weights, path)
    return str(path)


def test_resnet_has_torchvisions_names(weights_of_file):
    assert len(torchvision_names()) == 122 - 2
    assert {k for k in weights_of_file if not k.startswith("fc.")} == set(torchvision_names())
    scratch = set(build("resnet18", (3, 8, 8), pool="mean").state_dict())
    assert scratch == {k for k in torchvision_names() if "running" not in k and "num_batches" not in k}


def test_resnet_takes_its_weights_from_the_file(file, weights_of_file):
    core = build("resnet18", (3, 40, 40), weights=file)
    for name, value in core.state_dict().items():
        assert name.startswith("pool.") or torch.equal(value, weights_of_file[name])
    assert {k for k, _ in core.named_buffers() if "running" not in k} == {"mean", "std", "pool.xs", "pool.ys"}
    assert not any(k in core.state_dict() for k in ("mean", "std", "pool.xs", "pool.ys"))


def test_pretrained_resnet_equals_one_with_batch_norms_in_evaluation(file):
    core = build("resnet18", (3, 40, 48), weights=file, pool="flatten").train()
    x = images(2, 3, 40, 48)
    out = core(x)
    for name, module in list(core.named_modules()):
        if isinstance(module, FrozenBatchNorm2d):
            norm = nn.BatchNorm2d(len(module.bias))
            norm.load_state_dict(module.state_dict(), strict=False)
            core.set_submodule(name, norm)
    assert sum(isinstance(m, nn.BatchNorm2d) for m in core.modules()) == 20
    core.eval()
    core.is_pretrained = False
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    standard = (0.5 * (x + 1) - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(core(standard), out)


def test_frozen_batch_norm_is_that_of_evaluation_and_trains_scale_and_shift_only():
    torch.manual_seed(0)
    frozen, norm = FrozenBatchNorm2d(5), nn.BatchNorm2d(5).eval()
    with torch.no_grad():
        for value in (frozen.weight, frozen.bias, frozen.running_mean):
            value.normal_()
        frozen.running_var.uniform_(0.1, 3.0)
    norm.load_state_dict(frozen.state_dict(), strict=False)
    x, before = images(4, 5, 3, 2), [b.clone() for b in frozen.buffers()]
    assert torch.equal(frozen.train()(x), norm(x))
    frozen(x).square().sum().backward()
    assert [k for k, p in frozen.named_parameters() if p.grad.abs().sum() > 0] == ["weight", "bias"]
    assert all(torch.equal(a, b) for a, b in zip(frozen.buffers(), before, strict=True))


def test_weights_need_three_channels(file):
    with pytest.raises(ConfigError, match="3 channels, got 4"):
        build("resnet18", (4, 40, 40), weights=file)
    with skip_local_weights(), pytest.raises(ConfigError, match="3 channels, got 1"):
        build("resnet18", (1, 40, 40), weights=file)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda w: w.pop("conv1.weight"), r"conv1\.weight is missing\. Legal are the 100 tensors conv1\.weight"),
        (lambda w: w.update(extra=torch.zeros(1)), r"extra is unknown\. Legal .*left out are fc\., num_batches"),
        (lambda w: w.update({"bn1.bias": torch.zeros(3)}), r"bn1\.bias is \(3,\), not \(64,\)"),
        (lambda w: [w.pop(k) for k in list(w) if k.startswith("layer4")], r"; and 20 more\."),
        (lambda w: w.update(epoch=3), r"must hold a state dict.* got dict with keys"),
    ],
)
def test_weights_that_do_not_fit(change, expected, tmp_path, weights_of_file):
    weights = dict(weights_of_file)
    change(weights)
    path = write(tmp_path / "r18.pth", weights)
    with pytest.raises(ConfigError, match=expected) as caught:
        build("resnet18", (3, 40, 40), weights=path)
    assert path in str(caught.value)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil_folder",)


def test_files_that_cannot_be_read(tmp_path, monkeypatch, weights_of_file):
    monkeypatch.chdir(tmp_path)
    for name in ("junk.pth", "junk.safetensors", "empty.pth", "empty.safetensors"):
        (tmp_path / name).write_bytes(b"not weights at all" if "junk" in name else b"")
    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"conv1.weight": Evil()}, protocol=2))
    torch.save({"conv1.weight": Evil()}, tmp_path / "evil.pt")
    for name in sorted(p.name for p in tmp_path.iterdir()):
        with pytest.raises(ConfigError, match=f"{name}' are not readable"):
            build("resnet18", (3, 40, 40), weights=name)
    assert not (tmp_path / "evil_folder").exists()
    with pytest.raises(ConfigError, match=r"'r18.pth' do not exist; \. holds: empty.pth, "):
        build("resnet18", (3, 40, 40), weights="r18.pth")
    with pytest.raises(ConfigError, match=r"must end in \.safetensors, \.pth or \.pt"):
        build("resnet18", (3, 40, 40), weights="r18.bin")
    write(tmp_path / "nested.pth", {"state_dict": weights_of_file})
    with pytest.raises(ConfigError, match="with keys state_dict"):
        build("resnet18", (3, 40, 40), weights="nested.pth")


def test_skipping_the_file_keeps_the_architecture(file):
    read = build("resnet18", (3, 40, 40), weights=file)
    with skip_local_weights(), skip_local_weights(False):
        skipped = build("resnet18", (3, 40, 40), weights="nowhere.pth")
    skipped.load_state_dict(read.state_dict())
    x = images(2, 3, 40, 40)
    assert torch.equal(skipped(x), read(x))
    with skip_local_weights(False), pytest.raises(ConfigError, match="do not exist"):
        build("resnet18", (3, 40, 40), weights="nowhere.pth")
    with pytest.raises(ConfigError, match="do not exist"):
        build("resnet18", (3, 40, 40), weights="nowhere.pth")


def test_norms_from_scratch_have_groups_of_sixteen():
    norms = [m for m in build("resnet18", (3, 40, 40)).modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == 20
    assert {m.num_channels // m.num_groups for m in norms} == {16}
    odd = [m for m in build("impala", (3, 9, 9), block_channels=[20]).modules() if isinstance(m, nn.GroupNorm)]
    assert [(m.num_groups, m.num_channels) for m in odd] == [(1, 20)]
    assert build("impala", (3, 1, 1))(images(1, 3, 1, 1)).isfinite().all()
