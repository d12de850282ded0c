"""One process: it is the main one, gathers from itself, and waits for nobody. Two are in tests/distributed."""

import pytest
import torch

from seqrl.algo.processes import Processes
from seqrl.algo.updater import Updater
from tests.helpers import ACTION_SPACES, random_batch, small_algo

CPU = torch.device("cpu")


def test_one_process_is_alone_and_main():
    processes = Processes(CPU)
    assert (processes.rank, processes.number, processes.is_main, processes.is_alone) == (0, 1, True, True)
    assert processes.device == CPU


@pytest.mark.parametrize("value", [None, 3, [1, 2], {"a": [0.5]}])
def test_what_is_gathered_comes_back_in_a_list(value):
    assert Processes(CPU).gather(value) == [value]


def test_nothing_waits():
    processes = Processes(CPU)
    processes.wait()
    with processes.main_first():
        processes.wait()


def test_processes_of_another_precision_may_follow():
    """accelerate itself keeps the first settings for good."""
    assert Processes(CPU, precision="bf16").accelerator.mixed_precision == "bf16"
    assert Processes(CPU).accelerator.mixed_precision == "no"


def test_an_updater_steps_by_them():
    algo = small_algo()
    before = algo.serialize()
    algo.updater = Updater(algo, Processes(CPU).accelerator)
    algo.set_train()
    algo.train_on_batch(algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"])))
    assert any(not torch.equal(v, before[k]) for k, v in algo.serialize().items())
