"""Time and memory of one gradient step of the two agents, part by part, against the floor of their matrix products.

The floor of a part is the time of the matrix and attention products that it makes, each timed alone on tensors of the
same shapes and strides, in the same run. Times are also given in units of one float32 product of two 1024 x 1024
matrices of the same run; compare them between runs on one machine, not between machines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from record import RESULTS, record, table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seqrl.algo import algo_factory
from seqrl.algo.objectives import masked_mean
from seqrl.algo.processes import make_accelerator
from seqrl.algo.updater import Updater
from seqrl.configs import config_factory
from seqrl.core.host_memory import keep_freed_memory
from seqrl.core.spaces import ActionCodec
from seqrl.core.tensors import SeqBatch

OBS_WIDTH = 32
SPACES = {"discrete": spaces.Discrete(8), "continuous": spaces.Box(-1.0, 1.0, (6,))}
AGENTS = {
    "actor_critic, discrete": ("actor_critic", "discrete"),
    "actor_critic, continuous": ("actor_critic", "continuous"),
    "multitask, discrete": ("multitask", "discrete"),
    "multitask, continuous": ("multitask", "continuous"),
}
PRODUCTS = (
    "mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "scaled_dot_product", "_scaled_dot_product",
    "_efficient_attention", "_flash_attention",
)  # fmt: skip
Call = tuple[Any, tuple[Any, ...], tuple[Any, ...]]


class Products(TorchDispatchMode):
    """Notes every matrix and attention product that is made under it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[Call] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count the call by the shapes, strides and types of its arguments."""
        kwargs = kwargs or {}
        if func.overloadpacket.__name__.startswith(PRODUCTS):
            self.calls[(func, _frozen(args), tuple(sorted((k, _frozen(v)) for k, v in kwargs.items())))] += 1
        return func(*args, **kwargs)


def _frozen(value: Any) -> Any:
    if isinstance(value, Tensor):
        return ("tensor", tuple(value.shape), value.stride(), value.dtype, str(value.device))
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, tuple) and value and value[0] == "tensor":
        _, shape, stride, dtype, device = value
        size = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))  # expanded ones share elements
        held = torch.zeros(size, dtype=dtype, device=device)
        return (held.normal_() if dtype.is_floating_point else held).as_strided(shape, stride)
    return tuple(_thawed(v) for v in value) if isinstance(value, tuple) else value


def seconds(
    call: Callable[[], Any], device: torch.device, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(repeats + 1):
        begin = clock()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - begin)
    return statistics.median(times[1:])


def floor_seconds(
    work: Callable[[], Any], device: torch.device, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the time that the products of some work take alone."""
    with Products() as products:
        work()
    total = 0.0
    for (func, args, kwargs), count in products.calls.items():
        given, named = _thawed(args), {k: _thawed(v) for k, v in kwargs}
        total += count * seconds(lambda f=func, g=given, n=named: f(*g, **n), device, repeats, clock)
    return total


