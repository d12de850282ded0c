"""What environments tell in ``info``: whether a task is solved, and numbers to log."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqrl.core.errors import EnvError

LOG_PREFIX = "log/"
AMAGO_PREFIX = "AMAGO_LOG_METRIC"
"""Of what environments that were written for AMAGO log."""
SUCCESS_KEYS = ("success", "is_success")
_NUMBERS = (int, float, np.number, np.bool_)


def logged_name(key: str) -> str:
    """Return the name under which an info entry is logged; "" if it is not."""
    if key.startswith(LOG_PREFIX):
        return key
    name = "_".join(key.removeprefix(AMAGO_PREFIX).split()).strip("_")
    return LOG_PREFIX + name if key.startswith(AMAGO_PREFIX) and name else ""


def is_success(value: Any) -> bool:
    """Return what an environment says of success: a bool, an array of one, or robomimic's dict with ``task``.

    Raises:
        EnvError: If it is an array of several.
    """
    found = np.asarray(value.get("task", False) if isinstance(value, dict) else value)
    if found.size != 1:
        raise EnvError(f"success in info has shape {found.shape}, not one value")
    return bool(found.item())


def has_succeeded(info: dict[str, Any]) -> bool:
    """Tell whether an info reports success."""
    return any(is_success(info[key]) for key in SUCCESS_KEYS if key in info)


def plain_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return an info whose success is a bool and whose logged numbers are floats.

    gymnasium's vectors make an array of the type of the first row's value, into which those of the others are squeezed.
    """
    changed: dict[str, Any] = {key: is_success(info[key]) for key in SUCCESS_KEYS if key in info}
    changed |= {key: float(info[key]) for key in info if logged_name(key) and isinstance(info[key], _NUMBERS)}
    return {**info, **changed} if changed else info
