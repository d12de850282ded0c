"""seqrl's side of `bc.py`: the protocol of `bc_robomimic.py`, through `Experiment`."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any


def build(task: dict[str, Any], folder: str) -> Any:
    """Return a started experiment."""
    from seqrl.configs import config_factory
    from seqrl.training.experiment import Experiment

    values = {
        "experiment": {
            "name": "r",
            "output_dir": folder,
            "evaluation": {"enabled": False},
            "report": {"enabled": False},
            "logging": {"tensorboard": False, "progress_bar": False},
        },
        "train": {
            "data": [{"path": task["dataset"]}],
            "window_steps": task["window"],
            "window_padding": "right",  # as robomimic does
            "sample_by": "transition",  # likewise
            "valid_fraction": 0.0,
            "batch_size": task["batch_size"],
            "num_threads": task["threads"],
            "device": "cpu",
        },
        "observation": task["observation"],
        "algo": task["algo"],
    }
    experiment = Experiment.from_config(config_factory("bc", values))
    experiment.start()
    return experiment


def main() -> None:
    """Serve."""
    task = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory() as folder:
        experiment = build(task, folder)
        experiment.learner.dataset.batch(task["batch_size"], seed=0, path=("train", 0, 0, 0))
        trained = [p for p in experiment.algo.nets.parameters() if p.requires_grad]
        answer(num_parameters=sum(p.numel() for p in trained))
        for epoch, line in enumerate(sys.stdin):
            answer(**train(experiment, epoch, int(line)))


def train(experiment: Any, epoch: int, num_steps: int) -> dict[str, float]:
    """Return the gradient steps per second of an epoch, and the share of the time that was waited for data."""
    losses: list[float] = []
    experiment.learner._train.steps_per_epoch = num_steps
    stats = experiment.learner.learn_epoch(
        epoch,
        log_every=experiment.config.experiment.logging.every_n_steps,
        on_log=lambda numbers, step: losses.append(numbers["loss/nll"]),
        on_step=lambda step: None,
    )
    return {
        "steps_per_s": stats.num_steps / stats.learn_s,
        "wait_share": stats.wait_s / stats.learn_s,
        "loss": losses[-1] if losses else None,
    }


def answer(**values: Any) -> None:
    """Write a line of JSON."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
