"""Data of scripted experts: kept between runs, and made anew when the code of an expert changes."""

import importlib.util
import sys

import gymnasium as gym

from seqrl.envs import register_expert
from seqrl.envs.experts import EXPERTS
from seqrl.training.sources import scripted_store

CODE = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Count(gym.Env):
    observation_space = spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), float(action), self.t == 3, False, {}


class Expert:
    def reset(self):
        pass

    def __call__(self, obs):
        return ACTION
"""
ENV_ID = "seqrl-tests/Count-v0"


def stored_return(file, action, monkeypatch):
    """Return the mean return of the data that an expert makes whose file says so."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that changes within a second is compiled anew
    file.write_text(CODE.replace("ACTION", str(action)))
    spec = importlib.util.spec_from_file_location("count_world", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "count_world", module)
    spec.loader.exec_module(module)
    gym.registry.pop(ENV_ID, None)
    gym.register(ENV_ID, entry_point=module.Count)
    monkeypatch.delitem(EXPERTS._entries, ENV_ID, raising=False)
    register_expert(ENV_ID)(module.Expert)
    return scripted_store(ENV_ID, {}, 4, seed=0).total_reward.mean()


def test_an_expert_that_changes_makes_new_data(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "world.py"
    assert stored_return(file, 1, monkeypatch) == 3.0
    assert stored_return(file, 0, monkeypatch) == 0.0
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert stored_return(file, 1, monkeypatch) == 3.0
    assert len(list((tmp_path / "cache").iterdir())) == 2
