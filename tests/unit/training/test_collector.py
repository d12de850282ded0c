"""What is stored and what the policy sees, against what the environments themselves wrote down."""

import functools
import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from seqrl.core.registry import EXPLORATIONS
from seqrl.core.spaces import MASK_KEY
from seqrl.envs.faults import RestartingMaker
from seqrl.envs.vector import BatchedEnv
from seqrl.training.collector import Collector
from tests.grids import each_once

ROWS, EPOCHS = 4, 4
ACTIONS = {"discrete": spaces.Discrete(4, start=2), "box": spaces.Box(-2.0, 4.0, (2,), np.float32)}


@dataclass
class Case:
    """What varies: the environments with the probabilities of their faults, and what a collect section says."""

    seed: int
    action: str = "discrete"
    mask: str = ""  # where it is given: "obs", "info" or nowhere
    step_fault: float = 0.0
    reset_fault: float = 0.0
    vector_fault: float = 0.0
    exploration: str = "epsilon_greedy"
    trajectory_steps: int | None = None
    stagger_trajectories: bool = True
    reset_every_n_epochs: int | None = None
    steps_per_epoch: int = 130
    deterministic: bool = False
    engine: str = "eager"


class Episode:
    """What one environment did in one episode; a step is its action, reward, terminated and truncated."""

    def __init__(self, uid, name, is_after_reset):
        self.uid, self.name, self.is_after_reset = uid, name, is_after_reset
        self.obs, self.masks, self.steps = [], [], []


class World:
    """What all environments of a test share: the episodes of each row, and whether the collector reset it."""

    def __init__(self, case):
        self.case, self.rng, self.uids = case, np.random.default_rng(case.seed), itertools.count(1)
        self.episodes = [[] for _ in range(ROWS)]
        self.is_reset = np.ones(ROWS, bool)


class Logged(gym.Env):
    """Observes ``[row, episode, time]`` and noise, writes everything down, and fails at random."""

    def __init__(self, world, row):
        self.world, self.case, self.rng, self.row = world, world.case, world.rng, row
        parts = {"id": spaces.Box(-1e9, 1e9, (3,), np.float64), "pixels": spaces.Box(0, 255, (2, 2), np.uint8)}
        if self.case.mask == "obs":
            parts[MASK_KEY] = spaces.MultiBinary(4)
        self.observation_space, self.action_space = spaces.Dict(parts), ACTIONS[self.case.action]

    def _observed(self, is_end=False):
        """Return the observation and the info; nothing need be legal where an episode ended."""
        mask = (self.rng.random(4) < 0.5).astype(np.int8)
        mask[self.rng.integers(4)] |= not is_end
        pixels = self.rng.integers(256, size=(2, 2)).astype(np.uint8)
        obs = {"id": np.array([self.row, self.episode.uid, self.time], np.float64), "pixels": pixels}
        self.episode.obs.append(obs)
        self.episode.masks.append(mask.astype(bool))
        info = {"log/time": float(self.time)} if self.rng.random() < 0.5 else {}
        given = {MASK_KEY: mask}
        return obs | given if self.case.mask == "obs" else obs, info | given if self.case.mask == "info" else info

    def reset(self, *, seed=None, options=None):
        if self.rng.random() < self.case.reset_fault:
            raise RuntimeError("planted in reset")
        self.time, self.horizon = 0, int(self.rng.choice([1, 2, 3, 17, 60, 700], p=[0.2, 0.2, 0.2, 0.17, 0.17, 0.06]))
        self.episode = Episode(next(self.world.uids), f"task{self.rng.integers(3)}", self.world.is_reset[self.row])
        self.world.is_reset[self.row] = False
        self.world.episodes[self.row].append(self.episode)
        obs, info = self._observed()
        return obs, info | {"env_name": self.episode.name}

    def step(self, action):
        assert self.action_space.contains(action)
        assert not self.case.mask or self.episode.masks[-1][action - 2], "illegal"
        if self.rng.random() < self.case.step_fault:
            if self.rng.random() < 0.5:
                raise RuntimeError("planted in step")
            return self.episode.obs[-1] | {"id": np.full(3, np.nan)}, 0.0, False, False, {}
        self.time += 1
        is_end = self.time == self.horizon
        terminated = bool(is_end and self.rng.random() < 0.5)
        truncated, reward = is_end and not terminated, float(self.rng.integers(1000))
        obs, info = self._observed(is_end)
        self.episode.steps.append((np.array(action), reward, terminated, truncated))
        return obs, reward, terminated, truncated, info


