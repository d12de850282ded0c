"""Loss traces of small runs, to show that a change of the code changes no number.

Every run file is kept whole under ``tests/golden/traces``, with what it gave when it was recorded: each line of
``metrics.jsonl`` but the times and the machine's load, a checksum of everything that was collected, and one of the
final weights. Another processor or torch rounds differently, so equality to the last bit is asked on the machine that
recorded only; on any other, ``--against COMMIT`` runs both versions side by side.

    python benchmarks/traces.py                      # compare with what was recorded
    python benchmarks/traces.py --against HEAD~1     # compare with another commit, both run here
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "golden" / "traces"
MEMORIES = {
    "gru": {"type": "gru", "d_hidden": 16, "num_layers": 1, "d_output": 16},
    "transformer": {"type": "transformer", "d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 2},
    "mamba": {"type": "mamba", "d_model": 16, "d_state": 4, "num_layers": 2},
}
MAZE = {"id": "seqrl/TMazeActive-v0", "kwargs": {"corridor_length": 4}}
POINT = {"id": "seqrl/PointRecall-v0", "kwargs": {"delay_steps": 2}}
SMALL = {"actor": {"d_hidden": 16}}
AGENT = {**SMALL, "critic": {"d_hidden": 16}, "extra_gammas": [0.9], "n_step": 2}
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any], bool]] = {
    "bc": ("bc", MAZE, SMALL, False),
    "bc_vae": ("bc_vae", POINT, {**SMALL, "chunk_steps": 2}, False),
    "actor_critic": ("actor_critic", POINT, AGENT, False),
    "multitask": ("multitask", MAZE, AGENT, False),
    "actor_critic_online": ("actor_critic", MAZE, AGENT, True),
    "multitask_online": ("multitask", POINT, AGENT, True),
}
"""Name -> algorithm, environment, settings of the algorithm, and whether it collects."""


def run_file(name: str, memory: str) -> dict[str, Any]:
    """Return the run file of one trace, every setting written out."""
    from seqrl.configs import config_factory

    algo, env, settings, collects = RUNS[name]
    values: dict[str, Any] = {
        "env": env,
        "experiment": {
            "logging": {"every_n_steps": 1, "progress_bar": False, "tensorboard": False},
            "evaluation": {"episodes": 8, "num_envs": 4},
            "report": {"enabled": False},
        },
        "train": {"window_steps": 8, "batch_size": 4, "num_epochs": 3, "steps_per_epoch": 6, "device": "cpu"},
        "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 16, "d_output": 16}},
        "algo": {
            **settings,
            "sequence_encoder": MEMORIES[memory],
            "optimizer": {"learning_rate": 1e-3, "warmup_steps": 4},
        },
    }
    if collects:
        exploration = {"type": "epsilon_greedy", "anneal_steps": 60}
        values["collect"] = {"steps_per_epoch": 30, "num_envs": 3, "exploration": exploration}
    else:
        values["train"]["data"] = [{"scripted": env["id"], "episodes": 30, "noise": 0.2, "env_kwargs": env["kwargs"]}]
    return config_factory(algo, values).to_json()


def names() -> list[str]:
    """Return the name of every trace."""
    return [f"{name}-{memory}" for name in RUNS for memory in MEMORIES]


def trace(config: dict[str, Any]) -> dict[str, Any]:
    """Run a run file, and return what it gave."""
    import torch
    from safetensors.numpy import load_file

    import seqrl
    from seqrl.configs.sections.algo import AlgoSection
    from seqrl.data import Store

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("SEQRL_CACHE_DIR", str(Path(folder) / "cache"))
        config = {**config, "experiment": {**config["experiment"], "output_dir": folder, "name": "run"}}
        if "average_decay" in AlgoSection.model_fields:  # weights were not averaged when the traces were recorded
            config["algo"] = {"average_decay": None, **config["algo"]}
        experiment = seqrl.Experiment.from_config(seqrl.config_factory(config["algo_name"], config))
        experiment.start()
        experiment.learn()
        run = Path(folder) / "run"
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        rows = [{k: v for k, v in line.items() if not k.startswith(("time", "system"))} for line in lines]
        last = run / "checkpoints" / (run / "checkpoints" / "last").read_text().strip()
        weights = hashlib.sha256()
        for name, array in sorted(load_file(last / "model.safetensors").items()):
            weights.update(name.encode() + array.tobytes())
        collected = hashlib.sha256()
        if (run / "replay").is_dir():
            for trajectory in Store(run / "replay").trajectories():
                for array in (*trajectory.obs.values(), trajectory.actions, trajectory.rewards, trajectory.terminated):
                    collected.update(array.tobytes())
    return {"rows": rows, "weights": weights.hexdigest(), "collected": collected.hexdigest()}


def machine() -> dict[str, str]:
    """Return what decides how numbers are rounded."""
    import numpy
    import torch

    model = platform.processor()
    if (cpu := Path("/proc/cpuinfo")).exists():
        model = " ".join(sorted({x.split(":")[1].strip() for x in cpu.read_text().splitlines() if "model" in x}))
    return {
        "cpu": model,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def recorded(name: str) -> dict[str, Any]:
    """Return what was recorded of a trace: its run file, the machine, and what it gave."""
    value: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return value


def differences(expected: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """Return in words where two traces part; a metric that only the second has is none."""
    found = [f"the {k} differ" for k in ("weights", "collected") if expected[k] != got[k]]
    if len(expected["rows"]) != len(got["rows"]):
        return [*found, f"{len(expected['rows'])} lines of metrics, now {len(got['rows'])}"]
    for number, (before, now) in enumerate(zip(expected["rows"], got["rows"], strict=True)):
        found += [f"line {number}: {k} was {v}, now {now.get(k)}" for k, v in before.items() if now.get(k) != v]
    return found


def side_by_side(commit: str, chosen: list[str]) -> dict[str, Any]:
    """Return name -> trace of another commit's code, run here."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit, "seqrl"], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        command = [sys.executable, __file__, "--print", *chosen]
        env = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=env)
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values


def main() -> int:
    """Compare, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="which traces; all by default")
    parser.add_argument("--against", metavar="COMMIT", help="compare with another commit instead of what was recorded")
    parser.add_argument("--record", action="store_true", help="write new traces; never over one that exists")
    parser.add_argument("--print", action="store_true", help="print the traces as JSON, and compare nothing")
    args = parser.parse_args()
    chosen = args.names or names()
    if args.print:
        print(json.dumps({n: trace(recorded(n)["config"]) for n in chosen}))
        return 0
    if args.record:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            file = FOLDER / f"{name}.json"
            if not file.exists():
                config = run_file(*name.rsplit("-", 1))
                file.write_text(json.dumps({"config": config, "machine": machine(), "trace": trace(config)}) + "\n")
        return 0
    other = side_by_side(args.against, chosen) if args.against else {}
    failed = 0
    for name in chosen:
        kept = recorded(name)
        found = differences(other.get(name, kept["trace"]), trace(kept["config"]))
        failed += bool(found)
        print(f"{name}: {'equal' if not found else '; '.join(found[:3])}", flush=True)
    if failed and not args.against and recorded(chosen[0])["machine"] != machine():
        print("recorded on another machine or torch; try --against COMMIT")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
