"""The default: an MLP, and a CNN for whatever is an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqrl.core.registry import TIMESTEP_ENCODERS
from seqrl.core.spaces import ObsSpec
from seqrl.models.timestep_encoders.base import SECTION_KEY, TimestepEncoder, check_names
from seqrl.models.timestep_encoders.mlp import MLPTimestepEncoder
from seqrl.models.timestep_encoders.multimodal import MultimodalTimestepEncoder, default_choice


@TIMESTEP_ENCODERS.register("auto")
def auto_encoder(
    obs: Mapping[str, ObsSpec],
    d_action: int,
    d_reward: int,
    *,
    obs_keys: Sequence[str] | None = None,
    auto_scale: bool = False,
    normalize_inputs: bool = True,
    normalizer_rate: float = 1e-4,
    normalizer_min_std: float = 0.0,
    **options: Any,
) -> TimestepEncoder:
    """Return an encoder that fits the observations: ``multimodal`` if one of them is an image, else ``mlp``.

    Args:
        obs: Name -> spec of the observation entries.
        d_action: Width of the previous action, or 0.
        d_reward: 1 if the previous reward is read, else 0.
        obs_keys: Entries to read; None reads all.
        auto_scale: Of ``mlp``; without effect beside an image.
        normalize_inputs: Standardise what is no image by moving statistics.
        normalizer_rate: Their asymptotic step size.
        normalizer_min_std: What inputs are divided by that vary less.
        options: Of both: ``num_layers``, ``d_hidden``, ``d_output``, ``activation`` and ``norm``.
    """
    if obs_keys is not None:
        check_names(f"{SECTION_KEY}.obs_keys", obs_keys, obs)
    seen = {name: spec for name, spec in obs.items() if obs_keys is None or name in obs_keys}
    kinds = {name: default_choice(spec) for name, spec in seen.items()}
    normal: dict[str, Any] = {
        "normalize_inputs": normalize_inputs,
        "normalizer_rate": normalizer_rate,
        "normalizer_min_std": normalizer_min_std,
    }
    if all(kind != "image" for kind, _ in kinds.values()):
        flat: dict[str, Any] = {"obs_keys": obs_keys, "auto_scale": auto_scale, **normal}
        return MLPTimestepEncoder(obs, d_action, d_reward, **flat, **options)
    vector = ("vector", normal)
    modalities = {name: choice if choice[0] == "image" else vector for name, choice in kinds.items()}
    return MultimodalTimestepEncoder(seen, d_action, d_reward, modalities=modalities, **options)
