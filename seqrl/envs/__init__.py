"""Environments: the vector interface, metrics, recording, and the built-in tasks (registered on import)."""

from seqrl.envs.builtin import register_builtin_envs
from seqrl.envs.experts import EXPERTS, make_expert, register_expert
from seqrl.envs.make import make_batched_env, make_env
from seqrl.envs.vector import BatchedEnv

register_builtin_envs()

__all__ = ["EXPERTS", "BatchedEnv", "make_batched_env", "make_env", "make_expert", "register_expert"]
