"""One trajectory whatever the autoreset mode, and nothing known that the environment did not say."""

import functools
from dataclasses import fields

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from seqrl.core.errors import EnvError
from seqrl.core.types import Trajectory
from seqrl.envs import BatchedEnv, make_batched_env, make_env
from seqrl.envs.make import env_maker
from seqrl.envs.metrics import EpisodeMetrics
from seqrl.envs.recorder import Recorder

MODES = list(AutoresetMode)
ROWS, EPISODES, SEED = 3, 4, 17


class Uneven(gym.Env):
    """Episodes whose length depends on row and number; even ones terminate, odd ones are truncated."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(3)
    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, row=0, reports_task=True):
        self.row, self.episode, self.reports_task = row, -1, reports_task

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.time = 0
        self.length = 1 + (2 * self.row + 3 * self.episode) % 5
        info = {"env_name": f"task{self.row}-{self.episode}", "log/reset_only": 1.0} if self.reports_task else {}
        return self._obs(0), info

    def step(self, action):
        self.time += 1
        over = self.time >= self.length
        info = {"log/time": float(self.time), "log/episode": float(self.episode)}
        if self.time == 1:
            info["log/first_action"] = float(action)
        if over or (self.row == 1 and self.time == 2):
            info["success"] = self._succeeds()
        reward = float(self.np_random.normal()) + 0.1 * float(action)
        return self._obs(action), reward, over and self.episode % 2 == 0, over and self.episode % 2 == 1, info

    def _succeeds(self):
        return self.row == 1 and self.time == 2

    def _obs(self, action):
        return np.array([self.np_random.normal(), self.time + 10 * self.episode, action], np.float32)


class UnevenDict(Uneven):
    """The same with an image, a nested entry and a category that starts at 5."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2, 1), np.uint8),
            "body": spaces.Dict({"joints": spaces.Box(-np.inf, np.inf, (2,), np.float32)}),
            "room": spaces.Discrete(4, start=5),
        }
    )
    action_space = spaces.Box(-2.0, 3.0, (2,), np.float32)

    def step(self, action):
        return super().step(float(action.sum()))

    def _obs(self, action):
        return {
            "image": self.np_random.integers(0, 256, (2, 2, 1)).astype(np.uint8),
            "body": {"joints": self.np_random.normal(size=2).astype(np.float32)},
            "room": 5 + self.time % 4,
        }


def _script(env_class, row, episode, step):
    """Return the environment action of a step."""
    rng = np.random.default_rng([row, episode, step])
    if env_class is Uneven:
        return np.int64(rng.integers(3))
    return rng.uniform(-2.0, 3.0, 2).astype(np.float32)


def _makers(env_class, rows=ROWS):
    return [functools.partial(env_class, row) for row in range(rows)]


def _play(env, env_class, episodes=EPISODES, seed=SEED, max_steps=None):
    """Return, per row, the trajectories of the first ``episodes`` episodes, and what was scored."""
    recorder, metrics = Recorder(max_steps), EpisodeMetrics(env.num_envs)
    step = env.reset(seed=seed)
    recorder.start(step)
    number = np.zeros(env.num_envs, int)
    pieces, scored = [[] for _ in range(env.num_envs)], [[] for _ in range(env.num_envs)]
    ended = np.zeros(env.num_envs, int)
    while (ended < episodes).any():
        actions = np.stack([_script(env_class, r, number[r], step.step[r]) for r in range(env.num_envs)])
        policy_actions = env.codec.encode(actions)
        step = env.step(policy_actions)
        number += step.is_first
        for row, trajectory in recorder.add_by_row(env.codec.decode(policy_actions), step):
            if ended[row] < episodes:
                pieces[row].append(trajectory)
        for episode in metrics.add(step):
            if ended[episode.row] < episodes:
                scored[episode.row].append(episode)
        ended += step.done
    env.close()
    return pieces, scored


