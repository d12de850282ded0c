"""Replay a dataset's actions in its environment and report differences, or draw its stored images."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqrl.core.errors import ConfigError, DataError, EnvError
from seqrl.core.files import expanded
from seqrl.scripts._script import (
    add_dataset,
    add_reader_options,
    check_output,
    check_seed,
    json_object,
    parsed,
    reader_options,
    script,
)

UNKNOWN_START = (
    "note: {num} of these episodes started from a different observation than the stored one. A dataset holds actions, "
    "not the state in which the environment began: episode k was played from reset(seed={seed} + k). If each was "
    "recorded from a seed of its own, pass the first as --seed; seqrl seeds an environment once, for all its episodes, "
    "so its own data cannot be replayed. Stored images can be drawn with --obs KEY."
)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl playback-dataset", description=__doc__)
    add_dataset(p, "file, folder, store, or id in Minari's local store")
    p.add_argument("--output", "--video_path", type=expanded, help="video to write, .gif or .mp4")
    what = p.add_mutually_exclusive_group()
    play = "play the actions in the environment (the default)"
    what.add_argument("--actions", "--use-actions", action="store_true", help=play)
    shown = "draw the simulator's stored states, in an environment that has reset_to, such as robosuite's"
    what.add_argument("--states", action="store_true", help=shown)
    images = ("--obs", "--render_image_names", "--render_depth_names")
    shown = "draw these stored image observations, side by side"
    what.add_argument(*images, nargs="+", action="extend", metavar="KEY", help=shown)
    p.add_argument("--use-obs", action="store_true", help="draw stored image observations, all unless --obs names some")
    p.add_argument("--episodes", "--n", type=int, default=5, help="the first n episodes (default %(default)s)")
    p.add_argument("--first", action="store_true", help="only the first frame of every episode")
    p.add_argument("--filter-key", "--filter_key", help="only the episodes that this filter names")
    p.add_argument("--every", "--video_skip", type=int, default=1, help="draw every n-th step (default %(default)s)")
    p.add_argument("--fps", type=float, default=15.0, help="frames shown per second (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="episode k is reset with seed + k (default %(default)s)")
    p.add_argument("--env", help="environment id (default: that of the dataset)")
    p.add_argument(
        "--env-kwargs",
        type=json_object,
        default={},
        help="JSON object of environment arguments, merged into the dataset's",
    )
    p.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    add_reader_options(p)
    p.add_argument("--json", action="store_true", help="print the comparison as JSON")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Play, and return the exit code."""
    args = parsed(parser(), argv)
    _check(args)
    from seqrl.core.plugins import load_plugins
    from seqrl.data.episodes import select_episodes
    from seqrl.data.ingest import open_store
    from seqrl.rollout.video import VideoWriter, check_video_suffix

    if args.output is not None:
        check_video_suffix(args.output.suffix)
    load_plugins(args.plugin)
    store = open_store(args.dataset, reader_options(args), format=args.format)
    numbers = [int(n) for n in select_episodes(store, args.filter_key)[: args.episodes]]
    with contextlib.ExitStack() as stack:
        video = None if args.output is None else stack.enter_context(VideoWriter(args.output, args.fps))
        if args.obs or args.use_obs:
            _draw(args, store, numbers, video)
        elif args.states:
            _show(args, store, numbers, video)
        else:
            _replay(args, store, numbers, video)
    if video is not None:
        print(f"wrote {video.num_frames} frames to {args.output}", file=sys.stderr)
    return 0


def _check(args: argparse.Namespace) -> None:
    if min(args.episodes, args.every) < 1 or not 0 < args.fps <= 50:
        raise ConfigError("--episodes and --every must be at least 1, --fps in (0, 50]")
    if (args.obs or args.use_obs or args.states) and args.output is None:
        given = "--states" if args.states else "--use-obs" if args.use_obs else "--obs"
        raise ConfigError(f"{given} needs --output FILE, the video to write")
    if (args.actions or args.states) and args.use_obs:
        raise ConfigError("--use-obs draws stored images, --actions and --states play episodes; choose one")
    check_seed(args.seed)
    check_output(args.output, (".gif", ".mp4"), overwrite=args.overwrite)


