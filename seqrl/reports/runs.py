"""Runs that are there: found, read, and grouped into methods whose runs differ in task and seed only."""

from __future__ import annotations

import copy
import glob
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqrl.configs.differences import differences, with_defaults
from seqrl.configs.dotted import value_at
from seqrl.core.checkpoint_card import CheckpointCard, find_checkpoint
from seqrl.core.errors import CheckpointError, ConfigError, DataError, did_you_mean
from seqrl.core.files import is_temporary
from seqrl.reports.series import Axis, Rows, points_of, read_metrics

logger = logging.getLogger(__name__)

MAX_DIFFERENCES = 3
_NOT_THE_METHOD = ("experiment", "plugins", "env", "format_version")
_NOT_THE_TRAINING = ("seed", "device", "num_threads", "prefetch_batches", "allow_nonfinite")


@dataclass(frozen=True)
class Run:
    """One run's folder.

    Attributes:
        path: The folder.
        config: Its run file, with the defaults of this version.
        rows: Lines of ``metrics.jsonl``.
        env_id: Environment, or the name of the data where there is none.
        env_kwargs: Its arguments.
    """

    path: Path
    config: dict[str, Any]
    rows: Rows
    env_id: str
    env_kwargs: dict[str, Any]

    @property
    def seed(self) -> int:
        """The seed of training."""
        return int(self.config.get("train", {}).get("seed", 0))

    def points(self, key: str, x: Axis) -> np.ndarray:
        """Return the points ``(N, 2)`` of a metric in the order of the axis, the last of each place.

        NaN where that was not finite.
        """
        points = points_of(self.rows, key, x)[:, :2]
        last: np.ndarray = points[np.append(np.diff(points[:, 0]) > 0, True)] if len(points) else points
        return last


def is_run(path: Path) -> bool:
    """Tell whether a folder is a run that has logged something."""
    return (path / "config.json").is_file() and (path / "metrics.jsonl").is_file()


def find_runs(path: str | Path) -> list[Path]:
    """Return the run that a folder is, or all runs in it and below, in the order of their names.

    Raises:
        ConfigError: If there is none.
    """
    path = Path(path)
    if is_run(path):
        return [path]
    files = [file for file in path.rglob("metrics.jsonl") if not any(map(is_temporary, file.relative_to(path).parts))]
    found = sorted(file.parent for file in files if is_run(file.parent))
    if found:
        return found
    if not path.exists():
        near = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise ConfigError(f"{path} does not exist{did_you_mean(path.name, near)}")
    raise ConfigError(f"{path} is not a run, and holds none (a run has config.json and metrics.jsonl)")


