"""What a run says of itself: before it starts, what it learns, from what, for how long; then what each epoch took."""

from __future__ import annotations

import importlib.util
import logging
import shutil
from collections.abc import Mapping
from typing import Any

import torch

from seqrl.algo.algo import Algo
from seqrl.algo.chunk_policy import ChunkPolicy
from seqrl.algo.decision_transformer import DecisionTransformer
from seqrl.algo.ema import num_parameters
from seqrl.algo.hbc import HBC
from seqrl.algo.iris import IRIS
from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError
from seqrl.core.host import peak_memory_gb
from seqrl.reports.console import format_count, format_duration, format_megabytes, summary_text
from seqrl.training.collector import CollectStats
from seqrl.training.learner import LearnStats, Prediction, predict_cost
from seqrl.training.parts import Parts
from seqrl.training.plan_warnings import plan_warnings
from seqrl.training.sources import budget_of, predicted_replay_bytes
from seqrl.training.world import Warn

logger = logging.getLogger(__name__)


def log_summary(config: BaseConfig, parts: Parts, epoch: int, warn: Warn) -> None:
    """Say in the main process what is about to happen."""
    if not parts.processes.is_main:
        return
    logger.info("%s", start_summary(config, parts, epoch, warn))
    if epoch == 0:
        steps = env_steps_planned(config, parts, epoch) // max(config.collect.num_envs * parts.processes.number, 1)
        planned = gradient_steps_planned(config, epoch)
        for text in plan_warnings(config, parts.algo.obs, parts.world.train_tasks, planned, steps):
            warn(text)
        if steps and _only_imitates(parts.algo):
            warn(
                f"{config.algo_name} imitates all episodes alike, including those that it collects: learn from data "
                "alone (--dataset FILE --gradient-steps N), or by an algorithm that learns from rewards"
            )


def _only_imitates(algo: Algo) -> bool:
    """Tell whether an algorithm of seqrl takes actions for good whatever they led to."""
    is_ours = type(algo).__module__.startswith("seqrl.")
    return is_ours and isinstance(algo, ChunkPolicy | HBC) and not isinstance(algo, DecisionTransformer | IRIS)


def start_summary(config: BaseConfig, parts: Parts, epoch: int, warn: Warn) -> str:
    """Return the summary of a run that goes on after ``epoch`` epochs; warns of a disk too small for its replay."""
    algo = parts.algo
    groups = {
        "run": {
            "folder": str(parts.folder.path),
            "seed": str(config.train.seed),
            "device": str(parts.processes.device),
            **({"TensorBoard": _viewer(parts)} if config.experiment.logging.tensorboard else {}),
            **({"role": parts.role} if parts.role != "both" else {}),
        },
        "policy": {
            "algorithm": config.algo_name,
            "memory": config.algo.sequence_encoder.choice()[0],
            "parameters": format_count(num_parameters(algo.nets)),
            "observations": ", ".join(f"{k} {list(s.shape)}" for k, s in algo.obs.items()),
            "actions": str(parts.world.info.action_space),
        },
    }
    if data := _data(parts):
        groups["data"] = data
    if config.collect.steps_per_epoch:
        groups["collection"] = _collection(config, parts, epoch, warn)
    groups["plan"] = _plan(config, parts, epoch, predict_cost(algo, config.train))
    return summary_text(f"seqrl {config.algo_name}", groups)


def _viewer(parts: Parts) -> str:
    """Return the command that shows the run's curves while it goes on."""
    is_there = importlib.util.find_spec("tensorboard") is not None
    return f"tensorboard --logdir {parts.folder.path}" + ("" if is_there else " (pip install 'seqrl[tensorboard]')")


def _data(parts: Parts) -> dict[str, str]:
    dataset, valid, known = parts.learner.dataset, parts.learner.valid, parts.data.summary
    if not known:
        return {} if parts.replay is not None and parts.data.dataset is None else dataset.describe()
    facts = {
        "trajectories": f"{dataset.num_trajectories} train, {0 if valid is None else valid.num_trajectories} held out",
        "transitions": format_count(dataset.num_transitions),
        "on disk": format_megabytes(known["megabytes"]) + ", memory-mapped",
        "mean return": f"{known['mean_return']:.4g}",
    }
    is_mixed = parts.data.dataset is not None or len(getattr(dataset, "sources", [])) > 1
    return {**facts, **dataset.describe()} if is_mixed else facts


def env_steps_planned(config: BaseConfig, parts: Parts, epoch: int) -> int:
    """Return the transitions that the rest of the run will collect, in all processes of a run of role ``both``."""
    collect, train = config.collect, config.train
    first = max(epoch, collect.start_epoch)
    epochs = max(0, train.num_epochs - first)
    return int(epochs * collect.steps_per_epoch * collect.num_envs * parts.processes.number)


def gradient_steps_planned(config: BaseConfig, epoch: int) -> int:
    """Return the gradient steps of the rest of the run, if there is always enough data."""
    train = config.train
    return max(0, train.num_epochs - max(epoch, train.start_epoch)) * train.steps_per_epoch


