"""Find an invisible key, then an invisible door, again and again in the same room: memory tells the way from then on.

python examples/05_dark_key_door.py
python examples/05_dark_key_door.py --memory feedforward             # the control
python examples/05_dark_key_door.py --light                          # key and door are seen: no memory is needed
python examples/05_dark_key_door.py --size 6 --horizon 200 --shuffled-actions --epochs 200
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

RUN_FILE = Path(__file__).parents[1] / "benchmarks" / "learning" / "key_door.json"
"""Of the recorded figures; what is not an option here stands there."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=int, default=4, help="cells along each side (default %(default)s)")
    p.add_argument("--horizon", type=int, default=100, help="steps of an episode (default %(default)s)")
    p.add_argument("--attempt-steps", type=int, default=50, help="most steps of an attempt (default %(default)s)")
    p.add_argument("--light", action="store_true", help="show the places of key and door")
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
    """Return the run file: a window holds a whole episode, and exploration falls within each episode too."""
    values = read_config_values(str(RUN_FILE))
    room = {"size": args.size, "horizon": args.horizon, "attempt_steps": args.attempt_steps, "is_light": args.light}
    values["experiment"]["name"] = args.name
    values["env"]["kwargs"] |= {**room, "shuffled_actions": args.shuffled_actions}
    values["train"] |= {"window_steps": args.horizon, "seed": args.seed}
    values["train"]["num_epochs"] = args.epochs or values["train"]["num_epochs"]
    values["collect"]["exploration"]["rollout_steps"] = args.horizon
    return values


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and tell the return: 1 for each key, 1 for each door."""
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
