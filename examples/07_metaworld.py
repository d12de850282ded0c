"""Meta-World: find out a hidden goal in the first of some attempts, and use it in the others. Needs "seqrl[metaworld]".

python examples/07_metaworld.py
python examples/07_metaworld.py --benchmark ML10 --attempts 2 --memory transformer
python examples/07_metaworld.py --benchmark ML1 --task push-v3 --hide-rewards     # nothing tells the goal
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
        "--benchmark", default="ML1", help="ML1, ML10 or ML45: what goals and tasks are drawn (default %(default)s)"
    )
    p.add_argument("--task", default="reach-v3", help="task of ML1 (default %(default)s)")
    p.add_argument("--attempts", type=int, default=3, help="attempts of an episode (default %(default)s)")
    p.add_argument("--attempt-steps", type=int, default=150, help="steps of an attempt (default %(default)s)")
    p.add_argument("--hide-rewards", action="store_true", help="do not read the previous reward")
    p.add_argument("--memory", default="gru", help="a name from `seqrl list memories` (default %(default)s)")
    p.add_argument("--window", type=int, default=150, help="steps of training windows (default %(default)s)")
    p.add_argument("--epochs", type=int, default=100, help="epochs of 5,400 environment steps (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", help="name of the run's folder, in runs/")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file."""
    inner = {"env_name": args.task} if args.benchmark == "ML1" else {}
    kwargs = {"env_id": f"Meta-World/{args.benchmark}", "env_kwargs": inner, "attempts": args.attempts}
    env = {
        "id": "seqrl/Attempts-v0",
        "kwargs": {**kwargs, "attempt_steps": args.attempt_steps},
        "eval_kwargs": {"env_kwargs": {**inner, "split": "test"}},
        "vectorization": "async",
    }
    train = {"window_steps": args.window, "batch_size": 16, "steps_per_epoch": 200}
    explore = {"type": "epsilon_greedy", "start": 1.0, "end": 0.05, "anneal_steps": 20000}
    return {
        "experiment": {"name": args.name, "evaluation": {"every_n_epochs": 10, "episodes": 40}},
        "env": env,
        "train": {**train, "seed": args.seed, "num_epochs": args.epochs},
        "collect": {"steps_per_epoch": 450, "num_envs": 12, "exploration": explore},
        "observation": {"use_prev_reward": not args.hide_rewards},
        "algo": {"gamma": 0.98, "reward_multiplier": 1.0},
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
