"""A run from start to report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from seqrl.algo.algo import Algo
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.algo.losses import Losses
from seqrl.algo.updater import build_optimizer
from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError, EnvError
from seqrl.core.generators import seed_everything
from seqrl.core.tensors import SeqBatch
from seqrl.data.dataset import TrainingDataset
from seqrl.data.store import Store
from seqrl.envs.metrics import Episode
from seqrl.envs.vector import BatchedEnv
from seqrl.models.image_cores import skip_local_weights
from seqrl.rollout.environments import Makers
from seqrl.rollout.evaluator import Evaluator, summarize_episodes
from seqrl.training import init_from, setup
from seqrl.training.callbacks import Callback, Callbacks
from seqrl.training.checkpoints import Checkpoints
from seqrl.training.collecting import collect_epoch, delete_replay
from seqrl.training.collector import Collector, CollectStats
from seqrl.training.ending import Ending
from seqrl.training.epochs import Epochs, Hooks
from seqrl.training.learner import Learner
from seqrl.training.loggers import MetricsLogger, log_video
from seqrl.training.offline_metrics import check_metrics
from seqrl.training.parts import LATER, Role
from seqrl.training.progress import Progress, RunStats
from seqrl.training.ray_process import ray_process
from seqrl.training.run_folder import RunFolder, last_checkpoint
from seqrl.training.run_log import RunLog
from seqrl.training.sources import Data, find_data
from seqrl.training.summary import log_summary
from seqrl.training.testing import play_test
from seqrl.training.world import GivenMakers

__all__ = ["Experiment", "Progress", "RunStats"]


class Experiment:
    """Trains one algorithm by one run file: offline, online, or both.

    Subclass it to override a part of the run: the methods that build a part (``init_...``), those of one step
    (``compute_loss``, ``train_step``, ``edit_actor_mask``, ``edit_critic_mask``), and ``interact``,
    ``policy_metrics``, ``log``. Each of them sees in ``self.parts`` what was built before it.

    Args:
        config: The run file.
        callbacks: Called at certain moments, in their order.
        make_train_env: Makes a training environment (or a vector of them), or a list of such callables, which the
            parallel environments take in turn; None takes ``env``.
        make_val_env: The same for evaluation; None takes ``make_train_env``, else ``env``, else the data's own.
        dataset: Training batches and, optionally, held-out ones, beside ``train.data`` and the replay.
        role: ``both`` collects and learns in turn; ``learn`` and ``collect`` do one of the two, in the same folder.
        resume: Go on with the run that is in the folder.
        overwrite: Replace the run that is in the folder.
        verbose: Print the summary, a line for each evaluation and a bar, unless the user's logging shows them.

    Attributes:
        parts: What the run is made of.
        progress: How far it has come.
        checkpoints: What is saved of it.
        epochs: What goes through the epochs of :meth:`learn`.
        evaluator: Plays in the evaluation environments; None where nothing is evaluated.
        ending: Why the run is to end before its last epoch.
        run_log: ``log.txt``, and the warnings.
        loggers: Where numbers go; none but in the main process.
    """

    def __init__(
        self,
        config: BaseConfig,
        *,
        callbacks: Callback | Iterable[Callback] = (),
        make_train_env: Makers | None = None,
        make_val_env: Makers | None = None,
        dataset: TrainingDataset | tuple[TrainingDataset, TrainingDataset | None] | None = None,
        role: Role = "both",
        resume: bool = False,
        overwrite: bool = False,
        verbose: bool = True,
    ) -> None:
        setup.check_call(config, role, type(self), given=make_train_env is not None, resume=resume, overwrite=overwrite)
        self.config = config
        self.parts = setup.first_parts(config, role, is_verbose=verbose)
        self.progress = Progress()
        self.checkpoints: Checkpoints = LATER
        self.epochs: Epochs = LATER
        self.evaluator: Evaluator | None = None
        self.callbacks, self.ending, self.run_log = Callbacks(callbacks, self), Ending(), RunLog(self.progress.warnings)
        self.loggers: list[MetricsLogger] = []
        self._makers = GivenMakers.checked(make_train_env, make_val_env)
        self._dataset = (dataset, None) if isinstance(dataset, TrainingDataset) else dataset
        self._resume, self._overwrite, self._has_learned = resume, overwrite, False

    @classmethod
    def from_config(
        cls, config: BaseConfig, *, role: Role = "both", resume: bool = False, overwrite: bool = False
    ) -> Experiment:
        """Return the experiment that a run file describes."""
        return cls(config, role=role, resume=resume, overwrite=overwrite)

    @property
    def algo(self) -> Algo:
        """What learns and acts."""
        return self.parts.algo

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return self.parts.processes.device

    @property
    def folder(self) -> RunFolder:
        """Where the run writes."""
        return self.parts.folder

    @property
    def learner(self) -> Learner:
        """What takes the gradient steps, and knows the data."""
        return self.parts.learner

    @property
    def collector(self) -> Collector | None:
        """What acts in the training environments; None where this process collects nothing."""
        return self.parts.collector

    @property
    def replay(self) -> Store | None:
        """What was collected; None in a run that collects nothing."""
        return self.parts.replay

    @property
    def metrics(self) -> dict[str, float]:
        """The last evaluation and validation."""
        return self.progress.metrics

    @property
    def num_steps(self) -> int:
        """Gradient steps so far."""
        return self.parts.num_steps

    # ------------------------------------------------------------------------------------- parts to override
    def init_dsets(self) -> Data:
        """Open the data; nothing but the configuration is known yet.

        Returns:
            Sources of training windows, and held-out windows: by default those of ``train.data``, without the replay.
        """
        given, valid = self._dataset or (None, None)
        return Data((), valid, given) if self.parts.role == "collect" else find_data(self.config, given, valid)

    def init_model(self) -> Algo:
        """Build the algorithm, with its networks on ``self.device``.

        Returns:
            By default the one that ``algo_name`` names, for the spaces in ``self.parts.world.info``.
        """
        return setup.build_algo(self.config, self.parts.world.info, self.device)

    def init_dloaders(self) -> tuple[TrainingDataset, TrainingDataset | None]:
        """Make what draws batches, of ``self.parts.data`` and ``self.parts.replay``.

        Returns:
            Training windows, and held-out windows if there are any.
        """
        return setup.build_dataset(self.config, self.parts), self.parts.data.valid

    def init_optimizer(self, nets: nn.ModuleDict) -> torch.optim.Optimizer:
        """Build the optimiser; the Updater clips, schedules and steps.

        Args:
            nets: All networks of the algorithm.

        Returns:
            By default that of ``algo.optimizer``.
        """
        return build_optimizer(nets, self.config.algo.optimizer)

    def init_envs(self) -> tuple[BatchedEnv | None, Evaluator | None]:
        """Make the environments of this process.

        Returns:
            Parallel training environments, None where nothing is collected; and what evaluates in the main process.
        """
        evaluator = setup.build_evaluator(self.config, self.parts, self.policy_metrics, self.warn)
        return setup.build_training_env(self.config, self.parts), evaluator

    def init_checkpoints(self) -> Checkpoints:
        """Make what saves and restores the run; all of ``self.parts`` is there.

        Returns:
            By default :class:`~seqrl.training.checkpoints.Checkpoints`, as ``experiment.save`` says.
        """
        return Checkpoints(self.config, self.parts, self.progress, on_save=self.callbacks.on_save)

    def init_logger(self) -> list[MetricsLogger]:
        """Open the loggers, when learning begins; only the main process calls it.

        Returns:
            By default those of ``experiment.logging``; reports and resumed runs need the first, ``metrics.jsonl``.
        """
        return setup.open_loggers(self.config, self.parts, self.progress)

    # ------------------------------------------------------------------------------------- steps to override
    def compute_loss(self, batch: SeqBatch) -> Losses:
        """Compute the losses of a batch, for training and validation alike.

        The Updater calls it: synchronised between processes, in the run's precision, compiled if that is on.

        Args:
            batch: As ``Algo.process_batch_for_training`` gives it, on the device.

        Returns:
            The losses; ``total`` is what is differentiated.
        """
        return self.algo.compute_losses(batch)

    def train_step(self, batch: SeqBatch, step: int) -> Mapping[str, Tensor]:
        """Learn from one batch; with ``train.accumulate_batches`` several of them make a gradient step.

        Args:
            batch: As the dataset gives it, on the CPU.
            step: Gradient steps that were taken before.

        Returns:
            Name -> detached scalar on the device, with ``loss/total`` among them.
        """
        return self.algo.train_on_batch(self.algo.process_batch_for_training(batch), self.progress.epoch)

    def edit_actor_mask(self, batch: SeqBatch, loss: Tensor, mask: Tensor) -> Tensor:
        """Choose the transitions that count in the losses of the policy.

        Args:
            batch: As ``Algo.process_batch_for_training`` gives it.
            loss: ``(B, T)``, of each transition, detached.
            mask: ``(B, T)`` bool, False on padding.

        Returns:
            ``(B, T)`` bool, by default ``mask``.
        """
        return mask

    def edit_critic_mask(self, batch: SeqBatch, loss: Tensor, mask: Tensor) -> Tensor:
        """Choose the transitions that count in the losses of values.

        Args:
            batch: As ``Algo.process_batch_for_training`` gives it.
            loss: ``(B, T)``, of each transition, detached.
            mask: ``(B, T)`` bool, False on padding.

        Returns:
            ``(B, T)`` bool, by default ``mask``.
        """
        return mask

    def interact(self, epoch: int) -> CollectStats:
        """Act in the training environments of this process for one epoch, and add what happens to the replay.

        Args:
            epoch: Number of the epoch; with the seed it decides what the policy samples.

        Returns:
            What this process collected; the run adds up those of all processes.
        """
        return collect_epoch(self.config, self.parts, self.ending, epoch)

    def policy_metrics(self, episodes: list[Episode]) -> dict[str, float]:
        """Turn the episodes of an evaluation into metrics.

        Args:
            episodes: All that ended; at least one.

        Returns:
            ``group/name`` -> number; ``eval/success_mean`` and ``eval/return_mean`` choose the best checkpoints.
        """
        return summarize_episodes(episodes)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Give numbers to every logger, with the epoch, the environment steps and the seconds so far.

        Args:
            numbers: ``group/name`` -> number.
            step: Gradient steps so far.
        """
        row = {**numbers, **self.progress.axes()}
        for metrics_logger in self.loggers:
            metrics_logger.log(row, step)

    # ------------------------------------------------------------------------------------------------- start
    def start(self) -> None:
        """Open the data, make the run's folder, build everything, and say what is about to happen.

        Raises:
            SeqrlError: If anything in the run file cannot be done; nothing has been trained then.
        """
        try:
            self.run_log.begin(speaks=self.parts.is_verbose)
            goes_on = self._build()
            if self.parts.role == "collect":
                return
            if goes_on:
                self.load_checkpoint_from_path(self.folder.path, resume_training_state=True)
            elif self._resume:
                self.checkpoints.begin_again()
            log_summary(self.config, self.parts, self.progress.epoch, self.warn)
            self.folder.settle(self.progress.epoch)
        except BaseException as error:
            self.run_log.write_error(error)
            self.close()
            raise

    def _build(self) -> bool:
        """Build all parts, in the order in which a mistake costs least; return whether the run goes on."""
        config, role = self.config, self.parts.role
        setup.load_and_check(config, role)
        self.parts = replace(self.parts, processes=setup.open_processes(config))
        with self.parts.processes.main_first():
            self.parts = replace(self.parts, data=self.init_dsets())
        if role != "collect":
            check_metrics(config.train, self.parts.data.valid)
        self.parts = replace(self.parts, world=setup.build_world(config, self.parts, self._makers, self.warn))
        path = setup.run_path(config, self.parts.world.env_id)
        goes_on = self._resume and last_checkpoint(path) is not None
        gets_weights_later = goes_on or role == "collect" or config.train.init_from is not None
        seed_everything(config.train.seed)  # the same networks on every rank
        with skip_local_weights(gets_weights_later):
            algo = self.init_model()
        algo.mask_edits.actor, algo.mask_edits.critic = self.edit_actor_mask, self.edit_critic_mask
        self.parts = replace(self.parts, algo=algo)
        setup.check_algo(config, self.parts, self.warn)
        if config.train.init_from is not None and not goes_on and role != "collect":
            setup.take_first_weights(algo, self.parts.data, self.warn)
        if not gets_weights_later:
            setup.use_statistics(algo, self.parts.data)
        setup.resolve_engines(config, self.parts, path if goes_on else None)
        folder, slot = setup.open_folder(config, self.parts, path, resume=self._resume, overwrite=self._overwrite)
        self.parts = replace(self.parts, folder=folder, slot=slot)
        setup.open_log(self.parts, self.run_log)
        self._build_learning()
        return goes_on

    def _build_learning(self) -> None:
        """Build what needs the algorithm and the folder."""
        replay, writer = setup.open_replay(self.config, self.parts)
        self.parts = replace(self.parts, replay=replay, writer=writer)
        dataset, valid = self.init_dloaders()
        optimizer = self.init_optimizer(self.algo.nets)
        self.algo.updater = setup.build_updater(self.config, self.parts, optimizer, self.compute_loss)
        learner = setup.build_learner(self.config, self.parts, dataset, valid, self.train_step)
        self.parts = replace(self.parts, learner=learner)
        env, self.evaluator = self.init_envs()
        if env is not None:
            self.parts = replace(self.parts, collector=setup.build_collector(self.config, self.parts, env))
        self.checkpoints = self.init_checkpoints()
        hooks = Hooks(
            self.interact,
            lambda: {} if self.evaluator is None else self.evaluate_val()[0],
            self.log,
            lambda: self.loggers.extend(self.init_logger()),
            lambda file: log_video(self.loggers, file, self.num_steps),
        )
        run = self.config, self.parts, self.progress, self.checkpoints
        self.epochs = Epochs(*run, self.callbacks, self.ending, self.run_log, hooks)

    def learn(self) -> RunStats:
        """Train to the end, and write the report; in the role ``collect``, collect until the learner has ended.

        SIGTERM, SIGHUP and Ctrl-C end it after the gradient step under way, saved; ``resume=True`` goes on from there.

        Raises:
            TrainingError: If a loss was not finite and ``train.on_nonfinite`` is ``stop``.
            RunInterrupted: After such a signal.
        """
        self.parts.check_built("learn()")
        if self._has_learned:
            raise ConfigError("learn() was called before; go on with a new Experiment and resume=True")
        self._has_learned, progress, processes = True, self.progress, self.parts.processes
        progress.begin()
        try:
            with self.ending.handling_signals(processes), ray_process(self.parts, self.ending):
                self.epochs.run()
        except BaseException as error:
            self.run_log.write_error(error := setup.explained(error, self.parts))
            raise error
        finally:
            self.close()
        path = self.folder.path if processes.is_main else Path()
        return RunStats(path, progress.epoch, self.metrics, progress.num_env_steps, self.ending.reason)

    def run_epoch(self, epoch: int) -> None:
        """Collect, learn, evaluate, save and publish; :meth:`learn` does so with every epoch."""
        self.epochs.run_epoch(epoch)

    # ---------------------------------------------------------------------------------- at any time of a run
    def evaluate_val(self) -> tuple[dict[str, float], list[Episode]]:
        """Return metrics and episodes of the current policy in the evaluation environments.

        Raises:
            EnvError: If there is no environment.
        """
        self.parts.check_built("evaluate_val()")
        if self.evaluator is None:
            raise EnvError("there is no environment to evaluate in: give env.id, and set experiment.evaluation.enabled")
        check = self.ending.checking(self.parts.processes)
        return self.evaluator.evaluate(self.algo, self.progress.epoch, on_step=check)

    def evaluate_test(
        self,
        make_env: Makers,
        episodes: int | None = None,
        *,
        timesteps: int | None = None,
        render: bool = False,
        save_trajs_to: str | Path | None = None,
    ) -> tuple[dict[str, float], list[Episode]]:
        """Return metrics and episodes of the current policy in other environments.

        Args:
            make_env: Makes one environment, or a list of such callables.
            episodes: How many; by default, and without ``timesteps``, as many as the run's evaluations.
            timesteps: Stop after so many steps of each environment, whatever has ended by then.
            render: Call ``render`` after each step.
            save_trajs_to: Store to which whole episodes are added, protected, for other runs to train on.

        Raises:
            EnvError: If no episode ended.
        """
        self.parts.check_built("evaluate_test()")
        return play_test(
            self.config, self.parts, self.progress.epoch, make_env, episodes=episodes, timesteps=timesteps,
            render=render, save_trajs_to=save_trajs_to, summarize=self.policy_metrics,
        )  # fmt: skip

    def stop(self, reason: str) -> None:
        """End the run after the epoch under way, which is evaluated, saved and reported like the last one."""
        self.ending.ask(reason)

    def save(self) -> None:
        """Save the run where it stands (:meth:`Checkpoints.save`); every process has to call it."""
        self.checkpoints.save()

    def load_checkpoint(self, epoch: int, *, resume_training_state: bool = True) -> None:
        """Go back to an epoch of this run that was kept (``experiment.save.every_n_epochs``).

        With the training state, what the run's own replay has got since is deleted.

        Args:
            epoch: Epochs that were done then.
            resume_training_state: Restore optimiser and counters too; else the weights only.

        Raises:
            CheckpointError: If there is no checkpoint of that epoch.
        """
        self.load_checkpoint_from_path(self.folder.checkpoint(epoch), resume_training_state=resume_training_state)

    def load_checkpoint_from_path(self, path: str | Path, *, resume_training_state: bool = False) -> None:
        """Take the weights, or the whole training state, of any checkpoint whose networks fit.

        Raises:
            CheckpointError: If it is missing, damaged, of other networks, or not finite.
        """
        if resume_training_state:
            self.checkpoints.load_state(read_checkpoint(path, allow_nonfinite=self.config.train.allow_nonfinite))
        else:
            init_from.take_weights(self.algo, path, "these weights")

    def delete_replay(self) -> None:
        """Delete everything that the run has collected; protected data stays.

        Raises:
            CheckpointError: If the run has no replay.
        """
        delete_replay(self.parts)

    def warn(self, text: str) -> None:
        """Log a warning, and keep it for the report."""
        self.run_log.warn(text)

    def close(self) -> None:
        """Close environments, files and loggers."""
        with contextlib.ExitStack() as stack:
            if self.parts.is_open:
                stack.callback(self.folder.release)
            stack.callback(self.run_log.close)
            for closable in (*self.loggers, self.parts.writer, self.parts.collector, self.evaluator):
                if closable is not None:
                    stack.callback(closable.close)
            self.loggers.clear()
