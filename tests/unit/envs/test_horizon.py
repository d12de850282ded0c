"""How long episodes are, what random play finds in them, and what a plan makes of that."""

import json
import logging

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import EnvError
from seqrl.envs.horizon import finds_nothing, horizon_and_kind
from seqrl.scripts import train


class Picky(gym.Env):
    """Has one legal action in each step; another ends the episode, or is refused."""

    action_space = spaces.Discrete(6)

    def __init__(self, refuses=False, in_info=False, **broken):
        self.refuses, self.in_info, self.broken = refuses, in_info, broken
        own = {"time": spaces.Box(0, 12, (1,))}
        self.observation_space = spaces.Dict(own if in_info else {**own, "action_mask": spaces.MultiBinary(6)})

    def seen(self):
        self.legal = int(self.np_random.integers(6))
        mask = np.eye(6, dtype=np.int8)[self.legal]
        time = np.array([self.time], np.float32)
        return ({"time": time}, {"action_mask": mask}) if self.in_info else ({"time": time, "action_mask": mask}, {})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.broken.get("reset") or self.seen()

    def step(self, action):
        is_over = action != self.legal
        assert not (is_over and self.refuses), "illegal"
        self.time += 1
        obs, info = self.seen()
        return self.broken.get("step") or (obs, 0.0, is_over or self.time == 12, False, info)


