"""Numbers of one's own about the held-out windows: ``train.metrics``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from seqrl.algo.algo import Algo
from seqrl.configs import Section
from seqrl.configs.sections.run import TrainSection
from seqrl.core.errors import ConfigError
from seqrl.core.registry import METRICS
from seqrl.core.seeding import integer_seed
from seqrl.core.tensors import SeqBatch
from seqrl.data.dataset import TrainingDataset
from seqrl.rollout.evaluator import evaluation_mode


def check_metrics(train: TrainSection, valid: TrainingDataset | None) -> None:
    """Check that what is to be evaluated has data.

    Raises:
        ConfigError: If there are metrics, and nothing is held out.
    """
    if train.metrics and valid is None:
        names = ", ".join(metric.choice()[0] for metric in train.metrics)
        raise ConfigError(
            f"train.metrics: {names} need held-out data, and there is none: set train.valid_fraction above 0 (now "
            f"{train.valid_fraction:g}), or valid_filter_key of an entry of train.data; a replay holds nothing out"
        )


def offline_metrics(algo: Algo, train: TrainSection, batches: Sequence[SeqBatch]) -> dict[str, float]:
    """Return ``metric/<name>``, or ``metric/<name>_<key>`` of those that give several numbers.

    Each has a generator of its own, so that none changes training, the losses of validation or another.

    Args:
        algo: What is evaluated, in evaluation mode, without gradients.
        train: Its ``metrics`` and ``seed``.
        batches: Held-out windows, as the dataset gives them.

    Raises:
        ConfigError: If a metric gives something that is not a number or a dict of numbers.
    """
    out: dict[str, float] = {}
    for section in train.metrics:
        name = section.choice()[0]
        with evaluation_mode(algo, integer_seed(train.seed, "metric", name)), torch.no_grad(), algo.updater.autocast():
            out |= _numbers(name, _metric(section)(algo, [algo.process_batch_for_training(b) for b in batches]))
    return out


def _metric(section: Section) -> Any:
    """Return what is called with the algorithm and the batches: an object, or a function with its options."""
    name, options = section.choice()
    entry = METRICS.get(name)
    return entry(**options) if inspect.isclass(entry) else partial(entry, **options)


def _numbers(name: str, value: Any) -> dict[str, float]:
    values = {f"_{key}": v for key, v in value.items()} if isinstance(value, Mapping) else {"": value}
    try:
        return {f"metric/{name}{key}": float(v) for key, v in values.items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"train.metrics: {name} gave {value!r}, not a number or a dict of numbers") from error
