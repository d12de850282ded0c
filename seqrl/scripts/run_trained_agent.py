"""Roll out a trained policy: statistics, a video, a window, a dataset."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from seqrl.core.errors import ConfigError
from seqrl.core.files import expanded
from seqrl.scripts._script import (
    add_acting_options,
    check_dataset_output,
    check_output,
    check_seed,
    json_object,
    script,
)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl run-trained-agent", description=__doc__)
    p.add_argument("run", nargs="?", metavar="RUN", help="checkpoint, or run folder (its last checkpoint)")
    p.add_argument("--agent", help="the same, as robomimic has it")
    p.add_argument(
        "--n-rollouts", "--n_rollouts", "--episodes", type=int, default=100, help="episodes (default %(default)s)"
    )
    p.add_argument("--num-envs", type=int, default=20, help="environments stepped at once (default %(default)s)")
    p.add_argument("--horizon", type=int, help="cut episodes after this many steps (default: as the run's evaluations)")
    p.add_argument("--env", help="environment id (default: that of training)")
    p.add_argument(
        "--env-kwargs",
        type=json_object,
        default={},
        help="JSON object of environment arguments, merged into those of the run's evaluations",
    )
    p.add_argument("--seed", type=int, default=0, help="seed of environments and policy (default %(default)s)")
    add_acting_options(p)
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    p.add_argument(
        "--video", "--video-path", "--video_path", type=expanded, help="write the first episodes here, as .gif or .mp4"
    )
    p.add_argument("--video-episodes", type=int, default=3, help="episodes in the video (default %(default)s)")
    p.add_argument(
        "--video-every", "--video_skip", type=int, default=1, help="draw every n-th step (default %(default)s)"
    )
    p.add_argument("--fps", type=float, default=15.0, help="frames shown per second (default %(default)s)")
    p.add_argument(
        "--render", action="store_true", help="show the episodes in a window, one environment of each task at a time"
    )
    p.add_argument(
        "--dataset-path", "--dataset_path", type=expanded,
        help="write the episodes here: robomimic HDF5 (.hdf5), or a store (no suffix)",
    )  # fmt: skip
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
    from seqrl.rollout.from_checkpoint import makers_by_rules
    from seqrl.rollout.video import check_video_suffix

    if args.video is not None:
        check_video_suffix(args.video.suffix)
    load_plugins(args.plugin)
    checkpoint = read_checkpoint(args.agent)
    algo, _, _ = load_algo(checkpoint, args.device)
    options = {"kwargs": args.env_kwargs, "max_episode_steps": args.horizon, "plugins": tuple(args.plugin)}
    makers: list[Any] = makers_by_rules(checkpoint, algo.config, env_id=args.env, **options)  # type: ignore[assignment]
    metrics = _rollouts(args, algo, makers)
    if args.json:
        print(json.dumps(metrics, indent=2))
    else:
        width = max(map(len, metrics))
        print("\n".join(f"{name:<{width}}  {value:.4g}" for name, value in metrics.items()))
    if args.video is not None:
        _film(args, algo, makers)
    return 0


def _check(args: argparse.Namespace) -> None:
    if (args.run is None) == (args.agent is None):
        raise ConfigError("give one run: seqrl run-trained-agent RUN, or --agent RUN")
    args.agent = args.agent or args.run
    if min(args.n_rollouts, args.num_envs, args.video_episodes, args.video_every) < 1:
        raise ConfigError("--episodes (--n-rollouts), --num-envs, --video-episodes, --video-every must be at least 1")
    if args.horizon is not None and args.horizon < 1:
        raise ConfigError(f"--horizon must be at least 1, got {args.horizon}")
    if not 0 < args.fps <= 50:
        raise ConfigError(f"--fps must lie in (0, 50], got {args.fps:g}")
    check_seed(args.seed)
    check_dataset_output(args.dataset_path, overwrite=args.overwrite)
    check_output(args.video, (".gif", ".mp4"), overwrite=args.overwrite)
    shows = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if args.render and sys.platform.startswith("linux") and not any(os.environ.get(name) for name in shows):
        raise ConfigError("--render needs a display, and there is none (DISPLAY is not set); --video FILE needs none")


def _rollouts(args: argparse.Namespace, algo: Any, makers: Sequence[Any]) -> dict[str, float]:
    """Return statistics of the episodes, and write them to a dataset if asked."""
    from seqrl.rollout.from_checkpoint import env_for_policy, played
    from seqrl.rollout.rollouts import EpisodeCollector

    shown = [functools.partial(maker, render_mode="human") for maker in makers] if args.render else makers
    num_envs = 1 if args.render else min(args.num_envs, args.n_rollouts)
    with env_for_policy(algo, shown, num_envs, makers[0].args[0]) as env:
        collector = EpisodeCollector(env, max(args.n_rollouts, env.num_envs)) if args.dataset_path is not None else None
        metrics = played(
            algo, env, args.n_rollouts, seed=args.seed, deterministic=args.deterministic, on_step=collector
        )
    if collector is not None:
        _write(args, makers, env, collector.trajectories)
    return metrics


def _write(args: argparse.Namespace, makers: Sequence[Any], env: Any, trajectories: Sequence[Any]) -> None:
    """Write the episodes as a file, or as a store."""
    from seqrl.core.files import new_folder
    from seqrl.data.store import StoreWriter
    from seqrl.data.store_info import StoreInfo
    from seqrl.data.writers.robomimic import write_robomimic

    env_id, kwargs = makers[0].args[:2]
    kwargs = kwargs if len(makers) == 1 else {}  # of several tasks, no arguments are those of all
    info = StoreInfo(env.observation_space, env.codec.space, env_id=env_id, env_kwargs=kwargs, source=args.agent)
    if args.dataset_path.suffix:
        write_robomimic(args.dataset_path, info, trajectories)
    else:
        with new_folder(args.dataset_path) as folder, StoreWriter(folder, info) as writer:
            for number, trajectory in enumerate(trajectories):
                writer.append(trajectory, f"demo_{number}")
    print(f"wrote {len(trajectories)} episodes to {args.dataset_path}", file=sys.stderr)


def _film(args: argparse.Namespace, algo: Any, makers: Sequence[Any]) -> None:
    """Play the first episodes again, in one environment, before the camera."""
    from seqrl.core.seeding import integer_seed
    from seqrl.rollout.filming import record_episodes
    from seqrl.rollout.video import VideoWriter

    with VideoWriter(args.video, args.fps) as video:
        record_episodes(
            algo,
            makers,
            video,
            args.video_episodes,
            seed=integer_seed(args.seed, "env"),
            policy_seed=integer_seed(args.seed, "policy"),
            deterministic=args.deterministic,
            every=args.video_every,
        )
    print(f"wrote {video.num_frames} frames to {args.video}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
