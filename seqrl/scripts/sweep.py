"""Train a run file with many settings and seeds: a grid, random draws, or a search by Optuna."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from seqrl.core.errors import ConfigError
from seqrl.scripts._script import script

if TYPE_CHECKING:
    from seqrl.sweeps.planning import Plan
    from seqrl.sweeps.sweep_file import SweepSection
    from seqrl.sweeps.sweep_folder import SweepFolder


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl sweep", description=__doc__)
    p.add_argument("file", metavar="FILE", help="sweep file (JSON): base, grid or draw, seeds, metric (docs/sweeps.md)")
    p.add_argument(
        "--jobs", type=int, metavar="N", help="runs at once, of one thread each (default: as many as cores)"
    )  # fmt: skip
    p.add_argument(
        "--backend", choices=("local", "slurm"), default="local",
        help="processes on this machine (default), or an array of SLURM jobs",
    )  # fmt: skip
    p.add_argument("--dry-run", action="store_true", help="print the runs (with SLURM, the array too), and stop")
    return p


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Sweep, and return the exit code."""
    args = parser().parse_args(argv)
    if args.jobs is not None and args.jobs < 1:
        raise ConfigError(f"--jobs must be at least 1, got {args.jobs}")
    from seqrl.sweeps.planning import Plan
    from seqrl.sweeps.sweep_file import read_sweep
    from seqrl.sweeps.sweep_folder import SweepFolder

    section, base = read_sweep(args.file)
    if section.search == "optuna" and args.backend == "slurm":
        raise ConfigError('"search": "optuna" runs on this machine; with --backend slurm, draw at "random"')
    plan = Plan(section, base, args.file, by_budget(section))
    folder = SweepFolder(plan)
    if args.dry_run:
        print(_planned(plan, folder, args.backend))
        return 0
    with folder.opened():
        if args.backend == "slurm":
            return _submitted(plan, folder)
        settings, notes = plan.settings, dict[str, str]()
        if section.search == "optuna":
            from seqrl.sweeps.optuna_search import search

            settings, notes, num_failed = search(folder, plan, args.jobs or num_cores())
        else:
            from seqrl.sweeps.local import run_all

            num_failed = run_all(folder, plan, args.jobs or num_cores())
        print(folder.write_results(settings, notes))
    has_best = (folder.path / "best.json").is_file()
    names = "sweep.csv, sweep.md, sweep.png and best.json" if has_best else "sweep.csv, sweep.md and sweep.png"
    rest = "" if has_best else "; no run has a score, so there is no best.json"
    print(f"wrote {names} to {folder.path}{rest}", file=sys.stderr)
    if num_failed:
        print(f"{num_failed} runs failed: see {folder.path / 'failed.json'}; the same command tries them again",
              file=sys.stderr)  # fmt: skip
    return 1 if num_failed else 0


def by_budget(section: SweepSection) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return what completes a run file by the sweep's budget, as ``seqrl train`` does; None without a budget."""
    given = {"env-steps": section.env_steps, "gradient-steps": section.gradient_steps}
    words = [f"--{option}={number}" for option, number in given.items() if number is not None]
    if not words:
        return None
    from seqrl.scripts.train import parser as train_parser
    from seqrl.scripts.train import resolve_config

    return lambda values: resolve_config(train_parser().parse_args(words), values, lambda _: None)[0].to_json()


def _planned(plan: Plan, folder: SweepFolder, backend: str) -> str:
    """Return what would be run."""
    runs = plan.runs()
    lines = [f"{'finished  ' if folder.is_finished(run) else '          '}{run.name}" for run in runs]
    if plan.section.search == "optuna":
        lines.append(f"and what Optuna proposes, {plan.section.trials} settings in all")
    lines.append(f"{len(runs)} runs of {len(plan.settings)} settings in {folder.path}")
    if backend == "slurm":
        from seqrl.sweeps.slurm import script_of

        lines += ["", script_of(folder, plan, sum(not folder.is_finished(run) for run in runs))]
    return "\n".join(lines)


def _submitted(plan: Plan, folder: SweepFolder) -> int:
    """Hand what is left to SLURM, show what is there, and return the exit code."""
    from seqrl.sweeps.slurm import submit

    print(submit(folder, plan))
    if any(folder.is_finished(run) for run in plan.runs()):
        print(folder.write_results(plan.settings, {}))
    return 1 if folder.failures else 0


if __name__ == "__main__":
    sys.exit(main())
