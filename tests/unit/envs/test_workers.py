"""Environments in worker processes, several to a process."""

import dataclasses
import functools
import multiprocessing
import os
import signal
import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from seqrl.configs.sections.run import EnvSection
from seqrl.core.errors import EnvError
from seqrl.envs.make import env_maker, make_batched_env
from seqrl.envs.workers import WorkerVectorEnv
from seqrl.rollout.environments import build_env

ROWS = 5


class Telling(gym.Env):
    """Random episodes of one to five steps, whose infos hold all that seqrl reads, and more, in some steps only."""

    observation_space = spaces.Box(-1, 1, (2, 3), np.float32)
    action_space = spaces.Discrete(4, start=1)
    render_mode = "rgb_array"

    def __init__(self, name="a"):
        self.name, self.t, self.length = name, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(1, 6))
        return self._obs(), {"env_name": f"{self.name}-{self.length}", "action_mask": self._mask()}

    def _obs(self):
        return self.np_random.uniform(-1, 1, (2, 3)).astype(np.float32)

    def _mask(self):
        return np.array([1, *self.np_random.integers(0, 2, 3)], np.int8)

    def step(self, action):
        self.t += 1
        info = {"action_mask": self._mask(), "log/number": float(self.np_random.random())}
        if self.t % 2:
            info |= {"nested": {"text": f"t{self.t}", "array": np.arange(self.t)[:1]}, "_odd": 3}
        if self.t == self.length:
            info["success"] = bool(self.np_random.random() < 0.5)
        return self._obs(), float(action) / 7, self.t == self.length and self.length % 2, self.t == self.length, info

    def render(self):
        return self.name


