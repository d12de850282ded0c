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
            {},
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
