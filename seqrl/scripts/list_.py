"""List algorithms, memories, environments, run files, metrics of a run, or runs."""

from __future__ import annotations

import argparse
import inspect
import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from seqrl.core.errors import ConfigError, DataError
from seqrl.scripts._script import script

logger = logging.getLogger(__name__)
Rows = list[tuple[str, ...]]
SCORES = ("eval/success_mean", "eval/return_mean")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl list", description=__doc__)
    p.add_argument("what", choices=sorted(KINDS), help="what to list")
    p.add_argument("path", nargs="?", default="runs", help="for runs: a folder (default runs); for metrics: one run")
    p.add_argument("--plugin", action="append", default=[], help="Python file or module to import first")
    return p


def algorithms(_: str) -> Rows:
    """Return name and purpose of each algorithm."""
    from seqrl.configs import get_all_registered_configs

    found = {name: _first_line(config) for name, config in sorted(get_all_registered_configs().items())}
    return [("algorithm", "what it is"), *((name, line.removeprefix("Run file of ")) for name, line in found.items())]


def memories(_: str) -> Rows:
    """Return name and purpose of each memory."""
    import seqrl.configs  # noqa: F401  (registers the sections)
    from seqrl.core.registry import SEQUENCE_ENCODERS

    rows: Rows = [("memory", "what it is")]
    for name in SEQUENCE_ENCODERS.names():
        rows.append((name, _first_line(SEQUENCE_ENCODERS.sections.get(name) or SEQUENCE_ENCODERS.get(name))))
    return rows


def envs(_: str) -> Rows:
    """Return suites, whether each is installed, what brings it, and an id."""
    import gymnasium as gym

    from seqrl.core.extras import install_command
    from seqrl.envs.suites import SUITES

    rows: Rows = [("suite", "installed", "to install", "example", "ids")]
    own = sorted(env_id for env_id in gym.registry if env_id.startswith("seqrl/"))
    rows.append(("seqrl", "yes", "", own[0], ", ".join(name.removeprefix("seqrl/") for name in own)))
    rows.append(("gymnasium", "yes", "", "CartPole-v1", "any registered id; module:Env-v0 imports the module"))
    for package, extra, example in (("mujoco", "mujoco", "HalfCheetah-v5"), ("Box2D", "box2d", "LunarLander-v3")):
        installed = "yes" if find_spec(package) else "no"
        rows.append((f"gymnasium[{extra}]", installed, install_command(extra), example, "gymnasium's own"))
    for name in SUITES.names():
        suite = SUITES.get(name)
        installed = "yes" if not suite.install or find_spec(name) else "no"
        rows.append((name, installed, suite.install, suite.example, ", ".join(f"{p}..." for p in suite.prefixes)))
    return rows


def templates(_: str) -> Rows:
    """Return packaged run files, with algorithm and environment."""
    from seqrl.configs import read_config_values, template_names

    rows: Rows = [("run file", "algorithm", "environment")]
    for name in template_names():
        values = read_config_values(name)
        data = (values.get("train", {}).get("data") or [{}])[0]
        rows.append((name, values["algo_name"], str(values.get("env", {}).get("id") or data.get("scripted", ""))))
    return rows


def metrics(path: str) -> Rows:
    """Return what a run logged, with its last numbers."""
    from seqrl.reports.runs import find_runs
    from seqrl.reports.series import read_metrics

    (run, *others) = find_runs(path)
    if others:
        raise ConfigError(f"{path} holds {len(others) + 1} runs; name one, such as {run}")
    last = {k: v for row in read_metrics(run / "metrics.jsonl") for k, v in row.items() if v is not None}
    return [("metric", "last"), *((name, f"{value:.6g}") for name, value in sorted(last.items()))]


def runs(path: str) -> Rows:
    """Return the runs in a folder, the latest first."""
    from seqrl.reports.runs import find_runs, read_run

    rows: Rows = [("run", "algorithm", "environment", "last", "best", "steps", "age", "size")]
    found = {run: (run / "metrics.jsonl").stat().st_mtime for run in find_runs(path)}
    for folder, changed in sorted(found.items(), key=lambda item: -item[1]):
        try:
            run = read_run(folder)
        except DataError as error:
            logger.warning("%s", error)
            continue
        key = next((k for k in SCORES if any(k in row for row in run.rows)), None)
        scores = [row[key] for row in run.rows if key and row.get(key) is not None]
        last, best = (f"{scores[-1]:.3g}", f"{max(scores):.3g}") if scores else ("", "")
        steps = max((int(s) for row in run.rows if math.isfinite(s := row.get("step") or 0)), default=0)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        name = str(folder.relative_to(path)) if folder != Path(path) else folder.name
        algorithm = str(run.config["algo_name"])
        rows.append((name, algorithm, run.env_id, last, best, str(steps), _age(changed), f"{size / 1e6:.3g} MB"))
    return rows


KINDS: dict[str, Callable[[str], Rows]] = {
    "algorithms": algorithms,
    "envs": envs,
    "memories": memories,
    "metrics": metrics,
    "runs": runs,
    "templates": templates,
}


def _first_line(described: object) -> str:
    return inspect.cleandoc(described.__doc__ or "-").splitlines()[0]


def _age(then: float) -> str:
    hours = (time.time() - then) / 3600
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} d"


@script
def main(argv: Sequence[str] | None = None) -> int:
    """List, and return the exit code."""
    args = parser().parse_args(argv)
    from seqrl.core.plugins import load_plugins

    load_plugins(args.plugin)
    rows = KINDS[args.what](args.path)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        print("  ".join([*cells, row[-1]]).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
