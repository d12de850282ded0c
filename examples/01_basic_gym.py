"""Any gymnasium environment, by its id.

python examples/01_basic_gym.py                                    # CartPole-v1
python examples/01_basic_gym.py --env Acrobot-v1 --epochs 100
python examples/01_basic_gym.py --env seqrl/Bandit-v0 --memory gru --window 100

Where each observation tells all that matters, as in CartPole, no memory is best: it is the quickest to compute and to
learn. Take a memory where something has to be kept: velocities that are not seen, a hint, what earlier attempts taught.
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

RUN_FILE = Path(__file__).parents[1] / "benchmarks" / "learning" / "cartpole.json"
"""Of the recorded figures; what is not an option here stands there."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--env", default="CartPole-v1", help="gymnasium id, or module:Env-v0 (default %(default)s)")
    p.add_argument("--memory", default="feedforward", help="a name from `seqrl list memories` (default %(default)s)")
    p.add_argument("--window", type=int, default=16, help="steps that the memory looks back (default %(default)s)")
    p.add_argument("--epochs", type=int, help="epochs of 1,200 environment steps (default: the run file's)")
    p.add_argument("--eval-episodes", type=int, default=100, help="episodes per evaluation (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", help="name of the run's folder, in runs/")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file; a policy with a memory also reads its last action and reward."""
    values = read_config_values(str(RUN_FILE))
    has_memory = args.memory not in ("feedforward", "identity")
    evaluation = {"episodes": args.eval_episodes, "num_envs": min(20, args.eval_episodes)}
    values["experiment"]["name"] = args.name
    values["experiment"]["evaluation"] |= evaluation
    values["env"]["id"] = args.env
    values["train"] |= {"window_steps": args.window, "seed": args.seed}
    values["train"]["num_epochs"] = args.epochs or values["train"]["num_epochs"]
    values["observation"] |= {"use_prev_action": has_memory, "use_prev_reward": has_memory}
    return values


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and tell the return."""
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
