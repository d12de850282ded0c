"""A half-cheetah has to hold a velocity that only the reward tells, drawn anew for each episode. Needs "seqrl[mujoco]".

python examples/12_half_cheetah_vel.py
python examples/12_half_cheetah_vel.py --memory feedforward --set observation.use_prev_reward=false    # cannot know it
python examples/12_half_cheetah_vel.py --max-velocity 1 --memory transformer
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
    p.add_argument("--min-velocity", type=float, default=0.0, help="smallest target, m/s (default %(default)s)")
    p.add_argument("--max-velocity", type=float, default=3.0, help="largest target, m/s (default %(default)s)")
    p.add_argument("--episode-steps", type=int, default=200, help="steps of an episode (default %(default)s)")
    p.add_argument("--window", type=int, default=64, help="steps of training windows (default %(default)s)")
    p.add_argument("--memory", default="gru", help="a name from `seqrl list memories` (default %(default)s)")
    p.add_argument("--epochs", type=int, default=100, help="epochs of 2,400 environment steps (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", help="name of the run's folder, in runs/")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file."""
    cheetah = {"min_velocity": args.min_velocity, "max_velocity": args.max_velocity}
    train = {"window_steps": args.window, "batch_size": 16, "num_epochs": args.epochs, "steps_per_epoch": 200}
    explore = {"type": "epsilon_greedy", "start": 0.5, "end": 0.1, "anneal_steps": 5000}
    algo = {"gamma": 0.98, "extra_gammas": [], "tau": 0.01, "reward_multiplier": 1.0, "critic_loss_weight": 1.0}
    algo |= {"offline_coeff": 0.0, "actor": {"d_hidden": 256}, "critic": {"d_hidden": 256, "num_critics": 4}}
    algo |= {"sequence_encoder": {"type": "gru", "d_hidden": 128, "num_layers": 1, "d_output": 128}}
    return {
        "experiment": {"name": args.name, "evaluation": {"every_n_epochs": 10, "episodes": 40}},
        "env": {"id": "seqrl/HalfCheetahVelocity-v0", "kwargs": {**cheetah, "episode_steps": args.episode_steps}},
        "train": {**train, "seed": args.seed},
        "collect": {"steps_per_epoch": 200, "num_envs": 12, "exploration": explore},
        "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 128, "d_output": 128}},
        "algo": {**algo, "optimizer": {"learning_rate": 0.0005, "warmup_steps": 100}},
    }


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and tell how far the velocity was from the target; without MuJoCo, an error names the extra."""
    args = parser().parse_args(argv)
    values = settings(args)
    apply_overrides(values, [f"algo.sequence_encoder.type={args.memory}", *args.set])
    config = config_factory("actor_critic", values)
    experiment = seqrl.Experiment(config, resume=args.resume, overwrite=args.overwrite)
    experiment.start()
    run = experiment.learn()
    error, steps = run.metrics["eval/log/velocity_error"], run.env_steps
    print(f"velocity error {error:.2f} m/s after {steps:,} steps; look at {run.path / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
