"""Functions that build the parts of a run; :meth:`Experiment.start` calls them so that a mistake costs least."""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from seqrl.algo.algo import Algo
from seqrl.algo.checkpoint import algo_for, resolve_device
from seqrl.algo.engine import OnnxEngine, can_act, check_engine
from seqrl.algo.processes import Processes
from seqrl.algo.updater import LossFunction, Updater
from seqrl.configs import BaseConfig
from seqrl.conformance.startup import check_run
from seqrl.core.errors import ConfigError, TrainingError
from seqrl.core.files import expanded, write_json
from seqrl.core.host import provenance, read_starts
from seqrl.core.host_memory import keep_freed_memory, total_memory
from seqrl.core.plugins import load_plugins
from seqrl.core.spaces import GOAL_PREFIX, obs_specs
from seqrl.core.types import Trajectory
from seqrl.data.dataset import NoData, TrainingDataset
from seqrl.data.mixed_dataset import MixedDataset
from seqrl.data.statistics import column_stats
from seqrl.data.store import Budget, Store, StoreWriter
from seqrl.data.store_info import StoreInfo, codec_for
from seqrl.envs.metrics import Episode
from seqrl.envs.vector import BatchedEnv
from seqrl.rollout.environments import build_env
from seqrl.rollout.evaluator import Evaluator
from seqrl.training.collector import Collector, build_exploration
from seqrl.training.data_checks import (
    action_range,
    check_bounds,
    check_collection,
    check_next_obs,
    check_relabelers,
    check_rewards,
    warn_of_clipped,
    warn_of_density,
    warn_of_former_range,
    warn_of_units,
)
from seqrl.training.init_from import take_weights
from seqrl.training.learner import Learner, TrainStep
from seqrl.training.loggers import LoggedRun, MetricsLogger, build_loggers, check_loggers
from seqrl.training.parts import Parts, Role
from seqrl.training.progress import Progress
from seqrl.training.rendering import check_rendering
from seqrl.training.run_folder import RunFolder, default_name, join_run, saved_config, whole_folder
from seqrl.training.run_log import RunLog
from seqrl.training.sources import Data, budget_of, replay_source, sequence_dataset
from seqrl.training.weights import RANKS_PER_SLOT, CollectorSlot
from seqrl.training.world import GivenMakers, Warn, World, build_eval_env, find_world, training_makers

logger = logging.getLogger(__name__)

MAX_NAME_BYTES = 240
"""Of a run; systems take 255, and what is written beside it first has 14 more."""


