"""robomimic's side of `bc.py`: run by the interpreter that has robomimic (0.3), which need not have seqrl.

Reads a line of JSON (what to train), then a number of gradient steps per line; answers each with a line of JSON.
Everything is robomimic's public interface with its defaults, also for the cache of the HDF5 file.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any


def build(task: dict[str, Any]) -> tuple[Any, Any]:
    """Return the algorithm and the loader."""
    import robomimic.utils.file_utils as file_utils
    import robomimic.utils.obs_utils as obs_utils
    import robomimic.utils.train_utils as train_utils
    import torch
    from robomimic.algo import algo_factory
    from robomimic.config import config_factory
    from torch.utils.data import DataLoader

    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    config = config_factory("bc")
    with config.unlocked():
        config.train.data = task["dataset"]
        config.train.batch_size = task["batch_size"]
        config.train.seq_length = task["window"]
        config.train.cuda = False
        config.experiment.validate = False
        config.observation.modalities.obs.low_dim = task["obs_keys"]
        config.algo.actor_layer_dims = task["widths"]
        config.algo.rnn.enabled = task["is_rnn"]
        config.algo.rnn.horizon = task["window"]
        config.algo.rnn.hidden_dim = task["d_hidden"]
        config.algo.rnn.num_layers = 2
    config.lock()
    obs_utils.initialize_obs_utils_with_config(config)
    shapes = file_utils.get_shape_metadata_from_dataset(task["dataset"], all_obs_keys=config.all_obs_keys)
    algo = algo_factory(
        algo_name=config.algo_name,
        config=config,
        obs_key_shapes=shapes["all_shapes"],
        ac_dim=shapes["ac_dim"],
        device=torch.device("cpu"),
    )
    data, _ = train_utils.load_data_for_training(config, obs_keys=shapes["all_obs_keys"])
    sampler = data.get_dataset_sampler()
    loader = DataLoader(
        dataset=data,
        sampler=sampler,
        batch_size=config.train.batch_size,
        shuffle=sampler is None,
        num_workers=config.train.num_data_workers,
        drop_last=True,
    )
    return algo, loader


def main() -> None:
    """Serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what robomimic prints is no answer

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    task = json.loads(sys.stdin.readline())
    with contextlib.redirect_stdout(sys.stderr):
        algo, loader = build(task)
        next(iter(loader))
        num_parameters = sum(p.numel() for p in algo.nets.parameters() if p.requires_grad)
        import robomimic

        answer(num_parameters=num_parameters, version=robomimic.__version__)
        for epoch, line in enumerate(sys.stdin):
            answer(**train(algo, loader, epoch, int(line)))


def train(algo: Any, loader: Any, epoch: int, num_steps: int) -> dict[str, float]:
    """Return the gradient steps per second of robomimic's own epoch, and the share of the time that data took."""
    import robomimic.utils.train_utils as train_utils

    begin = time.perf_counter()
    log = train_utils.run_epoch(model=algo, data_loader=loader, epoch=epoch + 1, num_steps=num_steps)
    seconds = time.perf_counter() - begin
    return {
        "steps_per_s": num_steps / seconds,
        "wait_share": log["Time_Data_Loading"] * 60 / seconds,  # it reports minutes
        "loss": float(log["Loss"]),
    }


if __name__ == "__main__":
    main()
