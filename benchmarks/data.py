"""Windows per second out of three ways to keep trajectories: seqrl's store, npz files, HDF5 held open.

Windows of 128 transitions of 32 float32 features, in batches of 64, drawn uniformly from trajectories of 1,000 and
10,000 steps; about 100 MB of observations in each, in the page cache. All take turns in every repeat, and the median
is reported. The store also collates whole training batches (actions, rewards, flags, masks, tensors), which
the other two do not: that rate stands in a column of its own.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from gymnasium import spaces
from record import record, table

from seqrl.core.types import Trajectory
from seqrl.data import SequenceDataset, Source, Store, StoreInfo, StoreWriter

WINDOW, WIDTH, BATCH = 128, 32, 64
LENGTHS = (1_000, 10_000)


def make_trajectory(steps: int, rng: np.random.Generator) -> Trajectory:
    """Return noise."""
    return Trajectory(
        obs={"obs": rng.standard_normal((steps + 1, WIDTH), dtype=np.float32)},
        actions=rng.uniform(-1, 1, (steps, 4)).astype(np.float32),
        rewards=rng.standard_normal(steps, dtype=np.float32),
        terminated=np.zeros(steps, bool),
        truncated=np.arange(steps) == steps - 1,
    )


def write_all(folder: Path, steps: int, total: int) -> int:
    """Write the same trajectories in the three forms; return their number."""
    rng = np.random.default_rng(0)
    number = total // steps
    info = StoreInfo(spaces.Box(-np.inf, np.inf, (WIDTH,)), spaces.Box(-1, 1, (4,)))
    (folder / "npz").mkdir()
    with StoreWriter(folder / "store", info) as writer, h5py.File(folder / "all.hdf5", "w") as file:
        for i in range(number):
            trajectory = make_trajectory(steps, rng)
            writer.append(trajectory)
            np.savez(folder / "npz" / f"{i}.npz", obs=trajectory.obs["obs"])
            file[f"{i}/obs"] = trajectory.obs["obs"]
    return number


def readers(folder: Path, steps: int, number: int) -> dict[str, Callable[[np.random.Generator], object]]:
    """Return name -> function that draws one batch."""
    store = Store(folder / "store")
    dataset = SequenceDataset([Source(store, np.arange(number))], WINDOW)
    file = h5py.File(folder / "all.hdf5", "r")
    datasets = [file[f"{i}/obs"] for i in range(number)]

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, number, BATCH), rng.integers(0, steps - WINDOW, BATCH)

    def from_store(rng: np.random.Generator) -> object:
        trajectories, starts = draw(rng)
        return store.gather(trajectories, starts[:, None] + np.arange(WINDOW + 1), columns=("obs/obs",))

    def from_npz(rng: np.random.Generator) -> object:
        rows = zip(*draw(rng), strict=True)
        return np.stack([np.load(folder / "npz" / f"{i}.npz")["obs"][s : s + WINDOW + 1] for i, s in rows])

    def from_hdf5(rng: np.random.Generator) -> object:
        return np.stack([datasets[i][s : s + WINDOW + 1] for i, s in zip(*draw(rng), strict=True)])

    def collated(rng: np.random.Generator) -> object:
        return dataset.batch(BATCH, seed=int(rng.integers(2**31)), path=("bench",))

    return {
        "store": from_store,
        "store, collated": collated,
        "npz, whole files": from_npz,
        "hdf5, held open": from_hdf5,
    }


def windows_per_second(draw: Callable[[np.random.Generator], object], seconds: float) -> float:
    """Return the rate over about ``seconds``."""
    rng = np.random.default_rng(1)
    draw(rng)
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        draw(rng)
        count += BATCH
    return count / (time.perf_counter() - begin)


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement")
    parser.add_argument("--total", type=int, default=800_000, help="transitions per form")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        forms = {}
        for steps in LENGTHS:
            folder = Path(name) / str(steps)
            folder.mkdir()
            number = write_all(folder, steps, args.total)
            forms |= {(steps, form): draw for form, draw in readers(folder, steps, number).items()}
        rates: dict[tuple[int, str], list[float]] = {key: [] for key in forms}
        for _ in range(args.repeats):
            for key, draw in forms.items():
                rates[key].append(windows_per_second(draw, args.seconds))
    medians = {steps: {form: statistics.median(r) for (n, form), r in rates.items() if n == steps} for steps in LENGTHS}
    rows = [
        {
            "steps per trajectory": f"{steps:,}",
            "form": form,
            "windows/s": f"{rate:,.0f}",
            "x npz": f"{rate / medians[steps]['npz, whole files']:.1f}",
        }
        for steps in LENGTHS
        for form, rate in medians[steps].items()
    ]
    print(table(rows))
    growth = medians[1_000]["store"] / medians[10_000]["store"]
    print(f"\nstore, cost at 10,000 steps over cost at 1,000 steps: {growth:.2f}")
    figures = {"windows_per_s": {str(k): v for k, v in medians.items()}, "store_cost_ratio_10000_to_1000": growth}
    print("recorded in", record("data", figures))


if __name__ == "__main__":
    main()
