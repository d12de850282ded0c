"""The generators that a process draws from: Python's, NumPy's global one and torch's."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from seqrl.core.seeding import integer_seed


def seed_everything(seed: int, *path: int) -> None:
    """Seed Python's, NumPy's global and torch's generators for ``path``, for instance ``(rank, epoch)``."""
    random.seed(integer_seed(seed, "python", *path))
    np.random.seed(integer_seed(seed, "numpy", *path))  # noqa: NPY002  (user code may draw from it)
    torch.manual_seed(integer_seed(seed, "torch", *path))


def generator_states(device: torch.device) -> dict[str, Any]:
    """Return the states of the generators that :func:`seed_everything` seeds, as JSON values.

    Args:
        device: Whose generator of torch is taken beside that of the CPU.
    """
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

    def tensor(text: str) -> torch.Tensor:
        return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)

    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(tensor(states["cpu"]))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(tensor(states["cuda"]), device)
