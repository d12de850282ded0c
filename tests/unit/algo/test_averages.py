"""Averages of the weights: who acts by them, and what becomes of checkpoints that have none."""

import pytest
import torch

from seqrl.algo.checkpoint import load_algo, read_checkpoint, save_checkpoint
from seqrl.algo.ema import num_parameters, without_averages
from seqrl.conformance.algorithms import AlgoCase, train
from seqrl.rollout.evaluator import evaluation_mode
from tests.unit.algo.checkpoints import ACTIONS, OBSERVATIONS, small_algo

CASE = AlgoCase("actor_critic", memory="transformer")


def trained(case=CASE, steps=5):
    algo = case.build()
    train(algo, case.batch(), steps)
    return algo


def weights(algo):
    return {name: p.detach().clone() for name, p in algo.nets.named_parameters() if p.requires_grad}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def test_evaluations_take_the_averages_and_collecting_does_not():
    algo = trained()
    own = weights(algo)
    with algo.averaged():
        average = weights(algo)
    assert not same(own, average)
    with evaluation_mode(algo, 0):
        assert same(weights(algo), average)
        with evaluation_mode(algo, 0):  # nested, as a callback's evaluation within another
            assert same(weights(algo), average)
        assert same(weights(algo), average)
    assert same(weights(algo), own)
    with evaluation_mode(algo, 0, is_averaged=False):
        assert same(weights(algo), own)


def test_an_error_in_an_evaluation_leaves_the_weights():
    algo = trained()
    own = weights(algo)
    with pytest.raises(KeyError), evaluation_mode(algo, 0):
        raise KeyError
    assert same(weights(algo), own)


def test_averages_that_never_moved_do_not_stand_in():
    algo = CASE.build()
    with torch.no_grad():
        for weight in algo.nets["actor"].parameters():
            weight.add_(1.0)
    own = weights(algo)
    with algo.averaged():
        assert same(weights(algo), own)


def test_averaging_changes_nothing_in_training():
    plain = trained(AlgoCase("actor_critic", values={"average_decay": None}))
    assert "averages" not in plain.nets
    assert same(weights(plain), weights(trained()))
    assert num_parameters(plain.nets) == num_parameters(trained().nets)


def test_a_checkpoint_acts_by_the_averages_and_keeps_the_weights(tmp_path):
    algo = small_algo()
    for weight in algo.nets["actor"].parameters():
        torch.nn.init.normal_(weight)
    algo.nets["averages"].move(algo.nets)
    with algo.averaged():
        average = weights(algo)
    save_checkpoint(tmp_path / "checkpoint", algo, OBSERVATIONS, ACTIONS)
    checkpoint = read_checkpoint(tmp_path / "checkpoint")
    loaded, *_ = load_algo(checkpoint, "cpu")
    assert same(weights(loaded), average)
    with loaded.averaged():
        assert same(weights(loaded), average)
    saved = checkpoint.tensors("model.safetensors")
    assert same(weights(algo), saved)


def test_weights_from_before_begin_their_averages():
    algo = trained()
    former = without_averages(algo.serialize())
    assert not any(name.startswith("averages") for name in former)
    second = CASE.build(seed=3)
    second.deserialize(former)
    assert same(weights(second), weights(algo))
    with second.averaged():
        assert same(weights(second), weights(algo))
    train(second, CASE.batch(), 1)
    with second.averaged():
        assert not same(weights(second), weights(algo))


def test_averages_are_left_out_where_the_run_keeps_none():
    algo = trained()
    plain = AlgoCase("actor_critic", values={"average_decay": None}).build(seed=3)
    plain.deserialize(algo.serialize())
    assert same(weights(plain), weights(algo))
