"""One policy for several Atari games, with one action space and masks. Needs "seqrl[atari]".

python examples/08_atari.py --games Pong Breakout SpaceInvaders
python examples/08_atari.py --games Pong --memory feedforward --core impala
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import seqrl
from seqrl.configs import apply_overrides, config_factory
from seqrl.scripts import script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--games", nargs="+", default=["Pong", "Breakout"], help="games (default %(default)s)")
    p.add_argument("--core", default="nature", help="convolutions: nature, impala or drq (default %(default)s)")
    p.add_argument("--memory", default="gru", help="a name from `seqrl list memories` (default %(default)s)")
    p.add_argument("--window", type=int, default=64, help="steps of training windows (default %(default)s)")
    p.add_argument("--epochs", type=int, default=100, help="epochs of 2,400 environment steps (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", help="name of the run's folder, in runs/")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file."""
    games = [{"id": f"ALE/{game}-v5"} for game in args.games]
    env = {"id": None, "tasks": games, "kwargs": {"all_actions": True}, "vectorization": "async"}
    train = {"window_steps": args.window, "batch_size": 16, "steps_per_epoch": 200}
    explore = {"type": "epsilon_greedy", "start": 1.0, "end": 0.05, "anneal_steps": 20000}
    return {
        "experiment": {"name": args.name, "evaluation": {"every_n_epochs": 10, "episodes": 40}},
        "env": env,
        "train": {**train, "seed": args.seed, "num_epochs": args.epochs},
        "collect": {"steps_per_epoch": 200, "num_envs": 12, "exploration": explore},
        "observation": {"timestep_encoder": {"type": "cnn", "core": {"type": args.core}}},
        "algo": {"gamma": 0.98},
    }


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and tell the return; without the package, an error names the extra."""
    args = parser().parse_args(argv)
    values = settings(args)
    apply_overrides(values, [f"algo.sequence_encoder.type={args.memory}", *args.set])
    config = config_factory("multitask", values)
    experiment = seqrl.Experiment(config, resume=args.resume, overwrite=args.overwrite)
    experiment.start()
    run = experiment.learn()
    score, steps = run.metrics["eval/return_mean"], run.env_steps
    print(f"return {score:.2f} after {steps:,} steps; look at {run.path / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
