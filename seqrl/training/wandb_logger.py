"""Numbers and videos to Weights & Biases, by the extra ``seqrl[wandb]``."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqrl.configs.sections.run import WandbSection
from seqrl.core.errors import ConfigError
from seqrl.core.files import write_json

_FILE = "wandb.json"
_STEP = "gradient_step"


def import_wandb() -> Any:
    """Return the module.

    Raises:
        ConfigError: If it cannot be imported.
    """
    try:
        wandb = importlib.import_module("wandb")
    except ImportError as error:
        raise ConfigError(_problem(str(error))) from error
    if not hasattr(wandb, "init"):  # a folder of that name, which an offline run leaves, passes for a module
        raise ConfigError(_problem("it is not installed"))
    return wandb


def _problem(text: str) -> str:
    return f'experiment.logging.wandb: wandb cannot be imported ({text}); pip install "seqrl[wandb]", or turn it off'


class WandbLogger:
    """Logs to one run of wandb, whose id lies in the run's folder, so that a resumed run goes on in it.

    The horizontal axis is the gradient step: what a resumed run takes again is drawn over what was there.

    Args:
        folder: The run's folder.
        section: Project, group, tags.
        config: The run file, for the overview there.
    """

    def __init__(self, folder: Path, section: WandbSection, config: Mapping[str, Any]) -> None:
        wandb = import_wandb()
        known = _stored_id(folder / _FILE)
        self._run = wandb.init(
            project=section.project,
            entity=section.entity,
            group=section.group,
            tags=section.tags or None,
            mode=section.mode,
            name=folder.name,
            dir=str(folder),
            config=dict(config),
            id=known,
            resume="allow" if known else None,
        )
        write_json(folder / _FILE, {"id": self._run.id})
        self._run.define_metric(_STEP)
        self._run.define_metric("*", step_metric=_STEP)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send the values."""
        self._run.log({**values, _STEP: step})

    def log_video(self, file: Path, step: int) -> None:
        """Send a video."""
        video = import_wandb().Video(str(file), format=file.suffix.removeprefix("."))
        self._run.log({"video": video, _STEP: step})

    def close(self) -> None:
        """Send what is left, and end."""
        self._run.finish()


def _stored_id(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
