"""seqrl: policies that remember. Names are imported on first use, so ``import seqrl`` is quick."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from seqrl.moved import install as _let_old_paths_work
from seqrl.version import __version__

if TYPE_CHECKING:
    from seqrl.algo import (
        Algo,
        Losses,
        PolicyAlgo,
        RolloutPolicy,
        ValueAlgo,
        algo_factory,
        algo_name_from_checkpoint,
        config_from_checkpoint,
        policy_from_checkpoint,
        register_algo_factory_func,
    )
    from seqrl.api import Run, evaluate, load_dataset, train
    from seqrl.configs import BaseConfig, config_factory, get_all_registered_configs, register_config
    from seqrl.core.errors import SeqrlError
    from seqrl.envs.prev_reward import with_prev_reward
    from seqrl.rollout.from_checkpoint import env_from_checkpoint
    from seqrl.training.callbacks import Callback
    from seqrl.training.experiment import Experiment

_HOMES = {
    "seqrl.api": ("Run", "evaluate", "load_dataset", "train"),
    "seqrl.algo": (
        "Algo",
        "Losses",
        "PolicyAlgo",
        "RolloutPolicy",
        "ValueAlgo",
        "algo_factory",
        "algo_name_from_checkpoint",
        "config_from_checkpoint",
        "policy_from_checkpoint",
        "register_algo_factory_func",
    ),
    "seqrl.configs": ("BaseConfig", "config_factory", "get_all_registered_configs", "register_config"),
    "seqrl.core.errors": ("SeqrlError",),
    "seqrl.envs.prev_reward": ("with_prev_reward",),
    "seqrl.training.callbacks": ("Callback",),
    "seqrl.rollout.from_checkpoint": ("env_from_checkpoint",),
    "seqrl.training.experiment": ("Experiment",),
}
_let_old_paths_work()
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Algo",
    "BaseConfig",
    "Callback",
    "Experiment",
    "Losses",
    "PolicyAlgo",
    "RolloutPolicy",
    "Run",
    "SeqrlError",
    "ValueAlgo",
    "__version__",
    "algo_factory",
    "algo_name_from_checkpoint",
    "config_factory",
    "config_from_checkpoint",
    "env_from_checkpoint",
    "evaluate",
    "get_all_registered_configs",
    "load_dataset",
    "policy_from_checkpoint",
    "register_algo_factory_func",
    "register_config",
    "train",
    "with_prev_reward",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'seqrl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
