"""Run files of robomimic, translated: each of their keys has a place here, part of one, or a reason why it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqrl.configs.robomimic_rules import DROPPED, HIERARCHIES, MODALITIES, PARTLY, RULES, WHOLE, Translation
from seqrl.core.errors import ConfigError

ALGORITHMS = ("bc", "bcq", "cql", "iql", "td3_bc", "gl", "hbc", "iris", "diffusion_policy")


def is_robomimic(values: Mapping[str, Any]) -> bool:
    """Tell whether a run file is one of robomimic's, by keys that only those have."""
    sections = {name: values.get(name) for name in ("experiment", "train", "observation", "algo")}
    own = {
        "experiment": {"epoch_every_n_steps", "rollout", "additional_envs"},
        "train": {"hdf5_cache_mode", "hdf5_use_swmr", "seq_length"},
        "observation": {"modalities"},
        "algo": {"optim_params"},
    }
    return sum(isinstance(s, Mapping) and bool(own[n] & s.keys()) for n, s in sections.items()) >= 2


def translate(given: Mapping[str, Any]) -> Translation:
    """Return a run file of robomimic as one of seqrl's.

    All keys of robomimic's BC are known. Of the other algorithms the sections ``experiment``, ``train`` and
    ``observation``, and of ``algo`` what they share with BC.

    Raises:
        ConfigError: If it is no run file of robomimic, or its algorithm has no counterpart.
    """
    name = given.get("algo_name")
    if not is_robomimic(given):
        raise ConfigError("this is not a robomimic run file: it has none of the keys that only those have")
    if name not in ALGORITHMS:
        raise ConfigError(f"algo_name {name!r} has no counterpart; those that have one: {', '.join(ALGORITHMS)}")
    t = Translation(given)
    t.put("algo_name", "bc_vae" if name == "bc" and t.get("algo.vae.enabled") else name)
    if name not in HIERARCHIES:
        t.put("algo.sequence_encoder.type", t.memory)
    if name == "bc":
        t.put("algo.distribution.type", t.head)
        t.put("algo.optimizer.warmup_steps", 0)
        t.put("algo.optimizer.grad_clip", None)
        t.put("train.sample_by", "transition")
    for key, value in _leaves(given):
        _translate(t, key, value, is_bc=name == "bc")
    if not t.values.get("train", {}).get("valid_fraction", 1.0):
        best = t.values.get("experiment", {}).get("save", {}).get("best", [])
        best[:] = [measure for measure in best if measure != "valid_loss"]
    return t


def _translate(t: Translation, key: str, value: Any, *, is_bc: bool) -> None:
    if not is_bc and key.startswith("algo."):
        t.dropped[key] = f"settings of {t.given['algo_name']} are not translated: docs/algorithms"
    elif not _is_used(t, key):
        t.unused.append(key)
    elif key in RULES or key in PARTLY:
        if key in RULES:
            try:
                RULES[key](t, value)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ConfigError(f"{key}: robomimic has no such value, {value!r} ({error})") from error
        if key in PARTLY:
            t.partly.setdefault(key, PARTLY[key])
        if key not in t.partly:
            t.translated.append(key)
    else:
        reason = next((why for name, why in DROPPED.items() if key == name or key.startswith(name + ".")), None)
        if reason != "":
            t.dropped[key] = reason or "unknown to this translation"


def _is_used(t: Translation, key: str) -> bool:
    """Return whether the part of the run file that a key is in is switched on."""
    for part in ("rnn", "transformer", "vae", "gaussian", "gmm"):
        if key.startswith(f"algo.{part}.") and not key.endswith(".enabled"):
            return bool(t.get(f"algo.{part}.enabled"))
    for kind in MODALITIES:
        if key.startswith(f"observation.encoder.{kind}."):
            is_default = kind == "low_dim" and not t.get(key)
            return bool(t.get(f"observation.modalities.obs.{kind}")) and not is_default
    return True


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return (dotted key, value) of everything that is no section, in order."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and name not in WHOLE:
            found += _leaves(value, key + ".")
        else:
            found.append((key, value))
    return found
