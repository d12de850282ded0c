"""What a run asks of the memories that its plug-ins brought, before it trains on them."""

from __future__ import annotations

import logging
import time

from seqrl.configs import BaseConfig, Section
from seqrl.conformance.check import ConformanceError
from seqrl.conformance.memories import CHECKS, MemoryCase
from seqrl.core.errors import ConfigError
from seqrl.core.registry import SEQUENCE_ENCODERS

logger = logging.getLogger(__name__)

BUDGET_S = 0.5
"""Once so much time has passed, no further check begins."""


def check_run(config: BaseConfig) -> None:
    """Run the cheap checks on the memories of plug-ins that a run uses; generators stay as they are.

    A memory that cannot be checked here, for instance because it needs a GPU, is let through with a warning.

    Raises:
        ConfigError: If one breaks its contract.
    """
    for key, section in config.algo:
        if isinstance(section, Section) and type(section) in SEQUENCE_ENCODERS.sections.values():
            name, options = section.choice()
            if not SEQUENCE_ENCODERS.get(name).__module__.startswith("seqrl."):
                options.pop("window_steps", None)
                _check(f"algo.{key}.type", MemoryCase(name, options))


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
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            logger.warning("%s: memory %r could not be checked before the run: %s", key, case.name, problem)
            return
