"""What a run asks of what its plug-ins brought, before it trains on it: options that can be saved, sound memories."""

from __future__ import annotations

import json
import logging
import sys
import time

from pydantic_core import PydanticSerializationError

from seqrl.configs import BaseConfig, Section, config_factory
from seqrl.conformance.check import difference, located
from seqrl.conformance.memories import CHECKS, MemoryCase
from seqrl.core.errors import ConfigError, PluginError
from seqrl.core.registry import SEQUENCE_ENCODERS

logger = logging.getLogger(__name__)

BUDGET_S = 0.5
"""Once so much time has passed, no further check begins."""
_MISTAKES = (AttributeError, NameError, TypeError, NotImplementedError)
"""What code raises that is wrong on every machine."""


def check_run(config: BaseConfig) -> None:
    """Check that the config can be saved, and run the cheap checks on memories of plug-ins; generators stay as before.

    A memory that cannot be checked here, for instance because it needs a GPU, is let through with a warning.

    Raises:
        ConfigError: If one breaks its contract, or the config would not be read again as it is.
    """
    _check_saved(config)
    for key, section in config.algo:
        if isinstance(section, Section) and type(section) in SEQUENCE_ENCODERS.sections.values():
            name, options = section.choice()
            if not SEQUENCE_ENCODERS.get(name).__module__.startswith("seqrl."):
                options.pop("window_steps", None)
                _check(f"algo.{key}.type", MemoryCase(name, options))


def _check_saved(config: BaseConfig) -> None:
    try:
        again = config_factory(config.algo_name, json.loads(json.dumps(config.to_json())), "config.json")
        before, after = config.to_values(), again.to_values()
        problem = difference({**before, "env": None}, {**after, "env": None})  # its kwargs may be anything
    except (ConfigError, PydanticSerializationError) as error:
        problem = str(error)
    if problem:
        raise ConfigError(
            f"this run could not be read again from its config.json: {problem}\n"
            "Values there are numbers, strings, true, false, null, and lists and dicts of these"
        )


def _check(key: str, case: MemoryCase) -> None:
    begin, problem = time.perf_counter(), None
    for check in CHECKS.values():
        if not check.cheap or time.perf_counter() - begin > BUDGET_S:
            continue
        try:
            if check.fits(case):
                check(case)
        except PluginError as error:
            raise ConfigError(f"{key}: memory {case.name!r}: {error} (seqrl check-plugin runs all checks)") from error
        except Exception as error:
            module = sys.modules.get(SEQUENCE_ENCODERS.get(case.name).__module__)
            problem = problem or located(error, getattr(module, "__file__", None) or "")
            if isinstance(error, _MISTAKES):
                told = f"{key}: memory {case.name!r}: {problem} (seqrl check-plugin runs all checks)"
                raise ConfigError(told) from error
    if problem is not None:
        logger.warning("%s: memory %r could not be checked before the run: %s", key, case.name, problem)
