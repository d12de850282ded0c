"""XLand-MiniGrid (Nikulin et al., 2024, arXiv 2312.12044): grids in JAX whose goal and rules have to be found out."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import xminigrid
from gymnasium import spaces
from xminigrid.benchmarks import Benchmark
from xminigrid.core.constants import NUM_COLORS, NUM_TILES, PICKABLE, TILES_REGISTRY, Colors
from xminigrid.core.goals import AgentHoldGoal, AgentNearGoal, TileNearGoal
from xminigrid.core.rules import EmptyRule

from seqrl.core.errors import EnvError, did_you_mean
from seqrl.core.spaces import OBS_KEY
from seqrl.envs.single import SingleOfVector
from seqrl.envs.suites.jax_vector import JaxVector, Moved

PREFIX = "XLand/"
ATTEMPT_KEY = "attempt"
"""Observation entry, as :mod:`seqrl.envs.builtin.attempts` adds it."""
ARRAYS = ("goals", "rules", "init_tiles", "num_rules")
NUM_OWN, NUM_OBJECTS = 1000, 4
TRAIN_SHARE = 0.9

Split = Literal["all", "train", "test"]


class Episode(NamedTuple):
    """State of a row.

    Attributes:
        timestep: Of XLand-MiniGrid.
        ruleset: Of the episode; None where there is none to draw.
        num_over: Attempts that are over.
        attempt_return: Rewards of the present attempt.
    """

    timestep: Any
    ruleset: Any
    num_over: Any
    attempt_return: Any


class XLandRules:
    """An environment of XLand-MiniGrid, where an episode is some attempts with the same ruleset.

    Args:
        name: XLand-MiniGrid's id.
        attempts: Attempts of an episode: each has a grid of its own.
        max_steps: Steps of an episode, which attempts share; None is XLand-MiniGrid's own limit for each.
        benchmark: Rulesets to draw from: see :func:`rulesets`.
        split: Which of them.
        params: Of the environment, such as ``height``, ``width`` and ``view_size``.

    Raises:
        EnvError: If there is no such environment, or it takes no rulesets.
    """

    can_render = True

    def __init__(
        self,
        name: str,
        *,
        attempts: int,
        max_steps: int | None,
        benchmark: str | None,
        split: Split,
        params: dict[str, Any],
    ) -> None:
        known = xminigrid.registered_environments()
        if name not in known:
            raise EnvError(f"XLand-MiniGrid has no environment {name!r}{did_you_mean(name, known)}")
        if attempts < 1 or (max_steps is not None and max_steps < attempts):
            raise EnvError(
                f"{name}: attempts must be at least 1 and at most max_episode_steps ({max_steps}), got {attempts}"
            )
        if max_steps is not None:
            params = {**params, "max_steps": max_steps // attempts}
        self._env, self._params = xminigrid.make(name, **params)
        self._takes_rules = hasattr(self._params, "ruleset")
        if not self._takes_rules and (benchmark is not None or split != "all"):
            raise EnvError(f"{name} has its own task: benchmark and split are for XLand-MiniGrid-...")
        self.data = rulesets(benchmark, split) if self._takes_rules else None
        self._attempts = attempts
        self.max_steps: int | None = attempts * int(self._params.max_steps)
        shape = self._env.observation_shape(self._params)
        view = spaces.MultiDiscrete(np.broadcast_to([NUM_TILES, NUM_COLORS], shape).copy(), dtype=np.uint8)
        self.observation_space: gym.Space[Any] = view
        if attempts > 1:
            self.observation_space = spaces.Dict({OBS_KEY: view, ATTEMPT_KEY: spaces.Box(0.0, 1.0, (2,), np.float32)})
        self.action_space: gym.Space[Any] = spaces.Discrete(self._env.num_actions(self._params))

    def _with(self, ruleset: Any) -> Any:
        return self._params.replace(ruleset=ruleset) if self._takes_rules else self._params

    def begin(self, data: Any, key: Any, state: Episode | None, is_new: Any) -> tuple[Episode, Any]:
        """Draw a grid, and a ruleset where an episode begins."""
        draw, layout = jax.random.split(key)
        ruleset = data.sample_ruleset(draw) if self._takes_rules else None
        num_over: Any = jnp.int32(0)
        if state is not None:
            ruleset = jax.tree.map(lambda new, old: jnp.where(is_new, new, old), ruleset, state.ruleset)
            num_over = jnp.where(is_new, 0, state.num_over)
        episode = Episode(self._env.reset(self._with(ruleset), layout), ruleset, num_over, jnp.float32(0))
        return episode, self._seen(episode, 1.0)

    def step(self, key: Any, state: Episode, action: Any) -> Moved:
        """Return what an action leads to; an episode of several attempts terminates after the last one."""
        timestep = self._env.step(self._with(state.ruleset), state.timestep, action)
        over, solved = timestep.last(), timestep.discount == 0
        total, num_over = state.attempt_return + timestep.reward, state.num_over + over
        done = num_over == self._attempts
        told = {"success": (solved, done)}
        if self._attempts > 1:
            for number in range(1, self._attempts + 1):
                now = over & (num_over == number)
                told[f"log/attempt_{number}_return"] = (total, now)
                told[f"log/attempt_{number}_success"] = (solved.astype(jnp.float32), now)
            terminated = done
        else:
            terminated = over & solved
        state = Episode(timestep, state.ruleset, num_over, total)
        return Moved(state, self._seen(state, 0.0), timestep.reward, terminated, done & ~terminated, over, told)

    def _seen(self, state: Episode, is_first: float) -> Any:
        view = state.timestep.observation
        if self._attempts == 1:
            return view
        return {OBS_KEY: view, ATTEMPT_KEY: jnp.stack([jnp.float32(is_first), state.num_over / self._attempts])}

    def render(self, state: Episode) -> np.ndarray:
        """Return the grid; what the agent sees is brighter."""
        return np.asarray(self._env.render(self._params, state.timestep), np.uint8)


def rulesets(benchmark: str | None, split: Split) -> Benchmark:
    """Return rulesets: a goal, rules of production and objects each.

    Args:
        benchmark: Name of one of XLand-MiniGrid's benchmarks, which that package downloads; an ``.npz`` file with
            their four arrays; or None: 1,000 of one goal, four objects and no rule (:func:`own_rulesets`).
        split: The first 90 % to ``train``, the others to ``test``, or ``all``.

    Raises:
        EnvError: If there is no such benchmark or split.
    """
    if split not in ("all", "train", "test"):
        raise EnvError(f"split must be 'all', 'train' or 'test', got {split!r}")
    if benchmark is None:
        found = own_rulesets()
    elif benchmark in xminigrid.registered_benchmarks():
        try:
            found = xminigrid.load_benchmark(benchmark)
        except OSError as error:
            raise EnvError(f"benchmark {benchmark!r} of XLand-MiniGrid cannot be downloaded: {error}") from error
    else:
        found = _read(Path(benchmark))
    if split == "all":
        return found
    return found.split(TRAIN_SHARE)[("train", "test").index(split)]


def _read(path: Path) -> Benchmark:
    if path.suffix != ".npz" or not path.is_file():
        known = ", ".join(xminigrid.registered_benchmarks())
        raise EnvError(
            f"benchmark {str(path)!r} is neither one of {known} nor an .npz file of {', '.join(ARRAYS)}; "
            "write one with numpy.savez(path, goals=benchmark.goals, ...)"
        )
    with np.load(path, allow_pickle=False) as file:
        if missing := [name for name in ARRAYS if name not in file]:
            raise EnvError(f"benchmark {str(path)!r} has no array {missing[0]!r}; it holds {', '.join(file)}")
        return Benchmark(**{name: jnp.asarray(file[name]) for name in ARRAYS})


def own_rulesets() -> Benchmark:
    """Return 1,000 rulesets: hold one of four objects, go to it, or bring it to another one; always the same."""
    rng = np.random.default_rng(0)
    tiles = np.asarray(TILES_REGISTRY)[np.asarray(PICKABLE)][:, Colors.RED : Colors.GREY].reshape(-1, 2)
    objects = jnp.asarray(tiles[np.stack([rng.permutation(len(tiles))[:NUM_OBJECTS] for _ in range(NUM_OWN)])])
    hold = jax.vmap(lambda row: AgentHoldGoal(row[0]).encode())(objects)
    near = jax.vmap(lambda row: AgentNearGoal(row[0]).encode())(objects)
    bring = jax.vmap(lambda row: TileNearGoal(row[0], row[1]).encode())(objects)
    goals = jnp.stack([hold, near, bring])[rng.integers(3, size=NUM_OWN), jnp.arange(NUM_OWN)]
    rules = jnp.tile(EmptyRule().encode(), (NUM_OWN, 1, 1))
    return Benchmark(goals=goals, rules=rules, init_tiles=objects, num_rules=jnp.zeros(NUM_OWN, jnp.uint8))


@functools.lru_cache(maxsize=32)
def _rules(name: str, options: str) -> XLandRules:
    return XLandRules(name, **json.loads(options))


def make_vector(
    env_id: str,
    num_envs: int,
    *,
    attempts: int = 1,
    benchmark: str | None = None,
    split: Split = "all",
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    **params: Any,
) -> JaxVector:
    """Return ``num_envs`` rows of an environment of XLand-MiniGrid.

    Args:
        env_id: ``XLand-MiniGrid-...``, or ``XLand/MiniGrid-...``.
        num_envs: How many.
        attempts: Attempts of an episode, with the same ruleset.
        benchmark: Rulesets to draw from (:func:`rulesets`).
        split: Which of them: ``all``, ``train`` or ``test``.
        max_episode_steps: Steps of an episode, which its attempts share; null is the package's own limit for each.
        render_mode: ``rgb_array`` or null.
        params: Of the environment, such as ``height``, ``width`` and ``view_size``.
    """
    options = {"attempts": attempts, "benchmark": benchmark, "split": split, "params": params}
    text = json.dumps({**options, "max_steps": max_episode_steps}, sort_keys=True)
    return JaxVector(_rules(env_id.removeprefix(PREFIX), text), num_envs, env_id, render_mode)


def make(env_id: str, *, disable_env_checker: bool | None = None, **options: Any) -> gym.Env[Any, Any]:
    """Return a single environment: a vector of one row."""
    return SingleOfVector(make_vector(env_id, 1, **options))