def peak_megabytes(work: Callable[[], Any], device: torch.device) -> float:
    """Return the most memory that some work holds at once, above what there was before it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    with torch.profiler.profile(profile_memory=True) as profile:
        work()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 1e6


def make_algo(name: str, kind: str, window: int, device: str, precision: str, compiled: bool) -> Any:
    """Return an agent at its default sizes: Transformer 256 x 3 layers x 8 heads, 7 discounts, 4 critics."""
    torch.manual_seed(0)
    config = config_factory(name, {"train": {"window_steps": window}})
    space = SPACES[kind]
    algo = algo_factory(name, config, {"obs": (OBS_WIDTH,)}, ActionCodec(space).dim, device, space)
    accelerator = make_accelerator(algo.device, precision=precision)
    algo.updater = Updater(algo, accelerator, is_compiled=compiled)
    algo.set_train()
    algo.wants_metrics = False  # as between logging steps
    return algo


def make_batch(kind: str, num: int, window: int) -> SeqBatch:
    """Return a batch without padding."""
    codec = ActionCodec(SPACES[kind])
    SPACES[kind].seed(0)
    actions = np.array([[SPACES[kind].sample() for _ in range(window)] for _ in range(num)])
    return SeqBatch.from_mapping(
        {
            "obs": {"obs": torch.randn(num, window, OBS_WIDTH)},
            "actions": torch.from_numpy(codec.encode(actions)),
            "rewards": torch.randn(num, window),
        }
    )


def keep_gradients(algo: Any) -> None:
    """Give every parameter that learns a gradient, as the optimiser expects."""
    for parameters in algo.updater._trained.values():
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def summed(losses: Mapping[str, tuple[float, Tensor]], mask: Tensor) -> Tensor:
    """Return the sum of losses per transition."""
    return torch.stack([masked_mean(loss, mask) for _, loss in losses.values()]).sum()


def parts_of(algo: Any, batch: SeqBatch) -> dict[str, Callable[[], Any]]:
    """Return part -> its work, backward pass included."""
    with torch.no_grad():
        p = algo.look(batch)
        targets = algo.targets(batch, algo.next_values(p))
    num_t, num = batch.num_transitions, p.parameters.shape[1]
    leaf = p.state.clone().requires_grad_()
    seen = replace(p, state=leaf, parameters=p.parameters.clone().requires_grad_())

    def actor() -> Tensor:
        fresh = replace(seen, parameters=algo.actor.parameters_of(leaf[:, :num], batch.inputs.first(num)))
        return -masked_mean(algo.log_prob_of_data(fresh).mean(-1), batch.mask)

    def critics() -> Tensor:
        share = algo.critic.share(leaf[:, :num_t])
        raw = algo.critic(share, batch.actions[None, :, :, None])[0]
        judged = replace(seen, share=share, raw=raw)
        return summed(algo.critic_terms(judged, targets).losses, batch.mask)

    def policy() -> Tensor:
        return summed(algo.actor_terms(seen).losses, batch.mask)

    def optimiser() -> None:
        keep_gradients(algo)
        algo.updater._stats = {"trunk/inputs": algo.trunk.stats(batch.inputs, batch.input_mask)["trunk/inputs"]}
        if algo.algo_config.use_popart:
            algo.updater._stats["popart"] = algo.popart.stats(targets, batch.rewards, batch.mask)
        algo.updater._clipper.clip()
        algo.updater._update()

    def bootstrap() -> Tensor:
        with torch.no_grad():
            return algo.targets(batch, algo.next_values(p))

    def trunk() -> Tensor:
        return algo.trunk(batch.inputs)[0].square().mean()

    def whole() -> Tensor:
        return algo.train_on_batch(batch)["loss/total"]

    return {
        "trunk": lambda: trunk().backward(),
        "actor": lambda: actor().backward(),
        "critics": lambda: critics().backward(),
        "policy's losses": lambda: policy().backward(),
        "targets": bootstrap,
        "optimiser": optimiser,
        "whole step": whole,
    }


def measure(label: str, num: int, window: int, args: argparse.Namespace, unit: float) -> list[dict[str, Any]]:
    """Return one row per part."""
    name, kind = AGENTS[label]
    algo = make_algo(name, kind, window, args.device, args.precision, args.compile)
    batch = algo.process_batch_for_training(make_batch(kind, num, window))
    rows = []
    for part, work in parts_of(algo, batch).items():
        if args.compile and part != "whole step":
            continue
        work()
        floor = float("nan") if args.compile else floor_seconds(work, algo.device, args.repeats)
        took = seconds(work, algo.device, args.repeats)
        peak = peak_megabytes(work, algo.device)
        rows.append(
            {
                "agent": label,
                "batch": f"{num} x {window}",
                "part": part,
                "ms": f"{1e3 * took:.1f}",
                "floor ms": f"{1e3 * floor:.1f}",
                "x floor": f"{took / floor:.2f}" if floor > 1e-4 else "-",
                "units": f"{took / unit:.1f}",
                "peak MB": f"{peak:.0f}",
            }
        )
        algo.nets.zero_grad()
    return rows


def rows_of_gpu() -> list[dict[str, Any]]:
    """Return the recorded whole steps on a GPU, as the rows of a table."""
    rows = []
    for file in (RESULTS / "agents_cuda.json", RESULTS / "agents_cuda_bf16.json"):
        found = json.loads(file.read_text())
        precision = {"no": "float32"}.get(found["precision"], found["precision"])
        for row in found["rows"]:
            if row["part"] == "whole step":
                kept = {key: row[key] for key in ("ms", "floor ms", "x floor", "peak MB")}
                rows.append({"agent": row["agent"], "precision": precision, **kept})
    return rows


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--agents", nargs="*", default=list(AGENTS), choices=list(AGENTS), metavar="AGENT")
    parser.add_argument("--shapes", nargs="*", default=["16x128", "8x512"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="no", choices=["no", "bf16"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--name", default="agents", help="name of the result file")
    args = parser.parse_args()
    device = torch.device(args.device)
    keeps = keep_freed_memory()  # as Experiment does
    square = torch.randn(1024, 1024, device=device)
    rows: list[dict[str, Any]] = []
    for shape in args.shapes:
        for label in args.agents:
            unit = seconds(lambda: square @ square, device, 20)
            found = measure(label, *map(int, shape.split("x")), args, unit)
            rows += found
            print(table(found), flush=True)
    gpu = {"gpu": torch.cuda.get_device_name()} if device.type == "cuda" else {}
    settings = {
        **gpu,
        "precision": args.precision,
        "compile": args.compile,
        "device": args.device,
        "keep_freed_memory": keeps,
    }
    print("recorded in", record(args.name, {**settings, "threads": torch.get_num_threads(), "rows": rows}))


if __name__ == "__main__":
    main()
