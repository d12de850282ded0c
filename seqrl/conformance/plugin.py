"""Finds what a plug-in registers, and runs the checks that fit."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym

import seqrl.data.ingest  # noqa: F401  (registers readers)
from seqrl.algo import ALGOS
from seqrl.configs.base_config import CONFIGS
from seqrl.conformance import (
    algorithms,
    components,
    distributions,
    environments,
    explorations,
    memories,
    timestep_encoders,
)
from seqrl.conformance.algorithms import AlgoCase
from seqrl.conformance.cases import ACTION_SPACES
from seqrl.conformance.check import Case, Check, ConformanceError, located
from seqrl.core import registry
from seqrl.core.errors import ConfigError, PluginError, SeqrlError
from seqrl.core.plugins import load_plugins
from seqrl.core.registry import DISTRIBUTIONS, EXPLORATIONS, MODALITIES, SEQUENCE_ENCODERS, TIMESTEP_ENCODERS, Registry
from seqrl.data.readers import READERS
from seqrl.envs.experts import EXPERTS
from seqrl.envs.suites import SUITES, Suite
from seqrl.models.timestep_encoders import TEXT_FUNCTIONS

ENVIRONMENT = "environment"
MEMORIES = ("transformer", "gru")
"""What the algorithm of a plug-in is checked with."""


_TABLES: dict[str, tuple[Mapping[str, Check[Any]], Callable[[str], Sequence[Any]]]] = {
    SEQUENCE_ENCODERS.kind: (memories.CHECKS, lambda name: [memories.MemoryCase(name)]),
    TIMESTEP_ENCODERS.kind: (timestep_encoders.CHECKS, timestep_encoders.encoder_cases),
    MODALITIES.kind: (timestep_encoders.CHECKS, timestep_encoders.modality_cases),
    DISTRIBUTIONS.kind: (distributions.CHECKS, distributions.cases),
    EXPLORATIONS.kind: (explorations.CHECKS, explorations.cases),
    ENVIRONMENT: (environments.CHECKS, lambda name: [environments.EnvCase(name)]),
}
"""Kind of component -> its checks, and its cases by its name."""


@dataclass(frozen=True)
class Result:
    """What one check said.

    Attributes:
        subject: Of whom, for instance ``memory 'ema'``.
        title: What holds if there is no problem.
        problem: What is wrong, or None.
        seconds: How long it took.
    """

    subject: str
    title: str
    problem: str | None
    seconds: float


@dataclass
class Plan:
    """What to run for a plug-in.

    Attributes:
        path: Of the plug-in.
        checks: Subject, check and the cases on which it is run.
        unchecked: What was registered and is not checked, and why.
    """

    path: str
    checks: list[tuple[str, Check[Any], Callable[[], Sequence[Any]]]] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def run(self) -> Iterator[Result]:
        """Run the checks one by one; those that have nothing to say on any case are left out."""
        for subject, check, cases in self.checks:
            begin = time.perf_counter()
            case = problem = None
            try:
                for case in cases():
                    check(case)
            except PluginError as error:
                problem = f"{error}{_told(case)}"
            except Exception as error:
                problem = f"{check.title}? It raised {located(error, self.path)}{_told(case)}"
            if case is not None or problem is not None:
                yield Result(subject, check.title, problem, time.perf_counter() - begin)


def plan(path: str) -> Plan:
    """Load a plug-in, and return what there is to check of what it registers.

    Raises:
        ConfigError: If it does not exist, or registers nothing.
    """
    before = _registered()
    load_plugins([path])
    file = str(Path(path).resolve())
    own = {path} | {name for name, module in sys.modules.items() if vars(module).get("__file__") == file}
    todo, foreign = Plan(path), []
    for (kind, name), entry in _registered().items():
        module = _module(entry)
        is_own = any(module == each or module.startswith(f"{each}.") for each in own)
        if (before.get((kind, name)) is entry and not is_own) or module.startswith("seqrl."):
            continue
        if kind == ENVIRONMENT and not is_own:  # of a package that the plug-in imports
            foreign.append(name)
        else:
            _add(todo, kind, name)
    if foreign:
        todo.unchecked.append(
            f"environments of other modules ({len(foreign)}, such as {foreign[0]!r}): see seqrl check-env"
        )
    if not todo.checks and not todo.unchecked:
        raise ConfigError(f"plug-in {path!r} registers nothing")
    return todo


def _told(case: Any) -> str:
    if not isinstance(case, AlgoCase):
        return ""
    encoder = "" if case.encoder == algorithms.ENCODER else f", timestep encoder {case.encoder}"
    return f" [algorithm {case.name}, memory {case.memory}, actions {case.actions}{encoder}]"


# ------------------------------------------------------------------------------------- what is registered
def _registries() -> dict[str, Registry[Any]]:
    own = [value for value in vars(registry).values() if isinstance(value, Registry)]
    return {r.kind: r for r in (*own, ALGOS, READERS, EXPERTS, SUITES, TEXT_FUNCTIONS)}


def _registered() -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {(ALGOS.kind, name): CONFIGS.get(name) for name in CONFIGS.names()}
    found |= {(r.kind, name): r.get(name) for r in _registries().values() for name in r.names() if name in r}
    return found | {(ENVIRONMENT, env_id): spec.entry_point for env_id, spec in gym.registry.items()}


def _module(entry: Any) -> str:
    if isinstance(entry, Suite):
        entry = entry.make
    if isinstance(entry, str):  # an entry point of gymnasium
        return entry.partition(":")[0]
    return str(getattr(entry, "__module__", ""))


def _add(todo: Plan, kind: str, name: str) -> None:
    """Add the checks of one entry."""
    subject = f"{kind} {name!r}"
    before = len(todo.checks)
    registry = _registries().get(kind)
    component = None if registry is None else components.ComponentCase(registry, name)
    if component is not None and registry in components.REGISTRIES:
        _add_table(todo, subject, components.CHECKS, lambda: [component])
        if component.missing:
            todo.unchecked.append(
                f"{subject}: not checked further, as it has no default for {', '.join(component.missing)}"
            )
            return
    if kind in _TABLES:
        checks, cases = _TABLES[kind]
        _add_table(todo, subject, checks, lambda: cases(name))
        if kind == EXPLORATIONS.kind and not cases(name):
            todo.unchecked.append(f"{subject}: not checked further, as it reads what only its own environment gives")
    if kind == ALGOS.kind:
        _add_algorithm(todo, subject, name)
    elif kind == SEQUENCE_ENCODERS.kind:
        _add_use(todo, subject, [AlgoCase("bc", name, actions) for actions in ACTION_SPACES])
    elif kind == TIMESTEP_ENCODERS.kind:
        _add_use(todo, subject, [AlgoCase("bc", "gru", encoder=name)])
    if len(todo.checks) == before:
        todo.unchecked.append(f"{subject}: registered, no checks")


def _add_algorithm(todo: Plan, subject: str, name: str) -> None:
    def can_be_built(case: AlgoCase) -> None:
        """It has a config, and a factory that gives its class."""
        try:
            algorithms.spaces_of(case.name)
        except SeqrlError as error:
            raise ConformanceError(str(error)) from error

    todo.checks.append((subject, Check("has a config and a factory", can_be_built), lambda: [AlgoCase(name)]))
    with contextlib.suppress(Exception):  # that check tells it
        algorithms.spaces_of(name)
        cases = [AlgoCase(name, memory, actions) for memory in MEMORIES for actions in ACTION_SPACES]
        _add_table(todo, subject, algorithms.CHECKS, lambda: cases)


def _add_use(todo: Plan, subject: str, cases: Sequence[AlgoCase]) -> None:
    """Add what an algorithm has to keep with a memory or a timestep encoder of the plug-in."""
    names = ("learns_by_heart", "every_weight_learns", "resumed_equals_uninterrupted", "acting_resets_rows_alone")
    _add_table(todo, f"{subject} in bc", {n: algorithms.CHECKS[n] for n in names}, lambda: cases)


def _add_table(
    todo: Plan, subject: str, checks: Mapping[str, Check[Case]], cases: Callable[[], Sequence[Case]]
) -> None:
    for check in checks.values():

        def fitting(check: Check[Case] = check) -> Sequence[Case]:
            return [case for case in cases() if check.fits(case)]

        todo.checks.append((subject, check, fitting))
