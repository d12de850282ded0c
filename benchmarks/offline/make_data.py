"""Datasets of a continuous task, from a learner that was stopped on its way: random, medium, replay, best and mixed.

pip install --no-deps stable-baselines3==2.9.2 pandas cloudpickle      # what only this benchmark needs
python benchmarks/offline/make_data.py --env Pendulum-v1 --steps 15000 --output data/pendulum
python benchmarks/offline/make_data.py --env Hopper-v5 --steps 60000 --output data/hopper    # needs the extra mujoco

SAC with the settings of stable-baselines3 learns on one core; robomimic files hold what it did. ``best`` is the best
that this budget gave, and no expert. ``scores.json`` states the mean returns of random play and of the best policy,
for ``env.reference_scores``.

random  episodes of random actions
medium  sampled episodes of the policy that was first a third of the way from random to best
replay  everything that it saw until then
best    sampled episodes of the policy with the best evaluation
mixed   half of random, half of best
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from seqrl.core.files import write_json
from seqrl.core.types import Trajectory
from seqrl.data.store_info import StoreInfo
from seqrl.data.writers.robomimic import write_robomimic

Act = Callable[[np.ndarray], np.ndarray]
EVALUATIONS = 10
EVALUATION_EPISODES = 10


def play(env: gym.Env[Any, Any], act: Act, *, seed: int) -> Trajectory:
    """Return one episode, in the environment's units; a time limit is told from an end."""
    obs, _ = env.reset(seed=seed)
    seen, actions, rewards, flags = [obs], [], [], []
    is_over = False
    while not is_over:
        action = act(obs)
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append(obs)
        actions.append(action)
        rewards.append(reward)
        flags.append((terminated, truncated))
        is_over = terminated or truncated
    return trajectory(np.array(seen), np.array(actions), np.array(rewards), np.array(flags, bool))


def trajectory(obs: np.ndarray, actions: np.ndarray, rewards: np.ndarray, flags: np.ndarray) -> Trajectory:
    """Return arrays as an episode."""
    return Trajectory(
        obs={"obs": obs.astype(np.float32)},
        actions=actions.astype(np.float32),
        rewards=rewards.astype(np.float32),
        terminated=flags[:, 0],
        truncated=flags[:, 1] & ~flags[:, 0],
    )


def episodes_of(env: gym.Env[Any, Any], act: Act, num_steps: int, seed: int) -> list[Trajectory]:
    """Return whole episodes of at least so many steps."""
    found: list[Trajectory] = []
    while sum(map(len, found)) < num_steps:
        found.append(play(env, act, seed=seed + len(found)))
    return found


def mean_return(found: list[Trajectory]) -> float:
    """Return the mean of the episodes' returns."""
    return float(np.mean([t.total_reward for t in found]))


def learn(env_id: str, num_steps: int, seed: int) -> tuple[list[tuple[int, float, bytes]], list[Trajectory]]:
    """Return (steps, return, policy) of ten evaluations on the way, and the episodes of training in order."""
    from stable_baselines3 import SAC

    model = SAC("MlpPolicy", env_id, seed=seed, device="cpu", buffer_size=num_steps + 1)
    test, found = gym.make(env_id), []
    for _ in range(EVALUATIONS):
        model.learn(num_steps // EVALUATIONS, reset_num_timesteps=False)
        act: Act = lambda obs: model.predict(obs, deterministic=False)[0]  # noqa: E731
        played = [play(test, act, seed=10_000 + i) for i in range(EVALUATION_EPISODES)]
        buffer = io.BytesIO()
        model.save(buffer)
        found.append((model.num_timesteps, mean_return(played), buffer.getvalue()))
        print(f"{model.num_timesteps} steps: return {found[-1][1]:.1f}", flush=True)
    return found, recorded(model)


def recorded(model: Any) -> list[Trajectory]:
    """Return the replay buffer as episodes; an unfinished last one is left out."""
    buffer, out, begin = model.replay_buffer, [], 0
    num = buffer.size()
    actions = model.policy.unscale_action(buffer.actions[:num, 0])
    for end in range(num):
        if not buffer.dones[end, 0]:
            continue
        rows = slice(begin, end + 1)
        obs = np.concatenate([buffer.observations[rows, 0], buffer.next_observations[end]])
        flags = np.zeros((end + 1 - begin, 2), bool)
        is_limit = bool(buffer.timeouts[end, 0])
        flags[-1] = (not is_limit, is_limit)
        out.append(trajectory(obs, actions[rows], buffer.rewards[rows, 0], flags))
        begin = end + 1
    return out


def main() -> None:
    """Learn, play, and write the files."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--env", default="Pendulum-v1", help="gymnasium id with Box actions (default %(default)s)")
    p.add_argument("--steps", type=int, default=15_000, help="of learning (default %(default)s)")
    p.add_argument("--size", type=int, default=20_000, help="steps of each file, at least (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--output", type=Path, required=True, help="folder")
    arguments = p.parse_args()
    torch.set_num_threads(1)
    from stable_baselines3 import SAC

    env = gym.make(arguments.env)
    env.action_space.seed(arguments.seed)
    chance = episodes_of(env, lambda obs: env.action_space.sample(), arguments.size, 20_000)
    low = mean_return(chance)
    on_the_way, replay = learn(arguments.env, arguments.steps, arguments.seed)
    best = max(on_the_way, key=lambda row: row[1])
    medium = next(row for row in on_the_way if row[1] >= low + (best[1] - low) / 3)

    def of(row: tuple[int, float, bytes], first_seed: int) -> list[Trajectory]:
        model = SAC.load(io.BytesIO(row[2]), device="cpu")
        return episodes_of(env, lambda obs: model.predict(obs, deterministic=False)[0], arguments.size, first_seed)

    files = {"random": chance, "medium": of(medium, 30_000), "best": of(best, 40_000)}
    num_until = np.searchsorted(np.cumsum([len(t) for t in replay]), medium[0], side="right")
    files["replay"] = replay[: max(int(num_until), 1)]
    files["mixed"] = [t for name in ("random", "best") for t in files[name][: len(files[name]) // 2]]
    arguments.output.mkdir(parents=True, exist_ok=True)
    info = StoreInfo(env.observation_space, env.action_space, env_id=arguments.env, env_kwargs={})
    for name, found in files.items():
        write_robomimic(arguments.output / f"{name}.hdf5", info, found)
        print(f"{name}: {len(found)} episodes, {sum(map(len, found))} steps, mean return {mean_return(found):.1f}")
    scores = {"random": low, "expert": mean_return(files["best"])}
    write_json(arguments.output / "scores.json", scores)
    print("env.reference_scores:", json.dumps(scores))


if __name__ == "__main__":
    main()
