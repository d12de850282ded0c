"""Suites' environments as memory tasks: what random play earns, and microseconds per step. One row for each.

python benchmarks/suite_play.py                    # whatever is installed; the other rows keep their figures
python benchmarks/suite_play.py --rows ML1 BabyAI
python benchmarks/suite_play.py --table            # only write the table in docs/environments/suites.md
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from record import RESULTS, provenance, table, write_table

from seqrl.core.errors import EnvError
from seqrl.core.files import write_json
from seqrl.core.spaces import MASK_KEY
from seqrl.envs.make import make_env
from seqrl.envs.mixture import MIXTURE_ID

PAGE, RESULT = Path(__file__).parents[1] / "docs" / "environments" / "suites.md", RESULTS / "suite_play.json"


class Row(NamedTuple):
    """An environment of the table, and how many episodes are played."""

    told: str
    env_id: str
    kwargs: dict[str, Any]
    episodes: int


def attempts(name: str, **kwargs: Any) -> dict[str, Any]:
    """Return three attempts of 150 steps at a benchmark of Meta-World."""
    return {"env_id": f"Meta-World/{name}", "env_kwargs": kwargs, "attempts": 3, "attempt_steps": 150}


def mixture(*ids: str, kwargs: dict[str, Any] | None = None, observe_task: bool = False) -> dict[str, Any]:
    """Return several tasks, with one space."""
    return {"tasks": [{"id": name, "kwargs": kwargs or {}} for name in ids], "observe_task": observe_task}


POPGYM = [f"popgym-{name}Easy-v0" for name in ("RepeatFirst", "HigherLower", "MineSweeper", "Battleship")]
BABYAI = [f"BabyAI-{name}-v0" for name in ("GoToRedBallGrey", "PickupLoc", "OpenDoor")]
ROWS = {
    "Atari": Row(
        "Pong and Breakout, 18 actions",
        MIXTURE_ID,
        mixture("ALE/Pong-v5", "ALE/Breakout-v5", kwargs={"all_actions": True}),
        10,
    ),
    "ML1": Row("Meta-World ML1 reach-v3, 3 attempts", "seqrl/Attempts-v0", attempts("ML1", env_name="reach-v3"), 50),
    "ML10": Row("Meta-World ML10, 3 attempts", "seqrl/Attempts-v0", attempts("ML10"), 100),
    "ML10 test": Row("... its test tasks", "seqrl/Attempts-v0", attempts("ML10", split="test"), 50),
    "ML45": Row("Meta-World ML45, 3 attempts", "seqrl/Attempts-v0", attempts("ML45"), 225),
    "ML45 test": Row("... its test tasks", "seqrl/Attempts-v0", attempts("ML45", split="test"), 50),
    "POPGym": Row("POPGym: the four tasks above", MIXTURE_ID, mixture(*POPGYM, observe_task=True), 1000),
    "BabyAI": Row("BabyAI: the three tasks above", MIXTURE_ID, mixture(*BABYAI), 300),
    "XLand": Row("XLand-MiniGrid-R1-9x9, 3 attempts", "XLand-MiniGrid-R1-9x9", {"attempts": 3}, 100),
    "gymnax": Row("gymnax/Breakout-MinAtar", "gymnax/Breakout-MinAtar", {}, 300),
}  # fmt: skip


def measured(row: Row) -> dict[str, Any]:
    """Return means over seeded episodes of random legal actions, and the time of a step, resets included."""
    env = make_env(row.env_id, row.kwargs)
    env.action_space.seed(0)
    returns, lengths, successes = [], [], []
    env.reset(seed=0)  # makes what is only made when it is first drawn
    begin = time.perf_counter()
    for episode in range(row.episodes):
        obs, info = env.reset(seed=0 if episode == 0 else None)
        returns.append(0.0), lengths.append(0)
        done = False
        while not done:
            mask = obs.get(MASK_KEY) if isinstance(obs, dict) else None
            action = env.action_space.sample(None if mask is None else np.asarray(mask, np.int8))
            obs, reward, terminated, truncated, info = env.step(action)
            returns[-1] += float(reward)
            lengths[-1] += 1
            done = terminated or truncated
        successes += [float(info["success"])] if "success" in info else []
    seconds = time.perf_counter() - begin
    env.close()
    told: dict[str, Any] = {"episodes": row.episodes, "us_per_step": round(1e6 * seconds / sum(lengths), 1)}
    told |= {"return": round(float(np.mean(returns)), 3), "return_std": round(float(np.std(returns)), 3)}
    told |= {"length": round(float(np.mean(lengths)), 1)}
    return told | ({"success": round(float(np.mean(successes)), 3)} if successes else {})


def lines(figures: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of the table."""
    return [
        {
            "environment": ROWS[name].told,
            "return (standard deviation)": f"{told['return']:.2f} ({told['return_std']:.2f})",
            "steps": f"{told['length']:.0f}",
            "success": f"{told['success']:.2f}" if "success" in told else "",
            "us/step": f"{told['us_per_step']:,.0f}",
            "episodes": str(told["episodes"]),
        }
        for name in ROWS
        if (told := figures.get(name))
    ]


def main() -> None:
    """Play, record, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="only these")
    parser.add_argument("--table", action="store_true", help="play nothing")
    args = parser.parse_args()
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {"environments": {}}
    for name in () if args.table else args.rows:
        try:
            kept["environments"][name] = measured(ROWS[name])
        except EnvError as error:
            print(f"{name}: {error}")
            continue
        print(name, kept["environments"][name], flush=True)
        write_json(RESULT, {**provenance(), "environments": kept["environments"]})
    write_table(PAGE, "random play", table(lines(kept["environments"])))


if __name__ == "__main__":
    main()
