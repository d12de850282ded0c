"""Reads what may be damaged, and returns numbers that stand for it."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from seqrl.algo.checkpoint import policy_from_checkpoint, read_checkpoint
from seqrl.data import Store
from seqrl.data.ingest import open_store
from seqrl.reports.runs import read_run as read_run_of_report
from seqrl.reports.series import read_metrics
from seqrl.training.progress import Progress
from seqrl.training.weights import Subscriber, collected_progress
from tests.fuzz.good_files import tiny_run


def digest(*values: Any) -> int:
    """Return a number that stands for arrays and JSON values."""
    crc = 0
    for value in values:
        if isinstance(value, np.ndarray):
            crc = zlib.crc32(f"{value.dtype}{value.shape}".encode(), crc)
            crc = zlib.crc32(np.ascontiguousarray(value).tobytes(), crc)
        else:
            crc = zlib.crc32(json.dumps(value, sort_keys=True).encode(), crc)
    return crc


def read_store(path: Path) -> list[int]:
    """Return a number per trajectory, and one for what holds for all."""
    return _content(Store(path), ignore=())


def read_hdf5(path: Path) -> list[int]:
    """Return the same for a robomimic file."""
    return _content(open_store(str(path)), ignore=("source",))


def _content(store: Store, ignore: tuple[str, ...]) -> list[int]:
    info = {k: v for k, v in store.info.to_json().items() if k not in ignore}
    found = [digest(info)]
    for n, t in enumerate(store.trajectories()):
        columns = {**t.obs, **t.goal, "mask": t.action_mask if t.action_mask is not None else np.zeros(0)}
        numbers = [
            np.asarray(t.prev_action),
            t.prev_reward,
            t.start_step,
            store.total_reward[n],
            t.env_name,
            store.names[n],
        ]
        arrays = [t.actions, t.rewards, t.terminated, t.truncated]
        found.append(digest(*arrays, *numbers, *(x for k in sorted(columns) for x in (k, columns[k]))))
    for n in range(len(store)):
        store.gather(np.array([n, n]), np.array([[0, 1], [0, int(store.length[n])]]))
    return found


def read_run(path: Path) -> list[int]:
    """Return a number for the policy of a run, one for its card, one for its training state."""
    policy, checkpoint = policy_from_checkpoint(path, device="cpu")
    obs = {"image": np.ones((2, 2), np.uint8), "room": np.int64(1), "state": np.ones(3, np.float32)}
    action = policy(obs)
    state = checkpoint.training_state()
    tensors = {k: v.numpy() for k, v in sorted(state.optimizer.items())}
    return [digest(action), digest(checkpoint.card), digest(state.values, *tensors, *tensors.values())]


def read_config(path: Path) -> list[int]:
    """Return a number for a run file; what was read can be written and read again."""
    from seqrl.configs import config_factory, read_config_values

    values = read_config_values(str(path))
    config = config_factory(str(values.get("algo_name", "bc")), values, str(path))
    again = config_factory(config.algo_name, json.loads(json.dumps(config.to_json(), allow_nan=False)))
    assert again == config
    return [digest(config.to_json())]


def read_resumed(path: Path) -> list[int]:
    """Go on with a run to its end, and return a number for its weights and its progress, and one for its best scores.

    What a learner and its collectors read of one another is read too.
    """
    rows = read_metrics(path / "metrics.jsonl")
    Progress().take_reports(collected_progress(path, Store(DATA[0])))
    Subscriber(path).poll()
    tiny_run(path.parent, DATA[0], 2, resume=True)
    run = read_run_of_report(path)
    checkpoint = read_checkpoint(path)
    state, weights = checkpoint.training_state(), checkpoint.tensors("model.safetensors")
    assert len(run.rows) >= len(rows)
    counts = [state.values[key] for key in ("epoch", "num_steps", "env_steps")]
    return [digest(counts, *(weights[k].numpy() for k in sorted(weights)))]


DATA: list[Path] = []
"""Store that runs are trained on."""
