"""The sweep's folder: what was planned, what has ended, and what it came to."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqrl.configs.differences import with_defaults
from seqrl.core.checkpoint_card import CheckpointCard
from seqrl.core.errors import CheckpointError, ConfigError, DataError, did_you_mean
from seqrl.core.files import FileLock, remove_temporaries, write_atomic, write_json
from seqrl.core.strict_json import read_object
from seqrl.reports.sweep_scores import (
    SettingScores,
    SweepScores,
    draw_sweep,
    last_score,
    metrics_of,
    sweep_csv,
    sweep_table,
)
from seqrl.sweeps.planning import Plan, Setting, SweepRun
from seqrl.training.run_folder import changes_since, is_running, last_checkpoint

logger = logging.getLogger(__name__)

NOT_LEGAL = "not legal"
"""Note of a setting whose values do not go together, so that it has no runs."""
COMPARED = (
    "train.init_from",
    "algo.optimizer.rates",
    *(f"experiment.evaluation.{key}" for key in ("deterministic", "episodes", "max_steps", "terminate_on_success")),
)
"""What a run may change when it is resumed, but not beside others that it is compared with."""


class SweepFolder:
    """Where a sweep lies.

    Args:
        plan: The sweep.

    Attributes:
        path: The folder.
        failures: Name of a run -> its last exit code, and the last lines that it printed.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.path = plan.path
        self.failures: dict[str, Any] = {}

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder, and keep other sweeps out of it inside the block.

        Raises:
            ConfigError: If another process runs the sweep, or runs have begun with other settings.
        """
        for name in ("runs", "run_files", "logs"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(self.path / "lock")
        except BlockingIOError as error:
            raise ConfigError(f"another process runs the sweep in {self.path}; stop it first") from error
        try:
            remove_temporaries(self.path)
            remove_temporaries(self.path / "run_files")
            self.failures = read_object(self.path / "failed.json")
            write_json(self.path / "sweep.json", self._plan.section.to_values())
            yield
        finally:
            lock.release()

    def run_path(self, run: SweepRun) -> Path:
        """Return the folder of a run."""
        return self.path / "runs" / run.name

    def run_file(self, run: SweepRun) -> Path:
        """Return the run file of a run."""
        return self.path / "run_files" / f"{run.name}.json"

    def log_file(self, run: SweepRun) -> Path:
        """Return what a run prints."""
        return self.path / "logs" / f"{run.name}.txt"

    def write_run_files(self, runs: Sequence[SweepRun]) -> None:
        """Write run files.

        Raises:
            ConfigError: If a run has begun with other settings.
        """
        for run in runs:
            self.check_unchanged(run)
            write_json(self.run_file(run), dict(run.values))

    def check_unchanged(self, run: SweepRun) -> None:
        """See that a run, if there is one, has the settings that the plan gives it.

        Raises:
            ConfigError: If not; with what differs.
        """
        saved = read_object(self.run_path(run) / "config.json")
        if saved and (lines := changes_since(with_defaults(saved), run.config, fixed=COMPARED)):
            raise ConfigError(
                f"{self.run_path(run)} was begun with other settings; give the sweep another 'name':\n"
                + "\n".join(lines)
            )

    # --------------------------------------------------------------------------------------------- runs
    def is_finished(self, run: SweepRun) -> bool:
        """Tell whether a run is at its end: its last epoch is evaluated and saved, its report written.

        A run that cannot be read is not; it says why when it is resumed.
        """
        path = self.run_path(run)
        report = run.config.experiment.report
        if not (path / "metrics.jsonl").is_file() or (report.enabled and not (path / "report.html").is_file()):
            return False
        if run.config.train.num_epochs == 0:  # evaluates, and saves nothing
            return bool(metrics_of(path)) and not is_running(path)
        try:
            if (last := last_checkpoint(path)) is None:
                return False
            state = CheckpointCard(last, {}).json_object("training_state/state.json")
        except CheckpointError:
            return False
        is_at_end = state.get("epoch", 0) >= run.config.train.num_epochs and not state.get("step_in_epoch", 0)
        return is_at_end and bool(state.get("is_evaluated", True)) and not is_running(path)

    def score(self, run: SweepRun) -> float | None:
        """Return the score of a run that has ended."""
        return last_score(self.run_path(run), self._plan.section.metric)

    def check_metric(self, run: SweepRun) -> None:
        """See that a run that has ended has logged the metric.

        Raises:
            DataError: If not; with what it has.
        """
        metric, have = self._plan.section.metric, metrics_of(self.run_path(run))
        if metric not in have:
            legal = ", ".join(sorted(have)) or "nothing"
            raise DataError(f"{run.name} has no {metric!r}{did_you_mean(metric, have)}; it has {legal}")

    def note_failure(self, run: SweepRun, exit_code: int, last_lines: Sequence[str]) -> None:
        """Keep what a run failed with."""
        self.failures[run.name] = {"exit_code": exit_code, "last_lines": list(last_lines)}
        write_json(self.path / "failed.json", self.failures)

    def forget_failure(self, run: SweepRun) -> None:
        """Forget that a run failed, as it has not."""
        if self.failures.pop(run.name, None) is not None:
            write_json(self.path / "failed.json", self.failures)

    # ------------------------------------------------------------------------------------------ results
    def scores(self, settings: Sequence[Setting], notes: Mapping[str, str]) -> SweepScores:
        """Return the scores of settings as far as their runs have ended.

        Args:
            settings: Which.
            notes: Name of a setting -> why it has no more; :data:`NOT_LEGAL` if it has no runs.
        """
        found = [self._setting_scores(setting, notes.get(setting.name, "")) for setting in settings]
        section = self._plan.section
        return SweepScores(found, self._plan.labels, section.metric, section.direction)

    def _setting_scores(self, setting: Setting, note: str) -> SettingScores:
        if note == NOT_LEGAL:
            return SettingScores(setting.name, setting.values, {}, note)
        runs = self._plan.runs_of(setting)
        ended = [run for run in runs if self.is_finished(run)]
        scores = {run.seed: self.score(run) if run in ended else None for run in runs}
        lost = sum(scores[run.seed] is None for run in ended)
        failed = sum(run.name in self.failures for run in runs if run not in ended)
        told = [f"{failed} failed"] * bool(failed) + [f"{lost} without a finite value"] * bool(lost)
        note = note or ", ".join(told)
        is_base = bool(setting.values) and self._plan.is_base(setting)
        is_share = self._plan.section.metric.endswith("success_mean")
        return SettingScores(setting.name, setting.values, scores, note, is_base, is_share)

    def write_results(self, settings: Sequence[Setting], notes: Mapping[str, str]) -> str:
        """Write ``sweep.csv``, ``sweep.md``, ``sweep.png`` and ``best.json``, and return the table.

        Raises:
            DataError: If no run has a score because the metric is none that they log.
        """
        found = self.scores(settings, notes)
        if found.best is None:
            for run in [run for run in self._plan.runs() if self.is_finished(run)][:1]:
                self.check_metric(run)
        table = sweep_table(found)
        write_atomic(self.path / "sweep.csv", sweep_csv(found))
        write_atomic(self.path / "sweep.md", table + "\n")
        draw_sweep(self.path / "sweep.png", found)
        if (best := found.best) is not None:
            write_json(self.path / "best.json", self._plan.best_values(self._plan.setting(best.values)))
        else:
            (self.path / "best.json").unlink(missing_ok=True)
        return table
