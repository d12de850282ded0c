"""Typed run files. Importing this package does not import torch."""

from seqrl.configs.act_config import ACTConfig
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
from seqrl.configs.bcq_config import BCQConfig
from seqrl.configs.cql_config import CQLConfig
from seqrl.configs.decision_transformer_config import DecisionTransformerConfig
from seqrl.configs.diffusion_policy_config import DiffusionPolicyConfig
from seqrl.configs.edac_config import EDACConfig
from seqrl.configs.flow_matching_config import FlowMatchingConfig
from seqrl.configs.fql_config import FQLConfig
from seqrl.configs.gl_config import GLConfig
from seqrl.configs.hbc_config import HBCConfig
from seqrl.configs.iql_config import IQLConfig
from seqrl.configs.iris_config import IRISConfig
from seqrl.configs.multitask_config import MultiTaskConfig
from seqrl.configs.overrides import apply_overrides, layered
from seqrl.configs.section import Component, Section
from seqrl.configs.td3_bc_config import TD3BCConfig

__all__ = [
    "ACTConfig",
    "ActorCriticConfig",
    "BCConfig",
    "BCQConfig",
    "BCVAEConfig",
    "BaseConfig",
    "CQLConfig",
    "Component",
    "DecisionTransformerConfig",
    "DiffusionPolicyConfig",
    "EDACConfig",
    "FQLConfig",
    "FlowMatchingConfig",
    "GLConfig",
    "HBCConfig",
    "IQLConfig",
    "IRISConfig",
    "MultiTaskConfig",
    "Section",
    "TD3BCConfig",
    "apply_overrides",
    "config_factory",
    "get_all_registered_configs",
    "layered",
    "read_config_values",
    "register_config",
    "template_names",
]
