"""What a recurrent memory reads before a window, and what it learns from that: nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from seqrl.algo import ALGOS, algo_factory
from seqrl.configs import config_factory
from seqrl.conformance.algorithms import spaces_of
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.core.types import ColumnStats
from seqrl.models.sequence_encoders import SequenceEncoder
from tests.helpers import ACTION_SPACES, random_batch, small_algo, small_config

RECURRENT = [name for name in SEQUENCE_ENCODERS.names() if SEQUENCE_ENCODERS.get(name).is_recurrent]
READS_NOTHING = ("decision_transformer",)
"""Told of a return that is known within the window only."""


def cut(batch, num):
    """Return a batch without its first steps, which come before it, from the 10th step of the episodes on."""
    late = replace(batch.inputs, step=batch.inputs.step + 10)

    def rest(values):
        return values[:, num:]

    fields = {k: v.map(rest) if k == "inputs" else v for k, v in vars(replace(batch, inputs=late)).items()}
    fields |= {k: rest(v) for k, v in fields.items() if isinstance(v, torch.Tensor)}
    fields["extras"] = {k: rest(v) for k, v in batch.extras.items()}
    return SeqBatch(**{**fields, "before": late.first(num)})


def test_memories_whose_state_tells_all_are_known_as_such():
    assert set(RECURRENT) == {"gru", "lstm", "min_gru", "lru", "mamba", "mamba2", "gated_deltanet", "mlstm"}


@pytest.mark.parametrize("memory", RECURRENT)
def test_a_window_goes_on_from_what_was_before(memory):
    trunk = small_algo(memory=memory).trunk.eval()
    batch = random_batch(ACTION_SPACES["discrete"], num=4)
    late = cut(batch, 3)
    missing = late.before.step.clone()
    missing[2:] += torch.tensor([[1], [-7]])  # fewer were there, so these are others
    found, state = trunk(late.inputs, before=replace(late.before, step=missing))
    assert state is None
    whole, _ = trunk(replace(batch.inputs, step=batch.inputs.step + 10))
    torch.testing.assert_close(found[:2], whole[:2, 3:])
    alone, _ = trunk(late.inputs)
    torch.testing.assert_close(found[2:], alone[2:])
    assert not torch.allclose(found[:2], alone[:2], atol=1e-4)


def test_nothing_is_learned_from_what_was_before():
    trunk = small_algo(memory="gru").trunk
    late = cut(random_batch(ACTION_SPACES["discrete"], num=4), 3)
    seen = late.before.obs["state"].requires_grad_()
    encoded, _ = trunk(late.inputs, before=late.before)
    encoded.sum().backward()
    assert seen.grad is None
    assert all(p.grad is not None for p in trunk.sequence_encoder.parameters())


@pytest.mark.parametrize("memory", RECURRENT)
@pytest.mark.parametrize("is_training", [True, False])
def test_what_begins_an_episode_begins_empty(memory, is_training):
    trunk = small_algo(memory=memory).trunk.train(is_training)
    batch = random_batch(ACTION_SPACES["discrete"], num=4)
    late = cut(batch, 3)
    before, inputs = (replace(x, step=x.step - 10) for x in (late.before, late.inputs))
    torch.testing.assert_close(trunk(inputs, before=before)[0], trunk(batch.inputs)[0][:, 3:])


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_start_that_is_learned_is_learned_beside_windows_that_are_filled(memory):
    algo = small_algo(memory=memory, sequence_encoder={"type": memory, "start": "learned", "d_hidden": 8})
    late = cut(random_batch(ACTION_SPACES["discrete"], num=4), 3)
    missing = torch.tensor([[0], [0], [5], [5]])
    encoded, _ = algo.trunk(late.inputs, before=replace(late.before, step=late.before.step + missing))
    encoded.square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in algo.trunk.sequence_encoder.start.values())


@pytest.mark.parametrize("memory", RECURRENT)
def test_training_begins_with_what_another_window_of_the_batch_left(memory):
    """So that old memories, which acting has and windows do not, are nothing new, whatever they hold."""
    trunk = small_algo(memory=memory).trunk
    torch.manual_seed(2)
    late = cut(random_batch(ACTION_SPACES["discrete"], num=5), 3)
    found, _ = trunk(late.inputs, before=late.before)
    seen, own = trunk.timestep_encoder(late.before), trunk.timestep_encoder(late.inputs)
    left = []
    for row in range(5):
        whole = torch.stack([torch.cat([seen[other], seen[row], own[row]]) for other in range(5)])
        after, _ = trunk.sequence_encoder(whole, torch.arange(whole.shape[1]).expand(5, -1))
        gaps = (after[:, 6:] - found[row]).abs().amax((1, 2))
        assert gaps.min() < 1e-5 < gaps.sort().values[1]
        left.append(int(gaps.argmin()))
    assert sorted(left) == list(range(5))


def test_the_previous_action_and_reward_are_hidden_before_a_window_as_in_it():
    trunk = small_algo(memory="gru").trunk
    trunk.prev_dropout, given = 0.5, []
    trunk.timestep_encoder.register_forward_pre_hook(lambda module, args: given.append(args[0]))
    late = cut(random_batch(ACTION_SPACES["discrete"], num=20), 3)
    trunk(late.inputs, before=late.before)
    inside, before = ((x.prev_action == 0).all((1, 2)) & (x.prev_reward == 0).all(1) for x in given)
    assert torch.equal(inside, before)
    assert 0 < inside.sum() < 20


def test_a_memory_that_sees_a_window_reads_nothing_before_it():
    trunk = small_algo(memory="transformer").trunk.eval()
    late = cut(random_batch(ACTION_SPACES["discrete"], num=4), 3)
    torch.testing.assert_close(trunk(late.inputs, before=late.before)[0], trunk(late.inputs)[0])


@pytest.mark.parametrize("name", ALGOS.names())
def test_every_algorithm_learns_from_a_memory_that_is_filled(name):
    space = ACTION_SPACES[spaces_of(name)[0]]
    batch = cut(random_batch(space, num=4, window=9), 3)
    losses = {}
    for given in (batch, replace(batch, before=None)):
        algo = small_algo(name, "gru", space)
        torch.manual_seed(1)
        total = algo.train_on_batch(algo.process_batch_for_training(given))["loss/total"]
        assert torch.isfinite(total)
        losses[given.before is None] = total
    assert bool(losses[False] == losses[True]) is (name in READS_NOTHING)


def test_inputs_before_a_window_are_scaled_as_those_in_it():
    config = small_config(memory="gru")
    config.train.normalize_obs, config.train.normalize_actions = "gaussian", "min_max"
    algo = algo_factory("bc", config, {"state": (3,)}, ac_dim=2, device="cpu")
    state, action = (ColumnStats(np.ones(n), np.full(n, 2.0), -np.ones(n), np.full(n, 5.0)) for n in (3, 2))
    algo.use_statistics({"state": state}, action)
    batch = random_batch(spaces.Box(-1.0, 1.0, (2,)), num=4, obs={"state": ObsSpec((3,))})
    late = algo.process_batch_for_training(cut(batch, 3)).before
    whole = algo.process_batch_for_training(batch).inputs
    torch.testing.assert_close(late.obs["state"], whole.obs["state"][:, :3])
    torch.testing.assert_close(late.prev_action[:, 1:], whole.prev_action[:, 1:3])
    assert not torch.allclose(late.obs["state"], batch.inputs.obs["state"][:, :3])


def test_images_are_altered_alike_before_and_within_a_window():
    """In a still scene, every frame is encoded as the same."""
    encoder = {"type": "cnn", "core": {"type": "drq"}, "randomizers": [{"type": "shift", "share": 1.0}], "d_output": 8}
    values = {"observation": {"timestep_encoder": encoder}, "algo": {"sequence_encoder": {"type": "gru"}}}
    config = config_factory("bc", values)
    obs, actions, seen = {"image": ObsSpec((16, 16, 3), "uint8")}, spaces.Box(-1, 1, (2,)), []
    trunk = algo_factory("bc", config, obs, 2, "cpu", actions).trunk
    torch.manual_seed(0)
    still = torch.randint(0, 256, (4, 1, 16, 16, 3), dtype=torch.uint8).expand(-1, 8, -1, -1, -1)
    numbers = torch.zeros(4, 8, 2)
    inputs = SeqInputs({"image": still}, numbers, numbers[..., 0], torch.arange(8).expand(4, -1) + 5)
    trunk.sequence_encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    trunk(inputs.map(lambda x: x[:, 3:]), before=inputs.first(3))
    assert len(seen) == 3
    frames = torch.cat(seen, dim=1)
    torch.testing.assert_close(frames, frames[:, :1].expand_as(frames))


def test_whole_numbers_and_flags_of_a_state_are_emptied():
    memory = small_algo(memory="gru").trunk.sequence_encoder
    state = {"count": torch.arange(1, 4), "is_new": torch.ones(3, 2, dtype=torch.bool), "hidden": torch.ones(3, 1)}
    found = SequenceEncoder.with_empty_rows(memory, state, torch.tensor([False, True, False]))
    assert {k: v.dtype for k, v in found.items()} == {k: v.dtype for k, v in state.items()}
    assert found["count"].tolist() == [1, 0, 3]
    assert found["is_new"].tolist() == [[True] * 2, [False] * 2, [True] * 2]
    assert found["hidden"].tolist() == [[1.0], [0.0], [1.0]]
