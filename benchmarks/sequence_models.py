"""Speed and memory of the sequence encoders: a training step by length, and an acting step by time.

Training reads the same number of tokens per batch at every length, so an encoder that is linear in the length takes
the same time and memory at each, unless, as a recurrent one, it owes its speed to the rows of the batch (``--tokens 1``
reads one sequence at every length instead). Acting steps a state before its window has filled, when it just has, and
long after. Variants take turns in every repeat; medians of the repeats are reported.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from record import RESULTS, record, table
from sequence_acting import FILLS, SECONDS, acting_names, acting_row, time_acting
from sequence_variants import (
    LAYERS,
    VARIANTS,
    WIDTH,
    WINDOW,
    Square,
    inputs,
    make_encoder,
    peak_in_fresh_process,
    say,
    synchronise,
    train_flops,
    train_seconds,
    why_not,
)
from torch import nn

from seqrl.core.host_memory import keep_freed_memory

CHILD_SECONDS, STEP_SECONDS = 4.0, 2.0  # to start a process; a typical step of 8,192 tokens on two threads
LINEAR = ("feedforward", "mamba", "sdpa window", "sdpa window, sinks", "auto window, clip")
Cell = dict[str, Any]


# ------------------------------------------------------------------------------------------------ training


def training_peaks(names: list[str], args: argparse.Namespace, not_run: dict[str, str]) -> list[Cell]:
    """Return a cell per length and variant, with its peak memory; cells that fail are noted in ``not_run``."""
    cells = []
    for length in args.lengths:
        batch = max(1, args.tokens // length)
        for name in names:
            found = peak_in_fresh_process(name, length, batch, args.device, args.precision)
            if "not_run" in found:
                not_run[f"{name}, {length} steps"] = found["not_run"]
                say(f"memory, {name}, {length}: not run, {found['not_run']}")
                continue
            say(f"memory, {name}, {length}: {found['peak_bytes'] / 1e6:.0f} MB, a step of {found['seconds']:.2f} s")
            cell = {"variant": name, "length": length, "batch": batch, "peak_mb": found["peak_bytes"] / 1e6}
            cell["peak_bytes_per_token"] = found["peak_bytes"] / (batch * length)
            cells.append({**cell, "probe_s": found["seconds"], "times_s": []})
    return cells


def time_training(cells: list[Cell], args: argparse.Namespace) -> None:
    """Fill in the times of all cells, length by length; the variants of a length take turns."""
    square = Square(args.device, args.precision)
    for length in args.lengths:
        turns = [c for c in cells if c["length"] == length]
        encoders: dict[str, nn.Module] = {}
        x, step = inputs(max(1, args.tokens // length), length, args.device)
        for cell in turns:
            name = cell["variant"]
            encoders[name] = make_encoder(name, VARIANTS[name].window or length, args.device).train()
            cell["flops_per_token"] = train_flops(name, encoders[name], length)
            if cell["probe_s"] <= args.max_seconds_per_cell:
                train_seconds(encoders[name], x, step, args.device, args.precision)
        flops = []
        for repeat in range(args.repeats):
            flops.append(square.flops())
            for cell in turns:
                times = cell["times_s"]
                if times and sum(times) + max(times) > args.max_seconds_per_cell:
                    continue
                times.append(train_seconds(encoders[cell["variant"]], x, step, args.device, args.precision))
                encoders[cell["variant"]].zero_grad(set_to_none=True)
                say(f"training, {cell['variant']}, {length}, repeat {repeat + 1}: {times[-1]:.2f} s")
        for cell in turns:
            finish(cell, statistics.median(flops))


def finish(cell: Cell, flops: float) -> None:
    """Add what follows from a cell's times and the speed of matrix products."""
    seconds, tokens = statistics.median(cell["times_s"]), cell["batch"] * cell["length"]
    floor = tokens * cell["flops_per_token"] / flops
    cell |= {"repeats": len(cell["times_s"]), "tokens_per_s": tokens / seconds, "product_gflops_per_s": flops / 1e9}
    cell["x_floor"] = seconds / floor if floor else None


def training_row(cell: Cell) -> Cell:
    """Return the cell as a row of the table."""
    return {
        "variant": cell["variant"],
        "batch": f"{cell['batch']} x {cell['length']}",
        "tokens/s": f"{cell['tokens_per_s']:,.0f}",
        "x floor": "-" if cell["x_floor"] is None else f"{cell['x_floor']:.2f}",
        "peak MB": f"{cell['peak_mb']:.0f}",
        "peak bytes/token": f"{cell['peak_bytes_per_token']:,.0f}",
        "repeats": cell["repeats"],
    }


