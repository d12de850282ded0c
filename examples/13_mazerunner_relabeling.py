"""Goals in an unknown maze pay once they are reached, in order: relabeling learns from episodes that reach none.

python examples/13_mazerunner_relabeling.py
python examples/13_mazerunner_relabeling.py --no-relabel                                 # the control
python examples/13_mazerunner_relabeling.py --size 9 --goals 2 --shuffled-actions --epochs 200
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

RUN_FILE = Path(__file__).parents[1] / "benchmarks" / "learning" / "maze.json"
"""Of the recorded figures; what is not an option here stands there."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=int, default=7, help="cells along each side, walls included (default %(default)s)")
    p.add_argument("--goals", type=int, default=1, help="goals to reach in order (default %(default)s)")
    p.add_argument("--time-limit", type=int, help="steps of an episode (default: the square of the size, per goal)")
    p.add_argument("--relabel", action=argparse.BooleanOptionalAction, default=True, help="hindsight")
    p.add_argument("--shuffled-actions", action="store_true", help="shuffle what the actions do, anew for each episode")
    p.add_argument("--memory", default="gru", help="a name from `seqrl list memories` (default %(default)s)")
    p.add_argument("--epochs", type=int, help="epochs of 492 environment steps (default: the run file's)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", help="name of the run's folder, in runs/")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file: what was achieved at some times of a stored episode becomes its goals, when it is drawn."""
    values = read_config_values(str(RUN_FILE))
    steps = args.time_limit or args.size**2 * args.goals
    maze = {"size": args.size, "num_goals": args.goals, "time_limit": steps}
    values["experiment"]["name"] = args.name
    values["env"]["kwargs"] |= {**maze, "shuffled_actions": args.shuffled_actions}
    values["train"] |= {"window_steps": steps, "seed": args.seed}
    values["train"]["num_epochs"] = args.epochs or values["train"]["num_epochs"]
    relabel = {"type": "hindsight_sequence", "threshold": 0.5, "progress_key": "goals_reached"}
    values["collect"]["replay"] = {"relabel": relabel if args.relabel else None}
    return values


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and tell the share of episodes that reached all goals."""
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