class Nested(Telling):
    """Observations and actions of dicts and tuples."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
            "pair": spaces.Tuple(
                [spaces.Discrete(5, start=-2), spaces.Dict({"half": spaces.Box(-1, 1, (2,), np.float16)})]
            ),
            "bits": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32)})])

    def _obs(self):
        image = self.np_random.integers(0, 256, (4, 4, 3))
        half = self.np_random.uniform(-1, 1, 2).astype(np.float16)
        pair = (int(self.np_random.integers(-2, 3)), {"half": half})
        return {"image": image.astype(np.uint8), "pair": pair, "bits": np.array([1, 0, self.t % 2], np.int8)}

    def step(self, action):
        choice, values = action
        obs, _, terminated, truncated, info = super().step(0)
        info.pop("action_mask")
        return obs, choice + values["x"].sum() / 3, terminated, truncated, info

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"env_name": self.name}


MAKERS = {
    "tmaze": [env_maker("seqrl/TMazePassive-v0", {"corridor_length": 2})],
    "telling": [functools.partial(Telling, name) for name in "ab"],
    "nested": [Nested],
}


def same(a, b):
    """Check that two results are the same to the bit and the type, whatever they are made of."""
    assert type(a) is type(b)
    if dataclasses.is_dataclass(a):
        same(
            {f.name: getattr(a, f.name) for f in dataclasses.fields(a)},
            {f.name: getattr(b, f.name) for f in dataclasses.fields(b)},
        )
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, tuple | list) or (isinstance(a, np.ndarray) and a.dtype == object):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


@pytest.mark.parametrize("name", MAKERS)
def test_results_are_those_of_one_process_however_many_workers_there_are(name):
    def steps(**options):
        env = make_batched_env(MAKERS[name], ROWS, max_restarts=1, **options)
        rng = np.random.default_rng(1)
        try:
            return [env.reset(seed=3), *[env.step(env.codec.random(rng, ROWS)) for _ in range(30)], env.reset(seed=4)]
        finally:
            env.close()

    alone = steps()
    assert sum(step.done.sum() for step in alone) > 2 * ROWS
    for workers in (1, 2, None):
        same(steps(vectorization="async", start_method="fork", num_workers=workers), alone)


@pytest.mark.parametrize("env_class", [Telling, Nested])
def test_infos_are_those_of_gymnasium(env_class):
    makers = [functools.partial(env_class, str(row)) for row in range(ROWS)]
    one = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    other = WorkerVectorEnv(makers, 2, "fork")
    assert other.observation_space == one.observation_space
    assert other.action_space == one.action_space
    one.action_space.seed(0)
    same(other.reset(seed=2), one.reset(seed=2))
    for _ in range(20):
        actions = one.action_space.sample()
        same(other.step(actions), one.step(actions))
    assert other.render() == one.render() == tuple("01234")
    other.set_attr("name", list("vwxyz"))
    assert other.get_attr("name") == tuple("vwxyz")
    other.close()
    one.close()


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_workers_of_every_start_method(start_method):
    env = make_batched_env(
        env_maker("CartPole-v1"), 3, vectorization="async", start_method=start_method, num_workers=2, max_restarts=0
    )
    step = env.reset(seed=5)
    env.close()
    same(step, make_batched_env(env_maker("CartPole-v1"), 3).reset(seed=5))


@pytest.mark.parametrize(("given", "processes"), [(None, 3), (1, 1), (2, 2), (9, 3)])
def test_the_number_of_processes(given, processes):
    section = EnvSection(vectorization="async", start_method="fork", num_workers=given)
    env = build_env(Telling, 3, section)
    assert len(env.env.processes) == processes
    assert [row for group in env.env._groups for row in group] == [0, 1, 2]
    assert env.reset(seed=0).env_name[2].startswith("a-")
    env.close()
    assert not any(process.is_alive() for process in env.env.processes)


def test_a_killed_worker_has_the_vector_rebuilt_and_all_its_rows_named():
    env = make_batched_env(Telling, 4, vectorization="async", start_method="fork", num_workers=2, max_restarts=1)
    env.reset(seed=0)
    actions = env.codec.random(np.random.default_rng(0), 4)
    env.step(actions)
    killed = env.env.processes[1]
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    step = env.step(actions)
    assert step.truncated.all()
    assert step.fault.all()
    assert "the process of row 2, 3 died" in env.last_fault
    assert not env.step(actions).fault
    env.close()


class OddError(Exception):
    """Takes two arguments and cannot be sent."""

    def __init__(self, what, where):
        super().__init__(f"{what} in {where}")
        self.where = lambda: where


class Failing(Telling):
    """Raises in a step, hangs in a step, or cannot be made."""

    def __init__(self, what=""):
        super().__init__()
        self.what = what
        if what == "make":
            raise EnvError("not made")

    def step(self, action):
        if self.what == "raise":
            raise RuntimeError("planted")
        if self.what == "raise oddly":
            raise OddError("planted", "step")
        if self.what == "hang":
            time.sleep(60)
        return super().step(action)


def failing(what):
    """Return the makers of four environments, of which the third does ``what``."""
    return [Failing, Failing, functools.partial(Failing, what), Failing]


@pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium's traceback of the worker
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_errors_come_through_where_no_restart_is_borne(workers):
    before = multiprocessing.active_children()
    env = make_batched_env(failing("raise"), 4, vectorization="async", start_method="fork", num_workers=workers)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="planted"):
        env.step(env.codec.random(np.random.default_rng(0), 4))
    env.close()
    with pytest.raises(EnvError, match="not made"):
        WorkerVectorEnv(failing("make"), workers, "fork")
    assert set(multiprocessing.active_children()) <= set(before)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_environment_that_cannot_be_made_is_told_while_others_still_start():
    makers = [functools.partial(Failing, "make"), *[Failing] * 14]
    with pytest.raises(EnvError, match="not made"):
        WorkerVectorEnv([Failing, *makers], 16, "fork")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_error_that_cannot_be_sent_comes_through_in_words():
    env = make_batched_env(failing("raise oddly"), 4, vectorization="async", start_method="fork", num_workers=2)
    env.reset(seed=0)
    with pytest.raises(EnvError, match="OddError: planted in step"):
        env.step(env.codec.random(np.random.default_rng(0), 4))
    env.close()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_environment_that_hangs_is_named(workers):
    env = make_batched_env(
        failing("hang"),
        4,
        vectorization="async",
        start_method="fork",
        num_workers=workers,
        max_restarts=0,
        timeout_s=0.5,
    )
    env.reset(seed=0)
    with pytest.raises(EnvError, match=r"row 2 did not answer within 0\.5 s"):
        env.step(env.codec.random(np.random.default_rng(0), 4))
    env.close()
    assert not any(process.is_alive() for process in env.env.processes)


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))})])
def test_observations_of_no_fixed_size_are_refused(space):
    class Sized(Telling):
        observation_space = space

    with pytest.raises(EnvError, match=r"async cannot share the observations"):
        WorkerVectorEnv([Sized], 1, "fork")


def test_a_step_is_not_begun_twice():
    env = WorkerVectorEnv([Telling] * 3, 2, "fork")
    env.reset_async()
    with pytest.raises(gym.error.AlreadyPendingCallError, match="step during a pending reset"):
        env.step_async(np.ones(3, np.int64))
    with pytest.raises(gym.error.NoAsyncCallError, match="no step is pending"):
        env.step_wait()
    env.reset_wait()
    env.close()


@pytest.mark.parametrize(
    ("space", "given"),
    [
        (spaces.Box(0, 255, (2, 3), np.uint8), np.full((2, 3), 0.5, np.float32)),
        (spaces.Box(0, 1, (2, 3)), np.zeros((3, 2), np.float32)),
        (spaces.Discrete(3), 1.7),
    ],
)
def test_observations_that_do_not_fit_are_refused(space, given):
    """Here as in one process, which gymnasium sees to."""

    class Odd(Telling):
        def __init__(self):
            super().__init__()
            self.observation_space = space

        def reset(self, *, seed=None, options=None):
            return given, {}

    env = make_batched_env(Odd, 2, vectorization="async")
    with pytest.raises(EnvError, match=r"an observation is float.* but the environment's space says"):
        env.reset(seed=0)
    env.close()


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_environments_without_an_id_are_named_by_their_class(vectorization):
    class Silent(Telling):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {}

    class Other(Silent):
        pass

    env = make_batched_env([Silent, Other], 2, vectorization=vectorization)
    assert env.reset(seed=0).env_name == ("Silent", "Other")
    env.close()


class Dying(Telling):
    """Its process ends while it is made, or in its first reset; never in the process that the test runs in."""

    def __init__(self, home, in_reset):
        super().__init__()
        self.home, self.in_reset = home, in_reset
        self._end(not in_reset)

    def _end(self, now):
        if now and os.getpid() != self.home:
            os._exit(3)

    def reset(self, **options):
        self._end(self.in_reset)
        return super().reset(**options)


def test_a_process_that_ends_before_the_first_step_is_told_of():
    with pytest.raises(EnvError, match=r"ended while it made its environments; a script .* needs `if __name__"):
        make_batched_env(functools.partial(Dying, os.getpid(), False), 2, vectorization="async")
    env = make_batched_env(functools.partial(Dying, os.getpid(), True), 2, vectorization="async")
    with pytest.raises(EnvError, match=r"the process of row .* died in reset"):
        env.reset(seed=0)
    env.close()
