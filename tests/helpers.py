"""Small configs, batches and runs that several test files need: those on which components are checked."""

import numpy as np

from seqrl.conformance.cases import (
    ACTION_SPACES,
    ENCODER_OBS,
    IMAGE,
    OBS,
    SMALL_ENCODER,
    SMALL_IMAGE,
    SMALL_MEMORY,
    random_batch,
    random_obs,
    small_algo,
    small_config,
)

__all__ = [
    "ACTION_SPACES",
    "ENCODER_OBS",
    "IMAGE",
    "OBS",
    "SMALL_ENCODER",
    "SMALL_IMAGE",
    "SMALL_MEMORY",
    "random_batch",
    "random_obs",
    "separate_tasks",
    "small_algo",
    "small_config",
]


def separate_tasks(*scores):
    """Return scores ``(runs,)`` of each task as a table ``(runs, tasks)`` in which every run has one task."""
    table = np.full((sum(map(len, scores)), len(scores)), np.nan)
    for task, own in enumerate(scores):
        start = sum(map(len, scores[:task]))
        table[start : start + len(own), task] = own
    return table