class Breaking(SyncVectorEnv):
    """Raises as a whole, before or after its environments stepped, and then nobody learns of that step."""

    def __init__(self, world, mode):
        self.world = world
        makers = [RestartingMaker(functools.partial(Logged, world, row)) for row in range(ROWS)]
        super().__init__(makers, autoreset_mode=mode)

    def step(self, actions):
        playing = [(episodes[-1], len(episodes[-1].steps)) for episodes in self.world.episodes]
        is_breaking, is_late = self.world.rng.random(2) < (self.world.case.vector_fault, 0.5)
        result = super().step(actions) if is_late or not is_breaking else None
        if not is_breaking:
            return result
        for episode, length in playing:
            del episode.steps[length:]
        raise RuntimeError("planted in the vector")


class RandomAlgo:
    """Acts at random, counts its steps in its state, and notes what it was shown at each time of each episode."""

    max_step, device, nets = None, torch.device("cpu"), SimpleNamespace(training=False)
    step_problem, subgoals = str, dict
    config = SimpleNamespace(observation=SimpleNamespace(use_prev_reward=True))
    goal_keys, needs_reward, explores = (), False, True
    inputs = SimpleNamespace(scaled=lambda x: x, own_actions=lambda x: x, values={})

    def __init__(self, env, seed):
        self.codec, self.rng, self.seen = env.codec, np.random.default_rng(seed), {}
        self.set_eval = lambda: None
        parts = {k: v for k, v in env.observation_space.spaces.items() if k != MASK_KEY}
        self.obs = {k: SimpleNamespace(shape=v.shape, dtype=str(v.dtype), nvec=None) for k, v in parts.items()}

    def init_state(self, num_rows):
        return {"steps": torch.zeros(num_rows, dtype=torch.int64)}

    def reset_rows(self, state, rows):
        return {"steps": state["steps"].masked_fill(rows, 0)}

    def act(self, inputs, state, deterministic):
        mask = None if inputs.action_mask is None else inputs.action_mask[:, 0].numpy()
        for row, (_, uid, time) in enumerate(inputs.obs["id"][:, 0].int().tolist()):
            counts = [float(x) for x in (inputs.prev_reward[row, 0], inputs.step[row, 0], state["steps"][row])]
            legal = None if mask is None else mask[row].tolist()
            self.seen.setdefault((uid, time), []).append((inputs.prev_action[row, 0].numpy(), counts, legal))
        steps = state["steps"]
        return torch.from_numpy(self.codec.random(self.rng, len(steps), mask)), {"steps": steps + 1}

    def explore(self, inputs, state, luck):
        assert luck.shape == state["steps"].shape
        return self.act(inputs, state, deterministic=False)


