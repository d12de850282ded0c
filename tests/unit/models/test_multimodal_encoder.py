"""How entries are told apart, fused, and kept apart in the statistics."""

import numpy as np
import pytest
import torch

from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.timestep_encoders import MultimodalTimestepEncoder

B, L, A = 2, 3, 4
GRID = {"core": ("gridworld", {}), "d_output": 6}


def make_inputs(obs):
    generator = torch.Generator().manual_seed(0)
    return SeqInputs(
        obs=obs,
        prev_action=20 * torch.randn(B, L, A, generator=generator),
        prev_reward=20 * torch.randn(B, L, generator=generator),
        step=torch.arange(L).expand(B, L),
    )


def test_fusion_formula():
    torch.manual_seed(0)
    obs = {"b": ObsSpec((2,)), "a/x.y": ObsSpec((), "int64", (3,))}
    options = {"normalize_inputs": False, "d_output": 3}
    modalities = {"b": ("vector", options), "a/x.y": ("vector", {**options, "d_output": 2})}
    encoder = MultimodalTimestepEncoder(obs, A, 1, modalities=modalities, d_hidden=7, d_output=5, norm="rms")
    inputs = make_inputs({"b": torch.randn(B, L, 2), "a/x.y": torch.randint(0, 3, (B, L))})

    def linear(layer, x):
        return x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()

    side = np.concatenate([inputs.prev_reward.numpy()[..., None], inputs.prev_action.numpy()], -1).astype(float)
    parts = [
        linear(encoder.modalities[0].mlp[0], np.eye(3)[inputs.obs["a/x.y"]]),
        linear(encoder.modalities[1].mlp[0], inputs.obs["b"].double().numpy()),
        np.sign(side) * np.log1p(np.abs(side)),
    ]
    hidden = linear(encoder.mlp[0], np.concatenate(parts, -1))
    y = linear(encoder.mlp[2], np.where(hidden > 0, hidden, 0.01 * hidden))
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + np.finfo(np.float32).eps)
    np.testing.assert_allclose(encoder(inputs).detach().numpy(), y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (ObsSpec((40, 40, 3), "uint8"), "ImageModality"),
        (ObsSpec((3, 40, 40)), "ImageModality"),
        (ObsSpec((20, 16, 3), "uint8"), "ImageModality"),
        (ObsSpec((7, 7, 3), "uint8"), "VectorModality"),
        (ObsSpec((5, 5, 5)), "VectorModality"),
        (ObsSpec((4, 4, 3), "int64"), "VectorModality"),
        (ObsSpec((2, 2, 1), "int64", (3,) * 4), "VectorModality"),
        (ObsSpec((40, 40), "uint8"), "VectorModality"),
        (ObsSpec((7,)), "VectorModality"),
        (ObsSpec(()), "VectorModality"),
        (ObsSpec((), "int64", (3,)), "VectorModality"),
    ],
)
def test_entries_that_are_not_named(spec, kind):
    encoder = MultimodalTimestepEncoder({"e": spec}, 0, 0)
    assert type(encoder.modalities[0]).__name__ == kind


def test_statistics_reach_their_own_modality():
    """Names that are prefixes of others, or names of attributes, are kept apart."""
    obs = {"keys": ObsSpec((1,)), "a": ObsSpec((1,)), "a/a": ObsSpec((1,)), "1": ObsSpec((1,)), "training": ObsSpec(())}
    encoder = MultimodalTimestepEncoder(obs, 0, 0)
    values = {name: float(10 * (i + 1)) for i, name in enumerate(obs)}
    inputs = make_inputs({k: torch.full((B, L, *spec.shape), values[k]) for k, spec in obs.items()})
    encoder.update(encoder.stats(inputs, torch.ones(B, L, dtype=torch.bool)))
    for name, modality in zip(encoder.obs, encoder.modalities, strict=True):
        assert modality.name == name
        assert modality.normalizer.mean.item() == pytest.approx(0.5 * values[name], rel=1e-3)


