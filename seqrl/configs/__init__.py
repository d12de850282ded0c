"""Typed run files. Importing this package does not import torch."""

from seqrl.configs.actor_critic_config import ActorCriticConfig
from seqrl.configs.base_config import (
    BaseConfig,
    config_factory,
    get_all_registered_configs,
    read_config_values,
    register_config,
    template_names,
)
from seqrl.configs.bc_config import BCConfig
from seqrl.configs.bc_vae_config import BCVAEConfig
from seqrl.configs.iql_config import IQLConfig
from seqrl.configs.multitask_config import MultiTaskConfig
from seqrl.configs.overrides import apply_overrides
from seqrl.configs.section import Component, Section

__all__ = [
    "ActorCriticConfig",
    "BCConfig",
    "BCVAEConfig",
    "BaseConfig",
    "Component",
    "IQLConfig",
    "MultiTaskConfig",
    "Section",
    "apply_overrides",
    "config_factory",
    "get_all_registered_configs",
    "read_config_values",
    "register_config",
    "template_names",
]