def check_call(
    config: BaseConfig,
    role: Role,
    experiment: type | None = None,
    *,
    given: bool = False,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Refuse a role that is none, or that the run does not have, and what contradicts itself or could not be done.

    Args:
        config: The run file.
        role: Of this process.
        experiment: Class of the experiment, which a user may have derived.
        given: Whether environments to train in were given as callables.
        resume: Whether to go on with a run.
        overwrite: Whether to delete it.

    Raises:
        ConfigError: If so.
    """
    if not isinstance(config, BaseConfig):
        raise ConfigError(
            f"a config is needed, as config_factory gives it, not {type(config).__name__}; seqrl.train takes names, "
            "files and dicts"
        )
    if resume and overwrite:
        raise ConfigError("resume goes on with a run, overwrite deletes it; give one of the two")
    if role not in ("both", "learn", "collect"):
        raise ConfigError(f"role must be 'both', 'learn' or 'collect', got {role!r}")
    if role != "both" and not config.collect.steps_per_epoch:
        raise ConfigError(f"role {role!r} needs a run that collects: set collect.steps_per_epoch")
    if uses_ray(config):
        _check_ray(config, experiment, given=given)


def uses_ray(config: BaseConfig) -> bool:
    """Tell whether Ray's actors collect."""
    return config.collect.collectors == "ray"


def first_parts(config: BaseConfig, role: Role, *, is_verbose: bool) -> Parts:
    """Return what is known before anything is built: a process learns only, if Ray's actors collect for it."""
    commands_actors = role == "both" and uses_ray(config)
    return Parts("learn" if commands_actors else role, commands_actors=commands_actors, is_verbose=is_verbose)


def _check_ray(config: BaseConfig, experiment: type | None, *, given: bool) -> None:
    if not config.collect.steps_per_epoch:
        raise ConfigError("collect.collectors 'ray' needs a run that collects: set collect.steps_per_epoch")
    methods = ("interact", "init_envs", "init_model")
    own = [f"{m}()" for m in methods if experiment and getattr(experiment, m).__qualname__ != f"Experiment.{m}"]
    if given or own:
        what = " and ".join([*["make_train_env"] * given, *own])
        raise ConfigError(
            f"collect.collectors 'ray': {what} cannot reach the actors, which make environments by env.id and policies "
            "by the run file, in processes of their own; register what they need in a plug-in"
        )
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("collect.collectors 'ray': Ray is not installed: pip install 'seqrl[ray]'")


def explained(error: BaseException, parts: Parts) -> BaseException:
    """Return the error that ended a run; one that says how to go on, if it came because another process is gone."""
    if not parts.processes.has_lost_another(error):
        return error
    last = parts.folder.last
    how = f"go on from {last} with --resume" if last else "nothing was saved yet"
    text = f"another process of this run has ended, or cannot be reached ({str(error).splitlines()[0]:.200}); {how}"
    return TrainingError(text).with_traceback(error.__traceback__)


def is_collecting(config: BaseConfig, role: Role) -> bool:
    """Tell whether this process acts in training environments."""
    return role != "learn" and config.collect.steps_per_epoch > 0


def load_and_check(config: BaseConfig, role: Role) -> None:
    """Import plug-ins, and find out whether all packages are there."""
    load_plugins(config.plugins)
    check_run(config)
    check_rendering(config)
    if role != "collect":
        check_loggers(config.experiment.logging)


def open_processes(config: BaseConfig) -> Processes:
    """Choose the device and the threads, and find the other processes."""
    if config.train.num_threads is not None:
        torch.set_num_threads(config.train.num_threads)
    device = resolve_device(config.train.device)
    if device.type == "cpu":
        keep_freed_memory()
    return Processes(device, precision=config.train.precision, some_rest=config.algo.some_rest)


def build_world(config: BaseConfig, parts: Parts, given: GivenMakers, warn: Warn) -> World:
    """Find out what to act in, and agree on spaces that are complete.

    Raises:
        ConfigError: If an environment is needed, or the bounds of the actions, and nobody names them.
        EnvError: If an environment cannot be made, or has other spaces than the data or another one.
    """
    collects, data = is_collecting(config, parts.role) or parts.commands_actors, parts.data
    reach = functools.partial(action_range, data.sources) if data.sources else None
    world = find_world(config, data.info, given, is_collecting=collects, warn=warn, reach=reach)
    check_bounds(config, world, data)
    return world


# ------------------------------------------------------------------------------------------ algorithm
def build_algo(config: BaseConfig, info: StoreInfo, device: torch.device) -> Algo[Any]:
    """Return the algorithm that the run file names, for the spaces of the run.

    Raises:
        ConfigError: If one batch is larger than the memory of this machine.
    """
    train, memory = config.train, total_memory()
    row = sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in obs_specs(info.observation_space).values())
    size = train.batch_size * train.window_steps * row
    if memory is not None and size > memory:
        raise ConfigError(
            f"train.batch_size {train.batch_size} x train.window_steps {train.window_steps}: the observations of one "
            f"batch take {size / 1e9:.3g} GB, and this machine has {memory / 1e9:.3g} GB"
        )
    return algo_for(config, info.observation_space, info.action_space, device)


