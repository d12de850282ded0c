"""Environments that raise, die, hang or return nonsense."""

import functools
import os
import re
import signal
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from seqrl.core.errors import DataError, EnvError
from seqrl.core.spaces import flatten_obs
from seqrl.envs.faults import FAULT_KEY, RestartingEnv
from seqrl.envs.make import make_batched_env
from seqrl.envs.metrics import EpisodeMetrics
from seqrl.envs.recorder import Recorder

KINDS = [("sync", None), ("async", None), ("async", 1)]


class Faulty(gym.Env):
    """Counts its steps, and does ``what`` once, at step ``at``, if the marker file does not exist yet."""

    def __init__(self, what="", at=3, marker="", horizon=6):
        self.observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.what, self.at, self.marker, self.horizon, self.t = what, at, marker, horizon, 0

    def _fail(self, where):
        if where != ("reset" if self.what == "reset" else "step") or not self.what or os.path.exists(self.marker):
            return False
        if where == "step" and self.t != self.at:
            return False
        open(self.marker, "w").close()
        return True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        if self._fail("reset"):
            raise RuntimeError("no reset")
        return self._obs(), {}

    def _obs(self):
        return np.array([self.t, self.np_random.random()], np.float32)

    def step(self, action):
        self.t += 1
        obs, reward = self._obs(), 1.0
        if self._fail("step"):
            if self.what == "raise":
                raise RuntimeError("planted")
            if self.what == "die":
                os._exit(1)
            if self.what == "hang":
                time.sleep(60)
            obs[1] = np.nan if self.what == "nan_obs" else obs[1]
            reward = float("inf") if self.what == "inf_reward" else 1.0
        return obs, reward, False, self.t == self.horizon, {}


def build(tmp_path, what, vectorization="sync", *, workers=None, restarts=5, timeout_s=None, num=2):
    """Only row 1 of the two fails, once."""
    makers = [Faulty] + [functools.partial(Faulty, what, marker=str(tmp_path / f"m{i}")) for i in range(1, num)]
    return make_batched_env(
        makers, num, vectorization=vectorization, num_workers=workers, max_restarts=restarts, timeout_s=timeout_s
    )


def run(env, steps):
    """Return the recorded trajectories with their rows, and the episodes."""
    recorder, metrics = Recorder(), EpisodeMetrics(env.num_envs)
    recorder.start(env.reset(seed=0))
    recorded, episodes = [], []
    actions = env.codec.random(np.random.default_rng(0), env.num_envs)
    for _ in range(steps):
        step = env.step(actions)
        recorded += recorder.add_by_row(env.codec.decode(actions), step)
        episodes += metrics.add(step)
    return recorded, episodes


@pytest.mark.parametrize(("vectorization", "workers"), KINDS)
@pytest.mark.parametrize("what", ["raise", "nan_obs", "inf_reward"])
def test_one_row_is_restarted_and_its_episode_cut_before_the_fault(tmp_path, what, vectorization, workers):
    env = build(tmp_path, what, vectorization, workers=workers)
    try:
        recorded, episodes = run(env, 12)
    finally:
        env.close()
    assert env.num_faults == 1
    assert "at step 2 of its episode" in env.last_fault
    rows = {row: [t for r, t in recorded if r == row] for row in (0, 1)}
    assert [len(t) for t in rows[0]] == [6, 6]
    assert [len(t) for t in rows[1]] == [2, 6]  # the failed third step is not stored
    cut = rows[1][0].check()
    assert not cut.truncated.any()  # its return is not known
    assert cut.obs["obs"][:, 0].tolist() == [0.0, 1.0, 2.0]
    assert sorted((e.row, e.length) for e in episodes) == [(0, 6), (0, 6), (1, 6)]
    assert all(np.isfinite(t.obs["obs"]).all() for _, t in recorded)


@pytest.mark.parametrize("workers", [None, 1])
@pytest.mark.parametrize(("what", "says"), [("die", "row 1 died"), ("hang", "row 1 did not answer within 2 s")])
def test_a_dead_or_hanging_process_has_the_vector_rebuilt(tmp_path, what, says, workers):
    env = build(tmp_path, what, "async", workers=workers, timeout_s=2.0)
    try:
        recorded, episodes = run(env, 11)
    finally:
        env.close()
    assert env.num_faults == 1
    assert says in env.last_fault
    assert sorted((row, len(t)) for row, t in recorded) == [(0, 2), (0, 6), (1, 2), (1, 6)]
    assert all(t.truncated[-1] == (len(t) == 6) for _, t in recorded)  # what was cut has no end
    assert len(episodes) == 2


def test_a_failing_reset_is_tried_again(tmp_path):
    env = build(tmp_path, "reset")
    recorded, _ = run(env, 6)
    assert env.num_faults == 1
    assert "in reset, RuntimeError: no reset (raised in " in env.last_fault
    assert [len(t) for _, t in recorded] == [6, 6]


