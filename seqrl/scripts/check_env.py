"""Check an environment for problems before training on it."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from seqrl.core.errors import ConfigError, SeqrlError
from seqrl.scripts._script import check_seed, json_object, script

if TYPE_CHECKING:
    from seqrl.envs.check.environment import EnvReport

WIDTH = 100
MOST_SIZES = 8
"""More categories than these are told by their range."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(
        prog="seqrl check-env",
        description=__doc__,
        epilog="exit code: 0 without problems (or with notes), 1 with problems, 2 if the environment cannot be made",
    )
    p.add_argument("env", metavar="ID", help="environment id, as gymnasium.make takes it")
    p.add_argument(
        "--kwargs", metavar="JSON", type=json_object, default={}, help="arguments of the environment, an object"
    )
    p.add_argument(
        "--plugin", metavar="FILE", action="append", default=[], help="Python file or module to import first"
    )
    p.add_argument("--steps", type=int, default=1000, help="steps of random play (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed (default %(default)s)")
    p.add_argument("--json", action="store_true", help="print JSON")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Check, and return the exit code."""
    args = parser().parse_args(argv)
    if args.steps < 1:
        raise ConfigError(f"--steps must be at least 1, got {args.steps}")
    check_seed(args.seed)
    from seqrl.core.plugins import load_plugins
    from seqrl.envs.check.environment import inspect_environment
    from seqrl.envs.make import env_maker

    with _quiet():
        load_plugins(args.plugin)
        make = env_maker(args.env, args.kwargs, plugins=tuple(args.plugin), disable_env_checker=True)
        try:
            make().close()
        except SeqrlError:
            raise
        except Exception:
            pass  # the check reports it
        report = inspect_environment(make, num_steps=args.steps, seed=args.seed)
    print(json.dumps(_as_json(args, report), indent=2) if args.json else _as_text(args, report))
    return int(any(finding.level == "problem" for finding in report.findings))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence gymnasium's own warnings, and send what the environment prints to stderr."""
    from gymnasium import logger

    before = logger.min_level
    logger.min_level = logger.ERROR
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        logger.min_level = before


def _as_text(args: argparse.Namespace, report: EnvReport) -> str:
    lines = [args.env + (f"  {json.dumps(args.kwargs)}" if args.kwargs else ""), ""]
    for label, values in (
        ("observations", _observations(report) or ["not supported" if report.action_space else "unknown"]),
        ("actions", [_action(report)]),
        ("random play", [_play(report)]),
    ):
        lines += [f"{label if i == 0 else '':<14}{value}" for i, value in enumerate(values)]
    for level in ("problem", "note"):
        texts = [finding.text for finding in report.findings if finding.level == level]
        if texts or level == "problem":
            lines += ["", _counted(len(texts), level) if texts else "no problem found"]
            lines += [_wrapped(text) for text in texts]
    return "\n".join(lines)


def _observations(report: EnvReport) -> list[str]:
    width = max(map(len, report.observations), default=0)
    return [
        f"{name:<{width}}  {spec.dtype} {list(spec.shape)}" + (f"  {_categories(spec.nvec)}" if spec.nvec else "")
        for name, spec in report.observations.items()
    ]


def _categories(sizes: Sequence[int]) -> str:
    """Return how many categories each number has; their range where there are many numbers."""
    if len(sizes) <= MOST_SIZES:
        return f"categories {', '.join(map(str, sizes))}"
    least, most = min(sizes), max(sizes)
    return f"{least if least == most else f'{least} to {most}'} categories each"


def _action(report: EnvReport) -> str:
    if report.codec is None:
        return f"{report.action_space}; not supported" if report.action_space else "unknown"
    return f"{report.action_space}; for the policy {report.codec.kind}, width {report.codec.dim}"


def _play(report: EnvReport) -> str:
    text = f"{_counted(report.num_steps, 'step')}, {_counted(len(report.lengths), 'whole episode')}"
    if not report.lengths:
        return text
    total = _mean(report.returns)
    return f"{text}, mean length {_mean(report.lengths):.4g}, mean return " + (
        f"{total:.4g}" if math.isfinite(total) else "unknown"
    )


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _wrapped(text: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _as_json(args: argparse.Namespace, report: EnvReport) -> dict[str, Any]:
    def mean(values: Sequence[float]) -> float | None:
        return _mean(values) if values and math.isfinite(_mean(values)) else None

    codec = report.codec
    return {
        "environment": args.env,
        "environment arguments": args.kwargs,
        "observations": {
            name: {"shape": list(spec.shape), "dtype": spec.dtype, "categories": spec.nvec and list(spec.nvec)}
            for name, spec in report.observations.items()
        },
        "actions": {
            "space": report.action_space,
            "kind": None if codec is None else codec.kind,
            "width": None if codec is None else codec.dim,
        },
        "steps": report.num_steps,
        "episodes": len(report.lengths),
        "mean length": mean(report.lengths),
        "mean return": mean(report.returns),
        "findings": [{"level": finding.level, "text": finding.text} for finding in report.findings],
    }


if __name__ == "__main__":
    sys.exit(main())
