"""What the command line does, in one call each: train, evaluate, and look at runs and data."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import gymnasium as gym
import numpy as np

import seqrl.envs  # noqa: F401  (registers the built-in environments)
from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError, did_you_mean
from seqrl.core.files import expanded
from seqrl.core.plugins import Plugins, load_plugins, plugin_names
from seqrl.envs.makers import id_of_maker

if TYPE_CHECKING:
    from PIL.Image import Image

    from seqrl.algo import RolloutPolicy
    from seqrl.data.store import Store
    from seqrl.training.callbacks import Callback

Environment = str | Callable[..., gym.Env[Any, Any]]


class Run:
    """A run's folder: its metrics, pictures and policies.

    Args:
        path: The folder.

    Raises:
        ConfigError: If it is no run.
    """

    def __init__(self, path: str | Path) -> None:
        from seqrl.reports.runs import is_run

        self.path = expanded(path)
        if not is_run(self.path):
            raise ConfigError(f"{path} is not a run (a run has config.json and metrics.jsonl)")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def config(self) -> dict[str, Any]:
        """The run file, with all defaults."""
        from seqrl.reports.runs import read_run

        return read_run(self.path).config

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """All that was logged so far: name -> ``(N,)`` float64, one number for each line, NaN where it has none.

        ``step`` counts gradient steps. ``pandas.DataFrame(run.metrics)`` is a table.
        """
        from seqrl.reports.series import read_metrics

        rows = read_metrics(self.path / "metrics.jsonl")
        names = dict.fromkeys(name for row in rows for name in row)
        numbers = {name: [row.get(name) for row in rows] for name in names}
        return {
            name: np.array([np.nan if v is None else v for v in column], np.float64) for name, column in numbers.items()
        }

    def last(self, name: str) -> float:
        """Return the last finite number of a metric.

        Raises:
            ConfigError: If there is none.
        """
        metrics = self.metrics
        if name not in metrics:
            raise ConfigError(f"{self.path} has no metric {name!r}{did_you_mean(name, metrics)}")
        finite = metrics[name][np.isfinite(metrics[name])]
        if not len(finite):
            raise ConfigError(f"{self.path}: no value of {name!r} is finite")
        return float(finite[-1])

    def plot(self, *names: str, x: str | None = None, smooth: float = 0.0, file: str | Path | None = None) -> Image:
        """Return a picture of metrics, which a notebook shows; ``.show()`` opens it and ``.save(file)`` keeps it.

        Args:
            names: Metrics, a panel each; ``*`` stands for anything. Without any: success, return and losses.
            x: ``env_steps``, ``gradient_steps``, ``epoch`` or ``wall_s``; None takes environment steps if there were
                any.
            smooth: Weight of the past in a moving average, in [0, 1).
            file: Write it here, too (``.png``).

        Raises:
            ConfigError: If a metric was never logged.
        """
        import PIL.Image

        from seqrl.reports.series import AXES
        from seqrl.scripts.plot import draw

        if x is not None and x not in AXES:
            raise ConfigError(f"x is one of {', '.join(AXES)}, got {x!r}")
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "plot.png" if file is None else Path(file)
            words = ["--output", str(target), "--overwrite", "--smooth", str(smooth)]
            words += ["--keys", ",".join(names)] if names else []
            words += ["--x", x] if x else []
            draw([str(self.path), *words])
            with PIL.Image.open(target) as image:
                copy: Image = image.copy()
        return copy

    def policy(
        self,
        checkpoint: str = "last",
        *,
        device: str = "auto",
        deterministic: bool | None = None,
        plugins: Plugins = (),
    ) -> RolloutPolicy:
        """Return a policy of the run.

        Args:
            checkpoint: ``last``, ``best_success``, ``epoch_000010``: a folder in the run or among its checkpoints.
            device: Where it computes.
            deterministic: Act greedily; False samples, None does what the run's evaluations did.
            plugins: Files or modules to import first.
        """
        from seqrl.algo import policy_from_checkpoint

        inner = self.path / "checkpoints" / checkpoint
        path = inner if inner.exists() else self.path / checkpoint
        if not path.exists():
            names = sorted(p.name for p in (self.path / "checkpoints").glob("*"))
            raise ConfigError(
                f"{self.path} has no checkpoint {checkpoint!r}{did_you_mean(checkpoint, names)}; it has: "
                f"{', '.join(names) or 'none'}"
            )
        return policy_from_checkpoint(path, device=device, deterministic=deterministic, plugins=plugins)[0]

    def evaluate(self, episodes: int = 100, **options: Any) -> dict[str, float]:
        """Return what the last policy reaches; see :func:`evaluate`."""
        return evaluate(self.path, episodes, **options)


def train(
    config: str | Path | Mapping[str, Any] | BaseConfig,
    *,
    env: Environment | Mapping[str, Any] | None = None,
    dataset: str | Path | Store | Mapping[str, Any] | None = None,
    memory: str | None = None,
    env_steps: int | None = None,
    gradient_steps: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    plugins: Plugins = (),
    callbacks: Callback | Iterable[Callback] = (),
    resume: bool = False,
    overwrite: bool = False,
    verbose: bool = True,
    **overrides: Any,
) -> Run:
    """Train as ``seqrl train`` does, and return the run.

    Args:
        config: An algorithm's name, for its defaults; a run file, or the name of a template such as ``bc.json``; or
            the values of a run file.
        env: Where to act: a gymnasium id, what makes the environment, such as its class, or the section ``env``.
        dataset: Data file or store in place of the run file's; or one entry of ``train.data``, as a mapping.
        memory: ``algo.sequence_encoder.type``.
        env_steps: Work out everything that depends on a budget of environment steps.
        gradient_steps: The same for fixed data.
        seed: ``train.seed``, which is 0 unless the run file sets another.
        name: Of the run's folder.
        plugins: Files or modules to import first.
        callbacks: Called at certain moments; one, or several.
        resume: Go on with the run that is in the folder.
        overwrite: Replace it.
        verbose: Print the summary, a line for each evaluation, and a bar.
        overrides: Of the run file, section by section: ``train={"batch_size": 16}``.

    Raises:
        SeqrlError: If anything cannot be done as it was asked for.
    """
    from seqrl.scripts.train import parser, resolve_config
    from seqrl.training.experiment import Experiment

    overrides = _sections(overrides, env)
    env_id = env if env is None or isinstance(env, str | Mapping) else id_of_maker(env)
    given: dict[str, Any] = {"env": env_id, "memory": memory, "seed": seed, "name": name}
    given["dataset"] = _dataset_word(dataset)
    given |= {"env-steps": env_steps, "gradient-steps": gradient_steps, "resume": resume or None}
    values = None
    if isinstance(config, BaseConfig | Mapping):
        values = json.loads(_as_json(config.to_json() if isinstance(config, BaseConfig) else config))
    else:
        given["config" if str(config).endswith(".json") else "algo"] = config
    says = partial(print, file=sys.stderr) if verbose else (lambda _: None)
    resolved, notes = resolve_config(_parsed(parser(), _words(given, plugins, overrides)), values, says=says)
    run = Experiment(resolved, callbacks=callbacks, resume=resume, overwrite=overwrite, verbose=verbose)
    for note in notes:
        run.run_log.write(note)
    run.start()
    run.learn()
    return Run(run.folder.path)


def _dataset_word(dataset: Any) -> Any:
    """Return what one would type behind ``--dataset``."""
    if isinstance(dataset, list | tuple):
        raise ConfigError("dataset: give several as train={'data': [{'path': ...}, {'path': ...}]}")
    return _as_json(dataset) if isinstance(dataset, Mapping) else getattr(dataset, "path", dataset)


def _sections(overrides: Mapping[str, Any], env: Any) -> dict[str, Any]:
    """Return what changes the run file, with ``env`` if that is given as a section of it.

    Raises:
        ConfigError: If a name is none of its sections.
    """
    for name in overrides:
        if name.partition(".")[0] not in BaseConfig.model_fields:
            legal = [*inspect.signature(train).parameters, *BaseConfig.model_fields]
            near = did_you_mean(name, legal)
            raise ConfigError(f"{name!r} is neither an argument of seqrl.train nor a section of the run file{near}")
    world = {"env": env} if isinstance(env, Mapping) else {}
    return {**overrides, **world}


def _words(given: Mapping[str, Any], plugins: Plugins, overrides: Mapping[str, Any]) -> list[str]:
    """Return what one would type behind ``seqrl train``."""
    told = {option: value for option, value in given.items() if not isinstance(value, Mapping | None)}
    words = [f"--{option}" if value is True else f"--{option}={value}" for option, value in told.items()]
    words += [f"--plugin={plugin}" for plugin in plugin_names(plugins)]
    return words + [f"--set={key}={_as_json(value)}" for key, value in _flat(overrides)]


def _as_json(value: Any) -> str:
    """Return JSON; paths are their names, and numbers of numpy are numbers.

    Raises:
        ConfigError: If something else in it is not JSON.
    """

    def plain(inner: Any) -> Any:
        if isinstance(inner, os.PathLike):
            return os.fspath(inner)
        if isinstance(inner, np.generic | np.ndarray):
            return inner.tolist()
        raise ConfigError(f"{inner!r} is not JSON: a run file holds numbers, text, lists, dicts, true, false and null")

    return json.dumps(value, default=plain)


def _parsed(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Return the arguments; a mistake is an error instead of the end of the process."""

    def refuse(message: str) -> NoReturn:
        raise ConfigError(message)

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args(words)


