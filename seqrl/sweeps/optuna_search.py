"""Settings that Optuna proposes by the scores so far, by the extra ``seqrl[sweep]``.

A trial is one setting; its score is the mean over the seeds, which run one after another. Pruning compares the mean of
the seeds so far after each evaluation with that of other trials at the same place.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from seqrl.core.errors import ConfigError, SeqrlError
from seqrl.core.extras import import_extra
from seqrl.core.seeding import integer_seed
from seqrl.reports.series import AXES, merged, points_of, read_metrics
from seqrl.sweeps.local import Teller, working
from seqrl.sweeps.planning import Plan, Setting, SweepRun
from seqrl.sweeps.pool import POLL_S, Ended, Pool
from seqrl.sweeps.sweep_folder import NOT_LEGAL, SweepFolder

logger = logging.getLogger(__name__)

_WATCH_S = 1.0
_SETTING = "setting"
_METRIC = "metric"
_MORE_SEEDS = "more seeds"
_DUPLICATE = "duplicate"
_STARTUP_TRIALS = 5


@dataclass
class _Trial:
    """One setting under way.

    Attributes:
        trial: Optuna's.
        setting: What it tries.
        runs: One for each seed.
        scores: Of the seeds that have ended.
        place: Number of the last evaluation that was reported, over all seeds.
        is_pruned: Whether it is to end.
    """

    trial: Any
    setting: Setting
    runs: list[SweepRun]
    scores: list[float] = field(default_factory=list)
    place: int = -1
    is_pruned: bool = False

    @property
    def run(self) -> SweepRun:
        """The run whose turn it is."""
        return self.runs[len(self.scores)]


class Search:
    """Optuna's study of a sweep, and the trials under way.

    Args:
        folder: Of the sweep.
        plan: The sweep.

    Attributes:
        settings: Name -> setting of every trial.
        notes: Name of a setting -> why it has no score.
        active: Trials under way.
        num_done: Trials that have ended; those that failed in an earlier part of the sweep are tried again.
    """

    def __init__(self, folder: SweepFolder, plan: Plan) -> None:
        self._optuna = import_extra("optuna", '"search": "optuna" needs Optuna', "sweep")
        self._folder, self._plan, self._section = folder, plan, plan.section
        self.settings: dict[str, Setting] = {}
        self.notes: dict[str, str] = {}
        self.active: list[_Trial] = []
        self._watched, self.num_done = 0.0, 0
        self._study = self._open()

    def _open(self) -> Any:
        """Return the study in the sweep's folder; what was under way or failed is tried first."""
        optuna, section = self._optuna, self._section
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = f"sqlite:///{(self._folder.path / 'optuna.db').resolve()}"
        direction = "maximize" if section.direction == "max" else "minimize"
        study = optuna.create_study(
            storage=storage, study_name=section.name, direction=direction, load_if_exists=True
        )  # fmt: skip
        if study.direction.name.lower() != direction:
            raise ConfigError(f"{self._folder.path} was begun with another direction; give the sweep another 'name'")
        if (metric := study.user_attrs.get(_METRIC, section.metric)) != section.metric:
            raise ConfigError(
                f"{self._folder.path} was begun with the metric {metric!r}; give the sweep another 'name'"
            )
        study.set_user_attr(_METRIC, section.metric)
        trials = study.get_trials(deepcopy=False)
        study.sampler = optuna.samplers.TPESampler(seed=integer_seed(section.seed, "optuna", len(trials)))
        pruner = optuna.pruners.MedianPruner(_STARTUP_TRIALS, section.prune_after or 0)
        study.pruner = optuna.pruners.NopPruner() if section.prune_after is None else pruner
        if not trials:
            for setting in self._plan.settings:
                study.enqueue_trial(self._params(setting))
        for old in trials:
            self._take_over(old, study)
        left = [old for old in trials if _SETTING in old.user_attrs and self._setting(old).name not in self.settings]
        for name, old in {self._setting(old).name: old for old in left}.items():
            was_complete = any(self._setting(o).name == name and o.value is not None for o in left)
            study.enqueue_trial(old.params, user_attrs={_MORE_SEEDS: True} if was_complete else None)
        return study

    def _take_over(self, old: Any, study: Any) -> None:
        """Take note of a trial of an earlier part of the sweep, whatever became of it."""
        states = self._optuna.trial.TrialState
        if old.state is states.RUNNING:
            study.tell(old.number, state=states.FAIL)
        elif self._is_done(old):
            self._remember(old)
            self.num_done += _MORE_SEEDS not in old.user_attrs
        elif _DUPLICATE in old.user_attrs:
            self.num_done += 1
        elif _SETTING in old.user_attrs and not self._is_legal(setting := self._setting(old)):
            self.settings[setting.name], self.notes[setting.name] = setting, NOT_LEGAL
            self.num_done += 1

    def _setting(self, old: Any) -> Setting:
        return self._plan.setting(json.loads(old.user_attrs[_SETTING]))

    def _is_legal(self, setting: Setting) -> bool:
        try:
            self._plan.runs_of(setting)
        except SeqrlError:
            return False
        return True

    def _is_done(self, old: Any) -> bool:
        """Tell whether a trial of an earlier part of the sweep needs no more runs; it does if there are more seeds."""
        states = self._optuna.trial.TrialState
        runs = self._plan.runs_of(self._setting(old)) if old.state is states.COMPLETE else []
        return old.state is states.PRUNED or (bool(runs) and all(map(self._folder.is_finished, runs)))

    def _remember(self, old: Any) -> None:
        """Take note of a trial that is done.

        Raises:
            ConfigError: If its runs had other settings than the sweep gives them now.
        """
        setting = self._setting(old)
        for run in self._plan.runs_of(setting):
            self._folder.check_unchanged(run)
        self.settings[setting.name] = setting
        if old.state is self._optuna.trial.TrialState.PRUNED:
            self.notes[setting.name] = "pruned"

    @property
    def has_more(self) -> bool:
        """Whether another trial may begin."""
        return self.num_done + len(self.active) < self._section.trials

    # ------------------------------------------------------------------------------------------ settings
    def ask(self) -> None:
        """Begin another trial.

        Raises:
            ConfigError: If what may be drawn, or what all runs share, has changed since the search began.
        """
        trial = self._study.ask()
        try:
            setting = self._plan.setting({key: self._suggest(trial, key) for key in self._section.draw})
        except ValueError as error:  # Optuna's own
            raise ConfigError(
                f"{self._folder.path} was begun with another 'draw' ({error}); give the sweep another 'name'"
            ) from error
        if any(each.setting.name == setting.name for each in self.active):  # its runs are under way
            trial.set_user_attr(_DUPLICATE, True)
            self._study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
            self.num_done += 1
            return
        trial.set_user_attr(_SETTING, json.dumps(dict(setting.values)))
        self.settings[setting.name] = setting
        try:
            runs = self._plan.runs_of(setting)
        except SeqrlError as error:
            logger.warning("%s is not legal: %s", setting.name, error)
            self._fail(trial, setting, NOT_LEGAL)
            return
        try:
            self._folder.write_run_files(runs)
        except ConfigError:
            self._fail(trial, setting, "not run")
            raise
        self.active.append(_Trial(trial, setting, runs))

    def _suggest(self, trial: Any, key: str) -> Any:
        draw = self._section.draw[key]
        if draw.one_of is not None:
            return json.loads(trial.suggest_categorical(key, [json.dumps(value) for value in draw.one_of]))
        low, high = draw.ends
        if draw.is_integer:
            return trial.suggest_int(key, int(low), int(high), log=draw.is_log)
        return draw.rounded(trial.suggest_float(key, low, high, log=draw.is_log))

    def _params(self, setting: Setting) -> dict[str, Any]:
        """Return a setting as Optuna has it."""
        draws = self._section.draw
        return {key: json.dumps(v) if draws[key].one_of is not None else v for key, v in setting.values.items()}

    # -------------------------------------------------------------------------------------------- scores
    def move_on(self, pool: Pool) -> None:
        """Start the runs whose turn it is, and end the trials that have all their scores."""
        for each in [each for each in self.active if each.run.name not in pool.names]:
            while each in self.active and len(each.scores) < len(each.runs) and self._folder.is_finished(each.run):
                self._take(each)
            if each not in self.active:
                continue
            if len(each.scores) == len(each.runs):
                self._end(each, "complete", sum(each.scores) / len(each.scores))
            elif pool.has_room:
                pool.start(each.run)
        if time.monotonic() - self._watched > _WATCH_S:
            self._watched = time.monotonic()
            for each in self.active:
                if each.run.name in pool.names and not each.is_pruned and self._is_below(each):
                    each.is_pruned = True
                    pool.stop(each.run.name)

    def take(self, ended: Ended, teller: Teller) -> None:
        """Take note of a run that has ended."""
        each = next(each for each in self.active if each.run.name == ended.run.name)
        if each.is_pruned:
            self.notes[each.setting.name] = "pruned"
            teller.drop(ended, len(each.runs) - len(each.scores), "pruned")
            self._end(each, "pruned")
        elif not teller.tell(ended):
            teller.count(len(each.runs) - len(each.scores) - 1)
            self._fail(each.trial, each.setting, "failed")
            self.active.remove(each)

    def _take(self, each: _Trial) -> None:
        """Take the score of a run that is finished."""
        self._is_below(each)  # all its evaluations count for others
        score = self._folder.score(each.run)
        if score is None:
            self._folder.check_metric(each.run)
            self._fail(each.trial, each.setting, "no finite value")
            self.active.remove(each)
        else:
            each.scores.append(score)

    def _is_below(self, each: _Trial) -> bool:
        """Report the evaluations that are new, and return whether the trial should be pruned."""
        run = each.run
        points = merged(points_of(read_metrics(self._folder.run_path(run) / "metrics.jsonl"), self._section.metric, _X))
        begin = len(each.scores) * (run.config.train.num_epochs + 1)
        for epoch, value in points[:, :2]:
            place = begin + int(epoch)
            if epoch > 0 and value == value and place > each.place:  # the first evaluation is before all learning
                each.place = place
                each.trial.report((sum(each.scores) + value) / (len(each.scores) + 1), place)
        return bool(each.place >= begin and each.trial.should_prune())

    def _end(self, each: _Trial, state: str, value: float | None = None) -> None:
        self._study.tell(each.trial, value, state=self._optuna.trial.TrialState[state.upper()])
        self.active.remove(each)
        self.num_done += 1
        if state == "complete":
            self.notes.pop(each.setting.name, None)

    def _fail(self, trial: Any, setting: Setting, why: str) -> None:
        self.num_done += 1
        self.notes[setting.name] = why
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)


_X = AXES["epoch"]


def search(folder: SweepFolder, plan: Plan, jobs: int) -> tuple[list[Setting], dict[str, str], int]:
    """Search, and return all settings, notes on those without a score, and how many runs failed.

    Raises:
        RunInterrupted: After Ctrl-C, SIGTERM or SIGHUP; the runs under way have saved.
    """
    found = Search(folder, plan)
    total = plan.section.trials * len(plan.section.seed_list)
    with working(folder, plan, jobs, total) as (pool, teller, interrupt):
        teller.skip(found.num_done * len(plan.section.seed_list))
        while found.active or found.has_more:
            interrupt.check()
            while found.has_more and len(found.active) < jobs:
                found.ask()
            found.move_on(pool)
            for ended in pool.ended():
                found.take(ended, teller)
            teller.show(pool.names)
            time.sleep(POLL_S)
        interrupt.check()
    return list(found.settings.values()), found.notes, teller.num_failed
