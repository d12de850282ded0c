"""Success of cloning and of the two agents on demonstrations of mixed quality: the learning test's runs, as a table."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

import torch
from record import record, table

sys.path.insert(0, str(Path(__file__).parents[1]))

from seqrl.reports.statistics import wilson_interval
from tests.learning.test_offline_agents import ALGOS, SEEDS, TASKS, final_success, write_demonstrations


def main() -> None:
    """Run, print, record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    rows, figures = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SEQRL_CACHE_DIR"] = str(folder / "cache")
        for task in TASKS:
            good = write_demonstrations(task, folder / f"{task}.hdf5")
            for algo in ALGOS:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    wins = [final_success(algo, task, folder / f"{task}.hdf5", folder, seed) for seed in SEEDS]
                share = wilson_interval(sum(wins), 200 * len(SEEDS))
                figures[f"{task}, {algo}"] = {"successes_of_200": wins, "successes_in_600_demonstrations": good}
                rows.append(
                    {
                        "task": TASKS[task][0],
                        "algorithm": algo,
                        "success, 95 % interval": f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}]",
                        "by seed": ", ".join(f"{n / 200:.3f}" for n in wins),
                    }
                )
                print(table(rows[-1:]), flush=True)
    print(table(rows))
    print("recorded in", record("offline_agents", {"runs": figures}))


if __name__ == "__main__":
    main()