def evaluate(
    agent: str | Path | Run,
    episodes: int = 100,
    *,
    env: Environment | None = None,
    num_envs: int = 20,
    seed: int = 0,
    deterministic: bool | None = None,
    device: str = "auto",
    plugins: Plugins = (),
) -> dict[str, float]:
    """Play episodes with a trained policy, and return metrics with their 95 % intervals.

    Args:
        agent: A checkpoint, a run's folder (its last checkpoint), or a run.
        episodes: How many; at least one of each task.
        env: Another environment than that of training: a gymnasium id, or what makes it.
        num_envs: Environments stepped at once.
        seed: Of the environments and of a policy that samples.
        deterministic: Act greedily; False samples, None does what the run's evaluations did.
        device: Where the policy computes.
        plugins: Files or modules to import first.

    Raises:
        CheckpointError: If the checkpoint is damaged or names no environment.
        EnvError: If the environment does not fit the policy.
    """
    from seqrl.algo.checkpoint import load_algo, read_checkpoint
    from seqrl.rollout.from_checkpoint import env_for_policy, makers_by_rules, played

    if not isinstance(agent, str | os.PathLike | Run):
        raise ConfigError(f"a run, a checkpoint or its path is needed, not {type(agent).__name__}")
    are_whole = all(float(number).is_integer() for number in (episodes, num_envs, seed))
    if not are_whole or episodes < 1 or num_envs < 1 or seed < 0:
        raise ConfigError(
            f"episodes, num_envs and seed are {episodes}, {num_envs} and {seed}: whole numbers, "
            "at least 1, 1 and 0 are needed"
        )
    episodes, num_envs, seed = int(episodes), int(num_envs), int(seed)
    named = load_plugins(plugins)
    checkpoint = read_checkpoint(agent.path if isinstance(agent, Run) else agent)
    algo, _, _ = load_algo(checkpoint, device)
    env_id = env if env is None or isinstance(env, str) else id_of_maker(env)
    makers: Any = makers_by_rules(checkpoint, algo.config, env_id=env_id, plugins=tuple(named))
    with env_for_policy(algo, makers, min(num_envs, episodes), makers[0].args[0]) as environments:
        return played(algo, environments, episodes, seed=seed, deterministic=deterministic)