def linearity(cells: list[Cell]) -> list[Cell]:
    """Return per variant its time and memory per token at the longest length over those at 2,048, or at the shortest.

    At 2,048 steps a window of 256 is whole almost everywhere; in shorter sequences many inputs see less than a window.
    """
    lengths = sorted({c["length"] for c in cells})
    if len(lengths) < 2:
        return []
    short, long = 2048 if 2048 in lengths[:-1] else lengths[0], lengths[-1]
    found = {(c["variant"], c["length"]): c for c in cells}
    return [
        {
            "variant": name,
            "lengths": f"{long} / {short}",
            "time per token": found[name, short]["tokens_per_s"] / found[name, long]["tokens_per_s"],
            "memory per token": found[name, long]["peak_bytes_per_token"]
            / max(found[name, short]["peak_bytes_per_token"], 1.0),
        }
        for name in dict.fromkeys(c["variant"] for c in cells)
        if (name, short) in found and (name, long) in found
    ]


# ------------------------------------------------------------------------------------------------ claims


def claims(cells: list[Cell], linear: list[Cell], acting: list[Cell], alone: float | None) -> list[Cell]:
    """Return what the figures say of the library's claims, where they were measured."""
    speed = {c["variant"]: c["tokens_per_s"] for c in cells if c["length"] == 512}
    rows: list[tuple[str, float, str, bool]] = []
    if {"sdpa full", "vanilla full"} <= speed.keys():
        ratio = speed["sdpa full"] / speed["vanilla full"]
        rows.append(("whole encoder, sdpa over vanilla, length 512", ratio, ">= 1.3", ratio >= 1.3))
    if alone:
        rows.append(("attention alone, sdpa over einsum and softmax, length 512", alone, ">= 1.3", alone >= 1.3))
    for key in ("time per token", "memory per token"):
        ratios = {r["variant"]: r[key] for r in linear if r["variant"] in LINEAR}
        if ratios:
            worst = max(ratios, key=lambda name: ratios[name])
            rows.append((f"{key} linear, worst: {worst}", ratios[worst], "<= 1.25", ratios[worst] <= 1.25))
    remembering = [c for c in acting if c["variant"] not in ("identity", "feedforward")]
    if remembering:
        last = max(remembering, key=lambda c: c["long after / just full"])
        ratio = last["long after / just full"]
        rows.append(
            (f"step as long as ever, worst: {last['variant']}, {last['rows']} rows", ratio, "<= 1.1", ratio <= 1.1)
        )
    return [{"claim": c, "ratio": round(r, 3), "bound": b, "holds": h} for c, r, b, h in rows]


# ------------------------------------------------------------------------------------------------ attention alone


