"""Speed of collecting: the recorder and the exploration alone, whole loops on CartPole, and the policy at long windows.

Vectors and engines take turns, so that what else the machine does concerns all of them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from record import record, table

import seqrl.models  # noqa: F401  (registers the memories)
from seqrl.algo import algo_factory
from seqrl.algo.engine import OnnxEngine
from seqrl.configs import config_factory
from seqrl.core.host_memory import keep_freed_memory
from seqrl.core.seeding import seed_sequence
from seqrl.core.spaces import ActionCodec, obs_specs
from seqrl.core.types import TimeStep
from seqrl.data import StoreWriter
from seqrl.data.store_info import StoreInfo
from seqrl.envs.exploration import EpsilonGreedy
from seqrl.envs.recorder import Recorder
from seqrl.rollout.environments import Task, build_env, row_makers
from seqrl.rollout.rollouts import AlgoPolicy
from seqrl.training.collector import Collector, build_exploration

NUM_ENVS, EPISODE = 12, 100


def recording(num_steps: int) -> float:
    """Return transitions/s of exploration and recorder: 12 rows, 4 features, episodes of 100 steps."""
    codec = ActionCodec(spaces.Discrete(2))
    explore = EpsilonGreedy(codec, NUM_ENVS, seed_sequence(0))
    recorder = Recorder()
    obs = np.zeros((NUM_ENVS, 4), np.float32)
    flags = np.zeros(NUM_ENVS, bool)
    actions = codec.random(np.random.default_rng(0), NUM_ENVS)

    def step(t: int) -> TimeStep:
        done = (np.arange(NUM_ENVS) * 7 + t) % EPISODE == 0 if t else np.ones(NUM_ENVS, bool)
        return TimeStep(
            obs={"obs": obs},
            final_obs={"obs": obs},
            reward=np.zeros(NUM_ENVS, np.float32),
            terminated=flags if not t else done,
            truncated=flags,
            is_first=done,
            step=np.full(NUM_ENVS, t),
            env_name=("CartPole-v1",) * NUM_ENVS,
            success=flags,
            success_known=flags,
        )

    steps = [step(t) for t in range(1, num_steps + 1)]
    recorder.start(step(0))
    begin = time.perf_counter()
    for now in steps:
        recorder.add(codec.decode(explore(actions, now)), now)
    return num_steps * NUM_ENVS / (time.perf_counter() - begin)


def config_of(width: int, layers: int, window: int, **env: Any) -> Any:
    """Return the run file of an actor-critic on a Transformer."""
    encoder = {"type": "transformer", "d_model": width, "num_heads": 8, "d_ff": 4 * width, "num_layers": layers}
    return config_factory(
        "actor_critic",
        {
            "env": {"id": "CartPole-v1", **env},
            "train": {"window_steps": window},
            "collect": {"num_envs": NUM_ENVS, "steps_per_epoch": 300},
            "algo": {"sequence_encoder": encoder},
        },
    )


class Loop:
    """12 CartPoles and their collector.

    Args:
        vectorization: Of the environments.
        engine: ``eager`` or ``onnx``.
        num_workers: Processes of ``async``.
    """

    def __init__(self, vectorization: str, engine: str = "eager", num_workers: int | None = None) -> None:
        config = config_of(128, 2, 128, vectorization=vectorization, num_workers=num_workers)
        config.collect.engine = engine
        env = build_env(row_makers(config, [Task("CartPole-v1", {})], NUM_ENVS), NUM_ENVS, config.env)
        torch.manual_seed(0)
        spec = obs_specs(env.observation_space)
        algo = algo_factory("actor_critic", config, spec, env.codec.dim, "cpu", env.codec.space)
        self._folder = tempfile.TemporaryDirectory()
        self._writer = StoreWriter(Path(self._folder.name), StoreInfo(env.observation_space, env.codec.space), "fifo")
        exploration = build_exploration(config.collect, env, 0, 0)
        self._collector = Collector(algo, env, exploration, config.collect, self._writer.append, seed=0)
        self._epoch, self.rates, self.parts = 0, [], []
        self._collector.collect(0)

    def once(self) -> None:
        """Collect an epoch, and note how fast that was."""
        self._epoch += 1
        begin = time.perf_counter()
        stats = self._collector.collect(self._epoch)
        self.rates.append(stats.num_steps / (time.perf_counter() - begin))
        self.parts.append((stats.env_s, stats.policy_s, stats.record_s))

    def close(self) -> dict[str, float]:
        """Return steps/s, and the share of environments, policy and recording (medians)."""
        self._collector.close()
        self._writer.close()
        self._folder.cleanup()
        env_s, policy_s, record_s = np.median(self.parts, axis=0) / np.sum(np.median(self.parts, axis=0))
        return {"steps_per_s": statistics.median(self.rates), "env": env_s, "policy": policy_s, "recording": record_s}


def end_to_end(repeats: int) -> dict[str, dict[str, float]]:
    """Return what loops with all kinds of vectors and engines come to, which take turns."""
    kinds: dict[str, Any] = {"sync": ("sync",), "async": ("async",), "native": ("native",)}
    kinds |= {"async, 2 workers": ("async", "eager", 2), "async, 2 workers, onnx": ("async", "onnx", 2)}
    kinds |= {f"{name}, onnx": (name, "onnx") for name in ("sync", "native")}
    loops = {name: Loop(*kind) for name, kind in kinds.items()}
    for _ in range(repeats):
        for loop in loops.values():
            loop.once()
    return {name: loop.close() for name, loop in loops.items()}


def policy_rate(window: int, seen: int, rows: int, num: int, engine: str = "eager") -> float:
    """Return policy steps/s (all rows together) after ``seen`` steps of an episode."""
    config = config_of(256, 3, window)
    space = gym.make("CartPole-v1")
    algo = algo_factory("actor_critic", config, obs_specs(space.observation_space), 2, "cpu", space.action_space)
    algo.set_eval()
    taken = OnnxEngine(algo, deterministic=False) if engine == "onnx" else None
    policy = AlgoPolicy(algo, rows, deterministic=False, engine=taken)
    flags = np.zeros(rows, bool)
    step = TimeStep(
        obs={"obs": np.zeros((rows, 4), np.float32)},
        final_obs={},
        reward=np.zeros(rows, np.float32),
        terminated=flags,
        truncated=flags,
        is_first=flags,
        step=np.zeros(rows, np.int64),
        env_name=("x",) * rows,
        success=flags,
        success_known=flags,
    )
    for _ in range(seen):
        policy(step)
    begin = time.perf_counter()
    for _ in range(num):
        policy(step)
    return rows * num / (time.perf_counter() - begin)


def product_ms() -> float:
    """Return the time of one product of two float32 matrices of 1024 x 1024, in ms (median of 9)."""
    a, times = torch.randn(1024, 1024), []
    for _ in range(10):
        begin = time.perf_counter()
        a @ a
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[1:])


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--windows", type=int, nargs="*", default=[512, 2048])
    args = parser.parse_args()
    keep_freed_memory()  # as Experiment does
    unit = product_ms()
    alone = statistics.median(recording(5000) for _ in range(args.repeats))
    print(f"one 1024-cubed product: {unit:.1f} ms; recorder and exploration alone: {alone:,.0f} transitions/s\n")
    loops = end_to_end(args.repeats)
    rows = [
        {
            "environments": f"12 {name}",
            "steps/s": f"{r['steps_per_s']:,.0f}",
            **{k: f"{100 * r[k]:.0f} %" for k in ("env", "policy", "recording")},
        }
        for name, r in loops.items()
    ]
    print(table(rows), "\n")
    policies: dict[str, dict[str, float]] = {}
    cases = {"36 rows": (36, 30, args.windows), "one row": (1, 300, args.windows[:1])}
    for name, (rows, num, windows) in cases.items():
        for window in windows:
            for engine in ("eager", "onnx"):
                before = policy_rate(window, 20, rows, num, engine)
                after = policy_rate(window, 2 * window, rows, num, engine)
                policies[f"{name}, window {window}, {engine}"] = {"before it fills": before, "long after": after}
    print(table([{"policy": k, **{n: f"{r:,.0f}" for n, r in v.items()}} for k, v in policies.items()]), "\n")
    figures = {
        "threads": torch.get_num_threads(),
        "product_ms": unit,
        "recorder_and_exploration_transitions_per_s": alone,
        "cartpole": loops,
        "policy_steps_per_s": policies,
    }
    print("recorded in", record("collect", figures))


if __name__ == "__main__":
    main()
