"""What an experiment is made of, built in the order in which a mistake costs least."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import nn

from seqrl.algo.algo import Algo, algo_factory
from seqrl.algo.checkpoint import read_checkpoint, resolve_device
from seqrl.algo.updater import Updater, build_optimizer, make_accelerator
from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError, DataError, EnvError
from seqrl.core.generators import seed_everything
from seqrl.core.host_memory import keep_freed_memory
from seqrl.core.plugins import load_plugins
from seqrl.core.spaces import GOAL_PREFIX, ActionCodec, ObsSpec, obs_specs
from seqrl.core.types import Trajectory
from seqrl.data.dataset import NoData, TrainingDataset
from seqrl.data.mixture import Source
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.data.statistics import column_stats
from seqrl.data.store import Store, StoreInfo, StoreWriter
from seqrl.envs.make import MakeEnv
from seqrl.envs.vector import BatchedEnv
from seqrl.models.image_cores import skip_local_weights
from seqrl.rollout.agreement import agreed_spaces
from seqrl.rollout.environments import (
    Makers,
    build_env,
    checked_makers,
    first_spaces,
    refuse_foreign,
    row_makers,
    single_makers,
    tasks,
)
from seqrl.rollout.evaluator import Evaluator
from seqrl.training.collector import Collector, build_exploration
from seqrl.training.learner import Learner
from seqrl.training.loggers import check_loggers
from seqrl.training.offline_metrics import check_metrics
from seqrl.training.rendering import check_rendering
from seqrl.training.run_folder import RunFolder, default_name, join_run, last_checkpoint
from seqrl.training.run_log import RunLog
from seqrl.training.sources import (
    budget_of,
    check_goals,
    keys_to_read,
    open_data,
    replay_source,
    split_sources,
    summarize,
)
from seqrl.training.weights import CollectorSlot

logger = logging.getLogger(__name__)

Role = Literal["both", "learn", "collect"]


@dataclass
class Progress:
    """How far a run has come; saved with every checkpoint.

    Attributes:
        epoch: Epochs that are done.
        wall_s: Seconds, all together.
        env_steps: Environment name -> transitions taken in training, by all processes.
        num_episodes: Training episodes that have ended.
        num_faults: Failures of training environments.
        step_in_epoch: Gradient steps of the epoch under way that are done.
        is_in_epoch: Whether an epoch is under way, that is, it still collects or learns.
        is_evaluated: Whether the last of the epochs that are done has been evaluated (if it is time) and saved.
    """

    epoch: int = 0
    wall_s: float = 0.0
    env_steps: Counter[str] = field(default_factory=Counter)
    num_episodes: int = 0
    num_faults: int = 0
    reported: dict[str, Any] = field(default_factory=dict)
    step_in_epoch: int = 0
    is_in_epoch: bool = False
    is_evaluated: bool = True

    @property
    def is_new(self) -> bool:
        """Whether nothing has been done yet."""
        return self.epoch == 0 and self.step_in_epoch == 0

    def end_epoch(self) -> None:
        """Count the epoch under way as done."""
        self.epoch, self.step_in_epoch, self.is_in_epoch, self.is_evaluated = self.epoch + 1, 0, False, False

    def take_reports(self, reports: Sequence[dict[str, Any]]) -> None:
        """Add what collectors have done since the last call."""
        steps = sum((Counter(r["env_steps"]) for r in reports), Counter())
        episodes, faults = sum(r["episodes"] for r in reports), sum(r["faults"] for r in reports)
        before = self.reported
        self.env_steps += steps - Counter(before.get("env_steps", {}))
        self.num_episodes += episodes - before.get("episodes", 0)
        self.num_faults += faults - before.get("faults", 0)
        self.reported = {"env_steps": dict(steps), "episodes": episodes, "faults": faults}

    @property
    def num_env_steps(self) -> int:
        """Transitions of all environments."""
        return sum(self.env_steps.values())


class ExperimentSetup:
    """Builds everything that an experiment needs, in :meth:`start`.

    Args:
        config: The run file.
        make_train_env: Makes a training environment (or a vector of them), or a list of such callables, which the
            parallel environments take in turn; None takes ``env``.
        make_val_env: The same for evaluation; None takes ``make_train_env``, else ``env``, else the data's own.
        dataset: Training batches and, optionally, held-out ones; None opens ``train.data`` and the replay.
        role: ``both`` collects and learns in turn, ``learn`` and ``collect`` do one of the two and meet in the run's
            folder.
        resume: Go on with the run that is in the folder.
        overwrite: Replace the run that is in the folder.
    """

    def __init__(
        self,
        config: BaseConfig,
        *,
        make_train_env: Makers | None = None,
        make_val_env: Makers | None = None,
        dataset: TrainingDataset | tuple[TrainingDataset, TrainingDataset | None] | None = None,
        role: Role = "both",
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        if role not in ("both", "learn", "collect"):
            raise ConfigError(f"role must be 'both', 'learn' or 'collect', got {role!r}")
        if role != "both" and not config.collect.steps_per_epoch:
            raise ConfigError(f"role {role!r} needs a run that collects: set collect.steps_per_epoch")
        self.config = config
        self.role = role
        self.progress = Progress()
        self.warnings: list[str] = []
        self.evaluator: Evaluator | None = None
        self.collector: Collector | None = None
        self.replay: Store | None = None
        self.slot: CollectorSlot | None = None
        self._given_train_env = checked_makers("make_train_env", make_train_env)
        self._given_val_env = checked_makers("make_val_env", make_val_env) or self._given_train_env
        self._given_dataset = (dataset, None) if isinstance(dataset, TrainingDataset) else dataset
        self._resume, self._overwrite = resume, overwrite
        self._goes_on = False
        self.run_log = RunLog()
        self._writer: StoreWriter | None = None
        self.data_summary: dict[str, float] = {}
        self.eval_makers: Makers | None = None

    # ----------------------------------------------------------------------------------------- the order
    def _prepare(self) -> None:
        config = self.config
        load_plugins(config.plugins)
        check_rendering(config)
        if self.role != "collect":
            check_loggers(config.experiment.logging)
        if config.train.num_threads is not None:
            torch.set_num_threads(config.train.num_threads)
        self.device = resolve_device(config.train.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.accelerator = make_accelerator(self.device, precision=config.train.precision)
        if self.accelerator.num_processes > 1:
            self.device = self.accelerator.device
        with self.accelerator.main_process_first():
            sources, valid = self._open_data()
        if self.role != "collect":
            check_metrics(config.train, valid)
        info = next((d.info for d in (*(s.store for s in sources), *(self._given_dataset or ())) if d and d.info), None)
        self._find_environments(info)
        if valid is not None:
            valid.use_categories(self.info.action_space)
        seed_everything(config.train.seed)  # the same networks on every rank
        self._goes_on = self._resume and last_checkpoint(self.run_path()) is not None
        gets_weights_later = self._goes_on or self.role == "collect" or config.train.init_from is not None
        with skip_local_weights(gets_weights_later):
            self.algo = self._build_algo()
        if self.role != "collect":
            self.algo.check_hardware(is_half=config.train.precision != "no")
        self._check_next_obs(sources)
        self._check_collection()
        if config.train.init_from is not None and not self._goes_on:
            self.algo.deserialize(read_checkpoint(config.train.init_from).tensors("model.safetensors"))
            self.algo.on_checkpoint_loaded(is_resume=False)
        if not gets_weights_later:
            self._use_statistics(sources)
        self._open_folder()
        self._open_replay()
        dataset = self._build_dataset(sources)
        dataset.use_categories(self.info.action_space)
        self.algo.updater = Updater(
            self.algo,
            self.accelerator,
            accumulate_batches=config.train.accumulate_batches,
            on_nonfinite=config.train.on_nonfinite,
            is_compiled=config.train.compile,
            optimizer=self.init_optimizer(self.algo.nets),
        )
        self.learner = Learner(self.algo, config.train, dataset, valid, rank=self.rank)
        self._build_environments()

    def init_optimizer(self, nets: nn.Module) -> torch.optim.Optimizer:
        """Return the optimiser of all networks; override it to use another than that of ``algo.optimizer``."""
        return build_optimizer(nets, self.config.algo.optimizer)  # type: ignore[attr-defined]

    @property
    def rank(self) -> int:
        """Of this process among the learners."""
        return int(self.accelerator.process_index)

    @property
    def is_collecting(self) -> bool:
        """Whether this process acts in training environments."""
        return self.role != "learn" and self.config.collect.steps_per_epoch > 0

    # -------------------------------------------------------------------------------------------- data
    def _open_data(self) -> tuple[list[Source], TrainingDataset | None]:
        if self._given_dataset is not None:
            return [], self._given_dataset[1]
        if self.role == "collect":
            return [], None
        stores = open_data(self.config)
        if not stores:
            return [], None
        self.data_summary = summarize(stores)
        chosen, held_out = split_sources(self.config, stores)
        check_goals(self.config, chosen)
        return chosen, self._sequence_dataset(held_out) if held_out else None

    def _sequence_dataset(self, sources: list[Source]) -> SequenceDataset:
        train = self.config.train
        return SequenceDataset(
            sources,
            train.window_steps,
            padding=train.window_padding,
            sample_by=train.sample_by,
            weigh_by=train.weigh_data_by,
            keys=keys_to_read(self.config, sources),
            goal_keys=self.config.observation.goal_keys if train.goal_mode == "last" else (),
        )

    def _build_dataset(self, sources: list[Source]) -> TrainingDataset:
        if self._given_dataset is not None:
            return self._given_dataset[0]
        if self.replay is not None and self.role != "collect":
            sources = [*sources, replay_source(self.replay, self.config.collect.replay)]
        return self._sequence_dataset(sources) if sources else NoData()

    def _check_next_obs(self, sources: list[Source]) -> None:
        infos = [s.store.info for s in sources]
        if self._given_dataset is not None and self._given_dataset[0].info is not None:
            infos.append(self._given_dataset[0].info)
        without = [info for info in infos if not info.has_next_obs]
        if self.algo.needs_next_obs and without:
            raise DataError(
                f"{self.config.algo_name} bootstraps from the last observation, which {without[0].source} does not "
                "have (next_obs); use bc, or write next_obs"
            )

    def _check_collection(self) -> None:
        """Refuse, or warn of, what could never work, before anything is written."""
        train, collect = self.config.train, self.config.collect
        if self.is_collecting:
            self.algo.codec.check_bounded()
            if not self._gives_goals():
                raise ConfigError(
                    "observation.goal_keys: the environment gives no goals, so nothing can be collected in it"
                )
            makers = self._given_train_env or row_makers(self.config, self.train_tasks, collect.num_envs)
            if not callable(makers) and collect.num_envs < len(makers):
                raise ConfigError(
                    f"collect.num_envs is {collect.num_envs}, fewer than the {len(makers)} environments that share them"
                )
        for section, what in ((train, "train"), (collect, "collect")):
            if section.steps_per_epoch and 0 < train.num_epochs <= section.start_epoch:
                self.warn(f"{what}.start_epoch {section.start_epoch} is beyond train.num_epochs {train.num_epochs}")

    def _use_statistics(self, sources: list[Source]) -> None:
        """Give the policy the statistics of the training data that it scales by."""
        normalizer = self.algo.normalizer
        if normalizer is None:
            return
        if not sources and self._given_dataset is not None:
            sources = getattr(self._given_dataset[0], "sources", [])
        if not sources:
            raise ConfigError("train.normalize_obs, train.normalize_actions: need data on disk (train.data)")
        goals = {GOAL_PREFIX + k: k for k in self.algo.goal_keys}
        obs = {k: column_stats(sources, f"obs/{k}") for k in {goals.get(n, n) for n in normalizer.names}}
        codec = ActionCodec(sources[0].store.info.action_space)  # by which batches are encoded, whatever acts
        action = column_stats(sources, "prev_action", convert=codec.encode) if normalizer.action else None
        self.algo.use_statistics(obs, action)

    # ------------------------------------------------------------------------------------- environments
    def _find_environments(self, info: StoreInfo | None) -> None:
        """Find out what to evaluate and collect in, and agree on the spaces."""
        section, data_id = self.config.env, info.env_id if info else None
        data_kwargs = info.env_kwargs if info else {}
        max_steps = self.config.experiment.evaluation.max_steps
        self.train_tasks = tasks(section, data_id, data_kwargs, is_evaluation=False)
        self.eval_tasks = tasks(section, data_id, data_kwargs, is_evaluation=True)
        self.env_id = self.train_tasks[0].env_id if self.train_tasks else None
        self.env_kwargs = self.train_tasks[0].kwargs if self.train_tasks else {}
        self._info = info
        self._env_obs: list[dict[str, ObsSpec]] = []
        if self._given_val_env is not None:
            self.eval_makers = self._given_val_env
            named = single_makers(self.config, self.train_tasks) if self.is_collecting else []
            if self.is_collecting and not (named or self._given_train_env):
                raise ConfigError("env.id: is required to collect, or make_train_env")
            for makers in (self._given_train_env or named, self._given_val_env):
                for maker in [makers] if callable(makers) else makers:
                    self._agree(self.env_id or "make_env", *first_spaces(maker))
        elif not self.eval_tasks:
            if self.is_collecting or info is None:
                raise ConfigError("env.id: is required to collect or to evaluate: a gymnasium id, or make_train_env")
            self.warn("neither env.id nor the data names an environment, so nothing will be evaluated")
        else:
            self._find_named(single_makers(self.config, self.eval_tasks, max_steps))
        assert self._info is not None
        self.info = self._info

    def _find_named(self, makers: Sequence[MakeEnv]) -> None:
        """Evaluate in the environments that the run file, or else the data, names."""
        section = self.config.env
        try:
            if section.id is None and not section.tasks:
                refuse_foreign(self.eval_tasks)
            found = [first_spaces(maker) for maker in makers]
        except EnvError as error:
            is_asked_for = section.id or section.tasks or section.kwargs or section.eval_kwargs or self.is_collecting
            if is_asked_for or self._info is None:
                raise
            self.warn(f"the data's environment cannot be made, so nothing will be evaluated: {error}")
            return
        self.eval_makers = makers
        for task, pair in zip(self.eval_tasks, found, strict=True):
            self._agree(task.env_id, *pair)

    def _agree(self, name: str, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        """Check that the data, and the environments seen before, speak of the same spaces."""
        self._env_obs.append(obs_specs(observation_space))
        if self._info is not None:
            self._info = agreed_spaces(self._info, observation_space, action_space, name)
            return
        ActionCodec(action_space), obs_specs(observation_space)  # raise where they are not supported
        self._info = StoreInfo(
            observation_space,
            action_space,
            env_id=self.env_id,
            env_kwargs=self.env_kwargs,
            source=f"what was collected in {name}",
        )

    def _build_environments(self) -> None:
        """Make the training environments of this process, and what evaluates in the main process."""
        section, evaluation = self.config.env, self.config.experiment.evaluation
        evaluates = evaluation.enabled and self.role != "collect" and self.accelerator.is_main_process
        if self.eval_makers is not None and evaluates and not self._gives_goals():
            self.warn("the environment gives no goals (observation.goal_keys), so nothing will be evaluated")
        elif self.eval_makers is not None and evaluates:
            least = 1 if callable(self.eval_makers) else len(self.eval_makers)
            self.evaluator = Evaluator(evaluation, self._build_eval_env, self.config.train.seed, least=least)
        if not self.is_collecting:
            return
        collect = self.config.collect
        makers = self._given_train_env or row_makers(self.config, self.train_tasks, collect.num_envs)
        env = build_env(makers, collect.num_envs, section)
        seed, rank = self.config.train.seed, self.collector_rank
        exploration = build_exploration(collect, env, seed, rank)
        self.collector = Collector(self.algo, env, exploration, collect, self._write_trajectory, seed=seed, rank=rank)

    def _gives_goals(self) -> bool:
        """Tell whether the environments observe the goals that the policy reads, or a ``desired_goal``."""
        return all(
            GOAL_PREFIX + k in given or (k == "achieved_goal" and "desired_goal" in given)
            for given in self._env_obs  # the data may hold less than the environment gives
            for k in self.algo.goal_keys
        )

    def _build_eval_env(self, num_envs: int) -> BatchedEnv:
        assert self.eval_makers is not None
        makers = self.eval_makers
        if self._given_val_env is None and self.config.env.vectorization == "native":
            makers = row_makers(self.config, self.eval_tasks, num_envs)
        return build_env(makers, num_envs, self.config.env)

    @property
    def collector_rank(self) -> int:
        """Which generators this process's collector uses: no two of a run use the same."""
        return self.rank if self.slot is None else self.accelerator.num_processes + self.slot.number

    def close_writer(self) -> None:
        """End the shard that this process writes; the next trajectory begins another."""
        if self._writer is not None:
            self._writer.close()

    def _write_trajectory(self, trajectory: Trajectory) -> None:
        assert self._writer is not None
        shard = self._writer.num_shards
        self._writer.append(trajectory)
        if self._writer.num_shards > shard and self.accelerator.is_main_process and self.replay is not None:
            self.replay.refresh()
            self.replay.evict(budget_of(self.config.collect.replay))

    # ------------------------------------------------------------------------------------------ algorithm
    def _build_algo(self) -> Algo:
        info = self.info
        return algo_factory(
            self.config.algo_name,
            self.config,
            obs_specs(info.observation_space),
            ActionCodec(info.action_space).dim,
            self.device,
            info.action_space,
        )

    # --------------------------------------------------------------------------------------------- folder
    def run_path(self) -> Path:
        """Return the run's folder."""
        name = self.config.experiment.name or default_name(self.config, self.env_id)
        return Path(self.config.experiment.output_dir).expanduser() / name

    def _open_folder(self) -> None:
        if self.role == "collect":
            self.folder = join_run(self.run_path(), self.config)
            self.slot = CollectorSlot(self.folder.path)
            self.run_log.open(self.slot.path / "log.txt")
        elif self.accelerator.is_main_process:
            self.folder = RunFolder(self.run_path(), self.config, resume=self._resume, overwrite=self._overwrite)
            self.run_log.open(self.folder.path / "log.txt")
        else:
            self.folder = RunFolder.at(self.run_path())
            self.run_log.close()
        self.accelerator.wait_for_everyone()

    def _open_replay(self) -> None:
        section = self.config.collect.replay
        if not self.config.collect.steps_per_epoch:
            return
        path = Path(section.path).expanduser() if section.path else self.folder.path / "replay"
        path.mkdir(parents=True, exist_ok=True)
        with self.accelerator.main_process_first():
            writer = StoreWriter(path, self.info, "fifo", budget_of(section))
            self.replay = Store(path)
        if self.is_collecting:
            self._writer = writer

    def warn(self, text: str) -> None:
        """Log a warning, and keep it for the report."""
        self.warnings.append(text)
        logger.warning("%s", text)
