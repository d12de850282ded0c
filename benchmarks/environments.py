"""The built-in environments: microseconds per step, and what random play and simple players earn."""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from record import RESULTS, record, table

from seqrl.core.errors import EnvError
from seqrl.envs.builtin import builtin_env_ids
from seqrl.envs.builtin.grid import MOVES
from seqrl.envs.experts import make_expert
from seqrl.envs.make import make_env

Player = Callable[[Any, gym.Env[Any, Any], np.random.Generator, bool], Any]
"""From observation, environment, generator, and whether an episode begins, to an action."""


def first_move(start: tuple[int, int], goal: tuple[int, int], is_open: np.ndarray) -> int:
    """Return the first of the moves of a shortest way over open cells; 0 where there is none."""
    todo, seen = deque([(start, -1)]), {start}
    while todo:
        cell, first = todo.popleft()
        if cell == goal:
            return max(first, 0)
        for move, (down, right) in enumerate(MOVES):
            there = (cell[0] + down, cell[1] + right)
            if min(there) >= 0 and max(there) < len(is_open) and is_open[there] and there not in seen:
                seen.add(there)
                todo.append((there, move if first < 0 else first))
    return 0


class LakeExplorer:
    """Takes a shortest way round the holes that it has fallen into."""

    def __call__(self, obs: Any, env: Any, rng: np.random.Generator, is_first: bool) -> int:
        """Return a move; a new attempt that no goal and no clock began tells of a hole."""
        lake = env.unwrapped
        if is_first:
            self._is_open, self._aim, self._reached = np.ones((lake.size, lake.size), bool), (0, 0), 0
        elif obs[2] == 1 and self._aim != (lake.size - 1,) * 2:
            self._is_open[self._aim] = False
        cell = (round(float(obs[0]) * (lake.size - 1)), round(float(obs[1]) * (lake.size - 1)))
        move = first_move(cell, (lake.size - 1,) * 2, self._is_open)
        self._aim = (cell[0] + MOVES[move][0], cell[1] + MOVES[move][1])
        return move


def to_key_and_door(obs: Any, env: Any, rng: np.random.Generator, is_first: bool) -> int:
    """Walk the shortest way to key and door, whose places it is told."""
    room = env.unwrapped
    return first_move(room._cell, room._door if room._has_key else room._key, np.ones((room.size, room.size), bool))


def through_the_maze(obs: Any, env: Any, rng: np.random.Generator, is_first: bool) -> int:
    """Walk the shortest way through a maze that it is shown."""
    maze = env.unwrapped
    goal = maze._goals[min(maze._num_reached, maze.num_goals - 1)]
    row, column = (int(at) for at in maze._position)
    return first_move((row, column), (int(goal[0]), int(goal[1])), ~maze._walls)


class Thompson:
    """Pulls the arm whose mean, drawn from its posterior under the uniform prior, is largest."""

    def __call__(self, obs: Any, env: Any, rng: np.random.Generator, is_first: bool) -> int:
        """Return a legal arm; what the last one paid is read off the environment's counter."""
        if is_first:
            self.paid = np.ones((2, env.unwrapped.num_arms))
        draw = rng.beta(*self.paid)
        legal = getattr(env.unwrapped, "_legal", np.ones(len(draw), np.int8))
        return int(np.where(legal == 1, draw, -1.0).argmax())

    def reward(self, action: int, reward: float) -> None:
        """Count what an arm paid."""
        self.paid[0 if reward else 1, action] += 1


def random_play(obs: Any, env: Any, rng: np.random.Generator, is_first: bool) -> Any:
    """Act at random."""
    return env.action_space.sample()


PLAYERS: dict[str, tuple[str, Player]] = {
    "seqrl/MetaFrozenLake-v0": ("remembers holes", LakeExplorer()),
    "seqrl/DarkKeyDoor-v0": ("is told the places", to_key_and_door),
    "seqrl/MazeRunner-v0": ("is shown the maze", through_the_maze),
    "seqrl/Attempts-v0": ("is shown the maze", through_the_maze),
    "seqrl/Bandit-v0": ("Thompson sampling", Thompson()),
    "seqrl/MaskedBandit-v0": ("Thompson sampling, legal arms", Thompson()),
}
KWARGS: dict[str, list[dict[str, Any]]] = {"seqrl/MazeRunner-v0": [{}, {"is_continuous": True}]}


def best_player(env_id: str) -> tuple[str, Player | None]:
    """Return the name of the environment's best player, and the player; None where there is none."""
    if env_id in PLAYERS:
        return PLAYERS[env_id]
    try:
        expert = make_expert(env_id)
    except EnvError:
        return "", None

    def play(obs: Any, env: Any, rng: np.random.Generator, is_first: bool) -> Any:
        if is_first:
            expert.reset()
        return expert(obs)

    return "scripted expert", play


def played(env_id: str, kwargs: dict[str, Any], player: Player, episodes: int) -> dict[str, float]:
    """Return the mean return, length, and every metric, over seeded episodes."""
    env, rng = make_env(env_id, kwargs), np.random.default_rng(0)
    env.action_space.seed(0)
    sums: dict[str, float] = {}
    for episode in range(episodes):
        obs, _ = env.reset(seed=0 if episode == 0 else None)
        told: dict[str, float] = {"return": 0.0, "length": 0.0}
        done, is_first = False, True
        while not done:
            action = player(obs, env, rng, is_first)
            obs, reward, terminated, truncated, info = env.step(action)
            if isinstance(player, Thompson):
                player.reward(action, float(reward))
            told |= {k: float(v) for k, v in info.items() if k == "success" or k.startswith("log/")}
            told["return"] += float(reward)
            told["length"] += 1
            done, is_first = terminated or truncated, False
        for name, value in told.items():
            sums[name] = sums.get(name, 0.0) + value
    env.close()
    return {name: round(value / episodes, 3) for name, value in sums.items()}


def microseconds(env_id: str, repeats: int) -> float:
    """Return the time of a step of random play, resets included: the shortest of the repeats of 2,000 steps."""
    env = make_env(env_id)
    env.reset(seed=0)
    actions, times = [env.action_space.sample() for _ in range(2000)], []
    for _ in range(repeats):
        begin = time.perf_counter()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        times.append(time.perf_counter() - begin)
    env.close()
    return 1e6 * min(times) / len(actions)


def main() -> None:
    """Play, measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=15, help="of timing 2,000 steps")
    parser.add_argument("--envs", nargs="+", help="only these; the others keep their figures")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    if args.envs:
        figures = json.loads((RESULTS / "environments.json").read_text())["environments"]
    for env_id in args.envs or builtin_env_ids(only_installed=True):
        figures[env_id] = {"us_per_step": round(microseconds(env_id, args.repeats), 1), "play": {}}
        name, player = best_player(env_id)
        for kwargs in KWARGS.get(env_id, [{}]):
            found = {"random": played(env_id, kwargs, random_play, args.episodes)}
            if player is not None and not kwargs:
                found[name] = played(env_id, kwargs, player, args.episodes)
            for who, told in found.items():
                who = f"{who}, {kwargs}" if kwargs else who
                figures[env_id]["play"][who] = told
                rows.append({"environment": env_id, "us/step": figures[env_id]["us_per_step"], "player": who, **told})
    shown = [
        {k: r.get(k, "") for k in ("environment", "us/step", "player", "return", "length", "success")} for r in rows
    ]
    print(table(shown))
    print("recorded in", record("environments", {"episodes": args.episodes, "environments": figures}))


if __name__ == "__main__":
    main()
