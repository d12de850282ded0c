"""Small configs, batches and runs that several test files need: those on which components are checked."""

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
    "small_algo",
    "small_config",
]
