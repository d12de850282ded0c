"""Behaviour cloning with an LSTM or a GRU on a file in robomimic's HDF5 layout, and a rollout of what was learned.

python examples/train_bc_rnn.py                                        # on episodes of a scripted expert, made here
python examples/train_bc_rnn.py --dataset low_dim.hdf5 --window 10 --distribution gmm --epochs 100 --set train.seed=1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seqrl
from seqrl.configs import apply_overrides, config_factory
from seqrl.scripts import collect_dataset, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dataset", type=Path, help="file; without it, point_recall.hdf5 is made here and used")
    p.add_argument("--memory", choices=("lstm", "gru"), default="lstm", help="default %(default)s")
    p.add_argument("--window", type=int, default=16, help="steps of training windows (default %(default)s)")
    p.add_argument("--distribution", default="gaussian", help="gaussian, gmm, deterministic, auto, ... (%(default)s)")
    p.add_argument("--epochs", type=int, default=5, help="epochs of 100 gradient steps (default %(default)s)")
    p.add_argument("--episodes", type=int, default=20, help="rollouts at the end (default %(default)s)")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace, file: Path) -> dict[str, Any]:
    """Return the run file. Windows that overhang an episode's end show its last steps as often as the others."""
    train = {"window_steps": args.window, "window_padding": "right", "sample_by": "transition", "batch_size": 32}
    memory = {"type": args.memory, "d_hidden": 128, "num_layers": 1, "d_output": None}
    algo = {"sequence_encoder": memory, "distribution": {"type": args.distribution}}
    return {
        "experiment": {"evaluation": {"every_n_epochs": 5, "episodes": 100}},
        "train": {**train, "num_epochs": args.epochs, "steps_per_epoch": 100, "data": [{"path": str(file)}]},
        "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 128, "d_output": 64}},
        "algo": {**algo, "optimizer": {"learning_rate": 0.001, "warmup_steps": 50}},
    }


def play(run: Path, num_episodes: int) -> float:
    """Return the mean return of a checkpoint's policy in the environment of its data."""
    policy, _ = seqrl.policy_from_checkpoint(run / "last", device="cpu")
    env, total = seqrl.env_from_checkpoint(run / "last"), 0.0
    for seed in range(num_episodes):
        ob, terminated, truncated = env.reset(seed=seed)[0], False, False
        policy.start_episode()
        while not (terminated or truncated):
            ob, reward, terminated, truncated, _ = env.step(policy(ob))
            total += float(reward)
    return total / num_episodes


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Make data if none is given, train, and play."""
    args = parser().parse_args(argv)
    if (file := args.dataset or Path("point_recall.hdf5")) != args.dataset and not file.exists():
        collect_dataset.main(["--env", "seqrl/PointRecall-v0", "--episodes", "200", "--output", str(file)])
    apply_overrides(values := settings(args, file), args.set)
    experiment = seqrl.Experiment(config_factory("bc", values), overwrite=args.overwrite)
    experiment.start()
    run = experiment.learn()
    print(f"return {play(run.path, args.episodes):.3f}; look at {run.path / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
