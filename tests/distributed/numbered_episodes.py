"""A plug-in with an environment whose episodes have numbers that no other episode has, in any process."""

import time
import uuid

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LENGTH = 10


class NumberedEpisodes(gym.Env):
    """Observes its episode's number, as three parts, and the step; every episode has ten steps."""

    observation_space = spaces.Box(0.0, 2.0**24, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, sleep_s=0.0):
        self.sleep_s = sleep_s

    def _obs(self):
        return np.array([*self._number, self._step], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        drawn, self._step = uuid.uuid4().int, 0
        self._number = [drawn % 2**23, drawn // 2**23 % 2**23, drawn // 2**46 % 2**23]
        return self._obs(), {}

    def step(self, action):
        time.sleep(self.sleep_s)
        self._step += 1
        return self._obs(), float(action), self._step == LENGTH, False, {}


if "NumberedEpisodes-v0" not in gym.registry:
    gym.register("NumberedEpisodes-v0", NumberedEpisodes, max_episode_steps=100)