class NotAgain(Faulty):
    """The reset after its fault (or, without one, after its first episode) fails once too."""

    def reset(self, *, seed=None, options=None):
        comes_after = os.path.exists(self.marker) if self.what else self.t > 0
        if comes_after and not os.path.exists(f"{self.marker}-reset"):
            open(f"{self.marker}-reset", "w").close()
            raise RuntimeError("not again")
        return super().reset(seed=seed)


@pytest.mark.parametrize(("what", "faults"), [("", 1), ("die", 2)])
def test_a_reset_that_fails_later_counts_and_is_at_step_0(tmp_path, what, faults):
    makers = [Faulty, functools.partial(NotAgain, what, marker=str(tmp_path / "m"))]
    env = make_batched_env(makers, 2, vectorization="async", max_restarts=5)
    try:
        run(env, 8)
    finally:
        env.close()
    assert env.num_faults == faults
    assert "(row 1) failed at step 0 of its episode: in reset, RuntimeError: not again" in env.last_fault


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize("restarts", [None, 2])
def test_an_environment_that_reuses_its_array_has_true_last_observations(vectorization, restarts):
    env = make_batched_env(Reusing, 1, vectorization=vectorization, max_restarts=restarts)
    recorded, _ = run(env, 8)
    env.close()
    assert [t.obs["obs"][:, 0].tolist() for _, t in recorded] == [[0, 1, 2, 3, 4]] * 2


def test_a_float_in_an_integer_space_is_not_cut_unseen():
    env = make_batched_env(FloatsAsIntegers, 1)
    with pytest.raises(DataError, match="obs/obs was int64 and is now float64"):
        run(env, 3)


def test_too_many_failures_name_environment_and_step(tmp_path):
    makers = [functools.partial(Faulty, "raise", at=i + 1, marker=str(tmp_path / str(i))) for i in range(3)]
    env = make_batched_env(makers, 3, max_restarts=2)
    with pytest.raises(
        EnvError, match=r"'Faulty' \(row 2\) failed at step 2 of its episode.*failure 3.*is 2.*check-env"
    ):
        run(env, 5)


def test_actions_of_another_shape_are_the_policys_mistake_and_restart_nothing():
    env = make_batched_env(Faulty, 2, max_restarts=10)
    env.reset(seed=0)
    with pytest.raises(DataError, match=r"policy's actions have shape \(2, \d\); 2 environments .* need \(2, "):
        env.step(np.zeros((2, env.codec.dim + 1), np.float32))
    assert env.num_faults == 0
    env.step(np.zeros((2, env.codec.dim), np.float32))
    env.close()


def test_without_restarts_the_error_comes_through(tmp_path):
    with pytest.raises(RuntimeError, match="planted"):
        run(build(tmp_path, "raise", restarts=None), 5)


def test_no_restart_at_all_is_an_error_with_environment_and_step(tmp_path):
    with pytest.raises(EnvError, match=r"\(row 1\) failed at step 2 of its episode: RuntimeError: planted"):
        run(build(tmp_path, "raise", restarts=0), 5)


def watchdogs():
    return [t for t in threading.enumerate() if t.name == "seqrl-watchdog"]


@pytest.mark.parametrize("what", ["hang", "raise"])
def test_a_sync_environment_that_hangs_is_named_while_it_does(tmp_path, monkeypatch, caplog, what):
    sleep, said, before = time.sleep, [], len(watchdogs())
    monkeypatch.setattr(time, "sleep", lambda seconds: (sleep(1.2), said.extend(caplog.messages)))
    env = build(tmp_path, what, timeout_s=0.4)
    assert len(watchdogs()) == before + 1
    run(env, 8)
    env.close()
    if what == "raise":
        sleep(0.6)
        assert caplog.messages == []
    else:
        assert len(said) == len(caplog.messages) == 1
        assert re.match(r"environment '\w+' \(row 1\) hangs: it has not returned since \d\d:\d\d:\d\d, ", said[0])
        assert "env.vectorization=async" in said[0]
    wait_until(lambda: len(watchdogs()) == before, sleep)
    abandoned = build(tmp_path, "", timeout_s=0.1)
    assert len(watchdogs()) == before + 1
    del abandoned
    wait_until(lambda: len(watchdogs()) == before, sleep)


def wait_until(condition, sleep):
    for _ in range(500):
        if condition():
            return
        sleep(0.02)
    raise AssertionError("waited in vain")


def test_closing_after_a_death_neither_hangs_nor_hides_the_error(tmp_path):
    env = build(tmp_path, "die", "async", restarts=0, timeout_s=30.0)
    with pytest.raises(EnvError, match="row 1 died"):
        run(env, 5)
    begin = time.monotonic()
    env.close()
    assert time.monotonic() - begin < 20


def test_a_restarted_environment_plays_other_episodes_than_before(tmp_path):
    """A deterministic fault of one episode would otherwise come again for ever."""
    env = build(tmp_path, "raise")
    recorded, _ = run(env, 9)
    first, second = (t for row, t in recorded if row == 1)
    assert first.obs["obs"][0, 1] != second.obs["obs"][0, 1]
    again, _ = run(build(tmp_path / "other", "raise") if (tmp_path / "other").mkdir() is None else None, 9)
    for (_, a), (_, b) in zip(recorded, again, strict=True):
        np.testing.assert_array_equal(a.obs["obs"], b.obs["obs"])


