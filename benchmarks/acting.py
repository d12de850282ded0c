"""Time of one acting step of each memory, before and after its window has filled.

The Transformer attends to a ring buffer of fixed size, so a step has to cost the same at any time. Before and after
take turns in every repeat, on one state each; medians of the repeats and their ratio are reported.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from record import record, table

import seqrl.models  # noqa: F401  (registers the memories)
from seqrl.core.registry import SEQUENCE_ENCODERS

WINDOW, WIDTH = 256, 256


def state_after(encoder: torch.nn.Module, rows: int, steps: int) -> tuple[dict[str, torch.Tensor], int]:
    """Return a state that has seen ``steps`` inputs."""
    state = encoder.init_state(rows, device="cpu")
    with torch.no_grad():
        for t in range(steps):
            _, state = encoder(torch.randn(rows, 1, WIDTH), torch.full((rows, 1), t), state)
    return state, steps


def step_seconds(encoder: torch.nn.Module, rows: int, state: dict[str, torch.Tensor], step: int, n: int) -> float:
    """Return the mean time of ``n`` steps from a copy of the state."""
    state = {k: v.clone() for k, v in state.items()}
    x = torch.randn(rows, 1, WIDTH)
    with torch.no_grad():
        begin = time.perf_counter()
        for t in range(n):
            _, state = encoder(x, torch.full((rows, 1), step + t), state)
        return (time.perf_counter() - begin) / n


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--steps", type=int, default=40, help="per measurement")
    args = parser.parse_args()
    torch.manual_seed(0)
    rows_out, figures = [], {}
    for name in SEQUENCE_ENCODERS.names():
        for num_rows in (1, 16):
            encoder = SEQUENCE_ENCODERS.get(name)(WIDTH, WINDOW).eval()
            before, after = state_after(encoder, num_rows, 20), state_after(encoder, num_rows, 4 * WINDOW)
            times: dict[str, list[float]] = {"before": [], "after": []}
            for _ in range(args.repeats):
                for label, (state, step) in (("before", before), ("after", after)):
                    times[label].append(step_seconds(encoder, num_rows, state, step, args.steps))
            first, later = (statistics.median(times[k]) for k in ("before", "after"))
            figures[f"{name}, {num_rows} rows"] = {"before_us": 1e6 * first, "after_us": 1e6 * later}
            rows_out.append(
                {
                    "memory": name,
                    "rows": num_rows,
                    "before (us)": f"{1e6 * first:.0f}",
                    "after (us)": f"{1e6 * later:.0f}",
                    "after / before": f"{later / first:.2f}",
                }
            )
    print(table(rows_out))
    print("recorded in", record("acting", {"window": WINDOW, "threads": torch.get_num_threads(), "step_time": figures}))


if __name__ == "__main__":
    main()
