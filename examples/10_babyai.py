"""One policy for several BabyAI tasks, which are told in words. Needs "seqrl[minigrid]".

python examples/10_babyai.py
python examples/10_babyai.py --tasks GoToLocal PickupLoc OpenDoor PutNextLocal --memory transformer
python examples/10_babyai.py --mission none     # cannot know what to do
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
    p.add_argument(
        "--tasks", nargs="+", default=["GoToLocal", "PickupLoc", "OpenDoor"], help="levels (default %(default)s)"
    )
    p.add_argument(
        "--mission", default="tokens", choices=["tokens", "none"], help="read the task (default %(default)s)"
    )
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
    tasks = [{"id": f"BabyAI-{task}-v0", "kwargs": {"mission": args.mission}} for task in args.tasks]
    env: dict[str, Any] = {"id": None, "kwargs": {}, "tasks": tasks, "common_space": "on"}
    words = {"mission": {"type": "tokens"}} if args.mission == "tokens" else {}
    train = {"window_steps": args.window, "batch_size": 16, "steps_per_epoch": 200}
    explore = {"type": "epsilon_greedy", "start": 1.0, "end": 0.05, "anneal_steps": 5000}
    return {
        "experiment": {"name": args.name, "evaluation": {"every_n_epochs": 10, "episodes": 40}},
        "env": env,
        "train": {**train, "seed": args.seed, "num_epochs": args.epochs},
        "collect": {"steps_per_epoch": 200, "num_envs": 12, "exploration": explore},
        "observation": {"timestep_encoder": {"type": "multimodal", "modalities": words}},
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