def _collection(config: BaseConfig, parts: Parts, epoch: int, warn: Warn) -> dict[str, str]:
    section = config.collect
    planned, budget = env_steps_planned(config, parts, epoch), budget_of(section.replay)
    needed = predicted_replay_bytes(parts.world.info, budget, planned)
    assert parts.replay is not None
    free = shutil.disk_usage(parts.replay.path).free
    predicted = f"{format_megabytes(needed / 1e6)} predicted, " if parts.role == "both" else ""  # of one process
    if needed > free and predicted:
        warn(
            f"the replay will take {format_megabytes(needed / 1e6)}, and the disk has {format_megabytes(free / 1e6)} "
            "left; set collect.replay.max_gb"
        )
    names = sorted({t.env_id for t in parts.world.train_tasks}) or ["make_train_env"]
    limits = [
        f"{section.replay.max_gb:g} GB" if section.replay.max_gb else "",
        f"{section.replay.max_transitions} transitions" if section.replay.max_transitions else "",
        f"{section.replay.max_trajectories} trajectories" if section.replay.max_trajectories else "",
    ]
    limit = ", ".join(t for t in limits if t) or "none"
    return {
        "environments": f"{section.num_envs} {config.env.vectorization} of {', '.join(names)}",
        "exploration": section.exploration.choice()[0],
        "replay": f"{predicted}{format_megabytes(free / 1e6)} free; limit {limit}",
    }


def _plan(config: BaseConfig, parts: Parts, epoch: int, cost: Prediction) -> dict[str, str]:
    train, dataset = config.train, parts.learner.dataset
    steps, env_steps = gradient_steps_planned(config, epoch), env_steps_planned(config, parts, epoch)
    seen = steps * train.batch_size * train.accumulate_batches * train.window_steps
    if train.batch_size_is == "per_rank":
        seen *= parts.processes.number
    epochs = "1 epoch" if train.num_epochs == 1 else f"{train.num_epochs} epochs"
    if epoch:
        epochs = f"the last {max(0, train.num_epochs - epoch)} of {epochs}"
    plan = {
        "gradient steps": f"{steps} ({epochs}, {train.steps_per_epoch} each)",
        "batch": f"{train.batch_size} windows of {train.window_steps}"
        + (f", {train.accumulate_batches} accumulated" if train.accumulate_batches > 1 else ""),
    }
    if config.collect.steps_per_epoch:
        if parts.role == "both" and env_steps:
            plan["environment steps"] = format_count(env_steps)
            plan["update : data"] = f"{steps / env_steps:.3g} gradient steps per environment step; each of these is "
            plan["update : data"] += f"seen at most {seen / env_steps:.3g} times"
    elif dataset.num_transitions:
        plan["passes over data"] = f"{seen / dataset.num_transitions:.3g}"
    total = cost.weights_mb + cost.activations_mb + cost.batches_mb
    plan["memory"] = (
        f"{format_megabytes(total)} predicted: weights and optimiser {format_megabytes(cost.weights_mb)}, "
        f"activations {format_megabytes(cost.activations_mb)}, batches {format_megabytes(cost.batches_mb)}"
    )
    plan["time"] = f"about {format_duration(steps * cost.step_s)} of learning, besides acting and evaluation"
    return plan


def numbers_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as floats, whatever numbers a user's function gave.

    Raises:
        ConfigError: If one is no number.
    """
    found = {}
    for name, value in metrics.items():
        try:
            found[name] = float(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the metric {name!r} is {value!r}, not a number") from error
    return found


def epoch_metrics(
    parts: Parts, collected: CollectStats | None, learned: LearnStats | None, elapsed: float
) -> dict[str, float]:
    """Return what an epoch of ``elapsed`` seconds came to: data, speed, and where its time went."""
    out = parts.learner.dataset.metrics()
    if collected is not None and parts.collector is not None:
        out |= collected.metrics(parts.collector.epsilon)
        spent = {"env": collected.env_s, "policy": collected.policy_s, "record": collected.record_s}
        out["time/env_steps_per_s"] = collected.num_steps / max(sum(spent.values()), 1e-9)
        out |= {f"time/{part}_share": seconds / elapsed for part, seconds in spent.items()}
    if learned is not None:
        out["time/gradient_steps_per_s"] = learned.num_steps / learned.learn_s
        out["time/learn_share"] = (learned.learn_s - learned.wait_s) / elapsed
        out["time/data_wait_share"] = learned.wait_s / elapsed
        out["optim/skipped_steps"] = float(learned.num_skipped)
    return out


def host_metrics(cpu_s: float, elapsed: float) -> dict[str, float]:
    """Return what the main process used of its machine in an epoch of ``elapsed`` seconds."""
    out = {"system/cpus_used": cpu_s / elapsed}
    if (peak := peak_memory_gb()) is not None:
        out["system/memory_gb"] = peak
    if torch.cuda.is_available():
        out["system/gpu_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return out
