"""How the packages of an extra are installed."""

from __future__ import annotations

_THEN = {"robosuite": " && pip install --no-deps robosuite==1.5.2"}
"""Extra -> what pip cannot resolve with it: robosuite asks for numpy 1, which it does not need."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of seqrl."""
    return f"pip install 'seqrl[{extra}]'{_THEN.get(extra, '')}"