def _by_hand(env_class, row, episodes=EPISODES, seed=SEED):
    """Return what plain gymnasium gives in one environment: the reference for everything."""
    env, out = env_class(row), []
    codec = BatchedEnv(SyncVectorEnv([functools.partial(env_class, row)])).codec
    for number in range(episodes):
        obs, info = env.reset(seed=seed + row if number == 0 else None)
        episode = {"obs": [obs], "actions": [], "rewards": [], "terminated": [], "truncated": [], "info": []}
        done = False
        while not done:
            action = codec.decode(codec.encode(_script(env_class, row, number, len(episode["rewards"]))[None]))[0]
            obs, reward, terminated, truncated, step_info = env.step(action)
            done = terminated or truncated
            for key, value in zip(episode, (obs, action, reward, terminated, truncated, step_info), strict=True):
                episode[key].append(value)
        episode["env_name"] = info["env_name"]
        out.append(episode)
    return out


def _assert_identical(a, b):
    for field in fields(Trajectory):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if field.name == "obs":
            assert x.keys() == y.keys()
            for key in x:
                _assert_same_array(x[key], y[key])
        elif isinstance(x, np.ndarray):
            _assert_same_array(x, y)
        else:
            assert x == y, field.name


def _assert_same_array(x, y):
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    assert x.tobytes() == y.tobytes()


def _flat(obs):
    if not isinstance(obs, dict):
        return {"obs": obs}
    return {"image": obs["image"], "body/joints": obs["body"]["joints"], "room": np.int64(obs["room"] - 5)}


@pytest.mark.parametrize("env_class", [Uneven, UnevenDict])
@pytest.mark.parametrize("mode", MODES)
def test_stored_trajectories_are_what_plain_gymnasium_gives(mode, env_class):
    pieces, _ = _play(BatchedEnv(SyncVectorEnv(_makers(env_class), autoreset_mode=mode)), env_class)
    for row in range(ROWS):
        reference = _by_hand(env_class, row)
        assert len(pieces[row]) == EPISODES
        for trajectory, expected in zip(pieces[row], reference, strict=True):
            trajectory.check()
            observed = [_flat(o) for o in expected["obs"]]
            assert trajectory.obs.keys() == observed[0].keys()
            for key, values in trajectory.obs.items():
                _assert_same_array(values, np.stack([o[key] for o in observed]))
            _assert_same_array(trajectory.actions, np.stack(expected["actions"]))
            _assert_same_array(trajectory.rewards, np.array(expected["rewards"], np.float32))
            _assert_same_array(trajectory.terminated, np.array(expected["terminated"]))
            _assert_same_array(trajectory.truncated, np.array(expected["truncated"]))
            assert trajectory.env_name == expected["env_name"]
            assert (trajectory.start_step, trajectory.prev_reward) == (0, 0.0)


def test_the_script_meets_both_ends_and_many_lengths():
    """The comparison is worth something: terminations, truncations, and rows that end at different times."""
    pieces, _ = _play(BatchedEnv(SyncVectorEnv(_makers(Uneven))), Uneven)
    lengths = [[len(t) for t in row] for row in pieces]
    assert lengths == [[1 + (2 * r + 3 * e) % 5 for e in range(EPISODES)] for r in range(ROWS)]
    assert {1} < {n for row in lengths for n in row}
    assert any(t.terminated[-1] for row in pieces for t in row)
    assert any(t.truncated[-1] for row in pieces for t in row)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("env_class", [Uneven, UnevenDict])
@pytest.mark.parametrize("max_steps", [None, 2])
def test_the_three_autoreset_modes_store_the_same_bits(env_class, max_steps, copy):
    runs = [
        _play(
            BatchedEnv(SyncVectorEnv(_makers(env_class), copy=copy, autoreset_mode=mode)),
            env_class,
            max_steps=max_steps,
        )[0]
        for mode in MODES
    ]
    for other in runs[1:]:
        for row, reference in zip(other, runs[0], strict=True):
            assert len(row) == len(reference)
            for a, b in zip(row, reference, strict=True):
                _assert_identical(a, b)


def test_processes_store_the_same_bits():
    sync = _play(BatchedEnv(SyncVectorEnv(_makers(UnevenDict, 2), autoreset_mode="SameStep")), UnevenDict)[0]
    env = BatchedEnv(AsyncVectorEnv(_makers(UnevenDict, 2), context="fork", autoreset_mode="SameStep"))
    for row, reference in zip(_play(env, UnevenDict)[0], sync, strict=True):
        for a, b in zip(row, reference, strict=True):
            _assert_identical(a, b)


