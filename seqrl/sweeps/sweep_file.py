"""The sweep file: what is varied, over which seeds, and what counts."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from seqrl.configs import Section, read_config_values
from seqrl.configs.building import build_section
from seqrl.configs.section import FOLDER_NAME
from seqrl.core.errors import ConfigError
from seqrl.reports.sweep_scores import SCORE_PREFIXES

Range = Annotated[list[float], Field(min_length=2, max_length=2)]
IntegerRange = Annotated[list[int], Field(min_length=2, max_length=2)]
SETTINGS_OF_THE_SWEEP = {
    "train.seed": "give 'seeds'",
    "experiment.name": "every run gets a name of its own",
    "experiment.output_dir": "give the sweep's own 'output_dir'",
}
DIGITS = 4


class DrawSection(Section):
    """One distribution; numbers are rounded to four digits."""

    uniform: Range | None = Field(None, description="Lowest and highest number.")
    log_uniform: Range | None = Field(None, description="The same, uniform in the logarithm.")
    integer: IntegerRange | None = Field(None, description="Lowest and highest whole number, both included.")
    log_integer: IntegerRange | None = Field(None, description="The same, uniform in the logarithm.")
    one_of: list[Any] | None = Field(None, min_length=1, description="Any values, equally likely.")

    @model_validator(mode="after")
    def _one_that_can_be_drawn(self) -> DrawSection:
        kinds = type(self).model_fields
        if len(given := [kind for kind in kinds if getattr(self, kind) is not None]) != 1:
            raise ValueError(f"give exactly one of {', '.join(kinds)}, got {', '.join(given) or 'none'}")
        if self.one_of is not None:
            _refuse_twice("one_of", self.one_of)
            return self
        low, high = self.ends
        if not low < high:
            raise ValueError(f"the lowest number must be below the highest, got [{low:g}, {high:g}]")
        if self.is_log and low <= 0:
            raise ValueError(f"{given[0]} needs numbers above 0, got {low:g}")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """Lowest and highest number, where there are numbers."""
        low, high = self.uniform or self.log_uniform or self.integer or self.log_integer or (math.nan, math.nan)
        return low, high

    @property
    def is_log(self) -> bool:
        """Whether it is even in the logarithm."""
        return self.log_uniform is not None or self.log_integer is not None

    @property
    def is_integer(self) -> bool:
        """Whether it yields whole numbers."""
        return self.integer is not None or self.log_integer is not None

    def edges(self) -> list[Any]:
        """Return the values that have to be legal: all of one_of, or both ends."""
        return list(self.one_of) if self.one_of is not None else list(map(self.rounded, self.ends))

    def draw(self, rng: np.random.Generator) -> Any:
        """Return a value."""
        if self.one_of is not None:
            return self.one_of[int(rng.integers(len(self.one_of)))]
        low, high = self.ends
        end = high + 1 if self.is_integer else high
        share = float(rng.random())
        value = low * (end / low) ** share if self.is_log else low + (end - low) * share
        return self.rounded(math.floor(value) if self.is_integer else value)

    def rounded(self, value: float) -> float | int:
        """Return a number as runs get it, within the range."""
        low, high = self.ends
        exact = int(value) if self.is_integer else float(f"{value:.{DIGITS}g}")
        return min(max(exact, low), high)

    def holds(self, value: Any) -> bool:
        """Tell whether a value can be drawn."""
        if self.one_of is not None:
            return json.dumps(value) in map(json.dumps, self.one_of)
        is_number = isinstance(value, int if self.is_integer else int | float) and not isinstance(value, bool)
        return is_number and self.ends[0] <= value <= self.ends[1]


class SweepSection(Section):
    """A base run, and what changes from run to run."""

    name: str | None = Field(
        None, pattern=FOLDER_NAME, description="Name of the sweep's folder; null takes the name of the file."
    )
    output_dir: str = Field("sweeps", description="Folder that holds the sweep's folder.")
    base: str | dict[str, Any] = Field(description="Run file (beside the sweep file, or a template), or what it holds.")
    env_steps: PositiveInt | None = Field(
        None, description="Budget of environment steps of each run: what depends on it is worked out for each setting."
    )
    gradient_steps: PositiveInt | None = Field(None, description="The same for fixed data, in gradient steps.")
    set: dict[str, Any] = Field({}, description="Keys of the run file that all runs change: dotted key -> value.")
    grid: dict[str, list[Any]] = Field({}, description="Dotted key -> values; every combination is a setting.")
    cases: list[dict[str, Any]] = Field(
        [], description="Settings of several keys that belong together; each is combined with every one of the grid."
    )
    draw: dict[str, DrawSection] = Field({}, description="Dotted key -> distribution, instead of a grid.")
    trials: PositiveInt = Field(20, description="Settings that are drawn.")
    search: Literal["random", "optuna"] = Field("random", description="Who draws: chance, or Optuna by the scores.")
    prune_after: NonNegativeInt | None = Field(
        1, description="Epochs after which Optuna may stop a run that is below the median; null stops none."
    )
    seeds: NonNegativeInt | list[NonNegativeInt] = Field(1, description="How many seeds, or which.")
    seed: NonNegativeInt = Field(0, description="Seed of what is drawn.")
    metric: str = Field("eval/return_mean", description="Key in metrics.jsonl; the last evaluation is the run's score.")
    direction: Literal["max", "min"] = Field("max", description="Whether more or less of the metric is better.")
    names: dict[str, str] = Field({}, description="Dotted key -> what it is called in names and tables.")
    slurm: dict[str, Any] = Field(
        {}, description="What submitit passes to SLURM: timeout_min, mem_gb, cpus_per_task, partition, ..."
    )

    @field_validator("metric")
    @classmethod
    def _is_a_score(cls, metric: str) -> str:
        if not metric.startswith(SCORE_PREFIXES):
            raise ValueError(f"{metric!r} must begin with one of {', '.join(SCORE_PREFIXES)}, such as eval/return_mean")
        return metric

    @model_validator(mode="after")
    def _fits_together(self) -> SweepSection:
        if self.draw and (self.grid or self.cases):
            raise ValueError("give 'draw', or 'grid' and 'cases', not both; 'one_of' draws from listed values")
        if not self.draw and (alone := sorted({"trials", "search", "prune_after"} & self.model_fields_set)):
            raise ValueError(f"'{alone[0]}' is for 'draw', and nothing is drawn")
        if not self.seed_list:
            raise ValueError("seeds must be at least one")
        _refuse_twice("seeds", self.seed_list)
        for key, values in self.grid.items():
            if not values:
                raise ValueError(f"grid.{key} must have at least one value")
            _refuse_twice(f"grid.{key}", values)
        in_cases = {key for case in self.cases for key in case}
        varied = {*in_cases, *self.grid, *self.draw}
        if own := sorted({*self.set, *varied} & SETTINGS_OF_THE_SWEEP.keys()):
            raise ValueError(f"{own[0]} is not for a sweep to set: {SETTINGS_OF_THE_SWEEP[own[0]]}")
        if "plugins" in varied:
            raise ValueError("plugins cannot vary: list all of them in 'set'")
        if both := (self.set.keys() & varied) | (self.grid.keys() & in_cases):
            raise ValueError(f"{min(both)} is given twice")
        if unknown := sorted(self.names.keys() - set(self.keys)):
            raise ValueError(f"names.{unknown[0]}: nothing varies that key")
        return self

    @property
    def seed_list(self) -> list[int]:
        """All seeds."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)

    @property
    def keys(self) -> list[str]:
        """All keys that vary, in the order of the file."""
        return list(dict.fromkeys([*(k for case in self.cases for k in case), *self.grid, *self.draw]))


def _refuse_twice(key: str, values: list[Any]) -> None:
    texts = [json.dumps(value, sort_keys=True) for value in values]
    if again := next((text for text in texts if texts.count(text) > 1), None):
        raise ValueError(f"{key}: {again} is given twice")


def read_sweep(file: str) -> tuple[SweepSection, dict[str, Any]]:
    """Return a sweep file, with a name, and the values of its base run.

    Raises:
        ConfigError: That lists everything that is wrong with the sweep file, or names a base that is not there.
    """
    values = read_config_values(file)
    if "algo_name" in values:
        raise ConfigError(f'{file} is a run file; name it in a sweep file: {{"base": {json.dumps(file)}, "grid": ...}}')
    section: SweepSection = build_section(SweepSection, values, file)
    if section.name is None:
        name = Path(file).stem
        if not re.match(FOLDER_NAME, name):
            raise ConfigError(f"{file}: its name cannot be that of a folder of runs; give 'name', or rename the file")
        section.name = name
    if isinstance(section.base, dict):
        return section, section.base
    beside = Path(file).parent / section.base
    return section, read_config_values(str(beside) if beside.is_file() else section.base)
