"""Ranks that share one batch (``train.batch_size_is`` total): their number changes no result, nor does changing it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from seqrl.algo.objectives import masked_mean
from seqrl.configs import config_factory
from seqrl.configs.sections.run import TrainSection
from seqrl.core.errors import ConfigError
from seqrl.training import setup
from seqrl.training.learner import Learner
from seqrl.training.parts import Parts
from tests.distributed.test_two_ranks import ROOT, torchrun
from tests.helpers import ACTION_SPACES, random_batch, small_algo
from tests.regression.test_online import merged

pytestmark = pytest.mark.distributed
NO_CHANCE = {
    "experiment": {"report": {"enabled": False}, "logging": {"tensorboard": False, "every_n_steps": 5},
                   "evaluation": {"enabled": False}},
    "env": {"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 6}},
    "train": {
        "data": [{"scripted": "seqrl/TMazePassive-v0", "episodes": 20}],
        "window_steps": 12, "window_padding": "both", "batch_size": 8, "batch_size_is": "total", "num_epochs": 2,
        "steps_per_epoch": 10, "device": "cpu",
    },
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 16, "d_output": 16}},
    "algo": {
        "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0},
        "sequence_encoder": {"type": "gru", "d_hidden": 16, "num_layers": 1, "d_output": 16},
        "actor": {"d_hidden": 16},
    },
}  # fmt: skip
OF_VALUES = {"algo": {"critic": {"d_hidden": 16, "num_critics": 4}, "num_critics_td": 4}}


def train(folder, name, algo, *options, ranks, epochs=2):
    """Run the command in so many processes; return the weights at its end."""
    values = merged(NO_CHANCE, OF_VALUES if algo == "actor_critic" else {})
    values = merged(values, {"algo_name": algo, "experiment": {"output_dir": str(folder), "name": name}})
    (folder / f"{name}.json").write_text(json.dumps(values))
    arguments = ["-m", "seqrl", "train", "--config", f"{name}.json", "--set", f"train.num_epochs={epochs}", *options]
    if ranks == 1:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, env=environment, check=False
        )
    else:
        done = torchrun(arguments, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    last = (folder / name / "checkpoints" / "last").read_text().strip()
    return load_file(folder / name / "checkpoints" / last / "model.safetensors"), done.stderr


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["bc", "actor_critic"])
def test_two_ranks_equal_one_after_twenty_steps(algo, tmp_path):
    """With windows that are padded, so that the ranks hold different numbers of transitions."""
    alone, _ = train(tmp_path, "alone", algo, ranks=1)
    both, _ = train(tmp_path, "both", algo, ranks=2)
    assert_equal(both, alone)
    other, _ = train(tmp_path, "other", algo, "--set", "train.batch_size_is=per_rank", ranks=2)
    assert any((other[k] - alone[k]).abs().max() > 1e-4 for k in alone)


@pytest.mark.slow
def test_two_then_one_then_two_ranks_equal_an_unbroken_run(tmp_path):
    unbroken, _ = train(tmp_path, "unbroken", "bc", ranks=2, epochs=3)
    train(tmp_path, "broken", "bc", ranks=2, epochs=1)
    _, said = train(tmp_path, "broken", "bc", "--resume", ranks=1, epochs=2)
    assert re.search(r"1 processes resume what 2 began$", said, re.MULTILINE)
    broken, said = train(tmp_path, "broken", "bc", "--resume", ranks=2, epochs=3)
    assert "2 processes resume what 1 began" in said
    assert_equal(broken, unbroken)


def test_a_batch_that_cannot_be_shared_is_refused_before_anything_is_written():
    config = config_factory("bc", {"train": {"batch_size": 9, "batch_size_is": "total"}})
    parts = Parts(processes=SimpleNamespace(number=2), algo=small_algo())
    with pytest.raises(ConfigError, match=r"train\.batch_size 9 must be a multiple of 2, the number of processes"):
        setup.check_algo(config, parts, None)


def test_the_parts_of_a_batch_count_by_their_transitions():
    """Micro-batches and padding: the mean of the ranks' weighted gradients is that of the whole batch."""
    batch = random_batch(ACTION_SPACES["discrete"], num=6, seed=1)
    train = TrainSection(batch_size=6, batch_size_is="total")
    loss = torch.arange(batch.mask.numel()).float().reshape(batch.mask.shape)
    found = 0.0
    for rank in range(3):
        algo = SimpleNamespace(updater=SimpleNamespace(weight=1.0))
        own = Learner(algo, train, None, rank=rank, num_ranks=3, train_step=None)._own(batch)
        found += algo.updater.weight * masked_mean(loss[rank::3], own.mask) / 3
    torch.testing.assert_close(found, masked_mean(loss, batch.mask))
    plain = Learner(None, TrainSection(batch_size=6), None, rank=1, num_ranks=3, train_step=None)
    assert plain._own(batch) is batch


@pytest.mark.slow
def test_a_killed_rank_ends_the_other_with_a_message(tmp_path):
    values = merged(NO_CHANCE, {"algo_name": "bc", "experiment": {"output_dir": str(tmp_path), "name": "run"}})
    (tmp_path / "run.json").write_text(json.dumps(merged(values, {"train": {"num_epochs": 100000}})))
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "seqrl",
               "train", "--config", "run.json"]  # fmt: skip
    launcher = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    saved, end = tmp_path / "run" / "checkpoints" / "last", time.monotonic() + 120
    while not saved.exists():
        assert time.monotonic() < end
        time.sleep(0.2)
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    ranks = sorted(int(a) for a, b in (line.split() for line in listed.splitlines()) if int(b) == launcher.pid)
    assert len(ranks) == 2
    begin = time.monotonic()
    os.kill(ranks[1], signal.SIGKILL)
    _, said = launcher.communicate(timeout=60)
    assert time.monotonic() - begin < 60
    assert launcher.returncode != 0
    assert "another process of this run has ended, or cannot be reached" in said, said[-3000:]
    assert "go on from" in said
