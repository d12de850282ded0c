"""From a dataset of mixed quality, learned offline, to online learning that goes on from there.

python examples/14_offline_to_online.py
python examples/14_offline_to_online.py --noise 0.9 --episodes 50          # poorer data
python examples/14_offline_to_online.py --online-after-epoch 0             # online from the start, beside the data
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import seqrl
from seqrl.configs import apply_overrides, config_factory, read_config_values
from seqrl.scripts import script
from seqrl.training.callbacks import Run


class Scores(seqrl.Callback, dict[int, float]):
    """Epoch -> success."""

    def on_evaluation(self, experiment: Run, metrics: Mapping[str, float]) -> None:
        """Take the success down."""
        self[experiment.progress.epoch] = metrics["eval/success_mean"]


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--episodes", type=int, default=100, help="of a noisy expert, as many random (default %(default)s)")
    p.add_argument("--noise", type=float, default=0.7, help="share of random actions of the expert (default 0.7)")
    p.add_argument("--online-after-epoch", type=int, default=5, help="epochs without collecting (default %(default)s)")
    p.add_argument("--epochs", type=int, default=15, help="epochs of 100 gradient steps (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--name", default="offline_to_online", help="of the run's folder, in runs/ (default %(default)s)")
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file: redq.json, whose data stays; what is collected is drawn beside it, with a growing share."""
    values = read_config_values("redq.json")
    scripted = {"scripted": "seqrl/PointRecall-v0", "episodes": args.episodes}
    data = [{**scripted, "name": "noisy", "noise": args.noise}, {**scripted, "name": "random", "noise": 1.0}]
    values["experiment"] = {"name": args.name}
    values["train"] |= {"data": data, "num_epochs": args.epochs, "steps_per_epoch": 100, "seed": args.seed}
    explore = {"type": "epsilon_greedy", "start": 0.2, "end": 0.1, "anneal_steps": 200}
    values["collect"] = {"start_epoch": args.online_after_epoch, "steps_per_epoch": 26, "exploration": explore}
    values["collect"]["replay"] = {"weight": 4.0, "anneal_epochs": 5}
    values["algo"] |= {"offline_coeff": 1.0, "gamma": 0.95, "critic": {"num_critics": 4, "d_hidden": 128}}
    values["algo"]["optimizer"]["schedule"] = "cosine"
    return values


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and tell the success before and after collecting."""
    args = parser().parse_args(argv)
    scores = Scores()
    apply_overrides(values := settings(args), args.set)
    config = config_factory("actor_critic", values)
    experiment = seqrl.Experiment(config, callbacks=[scores], resume=args.resume, overwrite=args.overwrite)
    experiment.start()
    run = experiment.learn()
    before, after = scores.get(args.online_after_epoch), run.metrics["eval/success_mean"]
    offline = "" if before is None else f"{before:.3f} offline, "
    print(f"success {offline}{after:.3f} after {run.env_steps:,} steps; look at {run.path / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
