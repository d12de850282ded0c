"""Collect episodes of a scripted expert or a trained policy into a robomimic HDF5 file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
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
    from seqrl.configs.sections.run import EnvSection
    from seqrl.core.plugins import load_plugins
    from seqrl.core.seeding import generator, integer_seed
    from seqrl.data.store_info import StoreInfo
    from seqrl.data.writers.robomimic import write_robomimic
    from seqrl.envs import make_batched_env
    from seqrl.rollout.evaluator import evaluation_mode
    from seqrl.rollout.rollouts import collect_episodes

    load_plugins(args.plugin)
    maker, make_policy, algo = _actor(args)
    restarts = EnvSection().max_restarts if algo is None else algo.config.env.max_restarts
    env = make_batched_env(maker, min(args.num_envs, args.episodes), max_restarts=restarts)
    if algo is not None:
        env.codec = algo.codec
    num_valid = round(args.valid_fraction * args.episodes)
    order = generator(args.seed, "split").permutation(args.episodes)
    filters = {
        "train": [f"demo_{i}" for i in sorted(order[num_valid:])],
        "valid": [f"demo_{i}" for i in sorted(order[:num_valid])],
    }
    info = StoreInfo(
        env.observation_space,
        env.codec.space,
        env_id=maker.args[0],
        env_kwargs=maker.args[1],
        filters={k: v for k, v in filters.items() if v},
    )
    try:
        with evaluation_mode(algo, integer_seed(args.seed, "policy")):
            episodes = collect_episodes(env, make_policy(env), args.episodes, seed=integer_seed(args.seed, "env"))
            number = write_robomimic(args.output, info, episodes)
    finally:
        env.close()
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


def _actor(args: argparse.Namespace) -> tuple[Any, Any, Any]:
    """Return what makes the environment, what makes the policy from it, and the algorithm if there is one."""
    from seqrl.envs.make import env_maker
    from seqrl.rollout.rollouts import AlgoPolicy, ScriptedPolicy

    if args.agent is None:
        return (
            env_maker(args.env, args.env_kwargs, plugins=tuple(args.plugin)),
            lambda env: ScriptedPolicy(args.env, env, noise=args.noise, seed=args.seed),
            None,
        )
    from seqrl.algo.checkpoint import load_algo, read_checkpoint
    from seqrl.rollout.agreement import check_actions, check_observations
    from seqrl.rollout.from_checkpoint import maker_by_rules, warn_of_other_tasks

    checkpoint = read_checkpoint(args.agent)
    algo, _, _ = load_algo(checkpoint)
    if args.env is None:
        warn_of_other_tasks(checkpoint, algo.config)
    options = {"kwargs": args.env_kwargs, "plugins": tuple(args.plugin)}
    maker: Any = maker_by_rules(checkpoint, algo.config, env_id=args.env, **options)
    probe = maker()
    check_observations(probe.observation_space, algo.obs, maker.args[0])
    check_actions(probe.action_space, algo.codec.space, maker.args[0])
    probe.close()
    return maker, lambda env: AlgoPolicy(algo, env.num_envs, deterministic=args.deterministic), algo


if __name__ == "__main__":
    sys.exit(main())
