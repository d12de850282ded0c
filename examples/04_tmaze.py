"""A hint at the start of a corridor tells which way to turn at its end: without memory nobody does better than 0.5.

python examples/04_tmaze.py
python examples/04_tmaze.py --memory feedforward                # the control
python examples/04_tmaze.py --corridor 50 --epochs 50 --exploration corridor

Random moves never get through a long corridor, so exploration has to know where it is safe. The default explores by
time, after as many steps as the corridor has; "corridor" is the schedule of corridor_exploration_plugin.py, by place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seqrl
from seqrl.configs import apply_overrides, config_factory, read_config_values
from seqrl.core.plugins import load_plugins
from seqrl.scripts import script

RUN_FILE = Path(__file__).parents[1] / "benchmarks" / "learning" / "tmaze_20.json"
"""Of the recorded figures; what is not an option here stands there."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corridor", type=int, default=20, help="length of the corridor (default %(default)s)")
    p.add_argument("--memory", default="gru", help="a name from `seqrl list memories` (default %(default)s)")
    p.add_argument("--exploration", choices=("bilevel", "corridor"), default="bilevel", help="default %(default)s")
    p.add_argument("--epochs", type=int, help="epochs of 360 steps or more (default: the run file's)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", help="name of the run's folder, in runs/")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file, for a corridor of this length."""
    values = read_config_values(str(RUN_FILE))
    values["experiment"]["name"] = args.name
    values["env"]["kwargs"]["corridor_length"] = args.corridor
    values["train"] |= {"window_steps": args.corridor + 1, "seed": args.seed}
    values["train"]["num_epochs"] = args.epochs or values["train"]["num_epochs"]
    values["collect"]["steps_per_epoch"] = max(30, args.corridor)
    values["collect"]["exploration"]["rollout_steps"] = args.corridor
    if args.exploration == "corridor":
        values["plugins"] = [str(Path(__file__).with_name("corridor_exploration_plugin.py"))]
        load_plugins(values["plugins"])
        places = {"type": "corridor", "corridor_length": args.corridor, "end": 0.1, "anneal_steps": 1500}
        values["collect"]["exploration"] = places
    return values


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and tell the share of right turns."""
    args = parser().parse_args(argv)
    values = settings(args)
    apply_overrides(values, [f"algo.sequence_encoder.type={args.memory}", *args.set])
    config = config_factory("actor_critic", values)
    experiment = seqrl.Experiment(config, resume=args.resume, overwrite=args.overwrite)
    experiment.start()
    run = experiment.learn()
    score, steps = run.metrics["eval/success_mean"], run.env_steps
    print(f"success {score:.3f} after {steps:,} steps; look at {run.path / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
