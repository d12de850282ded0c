"""What `sequence_models.py` measures: the variants, one training step of each, its floor and its peak memory.

Run as a script, it prints the peak memory of one variant at one length as JSON: a process's highest memory can only be
told of a fresh process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import seqrl.models  # noqa: F401  (registers the encoders)
from seqrl.core.errors import ConfigError, RegistryError
from seqrl.core.host_memory import keep_freed_memory
from seqrl.core.registry import SEQUENCE_ENCODERS

WIDTH, LAYERS, WINDOW = 256, 3, 256
CANNOT_BE_BUILT = (RegistryError, ConfigError, ImportError, TypeError)
CANNOT_BE_RUN = (ConfigError, NotImplementedError, torch.OutOfMemoryError)


@dataclass(frozen=True)
class Variant:
    """One way to build an encoder.

    Attributes:
        type: Its name in the registry.
        options: Keyword arguments.
        window: Inputs that a layer looks back on; None for the whole length.
        is_cuda_only: Whether it is left out of a run on the CPU.
    """

    type: str
    options: dict[str, Any] = field(default_factory=dict)
    window: int | None = None
    is_cuda_only: bool = False

    @property
    def attends(self) -> bool:
        """Whether its layers make attention products."""
        return "attention" in self.options

    def mean_keys(self, length: int) -> float:
        """Return how many keys a query attends to, on average over the length; 0 without attention."""
        if not self.attends:
            return 0.0
        window, sinks = self.window or length, self.options.get("num_sinks", 0)
        return sum(min(t, window) + min(max(t - window, 0), sinks) for t in range(1, length + 1)) / length


_RECURRENT = {"d_hidden": WIDTH, "num_layers": LAYERS, "d_output": WIDTH}
_STACKED = {"d_model": WIDTH, "num_layers": LAYERS}


def _attending(attention: str, window: int | None = None, is_cuda_only: bool = False, **options: Any) -> Variant:
    return Variant("transformer", {**_STACKED, "attention": attention, **options}, window, is_cuda_only)


VARIANTS = {
    "feedforward": Variant("feedforward", _STACKED),
    "identity": Variant("identity"),
    "gru": Variant("gru", _RECURRENT),
    "lstm": Variant("lstm", _RECURRENT),
    "mamba": Variant("mamba", _STACKED),
    "mamba2": Variant("mamba2", _STACKED),
    "gated_deltanet": Variant("gated_deltanet", _STACKED),
    "mlstm": Variant("mlstm", _STACKED),
    "min_gru": Variant("min_gru", _STACKED),
    "lru": Variant("lru", _STACKED),
    "hybrid": Variant("hybrid", {"d_model": WIDTH, "layers": ["mamba2", "attention", "mamba2"]}),
    "sdpa full": _attending("sdpa"),
    "sdpa window": _attending("sdpa", WINDOW),
    "sdpa window, sinks": _attending("sdpa", WINDOW, num_sinks=4),
    "auto window, clip": _attending("auto", WINDOW, logit_clip=30.0),
    "vanilla full": _attending("vanilla"),
    "vanilla window": _attending("vanilla", WINDOW),
    "flex full": _attending("flex", is_cuda_only=True),
    "flex window": _attending("flex", WINDOW),
    "flash full": _attending("flash", is_cuda_only=True),
    "flash window": _attending("flash", WINDOW),
}


def make_encoder(name: str, window: int, device: str) -> nn.Module:
    """Return a variant with fixed weights; every encoder of the benchmark is built here."""
    torch.manual_seed(0)
    variant = VARIANTS[name]
    encoder: nn.Module = SEQUENCE_ENCODERS.get(variant.type)(WIDTH, window, **variant.options)
    return encoder.to(device)


def why_not(name: str, device: str) -> str | None:
    """Return why a variant cannot be built here, or None if it can."""
    try:
        make_encoder(name, WINDOW, device)
    except CANNOT_BE_BUILT as error:
        return reason(error)
    return None


def reason(error: Exception) -> str:
    """Return the error in one line."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def say(text: str) -> None:
    """Report progress, apart from the tables."""
    print(text, file=sys.stderr, flush=True)


