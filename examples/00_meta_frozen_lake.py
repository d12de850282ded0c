"""A lake whose holes are invisible and drawn anew for each episode: memory makes later attempts better.

python examples/00_meta_frozen_lake.py
python examples/00_meta_frozen_lake.py --memory feedforward     # the control: they gain less
python examples/00_meta_frozen_lake.py --size 4 --hard --slip-chance 0.1 --memory transformer --epochs 300
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seqrl
from seqrl.configs import apply_overrides, config_factory, read_config_values
from seqrl.scripts import script

RUN_FILE = Path(__file__).parents[1] / "benchmarks" / "learning" / "lake.json"
"""Of the recorded figures; what is not an option here stands there."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=int, default=3, help="cells along each side (default %(default)s)")
    p.add_argument("--attempts", type=int, default=5, help="attempts at each lake (default %(default)s)")
    p.add_argument("--hard", action="store_true", help="shuffle what the actions do, anew for each episode")
    p.add_argument("--recover", action="store_true", help="a fall leads back to the start, within the same attempt")
    p.add_argument("--slip-chance", type=float, default=0.0, help="chance of a move to go to one of its sides")
    p.add_argument("--hide-progress", action="store_true", help="do not show how much of the episode is over")
    p.add_argument("--memory", default="gru", help="a name from `seqrl list memories` (default %(default)s)")
    p.add_argument("--epochs", type=int, help="epochs of 492 environment steps (default: the run file's)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", help="name of the run's folder, in runs/")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file: a window holds a whole episode, and exploration falls within each episode too."""
    values = read_config_values(str(RUN_FILE))
    lake = {"size": args.size, "attempts": args.attempts, "is_hard": args.hard, "recover_mode": args.recover}
    lake |= {"slip_chance": args.slip_chance, "hide_progress": args.hide_progress}
    steps = args.attempts * 4 * args.size
    values["experiment"]["name"] = args.name
    values["env"]["kwargs"] |= lake
    values["train"] |= {"window_steps": steps, "seed": args.seed}
    values["train"]["num_epochs"] = args.epochs or values["train"]["num_epochs"]
    values["collect"]["exploration"]["rollout_steps"] = steps
    return values


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and tell which share of the episodes reached the goal in each attempt."""
    args = parser().parse_args(argv)
    values = settings(args)
    apply_overrides(values, [f"algo.sequence_encoder.type={args.memory}", *args.set])
    config = config_factory("actor_critic", values)
    experiment = seqrl.Experiment(config, resume=args.resume, overwrite=args.overwrite)
    experiment.start()
    run = experiment.learn()
    shares = ", ".join(f"{run.metrics[f'eval/log/attempt_{n + 1}']:.2f}" for n in range(args.attempts))
    print(f"goals by attempt: {shares}, after {run.env_steps:,} steps; look at {run.path / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