def einsum_softmax(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return causal attention as one writes it down."""
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return torch.einsum("bhij,bhjd->bhid", scores.masked_fill(~causal, float("-inf")).softmax(-1), v)


def time_attention(args: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of attention alone, forward and backward, at 512 steps in batches of ``tokens``."""
    shape = (max(1, args.tokens // 512), 8, 512, WIDTH // 8)  # eight heads, as in the encoders
    q, k, v = (torch.randn(shape, device=args.device, requires_grad=True) for _ in range(3))
    ways = {
        "einsum": lambda: einsum_softmax(q, k, v),
        "sdpa": lambda: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.repeats + 1):  # the first one warms up
        for name, way in ways.items():
            synchronise(args.device)
            begin = time.perf_counter()
            way().sum().backward()
            synchronise(args.device)
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(seconds[1:]) for name, seconds in times.items()}


# ------------------------------------------------------------------------------------------------ the pages


def rows_of_gpu_acting() -> list[Cell]:
    """Return environment steps per second on a GPU, by memory and rows, as recorded."""
    cells = json.loads((RESULTS / "sequence_acting_cuda.json").read_text())["acting"]
    cells = [c for c in cells if c["variant"] != "flash window"]  # in float32, which PyTorch's kernels compute
    sizes = sorted({c["rows"] for c in cells})
    speed = {(c["variant"], c["rows"]): f"{c['env_steps_per_s']:,.0f}" for c in cells}
    names = dict.fromkeys(c["variant"] for c in cells)
    return [{"memory": n, **{f"{k} row{'s' * (k > 1)}": speed[n, k] for k in sizes}} for n in names]


def rows_of_gpu_training() -> list[Cell]:
    """Return tokens per second in training on a GPU with deterministic kernels, by memory and length, as recorded."""
    cells = json.loads((RESULTS / "sequence_models_cuda_bf16_deterministic.json").read_text())["training"]
    speed = {(c["variant"], c["length"]): f"{c['tokens_per_s']:,.0f}" for c in cells}
    lengths = sorted({c["length"] for c in cells})
    names = dict.fromkeys(c["variant"] for c in cells)
    return [{"memory": n, **{f"{length:,}": speed[n, length] for length in lengths}} for n in names]


# ------------------------------------------------------------------------------------------------ the run


def gpu_versions() -> dict[str, Any]:
    """Return the GPU and the packages that bring kernels."""
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    for package in ("flash-attn", "mamba-ssm", "triton"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="attention,training,acting", help="which of them, separated by commas")
    parser.add_argument("--variants", nargs="*", default=None, choices=list(VARIANTS), metavar="VARIANT")
    parser.add_argument("--lengths", nargs="*", type=int, default=[128, 512, 2048, 8192])
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 16, 36, 64], help="environments that act together")
    parser.add_argument("--tokens", type=int, default=8192, help="per batch of training")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-seconds-per-cell", type=float, default=15.0, help="fewer repeats rather than more time")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="no", choices=["no", "bf16"])
    parser.add_argument("--output-name", default=None, help="name of the result file")
    args = parser.parse_args()
    if args.variants is None:
        args.variants = [n for n, v in VARIANTS.items() if args.device == "cuda" or not v.is_cuda_only]
    if args.output_name is None:
        args.output_name = "sequence_models" + ("_cuda" if args.device == "cuda" else "")
    return args


def estimate(num_training: int, num_acting: int, args: argparse.Namespace) -> float:
    """Return about how many minutes the run takes on two quiet threads."""
    cell = CHILD_SECONDS + (args.repeats + 2) * STEP_SECONDS * args.tokens / 8192
    acting = 4 + SECONDS * len(FILLS) * len(args.rows) * args.repeats
    return (num_training * len(args.lengths) * cell + num_acting * acting) / 60


def train(names: list[str], args: argparse.Namespace, not_run: dict[str, str]) -> list[Cell]:
    """Return the cells of training."""
    cells = training_peaks(names, args, not_run)
    planned = [
        c["probe_s"] + max(c["probe_s"], min(c["probe_s"] * args.repeats, args.max_seconds_per_cell)) for c in cells
    ]
    say(f"training: at most {sum(planned) / 60:.1f} min from here")
    time_training(cells, args)
    return cells


def main() -> None:
    """Measure, print, record."""
    args = arguments()
    keeps = keep_freed_memory()  # as Experiment does
    not_run = {name: why for name in args.variants if (why := why_not(name, args.device))}
    names = [name for name in args.variants if name not in not_run]
    acts, same = acting_names(names)
    parts = args.parts.split(",")
    num_training, num_acting = len(names) * ("training" in parts), len(acts) * ("acting" in parts)
    say(f"about {estimate(num_training, num_acting, args):.0f} min on two quiet threads")
    cells = train(names, args, not_run) if num_training else []
    acting = time_acting(acts, args, not_run) if num_acting else []
    alone = time_attention(args) if "attention" in parts else {}
    linear = linearity(cells)
    claimed = claims(cells, linear, acting, alone["einsum"] / alone["sdpa"] if alone else None)
    rounded = [{k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()} for row in linear]
    for rows in ([training_row(c) for c in cells], rounded, [acting_row(c) for c in acting], claimed):
        print(table(rows) + "\n" if rows else "", end="\n" if rows else "")
    for name, why in not_run.items():
        print(f"not run: {name}: {why}")
    setup = {"width": WIDTH, "layers": LAYERS, "window": WINDOW, "tokens": args.tokens, "fills": FILLS}
    setup |= {"device": args.device, "precision": args.precision, "keep_freed_memory": keeps}
    setup |= {"threads": torch.get_num_threads()} | (gpu_versions() if args.device == "cuda" else {})
    figures = {
        "attention_alone_s": alone,
        "training": cells,
        "linearity": linear,
        "acting": acting,
        "acting_same_as": same,
        "claims": claimed,
    }
    print("recorded in", record(args.output_name, {**setup, **figures, "not_run": not_run}))


if __name__ == "__main__":
    main()
