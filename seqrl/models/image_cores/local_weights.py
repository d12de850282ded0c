"""Pretrained weights from a file of the user's own; nothing is ever downloaded."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from seqrl.core.errors import ConfigError
from seqrl.core.files import expanded

_IS_SKIPPING: ContextVar[bool] = ContextVar("is_skipping_local_weights", default=False)


@contextmanager
def skip_local_weights(is_skipping: bool = True) -> Iterator[None]:
    """Build networks without reading weights files, which need not exist.

    For networks that get all their weights and buffers from a checkpoint next. The architecture is the same.

    Args:
        is_skipping: False leaves everything as it is.
    """
    token = _IS_SKIPPING.set(is_skipping or _IS_SKIPPING.get())
    try:
        yield
    finally:
        _IS_SKIPPING.reset(token)


def are_local_weights_skipped() -> bool:
    """Tell whether the caller is inside :func:`skip_local_weights`."""
    return _IS_SKIPPING.get()


def read_weights(file: str, expected: Mapping[str, Tensor], ignored: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the tensors of a ``.safetensors`` file or of a state dict in a ``.pth`` or ``.pt`` file.

    Args:
        file: A ``.pth`` is read with ``weights_only``, so that nothing in it is executed.
        expected: Name -> tensor of the shape that the file has to hold.
        ignored: Names that begin or end so may be there and are left out.

    Raises:
        ConfigError: If the file is missing or unreadable, or its names or shapes differ; it says which.
    """
    found = _read(expanded(file))
    weights = {k: v for k, v in found.items() if not k.startswith(ignored) and not k.endswith(ignored)}
    wrong = [f"{k} is missing" for k in sorted(expected.keys() - weights.keys())]
    wrong += [f"{k} is unknown" for k in sorted(weights.keys() - expected.keys())]
    wrong += [
        f"{k} is {tuple(weights[k].shape)}, not {tuple(v.shape)}"
        for k, v in expected.items()
        if k in weights and weights[k].shape != v.shape
    ]
    if wrong:
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        names = list(expected)
        raise ConfigError(
            f"weights {file!r} do not fit: {'; '.join(wrong[:5])}{more}. Legal are the {len(names)} tensors "
            f"{names[0]}, {names[1]}, ..., {names[-1]}; left out are {', '.join(ignored)}"
        )
    return weights


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise ConfigError(f"weights {str(path)!r}: must end in .safetensors, .pth or .pt")
    if not path.is_file():
        near = sorted(p.name for p in path.parent.iterdir())[:10] if path.parent.is_dir() else []
        raise ConfigError(f"weights {str(path)!r} do not exist; {path.parent} holds: {', '.join(near) or 'nothing'}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        value = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, pickle.UnpicklingError, EOFError, RuntimeError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"weights {str(path)!r} are not readable ({reason})") from error
    if not isinstance(value, Mapping) or not all(isinstance(v, Tensor) for v in value.values()):
        raise ConfigError(f"weights {str(path)!r}: must hold a state dict, names with tensors, got {_kind(value)}")
    return dict(value)


def _kind(value: object) -> str:
    keys = f" with keys {', '.join(map(str, list(value)[:5]))}" if isinstance(value, Mapping) else ""
    return type(value).__name__ + keys