def check_algo(config: BaseConfig, parts: Parts, warn: Warn) -> None:
    """Refuse, or warn of, what could never work, before anything is written.

    Raises:
        ConfigError: If the hardware, the environments or the run file do not fit the algorithm.
        DataError: If the data does not.
    """
    algo, number = parts.algo, parts.processes.number
    if config.train.batch_size_is == "total" and config.train.batch_size % number:
        raise ConfigError(
            f"train.batch_size {config.train.batch_size} must be a multiple of {number}, the number of processes that "
            "share it (train.batch_size_is total)"
        )
    if parts.role != "collect":
        algo.check_hardware(is_half=config.train.precision != "no")
    check_next_obs(config, algo, parts.data)
    check_relabelers(parts.data)
    check_rewards(config, algo, parts.data, warn)
    warn_of_clipped(parts.world, parts.data, warn)
    warn_of_units(parts.world, parts.data, warn)
    warn_of_density(algo, parts.data, warn)
    if is_collecting(config, parts.role) or parts.commands_actors:
        check_collection(config, algo, parts.world)
    for section, what in ((config.train, "train"), (config.collect, "collect")):
        num_epochs = config.train.num_epochs
        if section.steps_per_epoch and 0 < num_epochs <= section.start_epoch:
            warn(f"{what}.start_epoch {section.start_epoch} is beyond train.num_epochs {num_epochs}")


def take_first_weights(algo: Algo, data: Data, warn: Warn) -> None:
    """Take the weights of ``train.init_from``.

    Raises:
        CheckpointError: As :func:`~seqrl.training.init_from.take_weights`.
        ConfigError: Likewise.
    """
    take_weights(algo, str(algo.config.train.init_from))
    warn_of_former_range(algo, data, warn)


def use_statistics(algo: Algo, data: Data) -> None:
    """Give the policy the statistics of the training data that it scales by.

    Raises:
        ConfigError: If there is no data on disk.
    """
    normalizer, sources = algo.normalizer, list(data.sources)
    if algo.config.train.normalize_rewards != "none" and not algo.scales_rewards:
        raise ConfigError(f"train.normalize_rewards: {algo.config.algo_name} learns no values")
    if normalizer is None and not algo.needs_returns:
        return
    if not sources and data.dataset is not None:
        sources = getattr(data.dataset, "sources", [])
    if not sources:
        raise ConfigError(
            "train.normalize_obs, normalize_actions, normalize_rewards, and algo.target_return null: need data on disk "
            "(train.data)"
        )
    if algo.needs_returns:
        if any(source.relabeler is not None for source in sources):
            raise ConfigError(
                "train.normalize_rewards, algo.target_return, return_scale: returns are those of the data, which a "
                "relabeler changes; set relabel to null, or give the target and the scale"
            )
        returns = np.concatenate([source.store.total_reward[source.numbers] for source in sources])
        algo.use_returns(torch.from_numpy(returns))
    if normalizer is None:
        return
    goals = {GOAL_PREFIX + k: k for k in algo.goal_keys}
    obs = {k: column_stats(sources, f"obs/{k}") for k in {goals.get(n, n) for n in normalizer.names}}
    codec = codec_for(sources[0].store.info, algo.codec.space)  # by which batches are encoded
    action = column_stats(sources, "prev_action", convert=codec.encode) if normalizer.action else None
    algo.use_statistics(obs, action)


def resolve_engines(config: BaseConfig, parts: Parts, run: Path | None) -> None:
    """Replace ``auto`` in the run file's engines by what acts.

    Args:
        config: The run file, which is changed.
        parts: With the algorithm.
        run: Folder of the run that goes on, whose engines are taken; None in a new one.
    """
    evaluation, collect = config.experiment.evaluation, config.collect
    evaluates = evaluation.enabled and parts.world.eval_makers is not None
    for section, keys, is_used in (
        (evaluation, ("experiment", "evaluation"), evaluates),
        (collect, ("collect",), is_collecting(config, parts.role) or parts.commands_actors),
    ):
        if section.engine == "auto" and run is not None:
            section.engine = _saved_engine(run, *keys)
        kinds = {"deterministic": section.deterministic, "explores": section is collect}
        if section.engine == "auto":
            section.engine = "onnx" if is_used and can_act(parts.algo, **kinds) else "eager"
        elif section.engine == "onnx" and is_used:  # a run that could not act is refused before it begins
            if run is None and parts.role != "collect":
                OnnxEngine(parts.algo, **kinds)
            else:  # its weights, and the statistics that it scales by, come later
                check_engine(parts.algo)


