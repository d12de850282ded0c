"""What ``seqrl compare`` finds out: scores of methods by task, their statistics, and what a reader has to be told."""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from seqrl.configs.dotted import has_value, value_at
from seqrl.core.errors import ConfigError, DataError, did_you_mean
from seqrl.core.seeding import generator
from seqrl.reports import statistics
from seqrl.reports.intervals import MIN_TEST, MIN_VALUES, Difference, Estimate, compare_means, strata
from seqrl.reports.runs import Method, Run, task_names
from seqrl.reports.series import Axis

logger = logging.getLogger(__name__)

NUM_THRESHOLDS = 101
_EVALUATION = "experiment.evaluation"
_RULES = (
    *(f"{_EVALUATION}.{key}" for key in ("deterministic", "max_steps", "max_steps_per_env", "terminate_on_success")),
    "env.reference_scores",
)
"""What other rules an evaluation can have."""
Range = tuple[float, float]


@dataclass(frozen=True)
class Options:
    """How methods are compared.

    Attributes:
        metric: Which one; more is better.
        x: Axis of the curves.
        at: Take the last evaluation up to here instead of the last one.
        ranges: Task -> what counts as 0 and as 1; the task ``""`` stands for all others.
        target: Of the optimality gap; None leaves it out.
        num_resamples: Of the bootstrap.
        seed: Of the bootstrap.
    """

    metric: str
    x: Axis
    at: float | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict)
    target: float | None = None
    num_resamples: int = 10_000
    seed: int = 0


@dataclass(frozen=True)
class Score:
    """What one run has reached on one task.

    Attributes:
        run: The run's folder.
        seed: Its seed.
        task: Name of the task.
        x: Where on the axis it was evaluated.
        value: The score, scaled to the task's range if there is one.
        curve: ``(N, 2)`` all evaluations up to there, scaled likewise.
    """

    run: str
    seed: int
    task: str
    x: float
    value: float
    curve: np.ndarray


@dataclass(frozen=True)
class MethodResult:
    """What is known of one method; arrays hold (estimate, low, high) in their last axis.

    Attributes:
        name: The method.
        scores: Of every run and task.
        aggregates: Statistic -> over all tasks.
        by_task: Task -> mean over runs.
        profile: ``(thresholds, 3)`` share of runs above each threshold.
        places: ``(P,)`` where the curve is known.
        curve: ``(P, 3)`` interquartile mean there.
    """

    name: str
    scores: Sequence[Score]
    aggregates: Mapping[str, Estimate]
    by_task: Mapping[str, Estimate]
    profile: np.ndarray
    places: np.ndarray
    curve: np.ndarray

    @property
    def num_runs(self) -> int:
        """How many runs there are; one of several tasks counts once."""
        return len({score.run for score in self.scores})


@dataclass(frozen=True)
class Comparison:
    """All that was found out.

    Attributes:
        options: How.
        tasks: Which every method has.
        methods: By name.
        improvement: (method, other) -> probability that the first beats the second.
        differences: (method, other) -> difference of their means.
        thresholds: Of the profiles.
        settings: Method -> settings in which it differs from those of its name, where that has only a number.
    """

    options: Options
    tasks: Sequence[str]
    methods: Sequence[MethodResult]
    improvement: Mapping[tuple[str, str], Estimate]
    differences: Mapping[tuple[str, str], Difference]
    thresholds: np.ndarray
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "metric": self.options.metric,
            "x": self.options.x.key,
            "at": self.options.at,
            "ranges": {task: list(limits) for task, limits in self.options.ranges.items()},
            "target": self.options.target,
            "resamples": self.options.num_resamples,
            "seed": self.options.seed,
            "tasks": list(self.tasks),
            "methods": {m.name: _method_json(m) for m in self.methods},
            "improvement": [{"better": x, "worse": y, **asdict(e)} for (x, y), e in self.improvement.items()],
            "differences": [{"first": x, "second": y, **asdict(d)} for (x, y), d in self.differences.items()],
            "thresholds": self.thresholds.tolist(),
            "settings": {name: list(settings) for name, settings in self.settings.items()},
        }


def _method_json(method: MethodResult) -> dict[str, Any]:
    return {
        "runs": [{k: v for k, v in vars(s).items() if k != "curve"} for s in method.scores],
        "aggregates": {name: asdict(e) for name, e in method.aggregates.items()},
        "mean_by_task": {name: asdict(e) for name, e in method.by_task.items()},
        "profile": _with_null(method.profile),
        "curve": {"x": method.places.tolist(), "iqm": _with_null(method.curve)},
    }


def _with_null(rows: np.ndarray) -> list[list[float | None]]:
    """Return rows as JSON values, null where there is no interval."""
    return [[float(x) if np.isfinite(x) else None for x in row] for row in rows]


