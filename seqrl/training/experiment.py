"""A run from start to report."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tqdm import tqdm

from seqrl.algo.algo import Algo, algo_factory
from seqrl.algo.checkpoint import TrainingState, read_checkpoint, resolve_device, save_checkpoint
from seqrl.algo.finite_guard import NonFiniteError
from seqrl.algo.updater import Updater, make_accelerator
from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError, DataError, EnvError, TrainingError
from seqrl.core.plugins import load_plugins
from seqrl.core.seeding import seed_everything
from seqrl.core.spaces import ActionCodec, obs_specs
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.data.store import StoreInfo
from seqrl.envs.make import MakeEnv, env_maker, names_foreign_module
from seqrl.envs.metrics import Episode
from seqrl.training.console import evaluation_line, format_count, format_megabytes, summary_text
from seqrl.training.evaluator import Evaluator
from seqrl.training.host_memory import keep_freed_memory
from seqrl.training.learner import Learner, predicted_memory
from seqrl.training.loggers import JsonlLogger, MetricsLogger, TensorBoardLogger
from seqrl.training.run_folder import RunFolder, default_name
from seqrl.training.run_report import write_run_report
from seqrl.training.sources import open_data, split_sources, summarize
from seqrl.training.spaces import agreed_spaces

logger = logging.getLogger(__name__)

BEST_BY = {
    "success": ("eval/success_mean", 1.0),
    "return": ("eval/return_mean", 1.0),
    "valid_loss": ("valid/total", -1.0),
}
"""Measure -> (metric, +1 if more is better)."""


@dataclass
class Progress:
    """How far a run has come; saved with every checkpoint."""

    epoch: int = 0
    wall_s: float = 0.0


@dataclass(frozen=True)
class RunStats:
    """What a run came to.

    Attributes:
        path: The run's folder.
        epochs: Epochs that are done.
        metrics: The last evaluation and validation.
    """

    path: Path
    epochs: int
    metrics: dict[str, float]


class Experiment:
    """Trains one algorithm by one run file.

    Args:
        config: The run file.
        make_val_env: Makes an environment for evaluation; None takes ``env.id``, else the data's own.
        dataset: Training windows and, optionally, held-out ones; None opens ``train.data``.
        resume: Go on with the run that is in the folder.
        overwrite: Replace the run that is in the folder.
    """

    def __init__(
        self,
        config: BaseConfig,
        *,
        make_val_env: MakeEnv | None = None,
        dataset: tuple[SequenceDataset, SequenceDataset | None] | None = None,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.config = config
        self.progress = Progress()
        self.metrics: dict[str, float] = {}
        self.metrics_epoch = -1
        self.best: dict[str, float] = {}
        self.warnings: list[str] = []
        self.evaluator: Evaluator | None = None
        self.loggers: list[MetricsLogger] = []
        self._given_env = make_val_env
        self._given_dataset = dataset
        self._resume, self._overwrite = resume, overwrite
        self._data_summary: dict[str, float] = {}

    @classmethod
    def from_config(cls, config: BaseConfig, *, resume: bool = False, overwrite: bool = False) -> Experiment:
        """Return the experiment that a run file describes."""
        return cls(config, resume=resume, overwrite=overwrite)

    # ------------------------------------------------------------------------------------------- set-up
    def start(self) -> None:
        """Open the data, make the run's folder, build everything, and say what is about to happen.

        Raises:
            SeqrlError: If anything in the run file cannot be done; nothing has been trained then.
        """
        config = self.config
        load_plugins(config.plugins)
        if config.train.num_threads is not None:
            torch.set_num_threads(config.train.num_threads)
        self.device = resolve_device(config.train.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.accelerator = make_accelerator(self.device, precision=config.train.precision)
        if self.accelerator.num_processes > 1:
            self.device = self.accelerator.device
        with self.accelerator.main_process_first():
            train, valid = self._datasets()
        self.info: StoreInfo = train.sources[0].store.info
        self.make_env = self._find_env()
        for dataset in (train, valid):
            if dataset is not None:
                dataset.use_categories(self.info.action_space)
        seed_everything(config.train.seed)  # the same networks on every rank
        self.algo: Algo = self._build_algo()
        without = [s.store.info for s in train.sources if not s.store.info.has_next_obs]
        if self.algo.needs_next_obs and without:
            raise DataError(
                f"{config.algo_name} bootstraps from the last observation, which {without[0].source} does not have "
                "(next_obs); use bc, or write next_obs"
            )
        self.algo.updater = Updater(
            self.algo,
            self.accelerator,
            accumulate_batches=config.train.accumulate_batches,
            on_nonfinite=config.train.on_nonfinite,
            is_compiled=config.train.compile,
        )
        self.learner = Learner(self.algo, config.train, train, valid, rank=self.accelerator.process_index)
        if self.accelerator.is_main_process:
            self._start_main_process()
        elif self._resume:
            self.folder = RunFolder(self._run_path(), config, resume=True)
        if self._resume:
            self._load_training_state()

    def _start_main_process(self) -> None:
        config = self.config
        if self.make_env is not None and config.experiment.evaluation.enabled:
            section = config.experiment.evaluation
            self.evaluator = Evaluator(section, self.make_env, config.env.vectorization, config.train.seed)
        self.folder = RunFolder(self._run_path(), config, resume=self._resume, overwrite=self._overwrite)
        logger.info("%s", self._summary())

    def _run_path(self) -> Path:
        name = self.config.experiment.name or default_name(self.config, self.env_id)
        return Path(self.config.experiment.output_dir).expanduser() / name

    def _datasets(self) -> tuple[SequenceDataset, SequenceDataset | None]:
        if self._given_dataset is not None:
            return self._given_dataset
        train = self.config.train
        stores = open_data(self.config)
        self._data_summary = summarize(stores)
        options: dict[str, Any] = {
            "padding": train.window_padding,
            "sample_by": train.sample_by,
            "keys": self.config.observation.keys,
        }
        chosen, held_out = split_sources(self.config, stores)
        valid = SequenceDataset(held_out, train.window_steps, **options) if held_out else None
        return SequenceDataset(chosen, train.window_steps, **options), valid

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

    def _find_env(self) -> MakeEnv | None:
        """Return what makes evaluation environments; None, with a warning, if only the data names one that fails."""
        if self._given_env is not None:
            return self._given_env
        if not (env_id := self.env_id):
            self.warn("neither env.id nor the data names an environment, so nothing will be evaluated")
            return None
        env, max_steps = self.config.env, self.config.experiment.evaluation.max_steps
        kwargs = {**self.env_kwargs, **env.eval_kwargs}
        maker = env_maker(env_id, kwargs, max_episode_steps=max_steps, plugins=self.config.plugins)
        try:
            if env.id is None and (module := names_foreign_module(env_id)):
                raise EnvError(f"{env_id!r} would import {module!r}, which data may not cause; pass --plugin {module}")
            made = maker()
        except EnvError as error:
            if env.id is not None or env.kwargs or env.eval_kwargs:
                raise
            self.warn(f"the data's environment cannot be made, so nothing will be evaluated: {error}")
            return None
        try:
            self.info = agreed_spaces(self.info, made.observation_space, made.action_space, env_id)
        finally:
            made.close()
        return maker

    @property
    def env_id(self) -> str | None:
        """The environment of the run file, else the data's own."""
        return self.config.env.id or self.info.env_id

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment, without those for evaluation only."""
        own = self.config.env.kwargs
        return own if self.config.env.id else {**self.info.env_kwargs, **own}

    def _summary(self) -> str:
        config, algo, train = self.config, self.algo, self.config.train
        learned = sum(p.numel() for p in algo.nets.parameters())
        batch = self.learner.dataset.batch(train.batch_size, seed=train.seed, path=("summary",))
        memory = predicted_memory(algo, batch, train.prefetch_batches)
        data, steps = self._data_summary, train.num_epochs * train.steps_per_epoch
        seen = steps * train.batch_size * train.window_steps * self.accelerator.num_processes
        groups = {
            "run": {"folder": str(self.folder.path), "seed": str(train.seed), "device": str(self.device)},
            "policy": {
                "algorithm": config.algo_name,
                "memory": str(getattr(getattr(config.algo, "sequence_encoder", None), "type", "-")),
                "parameters": format_count(learned),
                "observations": ", ".join(f"{k} {list(s.shape)}" for k, s in algo.obs.items()),
                "actions": str(self.info.action_space),
            },
            "data": {
                "trajectories": f"{self.learner.dataset.num_trajectories} train, "
                f"{self.learner.valid.num_trajectories if self.learner.valid else 0} held out",
                "transitions": format_count(self.learner.dataset.num_transitions),
                "on disk": format_megabytes(data.get("megabytes", 0.0)) + ", memory-mapped",
                "mean return": f"{data.get('mean_return', float('nan')):.4g}",
            },
            "plan": {
                "gradient steps": f"{steps} ({train.num_epochs} epochs of {train.steps_per_epoch})",
                "batch": f"{train.batch_size} windows of {train.window_steps}",
                "passes over data": f"{seen / max(self.learner.dataset.num_transitions, 1):.3g}",
                "memory": f"{format_megabytes(sum(memory.values()))} predicted: weights and optimiser "
                f"{format_megabytes(memory['weights_mb'])}, activations {format_megabytes(memory['activations_mb'])}, "
                f"batches {format_megabytes(memory['batches_mb'])}",
            },
        }
        return summary_text(f"seqrl {config.algo_name}", groups)

    # ---------------------------------------------------------------------------------------- the run
    def learn(self) -> RunStats:
        """Train to the end, and write the report.

        Raises:
            TrainingError: If a loss was not finite and ``train.on_nonfinite`` is ``stop``; the last two batches lie
                in the run's folder then.
        """
        self._open_loggers()
        try:
            if self.progress.epoch == 0:
                self._evaluate_and_log()
            for epoch in range(self.progress.epoch, self.config.train.num_epochs):
                self.learn_epoch(epoch)
                self.progress.epoch = epoch + 1
                self.end_of_epoch()
            self._report()
        finally:
            for metrics_logger in self.loggers:
                metrics_logger.close()
            self.loggers.clear()
            if self.evaluator is not None:
                self.evaluator.close()
        return RunStats(
            self.folder.path if self.accelerator.is_main_process else Path(), self.progress.epoch, self.metrics
        )

    def learn_epoch(self, epoch: int) -> None:
        """Take one epoch's gradient steps."""
        section = self.config.experiment.logging
        begin = time.perf_counter()
        seed_everything(self.config.train.seed, self.accelerator.process_index, epoch)
        with self._progress_bar(epoch) as bar:

            def on_log(numbers: Any, step: int) -> None:
                self._log(numbers, step)
                bar.set_postfix_str(f"loss {numbers['loss/total']:.4g}", refresh=False)

            try:
                speed = self.learner.learn_epoch(
                    epoch, log_every=section.every_n_steps, on_log=on_log, on_step=lambda _: bar.update()
                )
            except NonFiniteError as error:
                raise TrainingError(f"{error}; {self._dump_batches(error)}") from error
        self.progress.wall_s += time.perf_counter() - begin
        self._log({**speed, "time/wall_s": self.progress.wall_s}, self.num_steps)

    def end_of_epoch(self) -> None:
        """Evaluate if it is time, and save: the same path in every epoch."""
        epoch, last = self.progress.epoch, self.progress.epoch == self.config.train.num_epochs
        if last or epoch % self.config.experiment.evaluation.every_n_epochs == 0:
            self._evaluate_and_log()
        if self.accelerator.is_main_process:
            self.save()
        self.accelerator.wait_for_everyone()

    def evaluate_val(self) -> tuple[dict[str, float], list[Episode]]:
        """Return metrics and episodes of the current policy in the evaluation environments.

        Raises:
            EnvError: If there is no environment.
        """
        if self.evaluator is None:
            raise EnvError("there is no environment to evaluate in: give env.id, and set experiment.evaluation.enabled")
        return self.evaluator.evaluate(self.algo, self.progress.epoch)

    def evaluate_test(self, make_env: MakeEnv, episodes: int | None = None) -> tuple[dict[str, float], list[Episode]]:
        """Return metrics and episodes of the current policy in another environment."""
        section = self.config.experiment.evaluation.model_copy()
        section.episodes = episodes or section.episodes
        evaluator = Evaluator(section, make_env, self.config.env.vectorization, self.config.train.seed)
        try:
            return evaluator.evaluate(self.algo, self.progress.epoch)
        finally:
            evaluator.close()

    @property
    def num_steps(self) -> int:
        """Gradient steps so far."""
        return self.algo.updater.num_steps

    def _evaluate_and_log(self) -> None:
        if not self.accelerator.is_main_process:
            return
        valid = self.learner.validate()
        metrics = valid if self.evaluator is None else self.evaluate_val()[0] | valid
        if metrics:
            self.metrics, self.metrics_epoch = metrics, self.progress.epoch
            self._log(metrics, self.num_steps)
            logger.info("%s", evaluation_line(self.progress.epoch, metrics))

    # -------------------------------------------------------------------------------------- save, load
    def save(self) -> None:
        """Write the checkpoint of this epoch, move ``last`` and the best marks, and drop what nothing names."""
        epoch, section = self.progress.epoch, self.config.experiment.save
        path = self.folder.checkpoint(epoch)
        is_measured = self.metrics_epoch == epoch
        improved = self._improved() if is_measured else []
        save_checkpoint(
            path,
            self.algo,
            self.info.observation_space,
            self.info.action_space,
            env={"id": self.env_id, "kwargs": self.env_kwargs} if self.env_id else {},
            metrics={k: v for k, v in self.metrics.items() if np.isfinite(v)} if is_measured else {},
            training_state=self._training_state(),
        )
        for measure in improved:
            self.folder.point(f"best_{measure}", path)
        self.folder.point("last", path)
        self.folder.remove_unused(section.every_n_epochs)

    def _improved(self) -> list[str]:
        """Return the measures in which this epoch is the best so far, and remember its scores."""
        improved: list[str] = []
        for measure in self.config.experiment.save.best:
            metric, sign = BEST_BY[measure]
            value = self.metrics.get(metric)
            if value is not None and sign * value > sign * self.best.get(measure, -sign * np.inf):
                self.best[measure] = value
                improved.append(measure)
        return improved

    def _training_state(self) -> TrainingState:
        values = {
            "epoch": self.progress.epoch,
            "wall_s": self.progress.wall_s,
            "num_steps": self.num_steps,
            "best": self.best,
            "num_threads": torch.get_num_threads(),
            "num_processes": self.accelerator.num_processes,
            "data": self._data_fingerprint(),
        }
        return TrainingState(self.algo.updater.state_tensors(), values)

    def _data_fingerprint(self) -> list[int]:
        """Return what must not change between the parts of a run: batches are functions of it."""
        dataset = self.learner.dataset
        return [dataset.num_trajectories, dataset.num_transitions]

    def _load_training_state(self) -> None:
        checkpoint = read_checkpoint(self.folder.path)
        state = checkpoint.training_state()
        now = {"num_processes": self.accelerator.num_processes, "data": self._data_fingerprint()}
        for name, value in now.items():
            if state.values[name] != value:
                raise ConfigError(f"cannot resume {self.folder.path}: {name} was {state.values[name]}, now {value}")
        self.algo.deserialize(checkpoint.tensors("model.safetensors"))
        self.algo.updater.load_state(state.optimizer, state.values["num_steps"])
        self.algo.on_checkpoint_loaded(is_resume=True)
        self.progress = Progress(state.values["epoch"], state.values["wall_s"])
        self.best = dict(state.values["best"])
        self.metrics, self.metrics_epoch = dict(checkpoint.card["metrics"]), self.progress.epoch
        if self.config.train.num_threads is None:
            torch.set_num_threads(state.values["num_threads"])
        logger.info("resuming after epoch %d, gradient step %d", self.progress.epoch, self.num_steps)

    # ------------------------------------------------------------------------------------ logs, report
    def _open_loggers(self) -> None:
        if not self.accelerator.is_main_process:
            return
        step = self.num_steps if self._resume else None
        self.loggers.append(JsonlLogger(self.folder.metrics, step))
        if self.config.experiment.logging.tensorboard:
            self.loggers.append(TensorBoardLogger(self.folder.path / "tb", step))

    def _log(self, numbers: dict[str, float], step: int) -> None:
        for metrics_logger in self.loggers:
            metrics_logger.log(numbers, step)

    def warn(self, text: str) -> None:
        """Log a warning, and keep it for the report."""
        self.warnings.append(text)
        logger.warning("%s", text)

    def _progress_bar(self, epoch: int) -> Any:
        train, shown = self.config.train, self.config.experiment.logging.progress_bar
        quiet = not (shown and self.accelerator.is_main_process and sys.stderr.isatty())
        return tqdm(
            total=train.steps_per_epoch, desc=f"epoch {epoch + 1}/{train.num_epochs}", disable=quiet, leave=False
        )

    def _dump_batches(self, error: NonFiniteError) -> str:
        if not self.accelerator.is_main_process:
            return "see the main process"
        file = self.folder.path / "nonfinite_batches.safetensors"
        tensors: dict[str, torch.Tensor] = {}
        for i, batch in enumerate(error.batches):
            for name, value in batch.to_mapping().items():
                entries = {f"{name}/{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
                tensors |= {f"{i}/{k}": v.cpu().contiguous().clone() for k, v in entries.items()}
        save_file(tensors, file)
        return f"the last two batches are in {file}"

    def _report(self) -> None:
        if self.accelerator.is_main_process and self.config.experiment.report.enabled:
            file = write_run_report(self)
            logger.info("report: %s", file)