def _saved_engine(run: Path, *keys: str) -> Literal["eager", "onnx"]:
    """Return the engine of a run that goes on; PyTorch where its ``config.json`` names none."""
    value: Any = saved_config(run)
    for key in (*keys, "engine"):
        value = value.get(key) if isinstance(value, dict) else None
    return "onnx" if value == "onnx" else "eager"


# -------------------------------------------------------------------------------------- folder, replay
def run_path(config: BaseConfig, env_id: str | None) -> Path:
    """Return the run's folder.

    Raises:
        ConfigError: If the system does not take its name.
    """
    name = config.experiment.name or default_name(config, env_id)
    if (size := len(os.fsencode(name))) > MAX_NAME_BYTES:
        raise ConfigError(f"experiment.name: {name[:40]}... has {size} bytes, more than {MAX_NAME_BYTES}")
    if "\0" in config.experiment.output_dir:
        raise ConfigError(f"experiment.output_dir: a path has no NUL, got {config.experiment.output_dir!r}")
    folder = expanded(config.experiment.output_dir)
    if file := next((place for place in (folder, *folder.parents) if place.is_file()), None):
        raise ConfigError(f"experiment.output_dir: {file} is a file; choose another folder")
    return folder / name


@whole_folder()
def open_folder(
    config: BaseConfig, parts: Parts, path: Path, *, resume: bool, overwrite: bool
) -> tuple[RunFolder, CollectorSlot | None]:
    """Begin, join or resume the run's folder; only the main process, and each collector in its slot, write to it.

    Raises:
        ConfigError: If it is not there, in use, or of another run.
    """
    if parts.role == "collect":
        return join_run(path, config), CollectorSlot(path)
    if parts.processes.is_main:
        return RunFolder(path, config, resume=resume, overwrite=overwrite), None
    return RunFolder.at(path), None


@whole_folder()
def open_log(parts: Parts, run_log: RunLog) -> None:
    """Write what is said to the folder from now on, and let the other processes see it."""
    if parts.slot is not None:
        run_log.open(parts.slot.path / "log.txt")
    elif parts.processes.is_main:
        run_log.open(parts.folder.path / "log.txt")
    else:
        run_log.close()
    parts.processes.wait()


@whole_folder()
def open_loggers(config: BaseConfig, parts: Parts, progress: Progress) -> list[MetricsLogger]:
    """Return the loggers that the run file asks for; those of a resumed run go on where it stands."""
    step, epoch = (None, None) if progress.is_new else (parts.num_steps, progress.epoch)
    facts, task = provenance(), parts.world.env_id or parts.world.info.source
    file = parts.folder.path / "provenance.json"
    write_json(file, [*([] if progress.is_new else read_starts(file)), facts])
    run = LoggedRun(parts.folder.path, config.to_json(), str(task), facts, step, epoch, progress.is_evaluated)
    return build_loggers(config.experiment.logging, run)


def open_replay(config: BaseConfig, parts: Parts) -> tuple[Store | None, StoreWriter | None]:
    """Return what is collected, and what adds to it in this process; neither in a run that collects nothing."""
    section = config.collect.replay
    if not config.collect.steps_per_epoch:
        return None, None
    path = expanded(section.path) if section.path else parts.folder.path / "replay"
    path.mkdir(parents=True, exist_ok=True)
    with parts.processes.main_first():
        hooks = {} if parts.slot is None else {"on_shard": parts.slot.begin_shard}
        writer = StoreWriter(path, parts.world.info, "fifo", budget_of(section), **hooks)
        replay = Store(path)
    return replay, writer if is_collecting(config, parts.role) else None


# ------------------------------------------------------------------------------------ learning, acting
def build_dataset(config: BaseConfig, parts: Parts) -> TrainingDataset:
    """Return the training windows: of what was given, of the data and of the replay, which may be none."""
    given, sources = parts.data.dataset, list(parts.data.sources)
    if given is not None and given.weight is None:
        return given
    if parts.replay is not None and parts.role != "collect":
        sources.append(replay_source(parts.replay, config.collect.replay))
    datasets = [*([] if given is None else [given]), *([sequence_dataset(config, sources)] if sources else [])]
    if len(datasets) == 2:
        return MixedDataset(datasets)
    return datasets[0] if datasets else NoData()


