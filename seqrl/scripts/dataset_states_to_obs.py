"""Create observations from the simulator's states in a robomimic file, in an environment with reset_to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from seqrl.core.errors import ConfigError
from seqrl.core.files import expanded
from seqrl.scripts._script import add_dataset, check_output, json_object, parsed, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl dataset-states-to-obs", description=__doc__)
    add_dataset(p, "robomimic file with states, such as robosuite's demo.hdf5")
    p.add_argument(
        "--output-name", "--output_name", required=True, help="name of the new file, in the dataset's folder"
    )
    p.add_argument("--filter-key", "--filter_key", help="only the episodes that this filter names")
    p.add_argument("--n", type=int, help="only the first n episodes")
    p.add_argument("--env", help="environment id (default: that of the dataset)")
    p.add_argument(
        "--env-kwargs",
        type=json_object,
        default={},
        help="JSON object of environment arguments, merged into the dataset's",
    )
    p.add_argument("--camera-names", "--camera_names", nargs="+", default=[], help="cameras of robosuite to observe")
    p.add_argument("--camera-height", "--camera_height", type=int, default=84, help="(default %(default)s)")
    p.add_argument("--camera-width", "--camera_width", type=int, default=84, help="(default %(default)s)")
    p.add_argument("--depth", action="store_true", help="observe depth too")
    modes = "which steps get a 1 in dones; 0: success, 1: the last step, 2: both (default %(default)s)"
    p.add_argument("--done-mode", "--done_mode", type=int, choices=(0, 1, 2), default=0, help=modes)
    chosen = p.add_mutually_exclusive_group()
    rewards = "copy the file's rewards (default: 1 at success, else 0)"
    chosen.add_argument("--copy-rewards", "--copy_rewards", action="store_true", help=rewards)
    shaped = "take the environment's own rewards; robosuite's then guide towards success"
    chosen.add_argument("--shaped", action="store_true", help=shaped)
    p.add_argument("--copy-dones", "--copy_dones", action="store_true", help="take the file's dones")
    p.add_argument("--exclude-next-obs", action="store_true", help="write no next_obs")
    p.add_argument("--compress", action="store_true", help="compress observations")
    workers = "processes, each with an environment (default %(default)s)"
    p.add_argument("--num-workers", "--num_procs", type=int, default=1, help=workers)
    p.add_argument("--plugin", action="append", default=[], help="Python file or module to import first")
    p.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Observe, and return the exit code."""
    args = parsed(parser(), argv)
    source = expanded(args.dataset)
    target = source.parent / args.output_name
    if args.num_workers < 1 or (args.n is not None and args.n < 1):
        raise ConfigError("--num-workers and --n must be at least 1")
    if target.resolve() == source.resolve():
        raise ConfigError(f"--output-name {args.output_name} is the dataset itself")
    check_output(target, (".hdf5", ".h5"), overwrite=args.overwrite)
    import seqrl.envs  # noqa: F401  (registers the built-in environments)
    from seqrl.core.errors import DataError, EnvError
    from seqrl.core.plugins import load_plugins, names_foreign_module
    from seqrl.rollout.states_to_obs import Wanted, demos_of, environment_of, states_to_obs

    load_plugins(args.plugin)
    if not source.is_file():
        raise DataError(f"{source} {'is a folder, not a robomimic file' if source.is_dir() else 'does not exist'}")
    demos = demos_of(source, args.filter_key)[: args.n]
    if not demos:
        raise DataError(f"{source} holds no demonstrations")
    env_id, kwargs = (args.env, {}) if args.env else environment_of(source)
    if not args.env and (module := names_foreign_module(env_id)):
        raise EnvError(f"{env_id!r}, named by the data, would import {module!r}; to allow it, pass --plugin {module}")
    wanted = Wanted(
        env_id,
        {**kwargs, **_cameras(args), **_rewards(args, env_id), **args.env_kwargs},
        done_mode=args.done_mode,
        copies_rewards=args.copy_rewards,
        is_shaped=args.shaped,
        copies_dones=args.copy_dones,
        has_next_obs=not args.exclude_next_obs,
        is_compressed=args.compress,
        plugins=tuple(args.plugin),
    )

    def said(done: int, total: int, name: str) -> None:
        print(f"{done} of {total}: {name}", file=sys.stderr, flush=True)

    number = states_to_obs(source, target, demos, wanted, num_workers=args.num_workers, said=said)
    print(f"wrote {number} episodes to {target}")
    return 0


def _cameras(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of robosuite that --camera-names asks for."""
    if not args.camera_names:
        return {}
    sizes = {"camera_heights": args.camera_height, "camera_widths": args.camera_width, "camera_depths": args.depth}
    return {"use_camera_obs": True, "camera_names": args.camera_names, **sizes}


def _rewards(args: argparse.Namespace, env_id: str) -> dict[str, Any]:
    """Return the argument of robosuite that --shaped asks for."""
    return {"reward_shaping": True} if args.shaped and env_id.startswith("robosuite/") else {}


if __name__ == "__main__":
    sys.exit(main())