def test_make_batched_env_gives_the_same_in_processes_as_here():
    maker = env_maker("seqrl/TMazePassive-v0", {"corridor_length": 2})
    results = []
    for vectorization in ("sync", "async"):
        env = make_batched_env(maker, 2, vectorization=vectorization)
        step = env.reset(seed=3)
        recorder = Recorder()
        recorder.start(step)
        stored = []
        for t in range(9):
            actions = env.codec.encode(np.array([0 if t % 3 < 2 else 1, 0 if t % 3 < 2 else 3]))
            stored += recorder.add(env.codec.decode(actions), env.step(actions))
        env.close()
        results.append(stored)
    assert len(results[0]) == len(results[1]) == 6
    for a, b in zip(*results, strict=True):
        _assert_identical(a, b)


@pytest.mark.parametrize("mode", MODES)
def test_success_and_log_reach_the_right_episode(mode):
    _, scored = _play(BatchedEnv(SyncVectorEnv(_makers(Uneven), autoreset_mode=mode)), Uneven)
    for row in range(ROWS):
        for number, (episode, expected) in enumerate(zip(scored[row], _by_hand(Uneven, row), strict=True)):
            assert (episode.env_name, episode.row) == (f"task{row}-{number}", row)
            assert episode.length == len(expected["rewards"])
            assert episode.total_reward == pytest.approx(sum(expected["rewards"]), abs=1e-5)
            assert episode.success is any(i.get("success", False) for i in expected["info"])
            last_logged = {k: v for i in expected["info"] for k, v in i.items() if k.startswith("log/")}
            assert episode.log == last_logged


def test_success_is_unknown_where_it_is_never_reported():
    class Silent(Uneven):
        def step(self, action):
            obs, reward, terminated, truncated, _ = super().step(action)
            return obs, reward, terminated, truncated, {}

    _, scored = _play(BatchedEnv(SyncVectorEnv([Silent])), Uneven, episodes=2)
    assert [e.success for e in scored[0]] == [None, None]
    assert [e.log for e in scored[0]] == [{}, {}]


@pytest.mark.parametrize("mode", MODES)
def test_is_success_is_read_as_success(mode):
    class Renamed(Uneven):
        def step(self, action):
            obs, reward, terminated, truncated, info = super().step(action)
            info = {"is_success": np.bool_(self.episode != 1)} if terminated or truncated else {}
            return obs, reward, terminated, truncated, info

    _, scored = _play(BatchedEnv(SyncVectorEnv([Renamed], autoreset_mode=mode)), Uneven, episodes=3)
    assert [e.success for e in scored[0]] == [True, False, True]


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_name_of_the_task_is_the_environment_id(vectorization):
    env = make_batched_env(env_maker("seqrl/TMazePassive-v0"), 2, vectorization=vectorization)
    name = env.reset(seed=0).env_name
    env.close()
    assert name == ("seqrl/TMazePassive-v0",) * 2


@pytest.mark.parametrize("mode", MODES)
def test_step_counts_from_the_beginning_of_each_episode(mode):
    env = BatchedEnv(SyncVectorEnv([functools.partial(Uneven, 2)], autoreset_mode=mode))
    step = env.reset(seed=0)
    assert step.is_first.tolist() == [True]
    seen = [int(step.step[0])]
    for _ in range(12):
        step = env.step(np.eye(3, dtype=np.float32)[:1])
        assert bool(step.is_first[0]) == (step.step[0] == 0)
        if not (step.done[0] and mode is AutoresetMode.NEXT_STEP):
            seen.append(int(step.step[0]))
        if not (step.is_first[0] or step.done[0]):
            assert step.obs["obs"][0, 1] % 10 == step.step[0]
    lengths = [1 + (4 + 3 * e) % 5 for e in range(4)]
    expected = [t for n in lengths for t in range(n)]
    assert seen == expected[: len(seen)]


