"""Environments of different spaces, played as one."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import seqrl
from seqrl.configs import config_factory
from seqrl.core.errors import EnvError
from seqrl.envs import make_batched_env
from seqrl.envs.make import env_maker, make_env
from seqrl.envs.mixture import MIXTURE_ID
from tests.regression.test_online import rows, run, small

RECALL = {"id": "seqrl/MultiDiscreteRecall-v0"}
MAZE = {"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 3}}
BANDIT = {"id": "seqrl/Bandit-v0", "kwargs": {"num_arms": 7, "horizon": 4}}
ARMS = {"id": "seqrl/MaskedBandit-v0", "kwargs": {"num_arms": 5, "horizon": 4}}


def mixture(*tasks, **options):
    return make_env(MIXTURE_ID, {"tasks": list(tasks), **options})


def test_observations_are_padded_and_actions_masked():
    env = mixture(MAZE, BANDIT, RECALL, observe_task=True)
    parts = [make_env(task["id"], task.get("kwargs")) for task in (MAZE, BANDIT, RECALL)]
    sizes = [
        int(p.action_space.n) if hasattr(p.action_space, "n") else int(np.prod(p.action_space.nvec)) for p in parts
    ]
    assert env.action_space == spaces.Discrete(max(sizes))
    met, rng = set(), np.random.default_rng(0)
    obs, info = env.reset(seed=0)
    for _ in range(12):
        index = int(obs["task"].argmax())
        met.add(info["env_name"])
        assert info["env_name"] == (MAZE, BANDIT, RECALL)[index]["id"]
        done = False
        while not done:
            assert env.observation_space.contains(obs)
            assert obs["action_mask"].tolist() == [1] * sizes[index] + [0] * (max(sizes) - sizes[index])
            obs, _, terminated, truncated, _ = env.step(rng.choice(np.flatnonzero(obs["action_mask"])))
            done = terminated or truncated
        obs, info = env.reset()
    assert len(met) == 3


class Echo(gym.Env):
    """Returns the action that it takes as its reward."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.MultiDiscrete([2, 3], start=[0, 5])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 2, {"action_mask": (np.array([1, 0]), np.array([1, 1, 0]))}

    def step(self, action):
        return 2, float(action[0] * 10 + action[1]), True, False, {"action_mask": (np.ones(2), np.ones(3))}


def test_several_numbers_are_one_and_masked_ones_are_refused():
    gym.register("mixture/Echo-v0", Echo, disable_env_checker=True)
    env = mixture({"id": "mixture/Echo-v0"}, BANDIT)
    seen = {}
    while len(seen) < 2:
        obs, info = env.reset()
        seen[info["env_name"]] = obs["action_mask"].tolist()
        if info["env_name"] == "mixture/Echo-v0":
            assert obs["obs"].tolist()[:3] == [0, 0, 1]
            obs, reward, *_ = env.step(4)
            assert (obs["action_mask"].tolist(), reward) == ([1] * 6 + [0], 16.0)
            with pytest.raises(EnvError, match="action 6 is masked: the task takes MultiDiscrete"):
                env.step(6)
    assert seen == {"mixture/Echo-v0": [1, 1, 0, 0, 0, 0, 0], BANDIT["id"]: [1] * 7}


def test_masks_of_tasks_stay():
    env = mixture(ARMS, BANDIT)
    while (start := env.reset())[1]["env_name"] != ARMS["id"]:
        pass
    legal = start[0]["action_mask"]
    assert 0 < legal[:5].sum() < 5
    assert legal[5:].tolist() == [0, 0]


def test_equal_spaces_are_left_and_seeds_repeat():
    other = {**MAZE, "kwargs": {"corridor_length": 5}}
    env = mixture(MAZE, other)
    assert env.observation_space == make_env(MAZE["id"]).observation_space

    def course(seed):
        env = mixture(MAZE, BANDIT, ARMS)
        rows = [env.reset(seed=seed)]
        rows += [env.reset() for _ in range(5)]
        return [(info["env_name"], obs["obs"].tolist(), obs["action_mask"].tolist()) for obs, info in rows]

    assert course(1) == course(1)
    assert course(1) != course(2)


def test_what_cannot_be_joined_names_both_tasks():
    with pytest.raises(EnvError, match=r"'Pendulum-v1' takes Box.*'seqrl/TMazePassive-v0' takes Discrete.*no space"):
        mixture(MAZE, {"id": "Pendulum-v1"})
    with pytest.raises(EnvError, match=r"'seqrl/TMazePixels-v0' observes an image .*'seqrl/TMazePassive-v0' something"):
        mixture(MAZE, {"id": "seqrl/TMazePixels-v0"})
    with pytest.raises(EnvError, match="at least one task"):
        mixture()
    with pytest.raises(EnvError, match="would import 'no_such_module'"):
        mixture(MAZE, {"id": "no_such_module:Env-v0"})


def test_rows_name_their_tasks():
    env = make_batched_env(env_maker(MIXTURE_ID, {"tasks": [MAZE, BANDIT]}), 2)
    rng = np.random.default_rng(0)
    step = env.reset(0)
    names = set(step.env_name)
    for _ in range(20):
        step = env.step(env.codec.random(rng, 2, step.action_mask))
        names |= set(step.env_name)
    assert names == {MAZE["id"], BANDIT["id"]}


def test_a_run_joins_tasks_if_asked_and_says_so_otherwise(tmp_path):
    env = {"id": None, "kwargs": {}, "tasks": [MAZE, BANDIT]}
    with pytest.raises(EnvError, match=r"'seqrl/Bandit-v0' .* \(of 'seqrl/TMazePassive-v0'\); env\.common_space=on"):
        run(small(tmp_path, name="off", env=env))
    run(small(tmp_path, name="on", env=env | {"common_space": "with_task"}, train={"num_epochs": 1}))
    names = {name for row in rows(tmp_path, "on") for name in row}
    assert {f"eval/{task['id']}/return_mean" for task in (MAZE, BANDIT)} <= names
    policy, _ = seqrl.policy_from_checkpoint(tmp_path / "on" / "last")
    played = seqrl.env_from_checkpoint(tmp_path / "on" / "last")
    assert isinstance(played.unwrapped, gym.Env)
    assert played.action_space.contains(policy(played.reset(seed=0)[0], reward=0.0))
    assert config_factory("actor_critic").env.common_space == "off"


class Telling(gym.Env):
    """Observes an entry ``task`` of its own."""

    observation_space = spaces.Dict({"task": spaces.Box(0, 1, (3,))})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"task": np.zeros(3, np.float32)}, {}


def test_a_tasks_own_entry_is_not_hidden():
    gym.register("test/Telling-v0", entry_point=Telling)
    assert mixture({"id": "test/Telling-v0"}).observation_space == Telling.observation_space
    with pytest.raises(EnvError, match=r"observe an entry 'task' of their own.*common_space=with_task"):
        mixture({"id": "test/Telling-v0"}, observe_task=True)


def test_tasks_of_different_bounds_are_refused_before_anything_is_written(tmp_path):
    tasks = [{"id": "seqrl/MazeRunner-v0", "kwargs": {"size": size}} for size in (5, 7)]
    with pytest.raises(EnvError, match=r"'size': 7} have different spaces: Box.*env\.common_space=on joins them"):
        run(small(tmp_path, name="off", env={"id": None, "kwargs": {}, "tasks": tasks}))
    assert not (tmp_path / "off").exists()
