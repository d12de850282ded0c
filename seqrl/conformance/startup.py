"""What a run asks of what its plug-ins brought, before it trains on it: options that can be saved, sound memories."""

from __future__ import annotations

import inspect
import json
import logging
import time

from pydantic_core import PydanticSerializationError

from seqrl.configs import BaseConfig, Section, config_factory
from seqrl.conformance.check import ConformanceError, located
from seqrl.conformance.memories import CHECKS, MemoryCase
from seqrl.core.errors import ConfigError
from seqrl.core.registry import SEQUENCE_ENCODERS

logger = logging.getLogger(__name__)

BUDGET_S = 0.5
"""Once so much time has passed, no further check begins."""


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
        values = config.to_json()
        if config_factory(config.algo_name, json.loads(json.dumps(values)), "config.json").to_json() == values:
            return
        problem = "config.json would say something else"
    except (ConfigError, PydanticSerializationError) as error:
        problem = str(error)
    raise ConfigError(
        f"this run could not be read again: {problem}\nOptions of plug-ins have to be numbers, strings, true, false or "
        "null, or lists, tuples or dicts of these"
    )


def _check(key: str, case: MemoryCase) -> None:
    begin = time.perf_counter()
    for check in CHECKS.values():
        if not check.cheap or time.perf_counter() - begin > BUDGET_S:
            continue
        try:
            if check.fits(case):
                check(case)
        except ConformanceError as error:
            raise ConfigError(f"{key}: memory {case.name!r}: {error} (seqrl check-plugin runs all checks)") from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # mistakes of the code itself
            problem = located(error, inspect.getfile(SEQUENCE_ENCODERS.get(case.name)))
            raise ConfigError(f"{key}: memory {case.name!r}: {problem}") from error
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            logger.warning("%s: memory %r could not be checked before the run: %s", key, case.name, problem)
            return
