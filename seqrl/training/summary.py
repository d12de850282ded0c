"""What a run says of itself before it starts: what it learns, from what, for how long, and what that takes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from seqrl.reports.console import format_count, format_duration, format_megabytes, summary_text
from seqrl.training.learner import Prediction, predict_cost
from seqrl.training.sources import budget_of, predicted_replay_bytes

if TYPE_CHECKING:
    from seqrl.training.experiment import Experiment


def start_summary(experiment: Experiment) -> str:
    """Return the summary; warns if the disk is too small for what will be collected."""
    config, algo = experiment.config, experiment.algo
    groups = {
        "run": {
            "folder": str(experiment.folder.path),
            "seed": str(config.train.seed),
            "device": str(experiment.device),
            **({"role": experiment.role} if experiment.role != "both" else {}),
        },
        "policy": {
            "algorithm": config.algo_name,
            "memory": config.algo.sequence_encoder.choice()[0],
            "parameters": format_count(sum(p.numel() for p in algo.nets.parameters())),
            "observations": ", ".join(f"{k} {list(s.shape)}" for k, s in algo.obs.items()),
            "actions": str(experiment.info.action_space),
        },
    }
    if data := _data(experiment):
        groups["data"] = data
    if config.collect.steps_per_epoch:
        groups["collection"] = _collection(experiment)
    groups["plan"] = _plan(experiment, predict_cost(algo, config.train))
    return summary_text(f"seqrl {config.algo_name}", groups)


def _data(experiment: Experiment) -> dict[str, str]:
    dataset, valid, known = experiment.learner.dataset, experiment.learner.valid, experiment.data_summary
    if not known:
        return {} if experiment.replay is not None else dataset.describe()
    facts = {
        "trajectories": f"{dataset.num_trajectories} train, {valid.num_trajectories if valid else 0} held out",
        "transitions": format_count(dataset.num_transitions),
        "on disk": format_megabytes(known["megabytes"]) + ", memory-mapped",
        "mean return": f"{known['mean_return']:.4g}",
    }
    return facts if len(getattr(dataset, "sources", [])) < 2 else {**facts, **dataset.describe()}


def env_steps_planned(experiment: Experiment) -> int:
    """Return the transitions that the rest of the run will collect, in all processes of a run of role ``both``."""
    collect, train = experiment.config.collect, experiment.config.train
    first = max(experiment.progress.epoch, collect.start_epoch)
    epochs = max(0, train.num_epochs - first)
    return int(epochs * collect.steps_per_epoch * collect.num_envs * experiment.accelerator.num_processes)


def gradient_steps_planned(experiment: Experiment) -> int:
    """Return the gradient steps of the rest of the run, if there is always enough data."""
    train = experiment.config.train
    return max(0, train.num_epochs - max(experiment.progress.epoch, train.start_epoch)) * train.steps_per_epoch


def _collection(experiment: Experiment) -> dict[str, str]:
    config, section = experiment.config, experiment.config.collect
    planned, budget = env_steps_planned(experiment), budget_of(section.replay)
    needed = predicted_replay_bytes(experiment.info, budget, planned)
    assert experiment.replay is not None
    free = shutil.disk_usage(experiment.replay.path).free
    if needed > free:
        experiment.warn(
            f"the replay will take {format_megabytes(needed / 1e6)}, and the disk has {format_megabytes(free / 1e6)} "
            "left; set collect.replay.max_gb"
        )
    names = sorted({t.env_id for t in experiment.train_tasks}) or ["make_train_env"]
    limits = [
        f"{section.replay.max_gb:g} GB" if section.replay.max_gb else "",
        f"{section.replay.max_transitions} transitions" if section.replay.max_transitions else "",
        f"{section.replay.max_trajectories} trajectories" if section.replay.max_trajectories else "",
    ]
    limit = ", ".join(t for t in limits if t) or "none"
    return {
        "environments": f"{section.num_envs} {config.env.vectorization} of {', '.join(names)}",
        "exploration": section.exploration.choice()[0],
        "replay": f"{format_megabytes(needed / 1e6)} predicted, {format_megabytes(free / 1e6)} free; limit {limit}",
    }


def _plan(experiment: Experiment, cost: Prediction) -> dict[str, str]:
    train = experiment.config.train
    steps, env_steps = gradient_steps_planned(experiment), env_steps_planned(experiment)
    seen = steps * train.batch_size * train.accumulate_batches * train.window_steps
    seen *= experiment.accelerator.num_processes
    plan = {
        "gradient steps": f"{steps} ({train.num_epochs} epochs of {train.steps_per_epoch})",
        "batch": f"{train.batch_size} windows of {train.window_steps}"
        + (f", {train.accumulate_batches} accumulated" if train.accumulate_batches > 1 else ""),
    }
    if experiment.config.collect.steps_per_epoch:
        if experiment.role == "both" and env_steps:
            plan["environment steps"] = format_count(env_steps)
            plan["update : data"] = f"{steps / env_steps:.3g} gradient steps per environment step; each is seen " + (
                f"{seen / env_steps:.3g} times"
            )
    elif experiment.learner.dataset.num_transitions:
        plan["passes over data"] = f"{seen / experiment.learner.dataset.num_transitions:.3g}"
    total = cost.weights_mb + cost.activations_mb + cost.batches_mb
    plan["memory"] = (
        f"{format_megabytes(total)} predicted: weights and optimiser {format_megabytes(cost.weights_mb)}, "
        f"activations {format_megabytes(cost.activations_mb)}, batches {format_megabytes(cost.batches_mb)}"
    )
    plan["time"] = f"about {format_duration(steps * cost.step_s)} of learning, besides acting and evaluation"
    return plan
