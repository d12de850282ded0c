"""Train a policy from a run file."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seqrl.configs import (
    BaseConfig,
    apply_overrides,
    config_factory,
    get_all_registered_configs,
    layered,
    read_config_values,
    template_names,
)
from seqrl.configs.budget import continued, num_envs_of, with_budget, without_epochs
from seqrl.configs.budget_windows import CHOICES, is_hard_to_explore
from seqrl.configs.building import build_section
from seqrl.configs.derived import Budget
from seqrl.configs.dotted import value_at
from seqrl.configs.overrides import parse_value
from seqrl.configs.sections.run import EnvSection, TrainSection
from seqrl.core.errors import ConfigError
from seqrl.core.files import expanded
from seqrl.core.plugins import listed_plugins, load_plugins
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.scripts._script import add_reader_options, reader_options, script, suggest

if TYPE_CHECKING:
    from seqrl.data import Store

logger = logging.getLogger(__name__)

DEBUG = (
    "train.num_epochs=2",
    "train.steps_per_epoch=2",
    "train.replay_ratio=null",
    "train.valid_batches=1",
    "experiment.logging.every_n_steps=1",
    "experiment.evaluation.first_epoch=2",
    "experiment.evaluation.episodes=2",
    "experiment.evaluation.num_envs=2",
    "experiment.report.animation_episodes=0",
    "collect.replay.min_transitions=0",
    "collect.replay.min_trajectories=1",
    "train.start_epoch=0",
    "collect.start_epoch=0",
)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl train", description=__doc__)
    run_file = p.add_argument(
        "--config", nargs="+", action="extend", metavar="FILE",
        help="run file (JSON), or the name of a packaged template such as bc.json; later files override earlier ones",
    )  # fmt: skip
    algorithms, memories = sorted(get_all_registered_configs()), SEQUENCE_ENCODERS.names()
    algo = p.add_argument(
        "--algo",
        help=f"algorithm; starts from its defaults instead of a run file: {', '.join(algorithms)}",
    )
    p.add_argument("--env", help="gymnasium id (env.id); seqrl list envs shows suites")
    memory = p.add_argument("--memory", help=f"memory (algo.sequence_encoder.type): {', '.join(memories)}")
    p.add_argument(
        "--env-steps", type=count, metavar="N",
        help="budget of environment steps per process, such as 50k; derives the settings that depend on it",
    )  # fmt: skip
    p.add_argument(
        "--gradient-steps", type=count, metavar="N", help="the same for fixed data: budget of gradient steps"
    )
    p.add_argument("--seed", type=int, metavar="N", help="seed of the run (train.seed)")
    p.add_argument("--name", help="name of the run's folder (experiment.name)")
    p.add_argument("--dataset", help="data file or store (or an entry of train.data as JSON), instead of train.data")
    add_reader_options(p)
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override, e.g. train.batch_size=32")
    p.add_argument(
        "--role",
        choices=("both", "learn", "collect"),
        default="both",
        help="both: collect and learn in turn; learn, collect: one of the two, in processes that share a folder",
    )
    p.add_argument(
        "--collectors",
        choices=("local", "ray"),
        help="collect in this process, or in Ray actors while this process learns (collect.collectors)",
    )
    p.add_argument("--resume", action="store_true", help="resume the run in the folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    p.add_argument("--debug", action="store_true", help="two tiny epochs, to see whether everything works")
    p.add_argument("--print-config", action="store_true", help="print the resolved config and stop")
    p.add_argument("--print-schema", action="store_true", help="print the JSON schema of the run file and stop")
    for action, names in ((run_file, template_names()), (algo, algorithms), (memory, memories)):
        suggest(action, names)
    return p


def count(text: str) -> int:
    """Return a number such as ``50k`` or ``1.5M``.

    Raises:
        argparse.ArgumentTypeError: If it is none, or below 1.
    """
    factor = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    try:
        number = round(float(text if factor == 1 else text[:-1]) * factor)
    except (ValueError, OverflowError):
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, such as 50k or 1M, got {text!r}")
    return number


def _tiny(values: dict[str, Any], settings: Sequence[str]) -> list[str]:
    """Return the overrides of --debug: two short epochs of small batches, short windows and short episodes."""
    caps = {"train.batch_size": 2, "train.window_steps": 16, "experiment.evaluation.max_steps": 10}
    if value_at(values, "env.vectorization") == "native" or "env.vectorization=native" in settings:
        del caps["experiment.evaluation.max_steps"]  # an environment that steps many at once takes no other limit
    overrides = list(DEBUG)
    for key, most in caps.items():
        given = value_at(values, key)
        overrides.append(f"{key}={min(given, most) if isinstance(given, int) else most}")
    return overrides


def _few_episodes(values: dict[str, Any]) -> list[str]:
    """Return overrides by which no scripted expert plays more than 5 episodes."""
    sources = value_at(values, "train.data")
    sources = sources if isinstance(sources, list) else []
    counts = {i: x.get("episodes", 5) for i, x in enumerate(sources) if isinstance(x, dict) and x.get("scripted")}
    return [f"train.data.{i}.episodes={min(count, 5)}" for i, count in counts.items() if isinstance(count, int)]


def _named(args: argparse.Namespace) -> list[str]:
    """Return the overrides of --env, --memory, --seed and --collectors, if they are given."""
    named = {
        "env.id": args.env, "algo.sequence_encoder.type": args.memory, "train.seed": args.seed,
        "collect.collectors": args.collectors
    }  # fmt: skip
    return [f"{key}={json.dumps(value)}" for key, value in named.items() if value is not None]


def _planned(values: dict[str, Any], args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Return the run file with what the budget decides, and lines that tell what that was."""
    if args.env_steps is None and args.gradient_steps is None:
        return values, []
    if args.env_steps and args.gradient_steps:
        raise ConfigError("give --env-steps (a run that collects) or --gradient-steps (fixed data), not both")
    if args.gradient_steps and not value_at(values, "train.data"):
        raise ConfigError("--gradient-steps is for fixed data: give --dataset, or --env-steps to collect")
    values = _given(values, args)
    if isinstance(value_at(values, "train.init_from"), str):
        from seqrl.training.init_from import with_networks

        values = with_networks(values, goes_on=args.resume or args.role == "collect")
    begins, worlds = not args.resume and args.role != "collect", list[_World]()
    if args.env_steps:
        worlds = _worlds(values)
        budget = Budget(args.env_steps, None, **_of_worlds(worlds), is_a_trial=args.debug)
    else:
        budget = Budget(None, args.gradient_steps, **_of_data(values), is_a_trial=args.debug)
    if not begins and (saved := _begun(values, budget, args.role)) is not None:
        values, kept = continued(values, budget, saved)
        keys = ", ".join(f"{entry.key} {json.dumps(entry.value)} ({entry.reason})" for entry in kept)
        return values, [f"note: the run keeps {keys}"] if keys else []
    notes = list[str]()
    if worlds and begins:
        for text in _without_limits(values, worlds):
            logger.warning("%s", text)
    if worlds and not args.print_schema and _finds_nothing(values, budget, worlds):
        budget = replace(budget, finds_nothing=True)
        notes = [
            "note: random play found nothing, so the run is planned for hard exploration; --print-config shows how"
        ]
    values, derived = with_budget(values, budget)
    return values, [*notes, *(f"derived: {entry}" for entry in derived)]


