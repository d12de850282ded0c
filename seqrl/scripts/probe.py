"""Test what a trained policy remembers (other tasks, a cleared memory, other windows), or draw its critics' values."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqrl.configs.overrides import parse_value
from seqrl.core.errors import ConfigError
from seqrl.core.files import expanded
from seqrl.scripts._script import (
    add_acting_options,
    add_reader_options,
    check_folder,
    check_seed,
    json_object,
    reader_options,
    script,
)

_PREFIX = "env.kwargs."
_TARGET = "algo.target_return"


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl probe", description=__doc__)
    p.add_argument("run", metavar="RUN", help="a run's folder, or a checkpoint")
    p.add_argument("--checkpoint", help="which checkpoint of the run: last (default), best_success, epoch_000010, ...")
    p.add_argument(
        "--sweep", action="append", default=[], metavar="KEY=A,B",
        help="success and return against env.kwargs.NAME, an argument of the environment, or against "
        "algo.target_return, the return that decision_transformer aims for; may be repeated",
    )  # fmt: skip
    p.add_argument("--clear-at", metavar="K,...", help="empty the memory at step K of each episode (one test for each)")
    p.add_argument("--window", metavar="N,...", help="let the memory look back over N inputs (one test for each)")
    p.add_argument("--values", metavar="FILE", help="instead, draw the critics' values along episodes of this dataset")
    p.add_argument("--at", metavar="N,...", help="with --values: which episodes (default 0,1)")
    p.add_argument(
        "--env-kwargs",
        type=json_object,
        default={},
        help="JSON object of environment arguments, merged into training's",
    )
    p.add_argument("--episodes", type=int, default=200, help="episodes per test (default %(default)s)")
    p.add_argument("--num-envs", type=int, default=20, help="environments stepped at once (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed of environments and policy (default %(default)s)")
    add_acting_options(p)
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add_reader_options(p)
    p.add_argument(
        "--output", type=expanded, default=Path("probe"), metavar="DIR",
        help="folder for probe.json, probe.md and probe.png, or values.json and values.png (default %(default)s)",
    )  # fmt: skip
    p.add_argument("--json", action="store_true", help="print probe.json instead of the tables")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Ask, and return the exit code."""
    args = parser().parse_args(argv)
    check_seed(args.seed)
    if min(args.episodes, args.num_envs) < 1:
        raise ConfigError("--episodes and --num-envs must be at least 1")
    check_folder(args.output)
    if args.values is not None:
        return _draw_values(args)
    if args.at is not None:
        raise ConfigError("--at names episodes of --values FILE, which is not given")
    sweeps = [_sweep(text) for text in args.sweep]
    steps, windows = _numbers("--clear-at", args.clear_at), _numbers("--window", args.window)
    from seqrl.core.files import write_atomic, write_json
    from seqrl.rollout.probing import draw_probes, probe_table

    found, probes = _probe(args, sweeps, steps, windows)
    text = "\n\n".join([_title(found), *map(probe_table, probes)])
    args.output.mkdir(parents=True, exist_ok=True)
    write_json(args.output / "probe.json", found)
    write_atomic(args.output / "probe.md", text + "\n")
    draw_probes(args.output / "probe.png", probes)
    print(json.dumps(found, indent=2) if args.json else text)
    print(f"wrote probe.json, probe.md and probe.png to {args.output}", file=sys.stderr)
    return 0


