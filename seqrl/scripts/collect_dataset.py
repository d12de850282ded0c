"""Collect episodes of a scripted expert or a trained policy into a robomimic HDF5 file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from seqrl.core.errors import ConfigError
from seqrl.core.files import expanded
from seqrl.scripts._script import add_acting_options, check_output, check_seed, json_object, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl collect-dataset", description=__doc__)
    p.add_argument("--env", help="environment id (default: that of --agent)")
    p.add_argument("--env-kwargs", type=json_object, default={}, help="JSON object of arguments of the environment")
    p.add_argument("--agent", help="checkpoint of the policy; without it, the environment's scripted expert acts")
    p.add_argument("--episodes", type=int, default=100, help="episodes (default %(default)s)")
    p.add_argument("--num-envs", type=int, default=20, help="environments stepped at once (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument(
        "--noise", type=float, default=0.0, help="probability of a random action instead of the expert's (default 0)"
    )
    add_acting_options(p)
    p.add_argument(
        "--valid-fraction", type=float, default=0.1, help="share listed under mask/valid (default %(default)s)"
    )
    p.add_argument("--output", type=expanded, required=True, help="file to write")
    p.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    p.add_argument("--plugin", action="append", default=[], help="Python file or module to import first")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Collect, and return the exit code."""
    args = parser().parse_args(argv)
    _check(args)
    from seqrl.core.plugins import load_plugins
    from seqrl.core.seeding import generator, integer_seed
    from seqrl.data.store_info import StoreInfo
    from seqrl.data.writers.robomimic import write_robomimic
    from seqrl.rollout.evaluator import evaluation_mode
    from seqrl.rollout.rollouts import collect_episodes

    load_plugins(args.plugin)
    num_valid = round(args.valid_fraction * args.episodes)
    order = generator(args.seed, "split").permutation(args.episodes)
    filters = {
        "train": [f"demo_{i}" for i in sorted(order[num_valid:])],
        "valid": [f"demo_{i}" for i in sorted(order[:num_valid])],
    }
    filters = {name: episodes for name, episodes in filters.items() if episodes}
    with (_scripted if args.agent is None else _trained)(args) as (env, policy, algo, (env_id, kwargs)):
        info = StoreInfo(env.observation_space, env.codec.space, env_id=env_id, env_kwargs=kwargs, filters=filters)
        with evaluation_mode(algo, integer_seed(args.seed, "policy")):
            episodes = collect_episodes(env, policy, args.episodes, seed=integer_seed(args.seed, "env"))
            number = write_robomimic(args.output, info, episodes)
    print(f"wrote {number} episodes to {args.output}")
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.env is None and args.agent is None:
        raise ConfigError("give --env ID (its scripted expert acts), --agent CHECKPOINT, or both")
    if args.episodes < 1 or args.num_envs < 1 or not 0 <= args.valid_fraction < 1:
        raise ConfigError("--episodes and --num-envs must be at least 1, --valid-fraction in [0, 1)")
    if not 0 <= args.noise <= 1 or (args.noise and args.agent is not None):
        raise ConfigError("--noise must lie in [0, 1], and is for scripted experts; for a policy use --sample")
    check_seed(args.seed)
    check_output(args.output, (".hdf5", ".h5"), overwrite=args.overwrite)


Acting = tuple[Any, Any, Any, tuple[str, dict[str, Any]]]
"""Environments, the policy in them, its algorithm if it has one, and the environments' id and arguments."""


@contextmanager
def _scripted(args: argparse.Namespace) -> Iterator[Acting]:
    from seqrl.configs.sections.run import EnvSection
    from seqrl.envs.make import env_maker, make_batched_env
    from seqrl.rollout.rollouts import ScriptedPolicy

    maker = env_maker(args.env, args.env_kwargs, plugins=tuple(args.plugin))
    env = make_batched_env(maker, min(args.num_envs, args.episodes), max_restarts=EnvSection().max_restarts)
    try:
        yield env, ScriptedPolicy(args.env, env, noise=args.noise, seed=args.seed), None, (args.env, args.env_kwargs)
    finally:
        env.close()


@contextmanager
def _trained(args: argparse.Namespace) -> Iterator[Acting]:
    from seqrl.algo.checkpoint import load_algo, read_checkpoint
    from seqrl.rollout.from_checkpoint import env_for_policy, maker_by_rules, warn_of_other_tasks
    from seqrl.rollout.rollouts import AlgoPolicy

    checkpoint = read_checkpoint(args.agent)
    algo, _, _ = load_algo(checkpoint)
    if args.env is None:
        warn_of_other_tasks(checkpoint, algo.config)
    options = {"kwargs": args.env_kwargs, "plugins": tuple(args.plugin)}
    maker: Any = maker_by_rules(checkpoint, algo.config, env_id=args.env, **options)
    with env_for_policy(algo, maker, min(args.num_envs, args.episodes), maker.args[0]) as env:
        yield env, AlgoPolicy(algo, env.num_envs, deterministic=args.deterministic), algo, maker.args[:2]


if __name__ == "__main__":
    sys.exit(main())
