import pytest
import torch

from seqrl.core.errors import CheckpointError
from tests.helpers import ACTION_SPACES, random_batch, small_algo


def trained(**optimizer):
    algo = small_algo(optimizer=optimizer)
    algo.set_train()
    algo.train_on_batch(algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"])))
    return algo


def replaced(state, name, tensor, new_name=None):
    return {(new_name or k) if k == name else k: tensor if k == name else v for k, v in state.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {k: v for k, v in s.items() if k != "0.exp_avg"}, "lacks '0.exp_avg'"),
        (lambda s: {k: v for k, v in s.items() if k != "clipper.num_updates"}, "'num_updates'.*is missing"),
        (lambda s: replaced(s, "0.exp_avg", s["0.exp_avg"], "0.exp_avgx"), "has no '0.exp_avgx', only step, exp_avg"),
        (lambda s: replaced(s, "0.exp_avg", s["0.exp_avg"], "x.exp_avg"), "has no 'x.exp_avg'"),
        (lambda s: replaced(s, "0.exp_avg", s["0.exp_avg"], "999.exp_avg"), "has no '999.exp_avg'"),
        (lambda s: replaced(s, "0.exp_avg", s["0.exp_avg"], "nodot"), "has no 'nodot'"),
        (lambda s: replaced(s, "0.exp_avg", s["0.exp_avg"][:1]), "'0.exp_avg' should be floats of shape"),
        (lambda s: replaced(s, "0.exp_avg", s["0.exp_avg"].long()), "but is torch.int64"),
        (lambda s: replaced(s, "0.step", torch.ones(3)), r"'0.step' should be floats of shape \(\), but is .*\(3,\)"),
        (lambda s: replaced(s, "clipper.mean_squares", torch.tensor(1.0)), "clipper's 'mean_squares' should be"),
    ],
)
def test_tensors_of_wrong_names_shapes_or_types_are_errors(change, message):
    algo = trained()
    state = algo.updater.state_tensors()
    algo.updater.load_state(state, 1)
    with pytest.raises(CheckpointError, match=message):
        algo.updater.load_state(change(state), 1)


@pytest.mark.parametrize("method", ["adam", "adamw"])
def test_what_was_saved_is_taken_by_every_method(method):
    saved, algo = trained(method=method).updater.state_tensors(), small_algo(optimizer={"method": method})
    algo.updater.load_state(saved, 1)
    assert all(torch.equal(v, saved[k]) for k, v in algo.updater.state_tensors().items())