def load_dataset(
    path: str | Path,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    image_size: tuple[int, int] | None = None,
    dones_mean: Literal["terminated", "truncated"] = "terminated",
    action_keys: Sequence[str] | None = None,
    action_rotations: Mapping[str, str] | None = None,
) -> Store:
    """Open data: a store, or a file that becomes one when it is first opened.

    ``len(data)`` counts its episodes; ``data.trajectory(i)`` and ``data.trajectories()`` read them.

    Args:
        path: A robomimic file, a store, or what a registered reader can read.
        format: Name of the reader; None takes the first that can read it.
        columns: What the arrays are: ``obs/NAME``, ``actions``, ``rewards``, ... -> name of an array.
        image_size: Height and width to which images of LeRobot are reduced.
        dones_mean: What a 1 in ``dones`` of a file means.
        action_keys: Columns of a robomimic file that make up the action.
        action_rotations: Those of them that are rotations -> their form in the file.

    Raises:
        ConfigError: If an option is not legal.
        DataError: If it cannot be read.
    """
    from seqrl.configs.building import build_section
    from seqrl.configs.sections.run import DataSection
    from seqrl.data.ingest import open_store

    given: dict[str, Any] = {
        "columns": None if columns is None else dict(columns),
        "image_size": None if image_size is None else list(image_size),
        "dones_mean": dones_mean,
        "action_keys": action_keys if action_keys is None or isinstance(action_keys, str) else list(action_keys),
        "action_rotations": None if action_rotations is None else dict(action_rotations),
    }
    section = build_section(DataSection, {"path": str(path), "format": format, **given}, "load_dataset")
    return open_store(str(path), section.reader_options(), format=format)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys of a run file, joined by dots, and their values; a mapping with a ``type`` is a value.

    An empty mapping for a whole section of the file changes nothing.
    """
    for name, value in values.items():
        if isinstance(value, Mapping) and not value and not prefix:
            continue
        if isinstance(value, Mapping) and value and "type" not in value and not name.endswith("kwargs"):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