def _draw_values(args: argparse.Namespace) -> int:
    """Draw what the critics expect along recorded episodes."""
    from seqrl.algo.checkpoint import load_algo, read_checkpoint
    from seqrl.core.files import write_json
    from seqrl.core.plugins import load_plugins
    from seqrl.data.ingest import open_store
    from seqrl.rollout.values_along import draw_values, values_along

    load_plugins(args.plugin)
    parts = (args.at or "0,1").split(",")
    numbers = [int(n) for n in parts if n.isascii() and n.isdecimal()]
    if len(numbers) < len(parts):
        raise ConfigError(f"--at {args.at}: must be numbers of episodes, from 0 on, separated by commas")
    checkpoint = read_checkpoint(Path(args.run) / args.checkpoint if args.checkpoint else args.run)
    algo, _, action_space = load_algo(checkpoint, args.device)
    store = open_store(args.values, reader_options(args), format=args.format)
    episodes = values_along(algo, store, numbers, action_space)
    args.output.mkdir(parents=True, exist_ok=True)
    found = {"checkpoint": str(checkpoint.path), "dataset": args.values, "episodes": [e.to_json() for e in episodes]}
    write_json(args.output / "values.json", found)
    draw_values(args.output / "values.png", episodes)
    if args.json:
        print(json.dumps(found, indent=2))
    print(f"wrote values.json and values.png to {args.output}", file=sys.stderr)
    return 0


def _probe(
    args: argparse.Namespace, sweeps: Sequence[tuple[str, list[Any]]], steps: list[int], windows: list[int]
) -> tuple[dict[str, Any], list[Any]]:
    """Return all answers as JSON values, and the probes."""
    from seqrl.algo.acting import acts_greedily
    from seqrl.algo.checkpoint import load_algo, read_checkpoint
    from seqrl.core.plugins import load_plugins
    from seqrl.rollout import probing
    from seqrl.rollout.from_checkpoint import maker_by_rules, warn_of_other_tasks

    load_plugins(args.plugin)
    checkpoint = read_checkpoint(Path(args.run) / args.checkpoint if args.checkpoint else args.run)
    algo, observation_space, _ = load_algo(checkpoint, args.device)
    if windows:
        probing.window_of(algo)
    warn_of_other_tasks(checkpoint, algo.config)
    extra = {**algo.config.env.eval_kwargs, **args.env_kwargs}

    def make_maker(kwargs: Any) -> Any:
        return maker_by_rules(checkpoint, algo.config, kwargs=kwargs, plugins=tuple(args.plugin))

    env_id, known = make_maker(extra).args[:2]
    trained = make_maker({}).args[1]
    player = probing.Player(
        algo, make_maker, env_id, args.episodes, args.num_envs, args.seed, args.deterministic, kwargs=extra
    )
    untouched = player.play()
    probes = [
        probing.sweep_target_return(player, values)
        if name == _TARGET
        else probing.sweep_argument(player, name, values, trained.get(name))
        for name, values in sweeps
    ]
    if steps:
        probes.append(probing.clear_memory(player, steps, untouched))
    if windows:
        probes.append(probing.sweep_window(player, windows, observation_space, untouched))
    if attempts := probing.by_attempt(untouched):
        probes.append(attempts)
    if not probes:
        probes.append(probing.Probe("condition", [probing.point_of("untouched", untouched)]))
    found = {
        "checkpoint": str(checkpoint.path),
        "env": env_id,
        "env_kwargs": known,
        "seed": args.seed,
        "deterministic": acts_greedily(algo.config, args.deterministic),
        "probes": [probe.to_json() for probe in probes],
    }
    return found, probes


def _title(found: dict[str, Any]) -> str:
    arguments = json.dumps(found["env_kwargs"])
    return f"{found['checkpoint']} on {found['env']} {arguments}; 95 % intervals over episodes of this checkpoint"


def _sweep(text: str) -> tuple[str, list[Any]]:
    """Return the argument's name and its values; each is JSON where it is JSON, and text elsewhere."""
    path, _, raw = text.partition("=")
    name = path.removeprefix(_PREFIX)
    if not (name.isidentifier() or name == _TARGET) or not raw:
        raise ConfigError(f"--sweep {text}: must be {_PREFIX}NAME=A,B,... or {_TARGET}=A,B,...")
    return name, [parse_value(part) for part in raw.split(",")]


def _numbers(option: str, text: str | None) -> list[int]:
    try:
        numbers = [int(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        numbers = [0]
    if (text is not None and not numbers) or any(n < 1 for n in numbers):
        raise ConfigError(f"{option} {text}: must be numbers of at least 1, separated by commas")
    return list(dict.fromkeys(numbers))


if __name__ == "__main__":
    sys.exit(main())