@pytest.mark.parametrize("mode", [None, "sometimes", 3])
def test_unknown_autoreset_mode_is_refused(mode):
    env = SyncVectorEnv([Uneven])
    env.metadata["autoreset_mode"] = mode
    with pytest.raises(EnvError, match=r"autoreset_mode.*NextStep, SameStep, Disabled|autoreset_mode.*legal are"):
        BatchedEnv(env)


def test_missing_autoreset_mode_is_refused():
    env = SyncVectorEnv([Uneven])
    del env.metadata["autoreset_mode"]
    with pytest.raises(EnvError, match="autoreset mode None"):
        BatchedEnv(env)


def test_mode_may_be_announced_as_text():
    env = SyncVectorEnv(_makers(Uneven), autoreset_mode="SameStep")
    env.metadata["autoreset_mode"] = "SameStep"
    pieces, _ = _play(BatchedEnv(env), Uneven)
    assert [len(t) for t in pieces[0]] == [len(e["rewards"]) for e in _by_hand(Uneven, 0)]


def test_a_plain_environment_is_refused():
    with pytest.raises(EnvError, match="Uneven"):
        BatchedEnv(Uneven())


class Counter(VectorEnv):
    """Natively vectorised: row r counts to r + 2, then starts at 100 times the episode; batched final_obs."""

    def __init__(self, num_envs=3, gives_final=True):
        self.num_envs = num_envs
        self.gives_final = gives_final
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.time, self.episode = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        return self._obs(), {}

    def step(self, actions):
        self.time += 1
        done = self.time >= np.arange(self.num_envs) + 2
        final = self._obs()
        self.time[done] = 0
        self.episode[done] += 1
        info = {}
        if done.any() and self.gives_final:
            info = {"final_obs": final, "final_info": {"success": done & (self.episode % 2 == 0), "_success": done}}
        return self._obs(), np.ones(self.num_envs), done, np.zeros(self.num_envs, bool), info

    def _obs(self):
        return np.stack([100 * self.episode + self.time, np.arange(self.num_envs)], axis=-1).astype(np.float32)


def test_natively_vectorised_env_with_batched_final_obs():
    env = make_batched_env(Counter, 99)
    assert env.num_envs == 3
    recorder, metrics = Recorder(), EpisodeMetrics(3)
    step = env.reset(seed=0)
    recorder.start(step)
    stored, scored = [], []
    for _ in range(12):
        actions = env.codec.encode(np.zeros(3, np.int64))
        step = env.step(actions)
        stored += recorder.add_by_row(env.codec.decode(actions), step)
        scored += metrics.add(step)
    for row in range(3):
        mine = [t for r, t in stored if r == row]
        assert len(mine) == 12 // (row + 2)
        for number, trajectory in enumerate(mine):
            counted = trajectory.obs["obs"][:, 0]
            assert counted.tolist() == [100 * number + t for t in range(row + 3)]
            assert (trajectory.obs["obs"][:, 1] == row).all()
        assert [e.success for e in scored if e.row == row] == [n % 2 == 1 for n in range(len(mine))]


def test_same_step_env_without_final_obs_is_refused():
    env = BatchedEnv(Counter(gives_final=False))
    env.reset(seed=0)
    actions = np.eye(2, dtype=np.float32)[[0, 0, 0]]
    env.step(actions)
    with pytest.raises(EnvError, match="final_obs"):
        env.step(actions)


def test_reset_forgets_the_episodes_before_it():
    env = BatchedEnv(SyncVectorEnv(_makers(Uneven)))
    env.reset(seed=SEED)
    actions = np.eye(3, dtype=np.float32)[[0] * ROWS]
    while not env.step(actions).done.any():
        pass
    env.reset(seed=SEED)
    step = env.step(actions)
    assert not step.is_first.any()
    assert step.step.tolist() == [1] * ROWS
    env.close()


def test_render_gives_one_frame_per_environment():
    env = make_batched_env(lambda: make_env("seqrl/TMazePassive-v0", render_mode="rgb_array"), 2)
    env.reset(seed=0)
    assert [f.dtype for f in env.render()] == [np.uint8, np.uint8]
