"""In what two run files differ."""

from __future__ import annotations

from typing import Any

from seqrl.configs.base_config import config_factory
from seqrl.configs.dotted import has_value
from seqrl.core.errors import SeqrlError


def differences(old: Any, new: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Return (dotted path, old, new) of every value in which two JSON documents differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys())
        return [d for k in keys for d in differences(old.get(k), new.get(k), f"{path}.{k}".lstrip("."))]
    return [] if old == new else [(path, old, new)]


def with_defaults(saved: Any) -> Any:
    """Return a saved config with the keys that have come since, at their defaults; as it is if it is not legal now."""
    try:
        return config_factory(str(saved["algo_name"]), saved).to_json()
    except (SeqrlError, KeyError, TypeError):
        return saved


def changed_settings(saved: dict[str, Any]) -> dict[str, Any]:
    """Return algorithm, memory, environment and seed of a saved config, and what else is not at its default."""
    defaults = with_defaults({"algo_name": saved["algo_name"]})
    found = {path: new for path, _, new in differences(defaults, saved) if new is not None or has_value(saved, path)}
    always = {
        "algo_name": saved["algo_name"],
        "env.id": saved["env"]["id"],
        "algo.sequence_encoder.type": saved["algo"]["sequence_encoder"]["type"],
        "train.seed": saved["train"]["seed"],
    }
    return {**{key: value for key, value in always.items() if value is not None}, **found}
