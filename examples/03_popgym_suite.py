"""POPGym (arXiv 2303.01859): partially observed tasks that ask for one kind of memory each.

pip install "seqrl[popgym]"

python examples/03_popgym_suite.py
python examples/03_popgym_suite.py --env popgym-RepeatPreviousEasy-v0 --window 16 --gamma 0 --epochs 25
python examples/03_popgym_suite.py --env popgym-ConcentrationEasy-v0 --read-own --gamma 0.9 --window 104 --epochs 200

Policies see the observation alone, unless they are told to read their own actions and rewards too: some tasks need it,
and others can be solved by it without the memory that they ask for.
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

RUN_FILE = Path(__file__).parents[1] / "benchmarks" / "learning" / "repeat_first_gru.json"
"""Of the recorded figures; what is not an option here stands there."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--env", default="popgym-RepeatFirstEasy-v0", help="id, popgym-<Task><Easy|Medium|Hard>-v0")
    p.add_argument("--memory", default="gru", help="a name from `seqrl list memories` (default %(default)s)")
    p.add_argument("--window", type=int, default=52, help="steps of training windows (default %(default)s)")
    p.add_argument("--gamma", type=float, default=0.5, help="discount: here answers pay at once (default %(default)s)")
    p.add_argument("--read-own", action="store_true", help="read the previous action and reward")
    p.add_argument("--epochs", type=int, help="epochs of 312 environment steps (default: the run file's)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", help="name of the run's folder, in runs/")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file."""
    values = read_config_values(str(RUN_FILE))
    values["experiment"]["name"] = args.name
    values["env"]["id"] = args.env
    values["train"] |= {"window_steps": args.window, "seed": args.seed}
    values["train"]["num_epochs"] = args.epochs or values["train"]["num_epochs"]
    values["observation"] |= {"use_prev_action": args.read_own, "use_prev_reward": args.read_own}
    values["algo"]["gamma"] = args.gamma
    return values


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