@pytest.mark.parametrize(
    ("obs", "modalities", "expected"),
    [
        (
            {"camera": ObsSpec((3,))},
            {"camra": ("vector", {}), "x": ("vector", {})},
            r"modalities: unknown observation 'camra'; did you mean 'camera'\?, unknown observation 'x'; the policy",
        ),
        ({}, {}, r"type: 'multimodal' has no observation entry to read"),
        (
            {"grid": ObsSpec((7, 7, 3), "uint8")},
            {"grid": ("image", {})},
            r"modalities.grid.core: .*at least 36 x 36, got 7 x 7; .*gridworld",
        ),
    ],
)
def test_mistakes(obs, modalities, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        MultimodalTimestepEncoder(obs, 0, 0, modalities=modalities)
    assert str(caught.value).startswith("observation.timestep_encoder.")


def test_two_cameras_and_a_mask():
    obs = {
        "left": ObsSpec((8, 8, 3), "uint8"),
        "right": ObsSpec((3, 8, 8), "uint8"),
        "action_mask": ObsSpec((5,), "int8"),
    }
    encoder = MultimodalTimestepEncoder(obs, 0, 1, modalities={"left": ("image", GRID), "right": ("image", GRID)})
    one = torch.randint(0, 256, (B, L, 8, 8, 3), dtype=torch.uint8)
    mask = torch.ones(B, L, 5, dtype=torch.int8)
    inputs = make_inputs({"left": one, "right": one.movedim(-1, 2), "action_mask": mask})
    assert encoder(inputs).shape == (B, L, 256)
    assert encoder.mlp[0].in_features == 64 + 6 + 6 + 1


# ------------------------------------------------------------------------------------------------ FiLM
SEEN = {"camera": ObsSpec((3, 16, 16)), "task": ObsSpec((), "int64", (4,))}


def filmed(core="drq", film="task"):
    torch.manual_seed(0)
    image = {"core": (core, {"pool": "mean"}), "film": film, "d_output": 8}
    return MultimodalTimestepEncoder(SEEN, 0, 0, modalities={"camera": ("image", image)}, d_hidden=16, d_output=8)


@pytest.mark.parametrize("core", ["drq", "resnet18"])
def test_a_condition_scales_and_shifts_the_maps_of_an_image(core):
    """At first it changes nothing; then each channel of a map becomes (1 + scale) x + shift."""
    encoder = filmed(core)
    reader, task = encoder.modalities[0].reader, encoder.modalities[1]
    camera, tasks = torch.rand(B, L, 3, 16, 16), torch.randint(0, 4, (B, L))
    embedded = task(tasks)
    torch.testing.assert_close(reader(camera, embedded), reader(camera))
    last = reader.core.film[-1]
    torch.nn.init.normal_(last.weight)
    torch.nn.init.normal_(last.bias)
    scale, shift = last(embedded.flatten(0, 1)).chunk(2, dim=-1)
    pooled = reader.core(2 * camera.flatten(0, 1) - 1)  # the mean over positions
    expected = reader.linear((1 + scale) * pooled + shift).unflatten(0, (B, L))
    torch.testing.assert_close(reader(camera, embedded), expected, rtol=1e-4, atol=1e-4)
    inputs = make_inputs({"camera": camera, "task": tasks})
    others = make_inputs({"camera": camera, "task": (tasks + 1) % 4})
    only_film = encoder.modalities[0]
    assert not torch.allclose(only_film(camera, task(inputs.obs["task"])), only_film(camera, task(others.obs["task"])))
    encoder(inputs).square().sum().backward()
    assert all(parameter.grad is not None for parameter in reader.core.film.parameters())


def test_film_names_an_entry_that_is_read_alone():
    with pytest.raises(ConfigError, match=r"modalities.camera.film: unknown observation 'tusk'; did you mean 'task'"):
        filmed(film="tusk")
    with pytest.raises(ConfigError, match=r"modalities.camera.film: 'camera' depends on another entry itself"):
        filmed(film="camera")
