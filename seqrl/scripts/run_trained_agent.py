"""Roll out a trained policy: statistics, an animation, a dataset."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqrl.core.errors import ConfigError
from seqrl.scripts._script import check_output, check_seed, json_object, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl run-trained-agent", description=__doc__)
    p.add_argument("--agent", required=True, help="checkpoint, or run folder (its last checkpoint)")
    p.add_argument("--n-rollouts", type=int, default=100, help="episodes (default %(default)s)")
    p.add_argument("--num-envs", type=int, default=20, help="environments stepped at once (default %(default)s)")
    p.add_argument("--horizon", type=int, help="cut episodes after so many steps")
    p.add_argument("--env", help="another environment id than that of training")
    p.add_argument("--env-kwargs", type=json_object, default={}, help="JSON object of arguments over those of training")
    p.add_argument("--seed", type=int, default=0, help="seed of environments and policy (default %(default)s)")
    p.add_argument("--sample", action="store_true", help="sample actions instead of taking the most probable")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    p.add_argument("--video-path", type=Path, help="write a GIF of the first episodes here")
    p.add_argument("--video-episodes", type=int, default=3, help="episodes in the GIF (default %(default)s)")
    p.add_argument("--dataset-path", type=Path, help="write the episodes here, as robomimic HDF5")
    p.add_argument("--overwrite", action="store_true", help="replace files that exist")
    p.add_argument("--plugin", action="append", default=[], help="Python file or module to import first")
    p.add_argument("--json", action="store_true", help="print the statistics as JSON")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Roll out, and return the exit code."""
    args = parser().parse_args(argv)
    _check(args)
    from seqrl.algo.checkpoint import load_algo, read_checkpoint
    from seqrl.core.plugins import load_plugins
    from seqrl.training.deploy import env_maker_from_checkpoint

    load_plugins(args.plugin)
    checkpoint = read_checkpoint(args.agent)
    algo, _, _ = load_algo(checkpoint, args.device)
    maker: Any = env_maker_from_checkpoint(
        checkpoint, env_id=args.env, kwargs=args.env_kwargs, max_episode_steps=args.horizon, plugins=tuple(args.plugin)
    )
    metrics = _rollouts(args, algo, maker)
    if args.json:
        print(json.dumps(metrics, indent=2))
    else:
        width = max(map(len, metrics))
        print("\n".join(f"{name:<{width}}  {value:.4g}" for name, value in metrics.items()))
    if args.video_path is not None:
        _animate(args, algo, maker)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.n_rollouts < 1 or args.num_envs < 1 or args.video_episodes < 1:
        raise ConfigError("--n-rollouts, --num-envs and --video-episodes must be at least 1")
    check_seed(args.seed)
    check_output(args.dataset_path, (".hdf5", ".h5"), overwrite=args.overwrite)
    check_output(args.video_path, (".gif",), overwrite=args.overwrite)


def _rollouts(args: argparse.Namespace, algo: Any, maker: Any) -> dict[str, float]:
    """Return statistics of the episodes, and write them to a dataset if asked."""
    from seqrl.core.seeding import integer_seed
    from seqrl.data.hdf5_writer import write_robomimic
    from seqrl.data.store import StoreInfo
    from seqrl.envs import make_batched_env
    from seqrl.training.evaluator import evaluation_mode
    from seqrl.training.rollouts import AlgoPolicy, EpisodeCollector, evaluate_episodes
    from seqrl.training.spaces import check_actions, check_observations
    from seqrl.training.statistics import summarize_episodes

    env = make_batched_env(maker, min(args.num_envs, args.n_rollouts))
    check_observations(env.observation_space, algo.obs, maker.args[0])
    check_actions(env.codec.space, algo.codec.space, maker.args[0])
    collector = EpisodeCollector(env, args.n_rollouts) if args.dataset_path is not None else None
    try:
        with evaluation_mode(algo, integer_seed(args.seed, "policy")):
            policy = AlgoPolicy(algo, env.num_envs, deterministic=not args.sample)
            seed = integer_seed(args.seed, "env")
            episodes = evaluate_episodes(env, policy, args.n_rollouts, seed=seed, on_step=collector)
    finally:
        env.close()
    if collector is not None:
        info = StoreInfo(
            env.observation_space, env.codec.space, env_id=maker.args[0], env_kwargs=maker.args[1], source=args.agent
        )
        number = write_robomimic(args.dataset_path, info, collector.trajectories)
        print(f"wrote {number} episodes to {args.dataset_path}", file=sys.stderr)
    return summarize_episodes(episodes)


def _animate(args: argparse.Namespace, algo: Any, maker: Any) -> None:
    from seqrl.training.charts import gif_bytes
    from seqrl.training.evaluator import record_animation

    rendering = functools.partial(maker, render_mode="rgb_array")
    frames, _ = record_animation(algo, rendering, args.video_episodes, seed=args.seed, deterministic=not args.sample)
    args.video_path.parent.mkdir(parents=True, exist_ok=True)
    args.video_path.write_bytes(gif_bytes(frames))
    print(f"wrote {len(frames)} frames to {args.video_path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
