"""Where acting and learning on a CPU spend their time: tables of docs/speed.md. Two minutes on one core.

python benchmarks/where_time_goes.py

Three questions: how far is a step of acting from its matrix products; what do new weights cost the engine `onnx`, as
one session per version or as inputs of one session; and what is seqrl's own GRU pass worth to a whole gradient step.
Times are CPU milliseconds, medians of works that take turns, so other load changes little.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from agents import Products, floor_seconds, make_algo, make_batch
from guard import Work, gru_agent, in_turns
from record import RESULTS, record, table, write_table
from torch.utils._python_dispatch import TorchDispatchMode

from seqrl.algo.acting import VectorPolicy
from seqrl.algo.engine import OnnxEngine
from seqrl.core.host_memory import keep_freed_memory
from seqrl.core.tensors import flushed_denormals
from seqrl.models.sequence_encoders import recurrent

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
RESULT = RESULTS / "where_time_goes.json"
ROWS, STEPS, ROUNDS = (1, 12, 36), 50, 9


class Operations(TorchDispatchMode):
    """Counts the operations that are made under it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, and go on."""
        self.count += 1
        return func(*args, **(kwargs or {}))


def acting(algo: Any, engine: OnnxEngine, num_rows: int) -> dict[str, float]:
    """Return milliseconds of a step, eager and by the engine, those of its products alone, and counts of operations."""
    obs, reward = {"obs": np.zeros((num_rows, 32), np.float32)}, np.zeros(num_rows, np.float32)
    eager = VectorPolicy(algo, num_rows, deterministic=False)
    onnx = VectorPolicy(algo, num_rows, deterministic=False, engine=engine)
    with Operations() as operations:
        eager.act(obs, reward)
    with Products() as products:
        eager.act(obs, reward)
    found = in_turns(
        {
            "eager": lambda: [eager.act(obs, reward) for _ in range(STEPS)],
            "onnx": lambda: [onnx.act(obs, reward) for _ in range(STEPS)],
        },
        ROUNDS,
    )
    return {
        "rows": num_rows,
        **{name: 1000 * value / STEPS for name, value in found.items()},
        "floor": 1000 * floor_seconds(lambda: eager.act(obs, reward), algo.device, 200, time.process_time),
        "operations": operations.count,
        "products": sum(products.calls.values()),
    }


def ran(session: Any, feeds: dict[str, Any]) -> None:
    """Run a session as the engine does."""
    with flushed_denormals():
        for _ in range(STEPS):
            session.run(None, feeds)


def new_weights(algo: Any, engine: OnnxEngine) -> dict[str, float]:
    """Return milliseconds of one row's step, and of new weights: a session per version, and weights as inputs."""
    import onnx
    import onnxruntime

    session, weights = engine._session, dict([*engine._step.named_parameters(), *engine._step.named_buffers()])
    proto = onnx.ModelProto()
    proto.CopyFrom(engine._proto)
    moved = [entry for entry in proto.graph.initializer if entry.name in weights]
    for entry in moved:
        proto.graph.input.append(onnx.helper.make_tensor_value_info(entry.name, entry.data_type, entry.dims))
        proto.graph.initializer.remove(entry)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    open_one = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    own = {entry.name: weights[entry.name].detach().contiguous().numpy() for entry in moved}
    example = engine._step.example(1)
    feeds = {name: example[name].numpy() for name in engine._read}
    found = in_turns(
        {
            "step, a session per version": lambda: ran(session, feeds),
            "step, weights as inputs": lambda: ran(open_one, {**feeds, **own}),
            "new weights, a session per version": engine.refresh,
        },
        ROUNDS,
    )
    each = {name: 1000 * value / (STEPS if name.startswith("step") else 1) for name, value in found.items()}
    return {**each, "new weights, weights as inputs": 0.0}


def gru_step() -> dict[str, float]:
    """Return milliseconds of a gradient step of the discrete actor-critic on 16 x 128, by both passes of a GRU."""
    algo = gru_agent({"type": "gru", "d_hidden": 256, "num_layers": 1})
    batch, rows = algo.process_batch_for_training(make_batch("discrete", 16, 128)), recurrent.FEW_ROWS

    def step(few_rows: int) -> None:
        recurrent.FEW_ROWS = few_rows
        algo.train_on_batch(batch)

    works: dict[str, Work] = {"PyTorch's GRU": lambda: step(0), "gru_pass": lambda: step(rows)}
    return {name: 1000 * value for name, value in in_turns(works, ROUNDS).items()}


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Return the page's tables by their names."""
    shown = [
        {
            "rows": row["rows"],
            "eager, ms": f"{row['eager']:.2f}",
            "its products alone": f"{row['floor']:.2f}",
            "operations, of them products": f"{row['operations']}, {row['products']}",
            "onnx, ms": f"{row['onnx']:.2f}",
        }
        for row in found["acting"]
    ]
    weights, ways = found["new_weights"], ("a session per version", "weights as inputs")
    costs = [
        {"way": way, **{f"{what}, ms": f"{weights[f'{what}, {way}']:.2f}" for what in ("step", "new weights")}}
        for way in ways
    ]
    step = [{"pass": name, "ms": f"{value:.0f}"} for name, value in found["gru_step"].items()]
    return {"acting costs": table(shown), "engine weights": table(costs), "gru step": table(step)}


def main() -> None:
    """Measure, record, and write the tables."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as Experiment does
    algo = make_algo("actor_critic", "discrete", 128, "cpu", "no", False)
    algo.set_eval()
    engine = OnnxEngine(algo, deterministic=False)
    rows = [acting(algo, engine, num_rows) for num_rows in ROWS]
    record(RESULT.stem, {"acting": rows, "new_weights": new_weights(algo, engine), "gru_step": gru_step()})
    for name, text in tables(json.loads(RESULT.read_text())).items():
        write_table(PAGE, name, text)
        print(text)


if __name__ == "__main__":
    main()
