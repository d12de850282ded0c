"""CUDA kernels of other packages, used where they are installed and the inputs are on an NVIDIA GPU."""

from __future__ import annotations

import functools
import importlib
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

MAMBA2 = ("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined")
DELTA = ("fla.ops.gated_delta_rule", "chunk_gated_delta_rule")


@functools.cache
def imported_kernel(module: str, name: str = "") -> Any:
    """Return a function of a module, or the module itself; None where it cannot be imported."""
    try:
        found = importlib.import_module(module)
        return getattr(found, name) if name else found
    except (ImportError, OSError, RuntimeError, AttributeError):  # built for another torch, or finds no driver
        return None


def is_deterministic() -> bool:
    """Return whether the same inputs have to give the same gradients, as mamba-ssm asks for its own kernels."""
    asked = os.environ.get("MAMBA_DETERMINISTIC")
    return asked.startswith("1") if asked else torch.are_deterministic_algorithms_enabled()


def mamba2_kernel(x: torch.Tensor) -> Any:
    """Return mamba-ssm's kernel for such inputs, or None where plain PyTorch has to do: on a CPU, and in float64."""
    return imported_kernel(*MAMBA2) if x.is_cuda and x.dtype != torch.float64 else None


def delta_kernel(x: torch.Tensor) -> Any:
    """Return flash-linear-attention's kernel for such inputs, or None where plain PyTorch has to do.

    It needs a GPU and half precision, and refuses to train on Hopper GPUs with Triton 3.4.0 to 3.7.0.
    """
    is_half = x.dtype in (torch.bfloat16, torch.float16)
    if not (x.is_cuda and is_half) or refuses_hopper(torch.cuda.get_device_capability(x.device)[0], _triton()):
        return None
    return imported_kernel(*DELTA)


def refuses_hopper(capability: int, triton: tuple[int, ...]) -> bool:
    """Tell whether flash-linear-attention refuses to train on a GPU of this capability, with this Triton."""
    return capability == 9 and (3, 4) <= triton < (3, 7, 1)


@functools.cache
def _triton() -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in version("triton").split("+")[0].split(".")[:3])
    except (PackageNotFoundError, ValueError):
        return ()