def compare(methods: Sequence[Method], options: Options) -> Comparison:
    """Return the statistics of methods on the tasks that all of them have; warns of what a reader has to know.

    Raises:
        DataError: If no run has the metric, or no task is common to all methods.
    """
    scores = scores_of(methods, options)
    tasks = _common_tasks(scores)
    scores = {name: [s for s in found if s.task in tasks] for name, found in scores.items()}
    tables = {name: _table(found, tasks) for name, found in scores.items()}
    _warn(scores, tables, tasks, options)
    _warn_of_evaluations([run for method in methods for run in method.runs], scores)
    values = np.array([s.value for found in scores.values() for s in found])
    low, high = float(values.min()), float(values.max())
    margin = 0.02 * ((high - low) or 1.0)
    thresholds = np.linspace(low - margin, high + margin, NUM_THRESHOLDS)
    results = [_result(name, found, tables[name], tasks, thresholds, options) for name, found in scores.items()]
    names = list(tables)
    pairs = [(x, y) for i, x in enumerate(names) for y in names[i + 1 :]]
    improvement = {(x, y): statistics.estimate_improvement(tables[x], tables[y]) for x, y in pairs}
    differences = {(x, y): compare_means(tables[x], tables[y]) for x, y in pairs}
    settings = {method.name: method.settings for method in methods if method.settings and method.name in scores}
    return Comparison(options, tasks, results, improvement, differences, thresholds, settings)


def _result(
    name: str,
    scores: Sequence[Score],
    table: np.ndarray,
    tasks: Sequence[str],
    thresholds: np.ndarray,
    options: Options,
) -> MethodResult:
    num = options.num_resamples
    aggregates: dict[str, statistics.Statistic] = {
        "iqm": statistics.interquartile_mean,
        "median": statistics.median,
    }
    if options.target is not None:
        aggregates["optimality_gap"] = functools.partial(statistics.optimality_gap, target=options.target)
    curves = [s.curve for s in scores]
    places = statistics.common_places(curves)
    curve = np.empty((0, 3))
    if len(places):
        known = np.full((*table.shape, len(places)), np.nan)
        known[_cells(scores, tasks)] = statistics.interpolated(curves, places)
        curve = statistics.estimate_curve(known, num, generator(options.seed, "curve", name))

    def estimated(statistic: statistics.Statistic) -> Estimate:
        return statistics.estimate(table, statistic, num, generator(options.seed, "runs", name))

    means = [_bounded(statistics.estimate_mean(_table(scores, [task])), options) for task in tasks]
    return MethodResult(
        name=name,
        scores=scores,
        aggregates={"mean": _bounded(statistics.estimate_mean(table), options)}
        | {key: estimated(statistic) for key, statistic in aggregates.items()},
        by_task=dict(zip(tasks, means, strict=True)),
        profile=statistics.estimate_profile(table, thresholds),
        places=places,
        curve=curve,
    )


def _bounded(found: Estimate, options: Options) -> Estimate:
    """Return an estimate whose interval stays within what a success can be."""
    if found.low is None or found.high is None or not options.metric.endswith("success_mean") or options.ranges:
        return found
    return Estimate(found.value, max(found.low, 0.0), min(found.high, 1.0))


def _table(scores: Sequence[Score], tasks: Sequence[str]) -> np.ndarray:
    """Return scores as ``(runs, tasks)``, NaN where a run has no such task."""
    own = [s for s in scores if s.task in tasks]
    table = np.full((len({s.run for s in own}), len(tasks)), np.nan)
    table[_cells(own, tasks)] = [s.value for s in own]
    return table