def _pieces(case, world, row):
    """Yield the episode, begin, end and whether the end is a cut, of all that should be stored of a row."""
    most = case.trajectory_steps
    for episode in world.episodes[row]:
        if episode.is_after_reset:
            limit = -(-most * (row + 1) // ROWS) if most and case.stagger_trajectories else most
        length, begin = len(episode.steps), 0
        while begin < length:
            end = min(begin + (limit or length), length)
            has_ended = any(episode.steps[end - 1][2:])
            is_full = limit == end - begin and not has_ended
            yield episode, begin, end, not (has_ended or is_full)
            limit, begin = most if is_full else limit, end


def _check_stored(case, stored, episode, begin, end, is_cut):
    """Compare a stored trajectory with what the environment wrote down."""
    before = episode.steps[begin - 1] if begin else (None, 0.0)
    assert (stored.start_step, stored.env_name, stored.prev_reward) == (begin, episode.name, before[1])
    assert np.array_equal(stored.prev_action, before[0])
    for key in ("id", "pixels"):
        assert np.array_equal(stored.obs[key], [obs[key] for obs in episode.obs[begin : end + 1]])
    assert not case.mask or np.array_equal(stored.action_mask, episode.masks[begin : end + 1])
    *given, truncated = zip(*episode.steps[begin:end], strict=True)
    for name, values in zip(("actions", "rewards", "terminated"), given, strict=True):
        assert np.array_equal(getattr(stored, name), values)
    assert np.array_equal(stored.truncated, truncated)
    assert not is_cut or not (stored.truncated[-1] or stored.terminated[-1])  # its return is not known


def _check_seen(case, algo, episode, begin, end):
    """Compare what the policy was shown before each step with the step before."""
    for time in range(begin, end):
        ((action, counts, legal),) = algo.seen[episode.uid, time]
        before = episode.steps[time - 1] if time else (None, 0.0)
        np.testing.assert_allclose(action, algo.codec.encode(before[0]) if time else 0.0, atol=1e-6)
        assert counts == [before[1], time, time]
        assert legal == (episode.masks[time].tolist() if case.mask else None)


CASES = {
    "whole": Case(seed=0, action="box"),
    "pieces": Case(seed=1, trajectory_steps=30, stagger_trajectories=False, mask="obs", exploration="bilevel"),
    "staggered": Case(seed=2, trajectory_steps=50, mask="info", exploration="none"),
    "resets": Case(seed=3, trajectory_steps=7, mask="obs", reset_every_n_epochs=2),
    "faults": Case(seed=4, step_fault=0.02, reset_fault=0.03, mask="info"),
    "broken": Case(seed=5, vector_fault=0.05, mask="obs"),
    "often": Case(seed=6, vector_fault=0.3, step_fault=0.2, trajectory_steps=2),
    "all": Case(7, "box", "", 0.01, 0.03, 0.02, "bilevel", trajectory_steps=25, reset_every_n_epochs=3),
}
OPTIONS = {"epsilon_greedy": {"start": 0.9, "end": 0.1, "anneal_steps": 200}, "bilevel": {"rollout_steps": 20}}


@pytest.mark.parametrize(("name", "mode"), each_once(list(CASES), list(AutoresetMode)))
def test_stored_and_seen_is_what_happened(name, mode):
    case = CASES[name]
    world, written, stats = World(case), [], []
    build = functools.partial(Breaking, world, mode)
    env = BatchedEnv(build(), rebuild=build, max_restarts=10**9)
    algo = RandomAlgo(env, case.seed)
    explore, options = EXPLORATIONS.get(case.exploration), OPTIONS.get(case.exploration, {})
    exploration = explore(env.codec, ROWS, np.random.SeedSequence(case.seed), **options)
    collector = Collector(algo, env, exploration, case, lambda t: written.append(t.check()), seed=case.seed)
    for epoch in range(EPOCHS):
        world.is_reset |= epoch % (case.reset_every_n_epochs or EPOCHS) == 0
        stats.append(collector.collect(epoch))
    collector.cut()
    for row in range(ROWS):
        stored = [t for t in written if t.obs["id"][0, 0] == row]
        for trajectory, (episode, begin, end, is_cut) in zip(stored, _pieces(case, world, row), strict=True):
            _check_stored(case, trajectory, episode, begin, end, is_cut)
            _check_seen(case, algo, episode, begin, end)
    played = [(row, e.steps) for row in range(ROWS) for e in world.episodes[row] if e.steps]
    ended = [(row, len(steps), sum(step[1] for step in steps)) for row, steps in played if any(steps[-1][2:])]
    assert sum(s.num_steps for s in stats) == sum(len(steps) for _, steps in played)
    assert sorted((e.row, e.length, e.total_reward) for s in stats for e in s.episodes) == sorted(ended)
    assert (env.num_faults > 0) == (case.step_fault + case.vector_fault > 0)
    assert mode is AutoresetMode.NEXT_STEP or exploration.num_steps.tolist() == [case.steps_per_epoch * EPOCHS] * ROWS
