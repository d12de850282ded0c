"""XLand-MiniGrid: find out a hidden goal in one attempt, use it in the next, in another grid. Needs "seqrl[xland]".

python examples/11_xland_minigrid.py
python examples/11_xland_minigrid.py --rooms 4 --size 13 --attempts 5 --memory transformer
python examples/11_xland_minigrid.py --benchmark trivial-21k     # rulesets that the package downloads
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
    p.add_argument("--rooms", type=int, default=1, choices=[1, 2, 4, 6, 9], help="rooms (default %(default)s)")
    p.add_argument(
        "--size", type=int, default=9, help="cells along each side: one that an id has (default %(default)s)"
    )
    p.add_argument("--attempts", type=int, default=3, help="attempts of an episode (default %(default)s)")
    p.add_argument("--attempt-steps", type=int, default=50, help="steps of an attempt (default %(default)s)")
    p.add_argument("--benchmark", help="rulesets: a name, or an .npz file; default: 1,000 of one goal")
    p.add_argument("--memory", default="gru", help="a name from `seqrl list memories` (default %(default)s)")
    p.add_argument("--window", type=int, default=150, help="steps of training windows (default %(default)s)")
    p.add_argument("--epochs", type=int, default=100, help="epochs of 3,200 environment steps (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", help="name of the run's folder, in runs/")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file."""
    kwargs = {"attempts": args.attempts, "max_episode_steps": args.attempts * args.attempt_steps, "split": "train"}
    grid = f"XLand-MiniGrid-R{args.rooms}-{args.size}x{args.size}"
    env = {"id": grid, "kwargs": {**kwargs, "benchmark": args.benchmark}, "vectorization": "native"}
    env["eval_kwargs"] = {"split": "test"}
    train = {"window_steps": args.window, "batch_size": 16, "steps_per_epoch": 200}
    explore = {"type": "epsilon_greedy", "start": 1.0, "end": 0.05, "anneal_steps": 2000}
    return {
        "experiment": {"name": args.name, "evaluation": {"every_n_epochs": 10, "episodes": 40}},
        "env": env,
        "train": {**train, "seed": args.seed, "num_epochs": args.epochs},
        "collect": {"steps_per_epoch": 100, "num_envs": 32, "exploration": explore},
        "algo": {"gamma": 0.98},
    }


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and tell the return; without the package, an error names the extra."""
    args = parser().parse_args(argv)
    values = settings(args)
    apply_overrides(values, [f"algo.sequence_encoder.type={args.memory}", *args.set])
    config = config_factory("actor_critic", values)
    experiment = seqrl.Experiment(config, resume=args.resume, overwrite=args.overwrite)
    experiment.start()
    run = experiment.learn()
    score, steps = run.metrics["eval/return_mean"], run.env_steps
    print(f"return {score:.2f} after {steps:,} steps; look at {run.path / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
