"""Tokens per second of training a GRU layer on a CPU: by PyTorch's, by ``gru_pass``, and an LSTM beside them.

Run by hand: ``python benchmarks/gru_pass.py``, a minute on one core. Ratios are of one run on one machine.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from record import RESULTS, provenance, table, write_table
from torch import Tensor, nn
from torch.nn.functional import linear

from seqrl.core.files import write_json
from seqrl.models.sequence_encoders.gru_pass import gru_pass

PAGE = Path(__file__).parents[1] / "docs" / "memories_compared.md"
SHAPES = [(width, rows, steps) for width in (64, 256) for rows, steps in ((1, 4096), (4, 1024), (16, 128), (64, 64))]
REPEATS = 5
TORCH = "PyTorch's GRU"


def own(gru: nn.GRU, x: Tensor) -> Tensor:
    """Return the outputs of one layer by the pass of one's own."""
    start = x.new_zeros(len(x), gru.hidden_size)
    into = linear(x.transpose(0, 1), gru.weight_ih_l0, gru.bias_ih_l0)
    return gru_pass(into, gru.weight_hh_l0, gru.bias_hh_l0, start)


def measured(width: int, rows: int, steps: int) -> dict[str, float]:
    """Return tokens per second of a forward and backward pass: the median over interleaved repeats."""
    torch.manual_seed(0)
    gru, lstm = nn.GRU(width, width, batch_first=True), nn.LSTM(width, width, batch_first=True)
    x = torch.randn(rows, steps, width)
    ways: dict[str, Callable[[], Tensor]] = {
        TORCH: lambda: gru(x)[0],
        "gru_pass": lambda: own(gru, x),
        "PyTorch's LSTM": lambda: lstm(x)[0],
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(REPEATS + 1):
        for name, run in ways.items():
            start = time.process_time()
            run().sum().backward()  # type: ignore[no-untyped-call]
            if repeat:
                found[name].append(rows * steps / (time.process_time() - start))
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Measure, record, and write the table."""
    torch.set_num_threads(1)
    results = {f"{w} wide, {r} x {n}": measured(w, r, n) for w, r, n in SHAPES}
    write_json(RESULTS / "gru_pass.json", {**provenance(), "rows": results})
    shown = [
        {
            "one layer, rows x steps": shape,
            **{name: f"{speed:,.0f}" for name, speed in row.items()},
            "times faster": f"{row['gru_pass'] / row[TORCH]:.1f}",
        }
        for shape, row in results.items()
    ]
    write_table(PAGE, "gru_pass", table(shown))


if __name__ == "__main__":
    main()