def _cells(scores: Sequence[Score], tasks: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the row and the column of each score in their table."""
    rows = {run: row for row, run in enumerate(dict.fromkeys(s.run for s in scores))}
    return [rows[s.run] for s in scores], [tasks.index(s.task) for s in scores]


# --------------------------------------------------------------------------------------------- scores
def scores_of(methods: Sequence[Method], options: Options) -> dict[str, list[Score]]:
    """Return method -> score of every run and task; a run of several tasks has a score for each.

    Raises:
        DataError: If no run has the metric.
        ConfigError: If a range was given for a task that there is not.
    """
    runs = [run for method in methods for run in method.runs]
    names = dict(zip((id(run) for run in runs), task_names(runs), strict=True))
    keys = {id(run): _keys(run, options.metric, names[id(run)]) for run in runs}
    known = {task for own in keys.values() for task in own}
    for task in options.ranges:
        if task and task not in known:
            raise ConfigError(f"--range {task}=...: no such task{did_you_mean(task, known)}; {_listed(known)}")
    out: dict[str, list[Score]] = {}
    for method in methods:
        for run in method.runs:
            own = out.setdefault(method.name, [])
            try:
                own += [_score(run, task, key, options) for task, key in keys[id(run)].items()]
            except _NoScoreError as error:
                logger.warning("%s is left out: %s%s", run.path, error, _up_to(options))
    if not any(out.values()):
        logged = {k for run in runs for row in run.rows for k in row}
        near = "" if options.metric in logged else did_you_mean(options.metric, logged)
        have = ", ".join(sorted(k for k in logged if k.startswith(("eval/", "valid/")))[:12])
        raise DataError(
            f"no run has {options.metric!r}{_up_to(options)}{near or ';'} there are {have or 'no evaluations'}"
        )
    if not options.metric.startswith("eval/"):
        logger.warning(
            "%s is compared as if higher were better; of a loss, read the result the other way", options.metric
        )
    return {name: found for name, found in out.items() if found}


def _keys(run: Run, metric: str, name: str) -> dict[str, str]:
    """Return task -> key of the metric; with several tasks in one run, the keys of each."""
    group, _, leaf = metric.partition("/")
    inner = {k for row in run.rows for k in row if k.startswith(f"{group}/") and k.endswith(f"/{leaf}")} - {metric}
    if not inner:
        return {name: metric}
    full = {k[len(group) + 1 : -len(leaf) - 1]: k for k in sorted(inner)}
    short = {task.split("/")[-1]: k for task, k in full.items()}
    return short if len(short) == len(full) else full


class _NoScoreError(Exception):
    """A run has no last evaluation that is a number."""


def _score(run: Run, task: str, key: str, options: Options) -> Score:
    curve = run.points(key, options.x)
    curve = curve[curve[:, 0] <= (math.inf if options.at is None else options.at)]
    if not len(curve):
        raise _NoScoreError(f"it has no {key}")
    if not math.isfinite(curve[-1, 1]):
        raise _NoScoreError(f"its last {key} is no number")
    curve = curve[np.isfinite(curve[:, 1])]
    if limits := options.ranges.get(task, options.ranges.get("")):
        curve = np.column_stack([curve[:, 0], (curve[:, 1] - limits[0]) / (limits[1] - limits[0])])
    return Score(str(run.path), run.seed, task, float(curve[-1, 0]), float(curve[-1, 1]), curve)


def _up_to(options: Options) -> str:
    return "" if options.at is None else f" up to {options.at:g} {options.x.label}"


def _listed(names: set[str]) -> str:
    return "tasks: " + ", ".join(sorted(names))


def _common_tasks(scores: Mapping[str, Sequence[Score]]) -> list[str]:
    """Return the tasks that every method has.

    Raises:
        DataError: If there is none.
    """
    by_method = {name: {s.task for s in found} for name, found in scores.items()}
    common = set.intersection(*by_method.values())
    if not common:
        own = "; ".join(f"{name}: {', '.join(sorted(tasks))}" for name, tasks in by_method.items())
        raise DataError(f"no task is common to all methods ({own})")
    if dropped := sorted(set.union(*by_method.values()) - common):
        logger.warning("left out, because not every method has it: %s", ", ".join(dropped))
    return sorted(common)


def _warn_of_evaluations(runs: Sequence[Run], scores: Mapping[str, Sequence[Score]]) -> None:
    """Tell where the same task was played by other rules."""
    names = task_names(runs)
    used = {score.run for found in scores.values() for score in found}
    for task in dict.fromkeys(names):
        own = [run.config for run, name in zip(runs, names, strict=True) if name == task and str(run.path) in used]
        for key in _RULES:
            values = [json.dumps(value_at(config, key)) if has_value(config, key) else "null" for config in own]
            if len(set(values)) > 1:
                logger.warning("%s: runs differ in %s: %s", task, key, ", ".join(dict.fromkeys(values)))


def _warn(
    scores: Mapping[str, Sequence[Score]], tables: Mapping[str, np.ndarray], tasks: Sequence[str], options: Options
) -> None:
    for name, found in scores.items():
        fewest_alike = min(map(len, strata(tables[name])))
        if fewest_alike < MIN_VALUES <= np.isfinite(tables[name]).sum(0).min():
            logger.warning(
                "%s: intervals need %d runs of each set of tasks, and one set has %d; give all runs the same tasks, or "
                "one each", name, MIN_VALUES, fewest_alike,
            )  # fmt: skip
        seeds = {task: sorted(s.seed for s in found if s.task == task) for task in tasks}
        if (fewest := min(map(len, seeds.values()))) < MIN_TEST:
            logger.warning(
                "%s has %d run%s of a task: fewer than %d say little about a method",
                name, fewest, "" if fewest == 1 else "s", MIN_TEST,
            )  # fmt: skip
        if repeated := [task for task, own in seeds.items() if len(set(own)) < len(own)]:
            logger.warning("%s has runs of one seed twice (%s): they are not independent runs", name, repeated[0])
    ends = [s.x for found in scores.values() for s in found]
    if max(ends) > 1.05 * min(ends):
        logger.warning(
            "runs were last evaluated at %g to %g %s; --at X compares them at one point",
            min(ends), max(ends), options.x.label,
        )  # fmt: skip
    unscaled = [t for t in tasks if t not in options.ranges and "" not in options.ranges]
    if len(tasks) > 1 and unscaled and not options.metric.endswith("success_mean"):
        logger.warning("scores of several tasks are pooled as they are; --range TASK=LOW,HIGH brings them to one scale")
