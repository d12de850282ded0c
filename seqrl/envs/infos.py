"""What environments tell in ``info``: whether a task is solved, and numbers to log."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqrl.core.errors import EnvError
from seqrl.core.spaces import MASK_KEY

LOG_PREFIX = "log/"
AMAGO_PREFIX = "AMAGO_LOG_METRIC"
"""Of what environments that were written for AMAGO log."""
SUCCESS_KEYS = ("success", "is_success")
_KEPT = (MASK_KEY, "env_name")


def logged_name(key: str) -> str:
    """Return the name under which an info entry is logged; "" if it is not."""
    if key.startswith(LOG_PREFIX):
        return key
    name = "_".join(key.removeprefix(AMAGO_PREFIX).split()).strip("_")
    return LOG_PREFIX + name if key.startswith(AMAGO_PREFIX) and name else ""


def is_success(value: Any) -> bool:
    """Return what an environment says of success: a bool, 0 or 1, an array of one, or robomimic's dict with ``task``.

    Raises:
        EnvError: If it is anything else.
    """
    found = np.asarray(value.get("task", False) if isinstance(value, dict) else value)
    if found.size != 1:
        raise EnvError(f"success in info has shape {found.shape}, not one value")
    return bool(successes(found).item())


def successes(values: np.ndarray) -> np.ndarray:
    """Return flags of success as bools.

    Raises:
        EnvError: If one is neither a bool nor 0 or 1.
    """
    values = np.array(values.tolist()) if values.dtype.kind == "O" else values
    is_number = values.dtype.kind in "biuf" or not values.size
    if is_number and ((values == 0) | (values == 1)).all():
        return values.astype(bool)
    wrong = values[(values != 0) & (values != 1)] if is_number else values
    hint = "log a measure of progress as info['log/NAME']"
    raise EnvError(f"success in info is {wrong.flat[0]!r}, but has to be True or False, or 1 or 0; {hint}")


def told_success(info: dict[str, Any]) -> dict[str, bool]:
    """Return the entries of an info that report success; None reports nothing."""
    return {key: is_success(info[key]) for key in SUCCESS_KEYS if info.get(key) is not None}


def has_succeeded(info: dict[str, Any]) -> bool:
    """Tell whether an info reports success."""
    return any(told_success(info).values())


def logged_number(key: str, value: Any) -> float:
    """Return a number to log: a scalar, or an array of one.

    Raises:
        EnvError: If it is anything else.
    """
    found = np.asarray(value)
    if found.size != 1 or found.dtype.kind not in "biuf":
        raise EnvError(f"info[{key!r}] is logged, so it has to be a number, and is {value!r}")
    return float(found.item())


def plain_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return what is read of an info: success as a bool, logged numbers as floats, the action mask, the task's name.

    gymnasium's vectors make an array of the type and shape of the first row's value, into which those of the others
    have to fit; nothing else is handed on, as it need not.

    Raises:
        EnvError: If success or a logged number is no single value.
    """
    found: dict[str, Any] = dict(told_success(info))
    found |= {key: info[key] for key in _KEPT if key in info}
    return found | {key: logged_number(key, value) for key, value in info.items() if logged_name(key)}