def _draw(args: argparse.Namespace, store: Any, numbers: Sequence[int], video: Any) -> None:
    """Draw stored images."""
    from seqrl.rollout.playback import check_image_keys, draw_stored, image_keys

    keys = args.obs or image_keys(store)
    check_image_keys(store, keys, args.dataset)
    for number in numbers:
        trajectory, name = store.trajectory(number), store.name_of(number)
        draw_stored(trajectory, name, keys, video.add, every=args.every, only_first=args.first)


def _show(args: argparse.Namespace, store: Any, numbers: Sequence[int], video: Any) -> None:
    """Draw stored states."""
    from seqrl.rollout.playback import goes_to_states, show_states

    env = _environment(args, store.info, is_rendered=True)
    try:
        if not goes_to_states(env):
            raise EnvError(f"environment {env} has no reset_to(state), so it cannot show states; try --actions")
        for number in numbers:
            states = _states(args, store, number)
            if states is None:
                raise DataError(f"{args.dataset}: {store.name_of(number)} has no states; try --actions or --use-obs")
            show_states(env, states, store.name_of(number), video.add, every=args.every, only_first=args.first)
    finally:
        env.close()


def _states(args: argparse.Namespace, store: Any, number: int) -> Any:
    """Return the simulator's states of an episode; None if the data has none."""
    from seqrl.data.ingest import located
    from seqrl.data.robomimic_rest import stored_states

    return stored_states(located(Path(args.dataset)), store.names[number])


def _replay(args: argparse.Namespace, store: Any, numbers: Sequence[int], video: Any) -> None:
    """Play the actions, and print what differs."""
    import gymnasium as gym

    from seqrl.rollout.playback import goes_to_states, replay

    env = _environment(args, store.info, is_rendered=video is not None)
    has_states = goes_to_states(env)
    results = []
    try:
        for number in numbers:
            found = _states(args, store, number) if has_states else None
            result = replay(
                env,
                store.info,
                store.trajectory(number),
                store.name_of(number),
                seed=args.seed + number,
                state=None if found is None else {"model": found["model"], "states": found["states"][0]},
                on_picture=None if video is None else video.add,
                every=args.every,
                only_first=args.first,
            )
            results.append(result)
            if not args.json:
                print(result.text(), flush=True)
    except gym.error.Error as error:
        raise EnvError(f"environment {env}: {error}") from error
    finally:
        env.close()
    num_same = sum(r.is_as_stored for r in results)
    if args.json:
        rows = [{**dataclasses.asdict(r), "is_as_stored": r.is_as_stored} for r in results]
        print(json.dumps({"episodes": rows, "as_stored": num_same}, indent=2))
    else:
        print(f"{num_same} of {len(results)} episodes as stored")
    if num := sum(r.first_step == 0 for r in results):
        print(UNKNOWN_START.format(num=num, seed=args.seed), file=sys.stderr)


def _environment(args: argparse.Namespace, info: Any, *, is_rendered: bool) -> Any:
    """Return the dataset's environment, or the one that was asked for."""
    import seqrl.envs  # noqa: F401  (registers the built-in environments)
    from seqrl.core.plugins import names_foreign_module
    from seqrl.envs.make import make_env

    env_id = args.env or info.env_id
    if env_id is None:
        raise ConfigError(f"{args.dataset} names no environment; give one (--env ID), or draw its images (--obs KEY)")
    if args.env is None and (module := names_foreign_module(env_id)):
        raise EnvError(f"{env_id!r} would import {module!r}, which data must not do; pass --plugin {module}")
    kwargs = {**({} if args.env else info.env_kwargs), **args.env_kwargs}
    return make_env(env_id, kwargs, render_mode="rgb_array" if is_rendered else None)


if __name__ == "__main__":
    sys.exit(main())
