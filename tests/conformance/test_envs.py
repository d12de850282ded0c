"""What every built-in environment has to do. A new one is covered by being registered."""

import pytest

import seqrl.envs
from seqrl.conformance.environments import CHECKS, EnvCase
from seqrl.envs.builtin import builtin_env_ids
from seqrl.envs.experts import EXPERTS, make_expert
from seqrl.envs.make import env_maker
from seqrl.rollout.rollouts import ScriptedPolicy, collect_episodes

IDS = builtin_env_ids(only_installed=True)
make_expert("seqrl/PointRecall-v0")  # registers the built-in ones
EXPERT_IDS = [i for i in EXPERTS.names() if i in IDS]
SUCCEEDS_IN = {"seqrl/Relay-v0": {"start": "B"}}
"""What the expert succeeds in, where that is not everything."""


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("env_id", IDS)
def test_environment(env_id, check):
    CHECKS[check](EnvCase(env_id))


@pytest.mark.parametrize("env_id", EXPERT_IDS)
def test_the_expert_succeeds(env_id):
    env = seqrl.envs.make_batched_env(env_maker(env_id, SUCCEEDS_IN.get(env_id, {})), 4)
    episodes = list(collect_episodes(env, ScriptedPolicy(env_id, env), 12, seed=0))
    assert len(episodes) == 12
    assert all(e.check().terminated[-1] and e.total_reward == pytest.approx(1.0) for e in episodes)
