"""How the packages of an extra are imported and installed."""

from __future__ import annotations

import importlib
from typing import Any

from seqrl.core.errors import ConfigError

_THEN = {"robosuite": " && pip install --no-deps robosuite==1.5.2"}
"""Extra -> what pip cannot resolve with it: robosuite asks for numpy 1, which it does not need."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of seqrl."""
    return f"pip install 'seqrl[{extra}]'{_THEN.get(extra, '')}"


def import_extra(module: str, need: str, extra: str) -> Any:
    """Return a module that an extra of seqrl installs.

    Raises:
        ConfigError: If it cannot be imported: what needs which package, as ``need`` says, and what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{need} ({error}): {install_command(extra)}") from error
