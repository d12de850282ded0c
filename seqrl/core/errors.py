"""Every error that a user can cause. Messages say where, what was given, and what is legal or near."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from difflib import get_close_matches


class SeqrlError(Exception):
    """Base of all errors raised on purpose; scripts print the message and exit with 2."""


class ConfigError(SeqrlError):
    """A run file, an override or a command-line argument is wrong."""


class RegistryError(SeqrlError):
    """A name is not registered, or is registered twice."""


class DataError(SeqrlError):
    """A dataset, a trajectory or a batch breaks its contract."""


class EnvError(SeqrlError):
    """An environment cannot be made, or breaks the gymnasium interface."""


class CheckpointError(SeqrlError):
    """A checkpoint is missing, altered, or from another format, or cannot be written."""


class TrainingError(SeqrlError):
    """Training itself failed, for instance because the loss became non-finite."""


class PluginError(SeqrlError):
    """A component, such as one of a plug-in, does not keep to its interface."""


class RunInterrupted(KeyboardInterrupt):
    """A signal ended a run; its progress was saved first.

    Attributes:
        exit_code: 128 plus the signal's number, as in shells.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.exit_code = 128 + number


def format_problem(kind: str, version: object, newest: int) -> str:
    """Return what is wrong with the version of a file's format, for instance ``"store format 2; ..."``."""
    is_newer = isinstance(version, int) and version > newest
    return f"{kind} {version!r}; this seqrl reads {newest}" + ("; update seqrl" if is_newer else "")


def did_you_mean(name: str, legal: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the legal name nearest to ``name``, or an empty string."""
    near = get_close_matches(str(name), [str(x) for x in legal], n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
