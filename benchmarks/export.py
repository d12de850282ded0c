"""Milliseconds of one greedy step, batch 1, of a policy in torch and as an ONNX file: the table of docs/deploying.md.

Run by hand: ``python benchmarks/export.py``, some minutes on one core. Ratios are of one run on one machine.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from gymnasium import spaces
from record import RESULTS, provenance, table, write_table

from seqrl.algo import RolloutPolicy, algo_factory
from seqrl.algo.export import export_onnx
from seqrl.configs import config_factory
from seqrl.core.files import write_json
from seqrl.core.spaces import ActionCodec, ObsSpec
from seqrl.deploy import policy_from_onnx

PAGE = Path(__file__).parents[1] / "docs" / "deploying.md"
OBS_SPACE, ACTION_SPACE = spaces.Box(-1, 1, (17,)), spaces.Box(-1.0, 1.0, (6,))
ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bc, feed-forward": ("bc", "feedforward", {}),
    "bc, GRU": ("bc", "gru", {}),
    "bc, LSTM": ("bc", "lstm", {}),
    "bc, Mamba": ("bc", "mamba", {}),
    "bc, Transformer": ("bc", "transformer", {}),
    "actor_critic, GRU": ("actor_critic", "gru", {}),
    "act, GRU, chunks of 8": ("act", "gru", {"chunk_steps": 8}),
    "flow_matching, GRU, chunks of 8": ("flow_matching", "gru", {"chunk_steps": 8, "denoiser": {"type": "mlp"}}),
}
STEPS, REPEATS = 100, 5


def milliseconds(act: Callable[[int], Any], begin: Callable[[], None]) -> float:
    """Return the median over repeats of a step's time, after one that is not counted."""
    found = []
    for _ in range(REPEATS + 1):
        begin()
        start = time.process_time()
        for step in range(STEPS):
            act(step)
        found.append((time.process_time() - start) / STEPS * 1000)
    return statistics.median(found[1:])


def measured(name: str) -> dict[str, float]:
    """Return the times of one row."""
    algo_name, memory, section = ROWS[name]
    config = config_factory(algo_name, {"algo": {"sequence_encoder": {"type": memory}, **section}})
    torch.manual_seed(0)
    obs = {"obs": ObsSpec((17,))}
    algo = algo_factory(algo_name, config, obs, ActionCodec(ACTION_SPACE).dim, "cpu", ACTION_SPACE)
    policy = RolloutPolicy(algo, OBS_SPACE, ACTION_SPACE)
    rng = np.random.default_rng(0)
    seen = rng.uniform(-1, 1, (STEPS, 17)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.onnx"
        export_onnx(algo, file, OBS_SPACE, ACTION_SPACE)
        exported = policy_from_onnx(file)
        both = [(p, p.start_episode) for p in (policy, exported)]
        eager, onnx = (milliseconds(lambda t, p=p: p(seen[t], reward=0.0), begin) for p, begin in both)
    return {"torch_ms": eager, "onnx_ms": onnx}


def main() -> None:
    """Measure, record, and write the table."""
    torch.set_num_threads(1)
    rows = {name: measured(name) for name in ROWS}
    write_json(RESULTS / "export.json", {**provenance(), "rows": rows})
    shown = [
        {
            "policy": name,
            "torch, ms": f"{row['torch_ms']:.2f}",
            "ONNX, ms": f"{row['onnx_ms']:.2f}",
            "times faster": f"{row['torch_ms'] / row['onnx_ms']:.1f}",
        }
        for name, row in rows.items()
    ]
    write_table(PAGE, "export", table(shown))


if __name__ == "__main__":
    main()
