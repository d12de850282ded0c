"""Algorithms: the contract, the registry, one file per algorithm, deployment and checkpoints."""

from seqrl.algo.act import ACT
from seqrl.algo.actor_critic import ActorCritic
from seqrl.algo.algo import (
    ALGOS,
    Algo,
    PolicyAlgo,
    ValueAlgo,
    algo_factory,
    register_algo_factory_func,
)
from seqrl.algo.bc import BC
from seqrl.algo.bc_vae import BCVAE
from seqrl.algo.bcq import BCQ
from seqrl.algo.checkpoint import algo_name_from_checkpoint, config_from_checkpoint, policy_from_checkpoint
from seqrl.algo.chunk_policy import ChunkPolicy
from seqrl.algo.cql import CQL
from seqrl.algo.decision_transformer import DecisionTransformer
from seqrl.algo.diffusion_policy import DiffusionPolicy
from seqrl.algo.edac import EDAC
from seqrl.algo.flow_matching import FlowMatching
from seqrl.algo.fql import FQL
from seqrl.algo.gl import GL
from seqrl.algo.hbc import HBC
from seqrl.algo.iql import IQL
from seqrl.algo.iris import IRIS
from seqrl.algo.losses import Losses
from seqrl.algo.multitask import MultiTask
from seqrl.algo.objectives import masked_mean
from seqrl.algo.rollout_policy import RolloutPolicy
from seqrl.algo.soft_agent import SoftAgent
from seqrl.algo.td3_bc import TD3BC
from seqrl.algo.trunk import build_trunk
from seqrl.algo.value_agent import Pass, Terms, ValueAgent

__all__ = [
    "ACT",
    "ALGOS",
    "BC",
    "BCQ",
    "BCVAE",
    "CQL",
    "EDAC",
    "FQL",
    "GL",
    "HBC",
    "IQL",
    "IRIS",
    "TD3BC",
    "ActorCritic",
    "Algo",
    "ChunkPolicy",
    "DecisionTransformer",
    "DiffusionPolicy",
    "FlowMatching",
    "Losses",
    "MultiTask",
    "Pass",
    "PolicyAlgo",
    "RolloutPolicy",
    "SoftAgent",
    "Terms",
    "ValueAgent",
    "ValueAlgo",
    "algo_factory",
    "algo_name_from_checkpoint",
    "build_trunk",
    "config_from_checkpoint",
    "masked_mean",
    "policy_from_checkpoint",
    "register_algo_factory_func",
]
