"""The run file: one config class per algorithm, JSON on disk, resolved against packaged templates."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from seqrl.configs.building import build_section
from seqrl.configs.robomimic import is_robomimic
from seqrl.configs.section import Section
from seqrl.configs.sections.algo import AlgoSection
from seqrl.configs.sections.run import (
    CollectSection,
    EnvSection,
    ExperimentSection,
    ObservationSection,
    TrainSection,
)
from seqrl.core.errors import ConfigError, did_you_mean, format_problem
from seqrl.core.registry import Registry
from seqrl.core.strict_json import parse_json

FORMAT_VERSION = 1

CONFIGS: Registry[type[BaseConfig]] = Registry("algorithm")
"""Config classes by algorithm name."""


class BaseConfig(Section):
    """What every run file has. Subclasses add the section ``algo``."""

    algo_name: str = Field("", description="Which algorithm; fixed by the config class.")
    format_version: int = Field(FORMAT_VERSION, ge=1, le=FORMAT_VERSION, description="Version of this file's format.")
    plugins: list[str] = Field([], description="Python files or modules to import first.")
    experiment: ExperimentSection = ExperimentSection()
    env: EnvSection = EnvSection()
    train: TrainSection = TrainSection()
    collect: CollectSection = CollectSection()
    observation: ObservationSection = ObservationSection()
    algo: AlgoSection

    @model_validator(mode="after")
    def _follows_the_replay_ratio(self) -> BaseConfig:
        ratio, collect = self.train.replay_ratio, self.collect
        if ratio is None:
            return self
        if not collect.steps_per_epoch:
            raise ValueError("train.replay_ratio is for runs that collect: set collect.steps_per_epoch")
        steps = max(1, round(ratio * collect.steps_per_epoch * collect.num_envs))
        given = self.train.steps_per_epoch
        if "steps_per_epoch" in self.train.model_fields_set and given != steps:
            raise ValueError(
                f"train.replay_ratio {ratio} makes {steps} gradient steps per epoch, train.steps_per_epoch is {given}: "
                "give one of the two (null turns the ratio off)"
            )
        self.train.steps_per_epoch = steps
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the whole config as plain JSON values."""
        return self.model_dump(mode="json", serialize_as_any=True)


def register_config(name: str) -> Any:
    """Return a decorator that makes a config class the one of algorithm ``name``.

    The decorator raises a ConfigError if the section ``algo`` of the class is no ``AlgoSection``.
    """

    def decorate(cls: type[BaseConfig]) -> type[BaseConfig]:
        section = cls.model_fields["algo"].annotation
        if not (isinstance(section, type) and issubclass(section, AlgoSection)):
            raise ConfigError(
                f"{cls.__name__}.algo: {section} must be a subclass of seqrl.configs.sections.algo.AlgoSection, "
                "which defines the memory and the optimiser"
            )
        cls.model_fields["algo_name"].default = name
        cls.model_rebuild(force=True)
        return CONFIGS.register(name)(cls)  # type: ignore[no-any-return]

    return decorate


def config_factory(algo_name: str, values: Mapping[str, Any] | None = None, source: str = "config") -> BaseConfig:
    """Return the config of an algorithm, with ``values`` over its defaults.

    Args:
        algo_name: Registered name.
        values: Nested dict with any subset of the keys.
        source: Where the values come from, for error messages.

    Raises:
        RegistryError: If the algorithm is unknown.
        ConfigError: That lists every problem of ``values``.
    """
    values = dict(values or {})
    if is_robomimic(values):
        raise ConfigError(
            f"{source}: this is a robomimic run file; convert it with: seqrl convert-config {source} mine.json"
        )
    cls = CONFIGS.get(algo_name)
    named = values.setdefault("algo_name", algo_name)
    if named != algo_name:
        raise ConfigError(f"{source}: algo_name is {named!r}, but algorithm {algo_name!r} was asked for")
    version = values.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:  # its other keys may be new as well
        raise ConfigError(f"{source}: {format_problem('format_version', version, FORMAT_VERSION)}")
    return build_section(cls, values, source)  # type: ignore[no-any-return]


def get_all_registered_configs() -> dict[str, type[BaseConfig]]:
    """Return algorithm name -> config class."""
    return {name: CONFIGS.get(name) for name in CONFIGS.names()}


def template_names() -> list[str]:
    """Return the file names of the packaged templates."""
    folder = resources.files("seqrl.configs").joinpath("templates")
    return sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))


def read_config_values(path: str) -> dict[str, Any]:
    """Return the JSON object of a run file; a bare name that is no file names a packaged template.

    Raises:
        ConfigError: If there is no such file or template, or it is not a JSON object.
    """
    file = Path(path)
    if file.is_file():
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read as text ({error})") from error
    elif path in template_names():
        text = resources.files("seqrl.configs").joinpath("templates").joinpath(path).read_text(encoding="utf-8")
    else:
        legal, what = template_names(), "is a folder" if file.is_dir() else "no such file"
        raise ConfigError(f"{path}: {what}{did_you_mean(path, legal) or ';'} packaged templates: {', '.join(legal)}")
    try:
        values = parse_json(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a JSON object, got {type(values).__name__}")
    return values