def _given(values: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return the run file, without the epochs that an earlier budget gave to it if it is the one in a run's folder."""
    files = [Path(file) for file in args.config or () if Path(file).name == "config.json"]
    is_a_runs = args.resume and any((file.parent / "checkpoints").is_dir() for file in files)
    sets_epochs = any(text.partition("=")[0].strip() == "train.num_epochs" for text in args.set)
    return without_epochs(values) if is_a_runs and not (sets_epochs or args.debug) else values


def _begun(values: dict[str, Any], budget: Budget, role: str) -> dict[str, Any] | None:
    """Return the config of the run that goes on or collects already, if it is there and of the same algorithm."""
    from seqrl.rollout.environments import tasks
    from seqrl.training.run_folder import is_running, last_checkpoint, saved_config
    from seqrl.training.setup import run_path
    from seqrl.training.sources import find_data

    free = without_epochs(values)  # they may be more now than the budget allows
    config = config_factory(str(values["algo_name"]), with_budget(free, replace(budget, is_a_trial=True))[0])
    chosen = tasks(config.env, None, {}, is_evaluation=False)
    if not chosen and config.experiment.name is None and (info := find_data(config).info) is not None:
        chosen = tasks(config.env, info.env_id, {}, is_evaluation=False)
    path = run_path(config, chosen[0].env_id if chosen else None)
    has_begun = is_running(path) if role == "collect" else last_checkpoint(path) is not None
    if not has_begun or not (path / "config.json").is_file():
        return None
    saved = saved_config(path)
    return saved if saved.get("algo_name") == values["algo_name"] else None


def _in_short(derived: Sequence[str]) -> list[str]:
    """Return one line on what was worked out; the run's log.txt has all of it with the reasons."""
    keys = [line for line in derived if line.startswith("derived: ")]
    if len(keys) < 2:
        return list(derived)
    note = f"note: the budget sets {len(keys)} keys; --print-config and log.txt show them with their reasons"
    return [note, *(line for line in derived if line not in keys)]


class _World(NamedTuple):
    """An environment of the run, and what is known of its episodes."""

    env_id: str
    kwargs: dict[str, Any]
    steps: int
    source: str
    kind: str


def _worlds(values: dict[str, Any]) -> list[_World]:
    """Return the environments that a run file names, each once."""
    from seqrl.envs.horizon import horizon_and_kind
    from seqrl.rollout.environments import tasks

    env = build_section(EnvSection, values.get("env", {}), "the run file", "env")
    named = [(t.id or env.id, {**env.kwargs, **t.kwargs}) for t in env.tasks if t.id or env.id]
    if not env.tasks:
        info = next((store.info for store in _stores(values) if store.info.env_id), None)
        data_id, data_kwargs = (info.env_id, info.env_kwargs) if info else (None, {})
        named = [(t.env_id, t.kwargs) for t in tasks(env, data_id, data_kwargs, is_evaluation=False)]
    if not named:
        raise ConfigError("--env-steps needs an environment: give --env ID")
    each = [one for i, one in enumerate(named) if one not in named[:i]]
    plugins = values.get("plugins", ())
    return [_World(env_id, kwargs, *horizon_and_kind(env_id, kwargs, plugins=plugins)) for env_id, kwargs in each]


def _of_worlds(worlds: Sequence[_World]) -> dict[str, Any]:
    """Return what a budget needs to know of the environments: their longest episodes, and the kind of their actions."""
    from seqrl.envs.horizon import PLAYED

    longest, kinds = max(worlds, key=lambda world: world.steps), {world.kind for world in worlds}
    kind = longest.kind if len(kinds) == 1 else "multi_discrete" if kinds.issubset(CHOICES) else "hybrid"
    return {
        "horizon": longest.steps,
        "horizon_source": longest.source,
        "lasts_as_long": all(world.source != PLAYED for world in worlds),
        "action_kind": kind,
    }


def _without_limits(values: dict[str, Any], worlds: Sequence[_World]) -> Iterator[str]:
    """Yield a warning for each environment whose longest episode is not known."""
    from seqrl.envs.horizon import MAX_STEPS, NO_END, NUM_EPISODES, PLAYED

    asked = value_at(values, "experiment.evaluation", {})
    is_cut = value_at(asked, "max_steps") or value_at(asked, "max_steps_per_env")
    key = "max_episode_steps in its kwargs" if value_at(values, "env.tasks") else "env.kwargs.max_episode_steps"
    planned = max(world.steps for world in worlds)
    for world in worlds:
        what = world.env_id + (f" {json.dumps(world.kwargs)}" if world.kwargs else "")
        if world.source == NO_END and value_at(asked, "enabled", True) and not is_cut:
            yield (
                f"{what}: an episode with random actions did not end within {MAX_STEPS} steps, and no time limit is "
                "known: an evaluation may never end. Set experiment.evaluation.max_steps"
            )
        elif world.source == PLAYED:
            yield (
                f"{what} has no time limit; {NUM_EPISODES} episodes with random actions had at most {world.steps} "
                f"steps, and the run is planned for {planned}. If those of a trained policy are longer, set {key} to "
                "their limit, or wrap the environment in gymnasium's TimeLimit"
            )


def _finds_nothing(values: dict[str, Any], budget: Budget, worlds: Sequence[_World]) -> bool:
    """Tell whether random play finds nothing in any of the environments, where the plan depends on it.

    That takes at most a tenth of the budget's steps, but three episodes of each environment may be played.
    """
    from seqrl.envs.horizon import MOST_TRIED, NUM_EPISODES, finds_nothing

    if not is_hard_to_explore(values, replace(budget, finds_nothing=True)):
        return False
    fitting = (budget.env_steps or 0) // (10 * sum(world.steps for world in worlds))
    played = max(NUM_EPISODES, min(MOST_TRIED, fitting))
    plugins = values.get("plugins", ())
    return all(finds_nothing(*world[:3], num_episodes=played, plugins=plugins) for world in worlds)


def _of_data(values: dict[str, Any]) -> dict[str, Any]:
    """Return what a budget needs to know of fixed data: its longest episode, and how many transitions there are."""
    stores = _stores(values)
    lengths = [store.length for store in stores if len(store)]
    if not lengths:
        return {}
    longest, total = max(int(each.max()) for each in lengths), sum(int(each.sum()) for each in lengths)
    known = {"horizon": longest, "horizon_source": "the longest of the data"}
    return known if len(stores) < len(value_at(values, "train.data")) else {**known, "transitions": total}


def _stores(values: dict[str, Any]) -> list[Store]:
    """Return the fixed data that a run file names by paths."""
    from seqrl.data.ingest import open_store

    train = build_section(TrainSection, values.get("train", {}), "the run file", "train")
    files = [s for s in train.data if s.path is not None]
    return [open_store(str(s.path), s.reader_options(), format=s.format) for s in files]


def _data(args: argparse.Namespace) -> list[str]:
    """Return the override of --dataset and the options of its reader, if they are given."""
    options = {"format": args.format, **reader_options(args)}
    told = {k: v for k, v in options.items() if v not in (None, "terminated")}
    if args.dataset is None:
        if told:
            name = next(iter(told))
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} describes --dataset; without --dataset, set train.data.0.{name}")
        return []
    entry = parse_value(args.dataset)
    if isinstance(entry, str) and entry.startswith("{"):
        raise ConfigError(f"--dataset {entry}: is no JSON: names need double quotes")
    entry = {**(entry if isinstance(entry, dict) else {"path": args.dataset}), **told}
    return ["train.data=" + json.dumps([entry])]


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def _values(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Return what --config holds, or --algo names; and what was dropped."""
    if args.resume and args.name and not (args.config or args.algo):
        args.config = [_run_file(args)]
    if (args.config is None) == (args.algo is None):
        raise ConfigError("give --config FILE, or --algo NAME for an algorithm's defaults (one of the two)")
    if args.algo and args.algo not in get_all_registered_configs() and f"{args.algo}.json" in template_names():
        raise ConfigError(f"{args.algo} is a run file, not an algorithm: --config {args.algo}.json")
    values, dropped = {"algo_name": args.algo} if args.algo else {}, list[str]()
    for file in args.config or ():
        read = read_config_values(file)
        is_template = not Path(file).is_file()
        if args.dataset and is_template and "env" in read and "id" not in read["env"]:  # it is that of the data
            del read["env"]
            dropped.append(f"--dataset replaces the data of {file}, so its section env is ignored")
        values, more = layered(values, read)
        dropped += more
    return values, dropped


def _run_file(args: argparse.Namespace) -> str:
    """Return the ``config.json`` of the run that --name alone says to resume."""
    given: dict[str, Any] = {}
    apply_overrides(given, [text for text in args.set if text.startswith("experiment.output_dir=")])
    default = BaseConfig.model_fields["experiment"].default.output_dir
    file = expanded(value_at(given, "experiment.output_dir", default)) / args.name / "config.json"
    if not file.is_file():
        raise ConfigError(f"nothing to resume: {file} does not exist; repeat the command that began the run")
    return str(file)


def resolve_config(
    args: argparse.Namespace, values: dict[str, Any] | None = None, says: Callable[[str], Any] = _to_stderr
) -> tuple[BaseConfig, list[str]]:
    """Return the config that the command line describes, and what it drops.

    Args:
        args: The command line.
        values: Of a run file, in place of --config and --algo.
        says: Takes what the user should know.

    Raises:
        ConfigError: If neither or both of --config and --algo are given, or anything in them is wrong.
    """
    values, gone = _values(args) if values is None else (values, [])
    if any(text.partition("=")[0].partition(".")[0].strip() == "plugins" for text in args.set):  # needed before
        raise ConfigError("plugins: pass --plugin FILE instead of --set")
    named = [*listed_plugins(values), *args.plugin]
    by_place = {Path(name).absolute() if name.endswith(".py") else name: name for name in named}
    if plugins := load_plugins(by_place.values()):
        values["plugins"] = plugins
        from seqrl.conformance.cases import check_has_config

        check_has_config(str(values.get("algo_name")))
    overrides = [*(_tiny(values, args.set) if args.debug else ()), *args.set]
    if args.debug and (args.env_steps or value_at(values, "collect.steps_per_epoch")):
        overrides.insert(0, "collect.steps_per_epoch=64")
    if args.debug and not args.dataset:
        overrides = [*_few_episodes(values), *overrides]
    overrides = [*_data(args), *_named(args), *overrides]
    if args.name is not None:
        overrides.insert(0, "experiment.name=" + json.dumps(args.name))
    dropped = [f"note: {text}" for text in [*gone, *apply_overrides(values, overrides)]]
    source = " ".join(args.config or ()) or (f"--algo {args.algo}" if args.algo else "the config")
    source += " with --set" if args.set else ""
    if "algo_name" not in values:
        raise ConfigError(f"{source}: algo_name is required")
    if args.debug and args.env_steps:
        rows = value_at(values, "train.num_epochs") * num_envs_of(values, Budget(args.env_steps))
        collect = values["collect"]
        collect["steps_per_epoch"] = max(1, min(collect["steps_per_epoch"], args.env_steps // max(1, rows)))
    values, derived = _planned(values, args)
    for line in [*dropped, *(derived if args.print_config else _in_short(derived))]:
        says(line)
    notes = [*dropped, *derived]
    return config_factory(str(values["algo_name"]), values, source), notes


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
    experiment.parts.processes.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
