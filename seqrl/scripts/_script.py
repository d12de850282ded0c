"""What all scripts share: exit codes, messages instead of tracebacks, logging."""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqrl.core.console import open_streams, show_messages
from seqrl.core.errors import ConfigError, RunInterrupted, SeqrlError, TrainingError


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that an argument holds; argparse reports anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object such as '{{\"key\": 1}}', got {text}")
    return value


def check_seed(seed: int) -> None:
    """Refuse a negative seed.

    Raises:
        ConfigError: If it is negative.
    """
    if seed < 0:
        raise ConfigError(f"--seed must be at least 0, got {seed}")


def check_output(path: Path | None, suffixes: tuple[str, ...], *, overwrite: bool) -> None:
    """Check that a file can be written, before any work is done for it.

    Raises:
        ConfigError: If it has another suffix, exists, or its folder cannot be made or written to.
    """
    if path is None:
        return
    if path.suffix not in suffixes:
        raise ConfigError(f"{path} should end in {' or '.join(suffixes)}")
    if path.is_dir() or (path.exists() and not overwrite):
        raise ConfigError(f"{path} exists; pass --overwrite to replace it")
    check_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)


def check_folder(folder: Path) -> None:
    """Check that a folder is there, or can be made, and written to, before any work is done for it.

    Raises:
        ConfigError: If not.
    """
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ConfigError(f"cannot write to {folder}: {there} is a file")
    if not os.access(there, os.W_OK):
        raise ConfigError(f"cannot write to {folder}: {there} is not writable")


def check_dataset_output(path: Path | None, *, overwrite: bool) -> None:
    """Check that a robomimic file, or (without a suffix) a store, can be written; only a store is ever replaced.

    Raises:
        ConfigError: As :func:`check_output`.
    """
    if path is None or path.suffix:
        check_output(path, (".hdf5", ".h5"), overwrite=overwrite)
    elif path.exists() and not (overwrite and (path / "store.json").is_file()):
        hint = (
            "pass --overwrite to replace it"
            if (path / "store.json").is_file()
            else "it is not a store, so it is not replaced"
        )
        raise ConfigError(f"{path} exists; {hint}")
    else:
        check_folder(path.parent)


def finite(text: str) -> float:
    """Return a number, as the type of an option."""
    if not math.isfinite(number := float(text)):
        raise argparse.ArgumentTypeError(f"must be a finite number, got {text}")
    return number


def suggest(action: argparse.Action, names: Sequence[str]) -> None:
    """Let a shell that completes (argcomplete) offer these values of an option, beside files."""
    action.completer = lambda prefix, **_: [n for n in names if n.startswith(prefix)]  # type: ignore[attr-defined]


def add_dataset(p: argparse.ArgumentParser, help: str) -> None:
    """Add the dataset, by position or as ``--dataset``, as robomimic's scripts have it; see :func:`parsed`."""
    p.add_argument("dataset", nargs="?", default=argparse.SUPPRESS, help=help)
    p.add_argument("--dataset", default=argparse.SUPPRESS, help="the same, as an option")


def parsed(p: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of a command with :func:`add_dataset`; argparse reports a dataset that is missing.

    Options may be written with ``-`` or ``_``: robomimic has both.
    """
    args = p.parse_args([_as_known(p, word) for word in (sys.argv[1:] if argv is None else argv)])
    if "dataset" not in args:
        p.error("the following arguments are required: dataset")
    return args


def _as_known(p: argparse.ArgumentParser, word: str) -> str:
    """Return a word of the command line with ``-`` and ``_`` as its option has them; others as they are."""
    name, *value = word.split("=", 1)
    spellings = [name, *(f"--{name[2:].replace(a, b)}" for a, b in ("_-", "-_") if name.startswith("--"))]
    known = next((s for s in spellings if s in p._option_string_actions), name)
    return "=".join([known, *value])


def add_acting_options(p: argparse.ArgumentParser, sample: str = "sample actions") -> None:
    """Add ``--sample``, with its help, and ``--greedy``: ``args.deterministic`` is None without them."""
    group = p.add_mutually_exclusive_group()
    greedy = "take the most probable action (default: act as in the run's evaluations)"
    group.add_argument("--greedy", dest="deterministic", action="store_const", const=True, help=greedy)
    group.add_argument("--sample", dest="deterministic", action="store_const", const=False, help=sample)


def add_reader_options(p: argparse.ArgumentParser) -> None:
    """Add ``--format`` and ``--plugin`` to a command that takes foreign data."""
    p.add_argument("--format", help="reader of data that is not a store (default: the first that can read it)")
    p.add_argument("--plugin", action="append", default=[], help="Python file or module to import first")
    says = 'names of the file\'s arrays, as JSON: {"obs/obs": NAME, "next_obs/obs": NAME, "actions": NAME, ...}'
    p.add_argument("--columns", type=json_object, help=says)
    size = "shrink images of LeRobot data to this size"
    p.add_argument("--image-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help=size)
    says = "columns of a robomimic file that make up the action (train.data.N.action_keys)"
    p.add_argument("--action-keys", nargs="+", metavar="NAME", help=says)
    says = "those of them that are rotations, as JSON: {NAME: FORM} (train.data.N.action_rotations)"
    p.add_argument("--action-rotations", type=json_object, help=says)
    p.add_argument(
        "--dones-mean",
        choices=("terminated", "truncated"),
        default="terminated",
        help="what a 1 in 'dones' of a file means (default %(default)s)",
    )


def reader_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the reader is told, from the arguments of :func:`add_reader_options`."""
    names = ("dones_mean", "columns", "image_size", "action_keys", "action_rotations")
    return {name: getattr(args, name) for name in names}


Main = Callable[[Sequence[str] | None], int]
_OF_THE_DISK = (
    errno.ENAMETOOLONG, errno.ELOOP, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS,
)  # fmt: skip
"""Errors of the system that no traceback explains any better."""


def script(main: Main) -> Callable[..., int]:
    """Wrap a main function: user errors print and return 2, a failed run prints and returns 1.

    An unexpected exception keeps its traceback; Ctrl-C returns 130, and in a run SIGTERM 143, SIGHUP 129.
    """

    @functools.wraps(main)
    def wrapped(argv: Sequence[str] | None = None) -> int:
        open_streams()
        stop_showing = show_messages(always=True)
        try:
            return main(argv)
        except TrainingError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        except SeqrlError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except (PermissionError, NotADirectoryError, FileExistsError, IsADirectoryError) as error:
            print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        except RunInterrupted as error:
            return error.exit_code
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:  # as of "| head": what Python flushes at its end goes nowhere
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141  # as shells have it
        except OSError as error:
            if error.errno not in _OF_THE_DISK or error.filename is None:
                raise
            print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        finally:
            stop_showing()

    return wrapped