def build_learner(
    config: BaseConfig,
    parts: Parts,
    dataset: TrainingDataset,
    valid: TrainingDataset | None,
    train_step: TrainStep,
) -> Learner:
    """Return what takes the gradient steps; batches encode actions as the environments do."""
    for windows in (dataset, valid):
        if windows is not None:
            windows.use_categories(parts.world.info.action_space)
            windows.provide(parts.algo.needs, parts.algo.discount)
    ranks = {"rank": parts.processes.rank, "num_ranks": parts.processes.number}
    return Learner(parts.algo, config.train, dataset, valid, **ranks, train_step=train_step)


def build_training_env(config: BaseConfig, parts: Parts) -> BatchedEnv | None:
    """Make the parallel training environments of this process; None where it collects nothing."""
    if not is_collecting(config, parts.role) or uses_ray(config):
        return None
    env = build_env(training_makers(config, parts.world), config.collect.num_envs, config.env)
    env.codec = parts.algo.codec
    return env


def build_updater(
    config: BaseConfig, parts: Parts, optimizer: torch.optim.Optimizer, compute_losses: LossFunction
) -> Updater:
    """Return what moves the weights, on all processes alike."""
    return Updater(
        parts.algo,
        parts.processes.accelerator,
        accumulate_batches=config.train.accumulate_batches,
        on_nonfinite=config.train.on_nonfinite,
        is_compiled=config.train.compile,
        optimizer=optimizer,
        compute_losses=compute_losses,
    )


def build_collector(config: BaseConfig, parts: Parts, env: BatchedEnv) -> Collector:
    """Return what acts in the training environments, and writes to the replay."""
    collect, seed, processes = config.collect, config.train.seed, parts.processes
    if env.num_envs != collect.num_envs:
        logger.warning(
            "there are %d environments, and collect.num_envs is %d, by which steps and train.replay_ratio are counted; "
            "set it to %d",
            env.num_envs,
            collect.num_envs,
            env.num_envs,
        )
    rank = processes.rank if parts.slot is None else (parts.slot.number + 1) * RANKS_PER_SLOT  # no two are equal
    exploration = build_exploration(collect, env, seed, rank)
    return Collector(parts.algo, env, exploration, collect, replay_write(config, parts), seed=seed, rank=rank)


def replay_write(config: BaseConfig, parts: Parts) -> Callable[[Trajectory], None]:
    """Return what adds a trajectory to the replay, and counts it."""
    assert parts.writer is not None
    evicted = parts.replay if parts.processes.is_main else None
    return functools.partial(_write, parts.writer, parts.slot, evicted, budget_of(config.collect.replay))


def _write(
    writer: StoreWriter, slot: CollectorSlot | None, evicted: Store | None, budget: Budget, trajectory: Trajectory
) -> None:
    """Add a trajectory; where that begins a shard, keep the replay within its budget."""
    shard = writer.num_shards
    writer.append(trajectory)
    if slot is not None:
        slot.count_stored(trajectory)
    if writer.num_shards > shard and evicted is not None:
        evicted.refresh()
        evicted.evict(budget)


def build_evaluator(
    config: BaseConfig, parts: Parts, summarize: Callable[[list[Episode]], dict[str, float]], warn: Warn
) -> Evaluator | None:
    """Return what evaluates, in the main process; None, sometimes after a warning, where nothing is evaluated."""
    section, world, makers = config.experiment.evaluation, parts.world, parts.world.eval_makers
    if makers is None or not (section.enabled and parts.role != "collect" and parts.processes.is_main):
        return None
    if not parts.algo.acts:
        warn(f"{config.algo_name} gives no actions, so nothing will be evaluated")
        return None
    if not world.gives_goals(parts.algo):
        warn("the environment gives no goals (observation.goal_keys), so nothing will be evaluated")
        return None
    build = functools.partial(build_eval_env, config, world)
    least = 1 if callable(makers) else len(makers)
    reference = config.env.reference_scores
    return Evaluator(section, build, config.train.seed, least=least, summarize=summarize, reference=reference)
