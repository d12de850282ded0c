"""One seed feeds every generator of a run, through named children of a ``SeedSequence``."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def seed_sequence(seed: int, *path: int | str) -> np.random.SeedSequence:
    """Return the child of ``seed`` that belongs to ``path``, for instance ``("eval", epoch)``.

    The same seed and path give the same stream on every machine; different paths give independent streams.
    Text enters through CRC-32, so names are stable across processes (``hash`` is not).

    Raises:
        ValueError: If the seed or a number in the path is negative.
    """
    keys = [zlib.crc32(part.encode()) if isinstance(part, str) else int(part) for part in path]
    return np.random.SeedSequence(seed, spawn_key=tuple(keys))


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """Return a NumPy generator for ``path``."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, *path)))


def integer_seed(seed: int, *path: int | str) -> int:
    """Return a seed in ``[0, 2**31)`` for ``path``, for libraries that take an integer."""
    return int(seed_sequence(seed, *path).generate_state(1)[0] >> 1)


def seed_everything(seed: int, *path: int) -> None:
    """Seed Python's, NumPy's global and torch's generators for ``path``, for instance ``(rank, epoch)``."""
    random.seed(integer_seed(seed, "python", *path))
    np.random.seed(integer_seed(seed, "numpy", *path))  # noqa: NPY002  (user code may draw from it)
    import torch

    torch.manual_seed(integer_seed(seed, "torch", *path))


def generator_states(device: torch.device) -> dict[str, Any]:
    """Return the states of the generators that :func:`seed_everything` seeds, as JSON values.

    Args:
        device: Whose generator of torch is taken beside that of the CPU.
    """
    import torch

    version, numbers, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    states = {
        "python": [version, list(numbers), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), *rest],
        "cpu": torch.get_rng_state().numpy().tobytes().hex(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device).numpy().tobytes().hex()
    return states


def set_generator_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Restore what :func:`generator_states` gave."""
    import torch

    def tensor(text: str) -> torch.Tensor:
        return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)

    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(tensor(states["cpu"]))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(tensor(states["cuda"]), device)
