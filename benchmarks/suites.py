"""Each suite in a fresh environment: install its extra, train 1,000 steps by one command; the table in suites.md.

python benchmarks/suites.py                        # whatever has no result yet; may be stopped and started again
python benchmarks/suites.py --suites minigrid atari
python benchmarks/suites.py --table                # only write the table

It makes a virtual environment, installs torch and ``seqrl[extra]`` of the last commit, trains, and deletes the
environment. A suite fails if the run takes no gradient step or has no evaluation; without a video the table says so.
MuJoCo draws by ``MUJOCO_GL=osmesa`` unless that is set (Debian: ``apt install libosmesa6``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from record import RESULTS, provenance, table, write_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from seqrl.core.files import write_json  # noqa: E402
from seqrl.envs.suites import SUITES  # noqa: E402

FOLDER, PAGE = RESULTS / "suites", ROOT / "docs" / "environments" / "suites.md"
OTHERS = {"mujoco": "HalfCheetah-v5", "box2d": "LunarLander-v3"}
"""Extra -> an id of gymnasium's own that needs it."""
FEW_STEPS = ("--set", "train.replay_ratio=0.1")
NEEDS = {
    "atari": FEW_STEPS,
    "crafter": FEW_STEPS,
    "mo-gymnasium": ("--set", "env.kwargs.weights=[1,0,0]"),
    "retro": (*FEW_STEPS, "--set", "env.vectorization=async"),
}
"""Extra -> what its environments need besides: a core takes a second or two for a gradient step on pixels."""
BESIDES = {"robosuite": (("--no-deps", "robosuite==1.5.2"),)}
"""Extra -> what pip is given after it."""
SHOWN = {
    "atari": ("ale-py",),
    "box2d": ("box2d", "pygame-ce"),
    "crafter": ("crafter",),
    "dm-control": ("dm-control", "shimmy"),
    "envpool": ("envpool",),
    "gymnax": ("gymnax", "jax"),
    "metaworld": ("metaworld", "mujoco"),
    "minigrid": ("minigrid",),
    "mo-gymnasium": ("mo-gymnasium",),
    "mujoco": ("mujoco",),
    "old-gym": ("gym", "shimmy"),
    "popgym": ("popgym",),
    "pusht": ("gym-pusht", "pymunk"),
    "retro": ("stable-retro",),
    "robosuite": ("robosuite", "mujoco"),
    "robotics": ("gymnasium-robotics", "mujoco"),
    "xland": ("xminigrid", "jax"),
}
"""Extra -> the packages whose versions the table tells, besides gymnasium."""


def examples() -> dict[str, str]:
    """Return extra -> an id."""
    suites = (SUITES.get(name) for name in SUITES.names())
    own = {suite.install.partition("[")[2].partition("]")[0]: suite.example for suite in suites}
    return dict(sorted((own | OTHERS).items()))


def measure(extra: str, env_id: str, work: Path) -> dict[str, Any]:
    """Return what a suite needed and what came of it.

    Raises:
        SystemExit: If it cannot be installed, the command fails, or nothing is learned or evaluated.
    """
    shutil.rmtree(work, ignore_errors=True)
    venv, environment = work / "venv", {"MUJOCO_GL": "osmesa", **os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stdout[-2000:] + done.stderr[-4000:]
            raise SystemExit(f"{extra}: {' '.join(words)} ended with {done.returncode}\n{said}")
        return done.stdout

    work.mkdir(parents=True)
    begin = time.perf_counter()
    run(sys.executable, "-m", "venv", str(venv))
    pip = (str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check")
    run("git", "clone", "--quiet", str(ROOT), "source")
    run(*pip, "install", "--quiet", "torch==2.13.0")
    run(*pip, "install", "--quiet", f"./source[{extra}]")
    for packages in BESIDES.get(extra, ()):
        run(*pip, "install", "--quiet", *packages)
    installed = time.perf_counter()
    command = (
        "--algo",
        "actor_critic",
        "--env",
        env_id,
        "--memory",
        "gru",
        "--env-steps",
        "1000",
        *NEEDS.get(extra, ()),
    )
    filmed = ("--set", "experiment.rendering.enabled=true")
    run(str(venv / "bin/seqrl"), "train", *command, *filmed, "--name", "run", "--set", f"experiment.output_dir={work}")
    lines = [json.loads(line) for line in (work / "run/metrics.jsonl").read_text().splitlines()]
    evaluated = [line["eval/return_mean"] for line in lines if "eval/return_mean" in line]
    steps = int(lines[-1]["step"])
    if not steps or not evaluated:
        raise SystemExit(f"{extra}: {steps} gradient steps, {len(evaluated)} evaluations")
    frozen = dict(
        line.lower().replace("_", "-").split("==") for line in run(*pip, "list", "--format", "freeze").splitlines()
    )
    return {
        "extra": extra, "env": env_id, "command": " ".join(["seqrl", "train", *command]),
        "install_s": round(installed - begin), "train_s": round(time.perf_counter() - installed),
        "gradient_steps": steps, "return": evaluated[-1], "videos": len(list((work / "run/videos").glob("*.gif"))),
        "packages": frozen,
    }  # fmt: skip


def rows_of_table() -> list[dict[str, str]]:
    """Return a line for each suite that has a result."""
    rows = []
    for file in sorted(FOLDER.glob("*.json")):
        found = json.loads(file.read_text())
        installed = {name.replace("_", "-"): version for name, version in found["packages"].items()}
        versions = [f"{name} {installed[name]}" for name in (*SHOWN[found["extra"]], "gymnasium")]
        rows.append(
            {
                "extra": f"`{found['extra']}`",
                "`--env`": f"`{found['env']}`",
                "installed": ", ".join(versions),
                "day": found["date"],
                "gradient steps": str(found["gradient_steps"]),
                "seconds": str(found["train_s"]),
                "video": "yes" if found["videos"] else "no",
            }
        )
    return rows


def main() -> None:
    """Try what has no result, and write the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--suites", nargs="+", choices=list(examples()), default=list(examples()), help="extras")
    p.add_argument("--work", type=Path, default=ROOT / "build" / "suite", help="where the environments are made")
    p.add_argument("--table", action="store_true", help="only write the table")
    arguments = p.parse_args()
    for extra in () if arguments.table else arguments.suites:
        if (FOLDER / f"{extra}.json").exists():
            continue
        where = provenance()
        found = measure(extra, examples()[extra], arguments.work.absolute())
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_json(FOLDER / f"{extra}.json", where | found)
        print({key: value for key, value in found.items() if key != "packages"}, flush=True)
        shutil.rmtree(arguments.work)
    print(table(rows_of_table()))
    write_table(PAGE, "install", table(rows_of_table()))


if __name__ == "__main__":
    main()
