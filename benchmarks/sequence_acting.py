"""The acting half of `sequence_models.py`: time of a step before the window fills, when it just has, and long after."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from sequence_variants import (
    CANNOT_BE_RUN,
    VARIANTS,
    WIDTH,
    WINDOW,
    autocast,
    inputs,
    make_encoder,
    reason,
    say,
    synchronise,
)
from torch import Tensor, nn

FILLS = {"before": 20, "just full": WINDOW, "long after": 4 * WINDOW + 20}
SECONDS = 0.2  # of one measurement


def acting_names(names: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the variants that differ when all have one window, and name -> the variant that it equals."""
    firsts: dict[str, str] = {}
    same = {}
    for name in names:
        variant = VARIANTS[name]
        first = firsts.setdefault(repr((variant.type, variant.options)), name)
        if first != name:
            same[name] = first
    return list(firsts.values()), same


def step_seconds(
    encoder: nn.Module, state: dict[str, Tensor], fill: int, num_rows: int, args: argparse.Namespace
) -> float:
    """Return the mean time of a step from copies of a state of one row, over some ``SECONDS``."""
    state = {k: v.repeat(num_rows, *[1] * (v.dim() - 1)) for k, v in state.items()}
    x = torch.randn(num_rows, 1, WIDTH, device=args.device)
    times: list[float] = []
    while len(times) < 6 or (sum(times) < SECONDS and len(times) < 100):
        step = torch.full((num_rows, 1), fill + len(times), device=args.device)
        synchronise(args.device)
        begin = time.perf_counter()
        with autocast(args.device, args.precision):
            _, state = encoder(x, step, state)
        synchronise(args.device)
        times.append(time.perf_counter() - begin)
    return statistics.fmean(times[1:])  # the first one warms up


def filled_states(encoder: nn.Module, args: argparse.Namespace) -> dict[str, dict[str, Tensor]]:
    """Return a state of one row for every fill."""
    state, states = encoder.init_state(1, device=args.device), {}
    for t in range(max(FILLS.values())):
        x, step = inputs(1, 1, args.device)
        with autocast(args.device, args.precision):
            _, state = encoder(x, step + t, state)
        for key, fill in FILLS.items():
            if fill == t + 1:
                states[key] = {k: v.clone() for k, v in state.items()}
    return states


@torch.inference_mode()
def time_acting(names: list[str], args: argparse.Namespace, not_run: dict[str, str]) -> list[dict[str, Any]]:
    """Return a cell per number of rows and variant; within a repeat the variants and fills take turns."""
    built = {}
    for name in names:
        try:
            encoder = make_encoder(name, WINDOW, args.device).eval()
            built[name] = (encoder, filled_states(encoder, args))
            say(f"acting, {name}: filled")
        except CANNOT_BE_RUN as error:
            not_run[f"{name}, acting"] = reason(error)
    cells = []
    for num_rows in args.rows:
        times: dict[tuple[str, str], list[float]] = {(n, f): [] for n in built for f in FILLS}
        for _ in range(args.repeats):
            for name, fill in times:
                encoder, states = built[name]
                times[name, fill].append(step_seconds(encoder, states[fill], FILLS[fill], num_rows, args))
        for name in built:
            cell: dict[str, Any] = {"variant": name, "rows": num_rows}
            cell["step_s"] = {f: statistics.median(times[name, f]) for f in FILLS}
            first, full, late = cell["step_s"].values()
            cell |= {"steps_per_s": 1 / late, "env_steps_per_s": num_rows / late}
            cells.append({**cell, "long after / just full": late / full, "long after / before": late / first})
            say(f"acting, {name}, {num_rows} rows: {1 / late:,.0f} steps/s")
    return cells


def acting_row(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the cell as a row of the table."""
    return {
        "variant": cell["variant"],
        "rows": cell["rows"],
        **{f"steps/s, {fill}": f"{1 / seconds:,.0f}" for fill, seconds in cell["step_s"].items()},
        "env steps/s": f"{cell['env_steps_per_s']:,.0f}",
        **{key: f"{cell[key]:.2f}" for key in ("long after / just full", "long after / before")},
    }