class Uneven(Picky):
    """Each episode has one step more than the one before it."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        return super().reset(seed=seed)

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, self.time == self.episodes, truncated, info


class Vain(gym.Env):
    """Costs 1 in every step until its limit; some episodes pay at their end, some end earlier.

    ``pays`` and ``ends_at`` are by the number of the episode.
    """

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(3)
    played = 0

    def __init__(self, pays=(), ends_at=None, fails_in=None):
        self.pays, self.ends_at, self.fails_in, self.episode = pays, ends_at or {}, fails_in, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.episode = 0, self.episode + 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        type(self).played += 1
        self.time += 1
        if self.episode == self.fails_in:
            raise RuntimeError("no step")
        reward = 1.0 if self.episode in self.pays and self.time == 100 else -1.0
        return np.zeros(1, np.float32), reward, False, self.time == self.ends_at.get(self.episode), {}


class Closing(Vain):
    """Cannot be closed."""

    def close(self):
        raise RuntimeError("no end")


STEPS = 150
for name, env, limit in (
    ("Picky", Picky, None),
    ("Uneven", Uneven, None),
    ("Vain", Vain, STEPS),
    ("Longer", Vain, STEPS + 50),
    ("Closing", Closing, STEPS),
):
    gym.register(f"tests/{name}-v0", entry_point=env, max_episode_steps=limit, disable_env_checker=True)


@pytest.fixture(autouse=True)
def _nothing_played():
    Vain.played = 0


# ------------------------------------------------------------------------------------------- how long
@pytest.mark.parametrize(
    ("env_id", "kwargs", "steps"),
    [
        ("seqrl/Attempts-v0", {"env_id": "CartPole-v1", "attempts": 3}, 1500),
        ("seqrl/Attempts-v0", {"env_id": "CartPole-v1", "attempts": 3, "max_episode_steps": 70}, 70),
        ("CartPole-v1", {}, 500),
    ],
)
def test_the_horizon_is_that_of_all_attempts(env_id, kwargs, steps):
    assert horizon_and_kind(env_id, kwargs)[:2] == (steps, "its time limit")


@pytest.mark.parametrize("kwargs", [{}, {"refuses": True}, {"in_info": True}])
def test_the_horizon_is_that_of_legal_actions(kwargs):
    assert horizon_and_kind("tests/Picky-v0", kwargs)[0] == 12


def test_a_reset_without_info_is_told_before_the_plan():
    with pytest.raises(EnvError, match=r"'tests/Picky-v0': reset returned 3 values, but has to return \(obs, info\)"):
        horizon_and_kind("tests/Picky-v0", {"reset": (1, 2, 3)})
    told = r"'tests/Picky-v0' fails in play with random actions: .*`seqrl check-env tests/Picky-v0 --plugin json`"
    with pytest.raises(EnvError, match=told):
        horizon_and_kind("tests/Picky-v0", {"step": (0, 0.0, True, {})}, plugins=["json"])
    with pytest.raises(EnvError, match="'tests/Closing-v0' fails in play with random actions: RuntimeError: no end"):
        horizon_and_kind("tests/Closing-v0")


def test_how_long_episodes_are_is_known_if_all_that_were_played_are_alike():
    assert horizon_and_kind("tests/Picky-v0")[1] == "the length of each of 3 with random actions"
    assert horizon_and_kind("tests/Uneven-v0")[:2] == (3, "the longest of 3 with random actions")


# ------------------------------------------------------------------------------- what random play finds
@pytest.mark.parametrize(
    ("env_id", "kwargs", "steps", "expected"),
    [
        ("MountainCar-v0", {}, 200, True),
        ("Acrobot-v1", {}, 500, True),
        ("CartPole-v1", {}, 500, False),  # ends early
        ("Pendulum-v1", {}, 200, False),  # returns differ
        ("MountainCar-v0", {}, 100, False),  # goes on
        ("MountainCar-v0", {"max_episode_steps": 2_001}, 2_001, False),  # is too long to be played
        ("seqrl/Bandit-v0", {"horizon": 200}, 200, False),
        ("seqrl/MazeRunner-v0", {"size": 15}, 225, False),  # the goal is found in 2 of 20
        ("tests/Vain-v0", {}, STEPS, True),
        ("tests/Vain-v0", {"pays": (7,)}, STEPS, False),
        ("tests/Vain-v0", {"ends_at": {7: 100}}, STEPS, False),
        ("tests/Vain-v0", {"ends_at": dict.fromkeys(range(20), 100)}, STEPS, False),  # not by its time limit
        ("tests/Vain-v0", {"pays": (20,)}, STEPS, True),  # of which 20 are played
    ],
)
def test_whether_random_play_finds_nothing(env_id, kwargs, steps, expected):
    assert finds_nothing(env_id, kwargs, steps) is expected


def test_the_first_episode_that_finds_something_is_the_last():
    assert not finds_nothing("tests/Vain-v0", {"pays": (2,)}, STEPS)
    assert Vain.played == 3 * STEPS


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [("tests/Picky-v0", {"step": (0, 0.0, True, {})}), ("tests/Vain-v0", {"fails_in": 1}), ("tests/Closing-v0", {})],
)
def test_random_play_that_fails_is_told_and_left_to_the_run(env_id, kwargs, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("seqrl"), "propagate", True)
    assert not finds_nothing(env_id, kwargs, STEPS)
    assert "fails in play with random actions" in caplog.text
    assert "is planned as if random play found something" in caplog.text


# --------------------------------------------------------------------------------------------- the plan
def plan(*words, env="tests/Vain-v0", steps="60k", algo="actor_critic"):
    """Return whether the command plans for hard exploration, and what it tells."""
    args = ["--algo", algo, "--env", env, "--memory", "gru", "--env-steps", steps, *words]
    config, notes = train.resolve_config(train.parser().parse_args(args))
    is_hard = getattr(config.algo, "extra_gammas", None) == []
    assert config.collect.exploration.by_episode is is_hard
    assert any("random play found nothing" in note for note in notes) is is_hard
    return is_hard


@pytest.mark.parametrize(("steps", "episodes"), [("60k", 20), ("15k", 10), ("6k", 4), ("1000", 3)])
def test_a_tenth_of_the_budget_may_be_played(steps, episodes):
    assert plan(steps=steps)
    assert Vain.played == episodes * STEPS


@pytest.mark.parametrize(
    ("words", "algo"),
    [
        (("--set", f"train.window_steps={STEPS}"), "actor_critic"),
        (("--print-schema",), "actor_critic"),
        ((), "iql"),
    ],
)
def test_nothing_is_played_where_the_plan_does_not_depend_on_it(words, algo):
    assert not plan(*words, algo=algo)
    assert Vain.played == 0


def test_every_environment_has_to_be_one_in_which_random_play_finds_nothing():
    def of(*envs):
        tasks = [{"id": env, "kwargs": kwargs} for env, kwargs in envs]
        return plan("--set", "env.tasks=" + json.dumps(tasks))

    assert of(("tests/Vain-v0", {}), ("tests/Longer-v0", {}))
    assert Vain.played == 17 * (STEPS + STEPS + 50)
    assert not of(("tests/Vain-v0", {}), ("tests/Longer-v0", {"pays": [1]}))
    Vain.played = 0
    assert of(("tests/Vain-v0", {}), ("tests/Vain-v0", {}))
    assert Vain.played == 20 * STEPS
