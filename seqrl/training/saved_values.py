"""What ``state.json`` of a checkpoint may hold, checked before anything of it is believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

from seqrl.core.errors import CheckpointError

Measure = Literal["success", "return", "valid_loss", "value"]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Reported(_Strict):
    env_steps: dict[str, NonNegativeInt] = {}
    episodes: NonNegativeInt = 0
    faults: NonNegativeInt = 0
    slots: dict[str, dict[str, NonNegativeInt]] = {}


class _Values(_Strict):
    """Everything may be missing here: what has to be there is missed where it is used."""

    epoch: NonNegativeInt = 0
    wall_s: NonNegativeFloat = 0.0
    env_steps: dict[str, NonNegativeInt] = {}
    num_episodes: NonNegativeInt = 0
    num_faults: NonNegativeInt = 0
    num_dropped: NonNegativeInt = 0
    warnings: list[str] = []
    reported: _Reported = _Reported()
    step_in_epoch: NonNegativeInt = 0
    is_evaluated: bool = True
    generators: list[dict[str, Any]] = []
    num_steps: NonNegativeInt = 0
    num_skipped: NonNegativeInt = 0
    best: dict[Measure, float] = {}
    improved: list[Measure] = []
    kept_epochs: list[NonNegativeInt] = []
    kept_at_s: NonNegativeFloat = 0.0
    num_threads: PositiveInt = Field(1, le=2**15)
    num_processes: PositiveInt = 1
    data: dict[str, Any] = {}
    explorations: list[dict[str, Any] | None] = []
    replay: dict[str, NonNegativeInt] = {}


def check_values(values: Mapping[str, Any], checkpoint: Path) -> None:
    """Check the types and ranges of a training state.

    Raises:
        CheckpointError: That names what is wrong.
    """
    try:
        _Values.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CheckpointError(
            f"{checkpoint}: its training state is damaged: {where}: {first['msg']}, got {str(first['input'])[:60]}"
        ) from error


@contextmanager
def restoring(checkpoint: Path) -> Iterator[None]:
    """Say of what a checkpoint holds, and nothing can be made of, that it is damaged.

    Raises:
        CheckpointError: If something is missing, or of a wrong type or size.
    """
    try:
        yield
    except KeyError as error:
        raise CheckpointError(f"{checkpoint}: its training state lacks {error}") from error
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        told = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{checkpoint}: its training state is damaged ({told})") from error
