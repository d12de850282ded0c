"""One good file, or folder, of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import torch
from gymnasium import spaces

from seqrl.core.types import Trajectory
from seqrl.data import StoreInfo, StoreWriter
from seqrl.data.writers.robomimic import write_robomimic
from seqrl.training.weights import Publisher

INFO = StoreInfo(
    spaces.Dict({"image": spaces.Box(0, 255, (3, 3, 1), np.uint8), "state": spaces.Box(-9, 9, (3,), np.float32)}),
    spaces.Discrete(4),
    env_id="Maze-v0",
    env_kwargs={"size": 3, "scale": 0.5},
    filters={"train": ["demo_0", "demo_1"], "valid": ["demo_2"]},
    source="a test",
)
RUN_FILE = {
    "algo_name": "bc",
    "plugins": [],
    "env": {"id": "CartPole-v1", "kwargs": {"a": [1, {"b": 2.5}]}},
    "train": {"window_steps": 8, "data": [{"path": "x.hdf5", "weight": 2.0}, {"scripted": "seqrl/TMazePassive-v0"}]},
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
    "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 8}, "optimizer": {"learning_rate": 1e-3}},
}


def trajectory(seed: int) -> Trajectory:
    """Return a trajectory with every kind of column."""
    rng = np.random.default_rng(seed)
    steps = 3 + 4 * seed
    last = np.arange(steps) == steps - 1
    return Trajectory(
        obs={
            "image": rng.integers(0, 256, (steps + 1, 3, 3, 1), dtype=np.uint8),
            "state": rng.normal(size=(steps + 1, 3)).astype(np.float32),
        },
        actions=rng.integers(0, 4, steps),
        rewards=rng.normal(size=steps).astype(np.float32),
        terminated=last & (seed % 2 == 0),
        truncated=last & (seed % 2 == 1),
        env_name=f"Task{seed}",
        action_mask=np.ones((steps + 1, 4), bool),
    )


TINY_RUN = {
    "experiment": {
        "name": "live", "logging": {"tensorboard": False}, "report": {"enabled": False},
        "save": {"best": ["valid_loss"]},
    },
    "train": {
        "steps_per_epoch": 1, "batch_size": 2, "window_steps": 4, "device": "cpu", "num_threads": 1,
        "valid_fraction": 0.4, "valid_batches": 1, "prefetch_batches": 0,
    },
    "algo": {"sequence_encoder": {"type": "feedforward", "d_model": 8}},
}  # fmt: skip
"""Of a run of two epochs; the good one has been stopped after the first."""


def tiny_run(folder: Path, data: Path, num_epochs: int, *, resume: bool) -> Path:
    """Train ``folder/live`` on a store up to an epoch, and return its folder."""
    from seqrl.configs import config_factory
    from seqrl.training.experiment import Experiment

    train = {**TINY_RUN["train"], "num_epochs": num_epochs, "data": [{"path": str(data)}]}
    config = config_factory("bc", {**TINY_RUN, "train": train})
    config.experiment.output_dir = str(folder)
    experiment = Experiment(config, resume=resume, verbose=False)
    try:
        experiment.start()
        experiment.learn()
    finally:
        experiment.close()
    return folder / "live"


def make_good_files(folder: Path) -> None:
    """Write one good file, or folder, of each kind."""
    for area, seeds in (("protected", (0, 1)), ("protected", (2,)), ("fifo", (3, 4))):
        with StoreWriter(folder / "store", INFO, area) as writer:  # type: ignore[arg-type]
            for seed in seeds:
                writer.append(trajectory(seed), f"demo_{seed}")
    write_robomimic(folder / "own.hdf5", INFO, [trajectory(i) for i in range(3)])
    with h5py.File(folder / "foreign.hdf5", "w") as file:
        for i in range(3):
            demo, good = file.create_group(f"data/demo_{i}"), trajectory(i)
            for key, values in good.obs.items():
                demo.create_dataset(f"obs/{key}", data=values[:-1], compression="gzip")
                demo[f"next_obs/{key}"] = values[1:]
            demo["actions"], demo["rewards"] = good.actions, good.rewards
            demo["dones"] = good.terminated.astype(np.int64)
            demo.attrs["num_samples"] = len(good)
        file["data"].attrs["env_args"] = json.dumps({"env_name": "Maze-v0", "type": 2, "env_kwargs": {"a": 1}})
        file["mask/train"] = [b"demo_0", b"demo_2"]
    _make_checkpoint(folder / "run")
    live = tiny_run(folder, folder / "store", 1, resume=False)
    (live / "collectors" / "0000").mkdir(parents=True)
    report = {
        "env_steps": {"Maze-v0": 5},
        "env_steps_per_env": 5,
        "episodes": 1,
        "faults": 0,
        "weights": 1,
        "time": 0.5,
    }
    (live / "collectors" / "0000" / "progress.json").write_text(json.dumps(report))
    Publisher(live).publish({"a": torch.arange(3.0)}, 1)
    (folder / "config.json").write_text(json.dumps(RUN_FILE, indent=1))


def _make_checkpoint(run: Path) -> None:
    from seqrl.algo.checkpoint import TrainingState, save_checkpoint
    from seqrl.algo.updater import Updater
    from seqrl.core.checkpoint_card import write_pointer
    from tests.helpers import small_algo

    space = spaces.Box(-1, 1, (2,), np.float32)
    algo = small_algo("bc", "gru", space)
    algo.updater = Updater(algo)
    state = TrainingState({"0.step": torch.arange(3.0)}, {"epoch": 3, "rng": [1, 2**63, "text"]})
    observations = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2), np.uint8),
            "room": spaces.Discrete(3),
            "state": spaces.Box(-9, 9, (3,), np.float32),
        }
    )
    path = run / "checkpoints" / "epoch_000003"
    save_checkpoint(path, algo, observations, space, env={"id": "X-v0"}, metrics={"a": 0.5}, training_state=state)
    write_pointer(run / "checkpoints" / "last", path.name)