class Reusing(Faulty):
    """Writes each observation into the array that it has given away."""

    def __init__(self):
        super().__init__(horizon=4)
        self.array = np.zeros(2, np.float32)

    def _obs(self):
        self.array[0] = self.t
        return self.array


class FloatsAsIntegers(VectorEnv):
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self):
        self.num_envs, self.t = 1, 0
        self.single_observation_space = spaces.Box(0, 9, (1,), np.int64)
        self.single_action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros((1, 1), np.int64), {}

    def step(self, actions):
        return np.full((1, 1), 0.5), np.ones(1), np.zeros(1, bool), np.zeros(1, bool), {}


class BrokenVector(VectorEnv):
    """A native vector that raises, or gives NaN, in its second step; the next one that is made is whole."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, made, what):
        made.append(self)
        self.num_envs, self.t = 2, 0
        self.what = what if len(made) == 2 else ""  # the first is the one that is asked for its spaces
        self.single_observation_space = spaces.Box(-9, 9, (1,))
        self.single_action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions):
        self.t += 1
        if self.t == 2 and self.what == "raise":
            raise RuntimeError("planted")
        obs = np.full((2, 1), np.nan if self.t == 2 and self.what == "nan" else self.t, np.float32)
        return obs, np.ones(2), np.zeros(2, bool), np.full(2, self.t == 4), {}


@pytest.mark.parametrize("what", ["raise", "nan"])
def test_a_native_vector_is_rebuilt_as_a_whole(what):
    made = [None]
    env = make_batched_env(functools.partial(BrokenVector, made, what), 2, max_restarts=1)
    recorded, _ = run(env, 7)
    assert env.num_faults == 1
    assert sorted((row, len(t)) for row, t in recorded) == [(0, 1), (0, 4), (1, 1), (1, 4)]


def test_an_environment_of_dicts_is_watched_too():
    class Dicts(Faulty):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})

        def _obs(self):
            return {"a": np.full(2, np.nan if self.t == 2 else 0, np.float32), "b": 1}

    env = make_batched_env(Dicts, 1, max_restarts=1)
    run(env, 2)
    assert "entry 'a'" in env.last_fault
    assert flatten_obs(env.observation_space, {"a": np.zeros(2), "b": 1})["b"] == 1


class Interrupting(Faulty):
    """Raises what Ctrl-C does, in the third step of its first life."""

    def step(self, action):
        self.t += 1
        if self.t == self.at and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            raise KeyboardInterrupt
        return self._obs(), 1.0, False, self.t == self.horizon, {}


@pytest.mark.parametrize("workers", [None, 1])
def test_a_keyboard_interrupt_in_a_worker_is_a_failure_of_the_environment(tmp_path, workers):
    """It ended the main process as Ctrl-C does."""
    makers = [Faulty, functools.partial(Interrupting, marker=str(tmp_path / "m"))]
    env = make_batched_env(makers, 2, vectorization="async", num_workers=workers, max_restarts=1)
    try:
        env.reset(seed=0)
        for pid in [p.pid for p in env.env.unwrapped.processes]:
            os.kill(pid, signal.SIGINT)  # as a terminal sends it to all
            os.kill(pid, signal.SIGHUP)  # as it does when it is closed
        run(env, 5)
        assert env.num_faults == 1
        assert "step raised KeyboardInterrupt()" in env.last_fault
        assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    finally:
        env.close()


def test_only_the_row_of_a_nan_is_cut_where_the_array_is_reused():
    class Writing(Faulty):
        def __init__(self):
            super().__init__()
            self.array = np.zeros(2, np.float32)

        def _obs(self):
            self.array[:] = self.t, np.nan if (self.what, self.t) == ("nan", 3) else 0
            return self.array

    class Bad(Writing):
        def __init__(self):
            super().__init__()
            self.what = "nan"

    env = make_batched_env([Bad, Writing], 2, max_restarts=5)
    env.reset(seed=0)
    steps = [env.step(np.eye(2, dtype=np.float32)) for _ in range(4)]
    env.close()
    assert [None if s.fault is None else s.fault.tolist() for s in steps] == [None, None, [True, False], None]


def test_a_fault_tells_the_last_true_observation_and_the_line():
    class Reusing(Faulty):
        def __init__(self):
            super().__init__()
            self.array = np.zeros(2, np.float32)

        def step(self, action):
            self.t += 1
            self.array[:] = self.t
            if self.t == 3:
                raise KeyError("missing")
            return self.array, 0.0, False, False, {}

    env = RestartingEnv(Reusing)
    env.reset(seed=0)
    for _ in range(2):
        env.step(0)
    obs, _, _, truncated, info = env.step(0)
    assert truncated
    assert obs.tolist() == [2, 2]
    assert "KeyError: 'missing' (raised in " in info[FAULT_KEY]
    assert "test_faults.py, line " in info[FAULT_KEY]
