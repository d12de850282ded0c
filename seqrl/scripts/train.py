"""Train a policy by a run file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from seqrl.configs import BaseConfig, apply_overrides, config_factory, read_config_values
from seqrl.core.errors import ConfigError
from seqrl.core.plugins import load_plugins
from seqrl.scripts._script import add_reader_options, script

DEBUG = (
    "train.num_epochs=2",
    "train.steps_per_epoch=3",
    "train.valid_batches=1",
    "experiment.logging.every_n_steps=1",
    "experiment.evaluation.episodes=4",
    "experiment.evaluation.num_envs=2",
    "collect.replay.min_transitions=0",
    "collect.replay.min_trajectories=1",
    "train.start_epoch=0",
    "collect.start_epoch=0",
)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl train", description=__doc__)
    p.add_argument("--config", help="run file (JSON), or the name of a packaged template such as bc.json")
    p.add_argument("--algo", help="algorithm, to begin from its pure defaults instead of a run file")
    p.add_argument("--name", help="name of the run's folder (experiment.name)")
    p.add_argument("--dataset", help="data file or store, instead of those in train.data")
    add_reader_options(p)
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override, e.g. train.seed=2")
    p.add_argument(
        "--role",
        choices=("both", "learn", "collect"),
        default="both",
        help="collect and learn in turn, or one of the two: a learner and any collectors share a folder",
    )
    p.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--debug", action="store_true", help="two tiny epochs, to see that everything works")
    p.add_argument("--print-config", action="store_true", help="print the resolved config and stop")
    p.add_argument("--print-schema", action="store_true", help="print the JSON schema of the run file and stop")
    return p


def _data(args: argparse.Namespace) -> list[str]:
    """Return the override of --dataset and --format, if they are given."""
    if args.dataset is None:
        if args.format is not None:
            raise ConfigError("--format is that of --dataset; without it, set train.data.0.format")
        return []
    entry = {"path": args.dataset} | ({} if args.format is None else {"format": args.format})
    return ["train.data=" + json.dumps([entry])]


def resolve_config(args: argparse.Namespace) -> tuple[BaseConfig, list[str]]:
    """Return the config that the command line describes, and what it drops.

    Raises:
        ConfigError: If neither or both of --config and --algo are given, or anything in them is wrong.
    """
    if (args.config is None) == (args.algo is None):
        raise ConfigError("give --config FILE, or --algo NAME for an algorithm's defaults (one of the two)")
    values: dict[str, Any] = read_config_values(args.config) if args.config else {"algo_name": args.algo}
    if args.resume and args.overwrite:
        raise ConfigError("--resume goes on with a run, --overwrite replaces it; give one of the two")
    listed = values.get("plugins", [])
    if not isinstance(listed, list):
        raise ConfigError(f"plugins: must be a list of files or modules, got {listed!r}")
    plugins = [*map(str, listed), *args.plugin]
    load_plugins(plugins)
    if plugins:
        values["plugins"] = plugins
    overrides = [*(DEBUG if args.debug else ()), *args.set]
    if args.debug and (values.get("collect") or {}).get("steps_per_epoch"):
        overrides.insert(0, "collect.steps_per_epoch=64")
    overrides = [*_data(args), *overrides]
    if args.name is not None:
        overrides.insert(0, "experiment.name=" + json.dumps(args.name))
    notes = [f"note: {dropped}" for dropped in apply_overrides(values, overrides)]
    for note in notes:
        print(note, file=sys.stderr)
    if "algo_name" not in values:
        raise ConfigError(f"{args.config}: algo_name is required, to know which algorithm's config this is")
    return config_factory(str(values["algo_name"]), values, args.config or f"--algo {args.algo}"), notes


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Train, and return the exit code."""
    args = parser().parse_args(argv)
    config, notes = resolve_config(args)
    if args.print_schema:
        print(json.dumps(type(config).model_json_schema(), indent=2))
        return 0
    if args.print_config:
        print(json.dumps(config.to_json(), indent=2))
        return 0
    from seqrl.training.experiment import Experiment

    experiment = Experiment.from_config(config, role=args.role, resume=args.resume, overwrite=args.overwrite)
    for note in notes:
        experiment.run_log.write(note)
    experiment.start()
    experiment.learn()
    return 0


if __name__ == "__main__":
    sys.exit(main())