def read_run(path: Path) -> Run:
    """Return a run as its files say it.

    Raises:
        DataError: If its config is not a JSON object.
    """
    file = path / "config.json"
    try:
        config = with_defaults(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not readable ({error})") from error
    if not isinstance(config, dict) or not isinstance(config.get("algo_name"), str):
        raise DataError(f"{file}: is not the config of a run")
    if wrong := [key for key in ("env", "train", "algo") if not isinstance(config.get(key, {}), dict)]:
        raise DataError(f"{file}: {wrong[0]} must be an object, got {config[wrong[0]]!r}")
    env_id, env_kwargs = _environment(path, config)
    return Run(path, config, read_metrics(path / "metrics.jsonl"), env_id, env_kwargs)


def _environment(path: Path, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the environment of a run, from its config or else from its last checkpoint; the data's name if none.

    Its arguments are those of the evaluation.
    """
    env = config.get("env", {})
    kwargs = {**env.get("kwargs", {}), **(env.get("eval_kwargs") or {})}
    data: dict[str, Any] = (config.get("train", {}).get("data") or [{}])[0]
    if env_id := env.get("id") or data.get("scripted"):
        own = {} if env.get("id") else data.get("env_kwargs")
        return str(env_id), {**(own or {}), **kwargs}
    try:
        recorded = CheckpointCard(find_checkpoint(path), {}).json_object("card.json").get("env") or {}
    except CheckpointError:
        recorded = {}
    if recorded.get("id"):
        return str(recorded["id"]), {**recorded.get("kwargs", {}), **kwargs}
    return Path(str(data.get("path") or "unknown")).stem, {}


# -------------------------------------------------------------------------------------------- methods
@dataclass(frozen=True)
class Method:
    """Runs that differ in task and seed only, or that a person has put under one name.

    Attributes:
        name: Of it.
        runs: At least one.
        settings: What a number at the end of the name stands for: the settings in which it differs from its rivals.
    """

    name: str
    runs: Sequence[Run]
    settings: Sequence[str] = ()


def group_runs(arguments: Sequence[str]) -> list[Method]:
    """Return the methods that the arguments of a command name.

    Args:
        arguments: Folders of runs, or folders that hold runs, which are grouped by their configs; ``NAME=GLOB`` puts
            all runs that it finds under one name.

    Raises:
        ConfigError: If an argument finds no run, or finds one that another name has already.
    """
    named: dict[str, list[Run]] = {}
    loose: list[Run] = []
    seen: dict[Path, str] = {}
    for argument in arguments:
        label, pattern = _split_label(argument)
        for path in dict.fromkeys(_matches(pattern)):
            before = seen.setdefault(path.resolve(), label)
            if before != label:
                raise ConfigError(f"{path} belongs to {before or 'no label'!r} already, and {argument} names it again")
            group = named.setdefault(label, []) if label else loose
            if all(run.path.resolve() != path.resolve() for run in group):
                group.append(read_run(path))
    methods = [Method(name, runs) for name, runs in named.items()]
    return methods + _grouped(loose, taken=set(named))


def _split_label(argument: str) -> tuple[str, str]:
    """Return a label and a pattern; ``sweeps/lr=0.1_seed*`` is a pattern as a whole, as names of runs have ``=``."""
    label, equals, pattern = argument.partition("=")
    is_whole = not equals or "/" in label or Path(argument).exists() or bool(glob.glob(argument, recursive=True))
    return ("", argument) if is_whole else (label, pattern)


def _matches(pattern: str) -> list[Path]:
    """Return the runs in all that a pattern finds; folders that hold none are left out where others hold some.

    Raises:
        ConfigError: If there is no run.
    """
    found = [Path(name) for name in sorted(glob.glob(pattern, recursive=True)) if Path(name).is_dir()]
    if len(found) < 2:
        return find_runs(found[0] if found else pattern)
    runs: list[Path] = []
    without: list[ConfigError] = []
    for path in found:  # logs lie beside runs
        if any(is_run(parent) for parent in path.parents):
            continue
        try:
            runs += find_runs(path)
        except ConfigError as error:
            without.append(error)
    if without and not runs:
        raise without[0]
    if without:
        more = f", and {len(without) - 1} more" if len(without) > 1 else ""
        logger.warning("left out: %s%s", without[0], more)
    return runs


def _grouped(runs: Sequence[Run], taken: set[str]) -> list[Method]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(method_of(run), sort_keys=True), []).append(run)
    configs = [method_of(group[0]) for group in groups.values()]
    names = method_names(configs, taken)
    settings = [_told_below(config, configs) for config in configs]
    return [Method(*own) for own in zip(names, groups.values(), settings, strict=True)]


def method_of(run: Run) -> dict[str, Any]:
    """Return what of a run's config makes the method: all but seed, task, folder, logging and device."""
    config = copy.deepcopy({k: v for k, v in run.config.items() if k not in _NOT_THE_METHOD})
    train = config.get("train", {})
    for key in _NOT_THE_TRAINING:
        train.pop(key, None)
    for source in train.get("data") or []:
        source.pop("name", None)
        if source.get("scripted") == run.env_id:
            source["scripted"] = True
            source.pop("env_kwargs", None)
    (config.get("collect", {}).get("replay") or {}).pop("path", None)
    config.get("collect", {}).pop("engine", None)  # what "auto" came to depends on what is installed
    return config


def method_names(configs: Sequence[Mapping[str, Any]], taken: set[str] | None = None) -> list[str]:
    """Return a name for each method: algorithm and memory, and the settings in which those of one name differ."""
    bases = [_base_name(config) for config in configs]
    names = []
    for i, base in enumerate(bases):
        paths = _differing(configs[i], configs)
        if len(paths) > MAX_DIFFERENCES:
            names.append(f"{base} {1 + bases[:i].count(base)}")
        else:
            settings = [f"{_short_key(path)}={_value(configs[i], path)}" for path in paths]
            names.append(" ".join([base, ", ".join(settings)]).strip())
    names = [f"{name} {1 + names[:i].count(name)}" if names.count(name) > 1 else name for i, name in enumerate(names)]
    return [f"{name} (config)" if name in (taken or ()) else name for name in names]


def _short_key(path: str) -> str:
    """Return a setting's last name; `type` says nothing without the section it belongs to."""
    return ".".join(path.split(".")[-2 if path.endswith(".type") else -1 :])


def _differing(config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings in which a method differs from the others of its algorithm and memory."""
    rivals = [other for other in configs if _base_name(other) == _base_name(config)]
    return sorted({path for rival in rivals for path, _, _ in differences(dict(config), dict(rival))})


def _told_below(config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that are too many for the method's name, each with its value."""
    paths = _differing(config, configs)
    return [f"{path}={_value(config, path)}" for path in paths] if len(paths) > MAX_DIFFERENCES else []


def _base_name(config: Mapping[str, Any]) -> str:
    memory = (config.get("algo", {}).get("sequence_encoder") or {}).get("type")
    return f"{config.get('algo_name', 'unknown')} {memory or ''}".strip()


def _value(config: Any, path: str) -> str:
    text = json.dumps(value_at(config, path))
    return text if len(text) <= 32 else f"{text[:9]}...{text[-20:]}"


# ---------------------------------------------------------------------------------------------- tasks
def task_names(runs: Sequence[Run]) -> list[str]:
    """Return a task for each run: the last part of the environment's id, and the arguments in which tasks differ."""
    names = []
    for run in runs:
        others = [r.env_kwargs for r in runs if r.env_id == run.env_id]
        keys = sorted({k for kwargs in others for k in (kwargs.keys() | run.env_kwargs.keys())})
        told = [k for k in keys if any(kwargs.get(k) != run.env_kwargs.get(k) for kwargs in others)]
        short = run.env_id.split(":")[-1].split("/")[-1]
        names.append(" ".join([short, *(f"{k}={json.dumps(run.env_kwargs.get(k))}" for k in told)]))
    return names
