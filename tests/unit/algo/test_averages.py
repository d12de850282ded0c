"""Averages of the weights: who acts by them, and what becomes of checkpoints that have none."""

import pytest
import torch
from torch import nn

from seqrl.algo.checkpoint import load_algo, read_checkpoint, save_checkpoint
from seqrl.algo.ema import add_averages, num_parameters, without_averages
from seqrl.algo.updater import move_unless
from seqrl.conformance.algorithms import AlgoCase, train
from seqrl.core.errors import ConfigError
from seqrl.rollout.evaluator import evaluation_mode
from seqrl.training.init_from import take_weights
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


def test_a_run_that_starts_from_weights_averages_anew(tmp_path):
    """An average of many steps would stay near the first weights for as many."""
    source = trained(steps=30)
    save_checkpoint(tmp_path / "first", source, OBSERVATIONS, CASE.space)
    algo = CASE.build(seed=3)
    take_weights(algo, tmp_path / "first")
    assert algo.nets["averages"].num_steps == 0
    with source.averaged():
        assert same(weights(algo), weights(source))


def test_what_does_not_learn_is_not_averaged():
    iris = AlgoCase("iris", actions="box")
    algo = trained(iris)
    targets = {k: v.clone() for k, v in algo.nets.named_parameters() if ".target_" in k and "averages" not in k}
    assert targets
    with algo.averaged():
        assert same(targets, dict(algo.nets.named_parameters()))


def test_a_name_that_is_taken_and_networks_that_cannot_be_copied_are_told():
    nets = nn.ModuleDict({"averages": nn.Linear(1, 1)})
    with pytest.raises(ConfigError, match="take another name"):
        add_averages(nets, 0.9)
    nets = nn.ModuleDict({"actor": torch.nn.utils.weight_norm(nn.Linear(2, 2))})
    with pytest.raises(ConfigError, match=r"set algo\.average_decay to null, or use torch\.nn\.utils\.param"):
        add_averages(nets, 0.9)
    add_averages(nets, None)
    assert "averages" not in nets


def test_an_error_on_the_way_leaves_the_weights():
    algo = trained()
    own = weights(algo)
    algo.nets["actor"].register_module("late", nn.Linear(1, 1))
    with pytest.raises(KeyError), algo.averaged():
        pass
    assert same(own, weights(algo))


@pytest.mark.parametrize("is_bad", [True, False])
def test_what_follows_the_weights_goes_back_where_a_step_was_not_finite(is_bad):
    tensors = [torch.ones(2, 3), torch.ones(()), torch.zeros(2, dtype=torch.int64), torch.ones(3, 2).t()]
    before = [x.clone() for x in tensors]

    def move():
        for x in tensors:
            x.add_(1)
        tensors[0].fill_(torch.nan)

    move_unless(torch.tensor(is_bad), tensors, move)
    assert [torch.equal(x, old) for x, old in zip(tensors, before, strict=True)] == [is_bad] * 4
