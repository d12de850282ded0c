"""A checkpoint as its JSON files tell it: found, read and verified without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqrl.core.errors import CheckpointError, format_problem
from seqrl.core.files import expanded, sha256_of, space_left, write_atomic
from seqrl.core.strict_json import parse_json, unsealed

FORMAT_VERSION = 1
EXPORT_VERSION = 1
"""Of files that ``seqrl export`` writes."""
CARD = "card.json"
MODEL = "model.safetensors"
STATE_FOLDER = "training_state"
"""In a checkpoint, what a run goes on from, and a sweep counts; no policy reads it."""


@dataclass(frozen=True)
class CheckpointCard:
    """A checkpoint's folder, and what its card says."""

    path: Path
    card: dict[str, Any]

    def json(self, name: str) -> Any:
        """Return the content of a JSON file of the checkpoint."""
        try:
            return parse_json((self.path / name).read_bytes())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.path / name}: not readable ({error})") from error

    def json_object(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file of the checkpoint that has to be an object."""
        value = self.json(name)
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.path / name}: must be a JSON object, got {str(value)[:60]}")
        return value


def write_pointer(path: Path, name: str) -> None:
    """Make ``path`` (for instance ``checkpoints/last``) stand for the checkpoint ``name`` beside it.

    Raises:
        CheckpointError: If it cannot be written, or a folder is in the way.
    """
    try:
        write_atomic(path, name + "\n")
    except IsADirectoryError as error:
        raise CheckpointError(f"{path} should be a file that names a checkpoint, but is a folder; delete it") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {space_left(path.parent, error)}") from error


def find_checkpoint(path: str | Path) -> Path:
    """Return the checkpoint folder that ``path`` means.

    Legal are a checkpoint folder, a pointer file such as ``RUN/checkpoints/last``, a run's folder (its last
    checkpoint), and ``RUN/last`` or ``RUN/best_success`` for short.

    Raises:
        CheckpointError: If there is none.
    """
    path = expanded(path)
    run_folder = path / "checkpoints" if (path / "checkpoints").is_dir() else None
    for candidate in (path, run_folder and run_folder / "last", path.parent / "checkpoints" / path.name):
        if candidate is None:
            continue
        if (candidate / CARD).is_file():
            return candidate
        if candidate.is_file():
            return _follow(candidate)
    if run_folder is not None:
        held = ", ".join(sorted(p.name for p in run_folder.iterdir() if not p.name.startswith("."))) or "nothing yet"
        raise CheckpointError(f"{run_folder} has no 'last' checkpoint; it holds: {held}")
    if path.is_dir():
        raise CheckpointError(f"{path} is not a checkpoint: it has no {CARD}, and no folder 'checkpoints'")
    own = path.parent / "checkpoints"
    folder = own if own.is_dir() else path.parent
    near = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    raise CheckpointError(f"checkpoint {str(path)!r} does not exist; {folder} holds: {', '.join(near) or 'nothing'}")


def pointed_at(pointer: Path) -> Path:
    """Return the folder that a pointer such as ``checkpoints/last`` names; whether it is there is not asked.

    Raises:
        CheckpointError: If it holds no name.
    """
    try:
        name = pointer.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{pointer} is not a checkpoint pointer ({error})") from error
    if not name or len(name) > 200 or name in (".", "..") or Path(name).name != name or "\0" in name:
        raise _pointless(pointer, name)
    return pointer.parent / name


def _follow(pointer: Path) -> Path:
    target = pointed_at(pointer)
    if not (target / CARD).is_file():
        raise _pointless(pointer, target.name)
    return target


def _pointless(pointer: Path, name: str) -> CheckpointError:
    there = sorted(card.parent.name for card in pointer.parent.glob(f"*/{CARD}"))
    return CheckpointError(
        f"{pointer} should hold the name of a checkpoint beside it, but holds {name[:80]!r}; there are: "
        f"{', '.join(there) or 'none'}"
    )


def read_card(path: str | Path) -> CheckpointCard:
    """Find a checkpoint, verify its files, and return its card.

    Without its folder ``training_state`` a checkpoint holds weights only.

    Raises:
        CheckpointError: If a file is missing or altered, or the format is another one.
    """
    folder = find_checkpoint(path)
    card = CheckpointCard(folder, {}).json_object(CARD)
    if (version := card.get("format_version")) != FORMAT_VERSION:
        raise CheckpointError(f"{folder / CARD}: {format_problem('checkpoint format', version, FORMAT_VERSION)}")
    try:
        card = unsealed(card)
    except ValueError as error:
        raise CheckpointError(f"{folder / CARD}: {error}") from error
    files = card.get("files")
    needed = {"config.json", "spaces.json", MODEL}
    if not isinstance(files, dict) or not needed <= files.keys():
        raise CheckpointError(f"{folder / CARD}: does not list {', '.join(sorted(needed))}")
    if not isinstance(card.get("algo_name"), str):
        raise CheckpointError(f"{folder / CARD}: does not name its algorithm")
    if not (folder / STATE_FOLDER).is_dir():  # it may be left out of a policy to deploy
        files = {name: expected for name, expected in files.items() if not name.startswith(f"{STATE_FOLDER}/")}
    for name, expected in files.items():
        file = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CheckpointError(f"{folder / CARD}: lists {name!r}, which is not in the checkpoint")
        if not file.is_file():
            raise CheckpointError(f"{folder}: the file {name} is missing")
        if sha256_of(file) != expected:
            raise CheckpointError(f"{folder}: the file {name} is not the one that was saved (its checksum differs)")
    return CheckpointCard(folder, {**card, "files": files})