def autocast(device: str, precision: str) -> torch.autocast:
    """Return the context that computes in the precision."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16")


def synchronise(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def inputs(batch: int, length: int, device: str) -> tuple[Tensor, Tensor]:
    """Return inputs and their steps."""
    step = torch.arange(length, device=device).expand(batch, length)
    return torch.randn(batch, length, WIDTH, device=device), step


def train_seconds(encoder: nn.Module, x: Tensor, step: Tensor, device: str, precision: str) -> float:
    """Return the time of one forward and backward pass of a mean-square loss over the whole output."""
    synchronise(device)
    begin = time.perf_counter()
    encoder.zero_grad(set_to_none=True)
    with autocast(device, precision):
        y, _ = encoder(x, step)
    loss = y.float().square().mean()
    if loss.requires_grad:  # the identity has nothing to train
        loss.backward()
    synchronise(device)
    return time.perf_counter() - begin


def train_flops(name: str, encoder: nn.Module, length: int) -> float:
    """Return the operations per token of the matrix products: forward once, backward twice as many.

    Counted are two-dimensional weights, and the products of queries, keys and values over the keys in sight.
    """
    tables = {id(m.weight) for m in encoder.modules() if isinstance(m, nn.Embedding)}
    weights = [
        p.numel()
        for key, p in encoder.named_parameters()
        if p.dim() == 2 and key.rsplit(".", 1)[-1].startswith("weight") and id(p) not in tables
    ]
    attention = 4 * VARIANTS[name].mean_keys(length) * WIDTH * LAYERS
    return 3 * (2 * sum(weights) + attention)


class Square:
    """The product of two square matrices, whose speed is the unit of every floor.

    Args:
        device: Where it is made; a GPU takes a larger one, since 1,024 rows do not fill it.
        precision: "no" for float32, or "bf16".
    """

    def __init__(self, device: str, precision: str) -> None:
        self.device = device
        self.side = 4096 if device == "cuda" else 1024
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.matrix = torch.randn(self.side, self.side, device=device, dtype=dtype)
        self.flops()

    def flops(self, num: int = 10) -> float:
        """Return operations per second."""
        synchronise(self.device)
        begin = time.perf_counter()
        for _ in range(num):
            self.matrix @ self.matrix
        synchronise(self.device)
        return num * 2 * self.side**3 / (time.perf_counter() - begin)


def peak_in_fresh_process(name: str, length: int, batch: int, device: str, precision: str) -> dict[str, Any]:
    """Return what :func:`peak` returns, of a process of its own where memory is that of the CPU."""
    if device == "cuda":
        return peak(name, length, batch, device, precision)
    command = [sys.executable, __file__, name, str(length), str(batch), device, precision]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode == -9:
        return {"not_run": "killed, out of memory"}
    done.check_returncode()
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak(name: str, length: int, batch: int, device: str, precision: str) -> dict[str, Any]:
    """Return the most memory in bytes that one training step and its encoder take, and the step's time.

    The inputs are there before, and so are the pools of threads. The step is the second one, after a short one that
    has loaded what the first step loads.
    """
    x, step = inputs(batch, length, device)
    nn.Linear(WIDTH, WIDTH, device=device)(x[:1, :16]).square().mean().backward()
    before = _settled_bytes(device)
    encoder = make_encoder(name, VARIANTS[name].window or length, device).train()
    try:
        train_seconds(encoder, x[:1, :16], step[:1, :16], device, precision)
        took = train_seconds(encoder, x, step, device, precision)
    except CANNOT_BE_RUN as error:
        return {"not_run": reason(error)}
    return {"peak_bytes": _peak_bytes(device) - before, "seconds": took}


def _settled_bytes(device: str) -> int:
    """Begin a new peak, and return the memory of now."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes(device)


def _peak_bytes(device: str) -> int:
    """Return the peak so far.

    Linux lets a new process inherit ``ru_maxrss`` from the one that started it, so its own mark is read instead.
    """
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the peak of one variant at one length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for key, kind in {"name": str, "length": int, "batch": int, "device": str, "precision": str}.items():
        parser.add_argument(key, type=kind)
    keep_freed_memory()  # as Experiment does
    print(json.dumps(peak(**vars(parser.parse_args(arguments)))))


if __name__ == "__main__":
    main()
