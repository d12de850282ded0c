"""From a sweep file to runs: every setting is checked against the run file before anything starts."""

from __future__ import annotations

import copy
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqrl.configs import BaseConfig, apply_overrides, config_factory
from seqrl.configs.dotted import has_value, value_at
from seqrl.core.errors import ConfigError, SeqrlError
from seqrl.core.files import expanded
from seqrl.core.plugins import listed_plugins, load_plugins
from seqrl.core.seeding import generator
from seqrl.sweeps.naming import key_labels, setting_name
from seqrl.sweeps.sweep_file import SweepSection

logger = logging.getLogger(__name__)

_ATTEMPTS = 100
_TOLD = 5


@dataclass(frozen=True)
class Setting:
    """Values of the keys that vary.

    Attributes:
        name: That tells them.
        values: Dotted key -> JSON value.
    """

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        name: Of its folder.
        setting: What it is to show.
        seed: Of training.
        values: Its run file, as it is written.
        config: The same, with every default.
    """

    name: str
    setting: Setting
    seed: int
    values: Mapping[str, Any]
    config: BaseConfig


class Plan:
    """What a sweep file asks for.

    Args:
        section: The sweep file.
        base: Values of its base run.
        source: The sweep file's name, for messages.
        with_budget: From the values of a run file to those that its budget completes; None where there is no budget.

    Attributes:
        path: The sweep's folder.
        labels: Key that varies -> what it is called.
        settings: All of them; of a search by Optuna those that are known from the first.
        base_values: What the base run has for the keys that vary; None where it lacks one of them.

    Raises:
        ConfigError: If a setting is not legal, or two have the same name.
    """

    def __init__(
        self,
        section: SweepSection,
        base: Mapping[str, Any],
        source: str,
        with_budget: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self.section, self._source = section, source
        self._with_budget, self._completed = with_budget, dict[str, dict[str, Any]]()
        self.path = expanded(section.output_dir) / str(section.name)
        self.labels = key_labels(section.keys, section.names)
        self._base = copy.deepcopy(dict(base))
        self._dropped: set[str] = set()
        named = load_plugins(listed_plugins(self._base, f"{source}: base: "))
        if added := load_plugins(listed_plugins(section.set, f"{source}: set: ")):
            self._base["plugins"] = [*named, *added]
        if not isinstance(self._base.get("algo_name"), str):
            raise ConfigError(f"{source}: base: algo_name is required, to know which algorithm's run file this is")
        self._base_config: dict[str, Any] = {}
        try:
            self._base_config = self._config_of(section.set, section.seed_list[0], "base")[1].to_json()
        except ConfigError:
            if with_budget is None:
                raise  # else the settings may have what the budget needs, such as environments
        self.base_values = self._values_of_base()
        self.settings = [self.setting(values) for values in self._planned()]
        self._check(self.settings if section.search == "random" else [*self.settings, *self._edges()])

    def setting(self, values: Mapping[str, Any]) -> Setting:
        """Return the setting of values, in the order of the file's keys."""
        ordered = {key: values[key] for key in self.section.keys if key in values}
        return Setting(setting_name(ordered, self.labels), ordered)

    def runs_of(self, setting: Setting) -> list[SweepRun]:
        """Return the runs of a setting, one for each seed."""
        return [self._run(setting, seed) for seed in self.section.seed_list]

    def runs(self) -> list[SweepRun]:
        """Return the runs of all settings, seed by seed, so that what was run by any moment is comparable."""
        return [self._run(setting, seed) for seed in self.section.seed_list for setting in self.settings]

    def best_values(self, setting: Setting) -> dict[str, Any]:
        """Return a run file of a setting that stands for itself."""
        section = self.section
        values, _ = self._config_of({**section.set, **setting.values}, section.seed_list[0], f"{section.name}_best")
        kept = (self._base.get("experiment") or {}).get("output_dir")
        values["experiment"].pop("output_dir")
        return values | {"experiment": values["experiment"] | ({} if kept is None else {"output_dir": kept})}

    def is_base(self, setting: Setting) -> bool:
        """Tell whether a setting changes nothing."""
        section = self.section
        _, own = self._config_of({**section.set, **setting.values}, section.seed_list[0], "base")
        return own.to_json() == self._base_config

    def _run(self, setting: Setting, seed: int) -> SweepRun:
        name = f"{setting.name}_seed{seed}"
        values, config = self._config_of({**self.section.set, **setting.values}, seed, name)
        return SweepRun(name, setting, seed, values, config)

    def _config_of(self, changes: Mapping[str, Any], seed: int, name: str) -> tuple[dict[str, Any], BaseConfig]:
        """Return a run file and its config; a component or its type is set before its other keys."""
        values = copy.deepcopy(self._base)
        changes = {key: value for key, value in changes.items() if key != "plugins"}  # they are in the base by now
        ordered = sorted(changes.items(), key=lambda item: (item[0].count("."), not item[0].endswith(".type")))
        own = {"train.seed": seed, "experiment.name": name, "experiment.output_dir": str(self.path / "runs")}
        for note in set(apply_overrides(values, _texts(ordered))) - self._dropped:
            self._dropped.add(note)
            logger.info("note: %s", note)
        if self._with_budget is not None:
            key = json.dumps(values, sort_keys=True)
            if key not in self._completed:  # it makes the environment
                self._completed[key] = self._with_budget(values)
            values = copy.deepcopy(self._completed[key])
        apply_overrides(values, _texts(own.items()))
        return values, config_factory(str(values["algo_name"]), values, f"{self._source}: the run file")

    def _values_of_base(self) -> dict[str, Any] | None:
        if not all(has_value(self._base_config, key) for key in self.section.keys):
            return None
        return {key: value_at(self._base_config, key) for key in self.section.keys}

    # ---------------------------------------------------------------------------------------- settings
    def _planned(self) -> list[dict[str, Any]]:
        section = self.section
        if section.draw:
            first = self._first_trial()
            return self._drawn(first) if section.search == "random" else first
        cases = section.cases or [{}]
        products = itertools.product(*section.grid.values())
        combined = [dict(zip(section.grid, values, strict=True)) for values in products]
        return [{**case, **values} for case in cases for values in combined]

    def _first_trial(self) -> list[dict[str, Any]]:
        """Return the base run's own values, where they can be drawn: what a search has to beat."""
        base = self.base_values
        if base is not None and all(draw.holds(base[key]) for key, draw in self.section.draw.items()):
            return [base]
        logger.info("note: the base run's own values cannot be drawn, so they are not tried")
        return []

    def _drawn(self, first: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = {json.dumps(values): values for values in first}
        for trial in range(len(first), self.section.trials):
            for attempt in range(_ATTEMPTS):
                values = {
                    key: draw.draw(generator(self.section.seed, "draw", trial, attempt, key))
                    for key, draw in self.section.draw.items()
                }
                if json.dumps(values) not in found:
                    found[json.dumps(values)] = values
                    break
        if len(found) < self.section.trials:
            logger.info("note: only %d different settings were drawn, of %d", len(found), self.section.trials)
        return list(found.values())

    def _edges(self) -> list[Setting]:
        """Return settings in which each key has each of its extreme values, and the others their first."""
        edges = {key: draw.edges() for key, draw in self.section.draw.items()}
        first = {key: values[0] for key, values in edges.items()}
        return [self.setting({**first, key: value}) for key, values in edges.items() for value in values]

    def _check(self, settings: Sequence[Setting]) -> None:
        problems: dict[str, list[str]] = {}
        for setting in settings:
            try:
                self._run(setting, self.section.seed_list[0])
            except SeqrlError as error:
                problems.setdefault(str(error), []).append(setting.name)
        if problems:
            raise ConfigError(_told(problems, len(settings)))
        names = [setting.name for setting in self.settings]
        if again := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(f"{self._source}: two settings have the name {again}; take one of them out")


def _texts(changes: Iterable[tuple[str, Any]]) -> list[str]:
    """Return changes as ``--set`` takes them."""
    return [f"{key}={json.dumps(value)}" for key, value in changes]


def _told(problems: Mapping[str, Sequence[str]], num_settings: int) -> str:
    """Return each problem once, with the settings that have it."""
    lines = []
    for text, names in itertools.islice(problems.items(), _TOLD):
        more = f" and {len(names) - 1} more of {num_settings} settings" if len(names) > 1 else ""
        lines.append(f"{text}\n  in {names[0]}{more}")
    hidden = len(problems) - _TOLD
    return "\n".join([*lines, *([f"and {hidden} more problems"] if hidden > 0 else [])])
