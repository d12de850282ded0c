"""An environment of your own: guess a number from "too low" and "too high".

seqrl train --algo actor_critic --env examples/GuessNumber-v0 --plugin examples/guess_number_plugin.py --memory gru \
    --env-steps 20k
"""

import gymnasium as gym
import numpy as np


class GuessNumber(gym.Env):
    """A number from 0 to 15 is hidden; a wrong guess costs 0.1, the right one pays 1 and ends the episode."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(16)

    def reset(self, *, seed=None, options=None):
        """Hide a number."""
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(16))
        return np.zeros(1, np.float32), {}

    def step(self, guess):
        """Say -1 if the guess is too high, 1 if it is too low."""
        answer = np.array([np.sign(self.number - guess)], np.float32)
        is_right = bool(guess == self.number)
        return answer, 1.0 if is_right else -0.1, is_right, False, {}


gym.register("examples/GuessNumber-v0", GuessNumber, max_episode_steps=10)
