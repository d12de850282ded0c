"""What is wrong with an environment, found out by playing in it."""

from typing import TYPE_CHECKING

from seqrl.moved import moved_names

if not TYPE_CHECKING:  # mypy shall not take every name for one of this module
    __getattr__ = moved_names(
        __name__, "seqrl.envs.check.environment", "EnvReport", "Finding", "check_environment", "inspect_environment"
    )
