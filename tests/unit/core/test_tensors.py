"""The torch containers convert, cut and map without losing anything."""

import numpy as np
import pytest
import torch

from seqrl.core.errors import DataError
from seqrl.core.tensors import SeqBatch, SeqInputs

B, T, A = 2, 4, 3


def make_batch(extras=False):
    """A batch as the dataset makes it, whose values are all different."""
    counter = iter(range(10_000))

    def values(*shape):
        return torch.tensor([float(next(counter)) for _ in range(int(np.prod(shape)))]).reshape(shape)

    first_action, actions, first_reward, rewards = values(B, 1, A), values(B, T, A), values(B, 1), values(B, T)
    inputs = SeqInputs(
        obs={"x": values(B, T + 1, 2), "image": torch.arange(B * (T + 1) * 2, dtype=torch.uint8).reshape(B, T + 1, 2)},
        prev_action=torch.cat([first_action, actions], dim=1),
        prev_reward=torch.cat([first_reward, rewards], dim=1),
        step=torch.tensor([[5], [0]]) + torch.arange(T + 1),
        action_mask=(torch.arange(B * (T + 1) * A).reshape(B, T + 1, A) % 3 > 0) if extras else None,
        goal={"g": values(B, T + 1, 1)} if extras else {},
    )
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    terminated = torch.tensor([[False, False, False, True], [False, False, False, False]])
    truncated = torch.tensor([[False, False, False, False], [False, True, False, False]])
    if inputs.action_mask is not None:
        inputs.action_mask[:, 1:][terminated | ~mask] = True  # no action is taken there
    return SeqBatch(inputs, actions, rewards, terminated, truncated, mask)


def leaves(batch):
    inputs = batch.inputs
    named = {f"obs/{k}": v for k, v in inputs.obs.items()} | {f"goal/{k}": v for k, v in inputs.goal.items()}
    named |= {k: getattr(inputs, k) for k in ("prev_action", "prev_reward", "step", "action_mask")}
    named |= {k: getattr(batch, k) for k in ("actions", "rewards", "terminated", "truncated", "mask")}
    return {k: v for k, v in named.items() if v is not None}


@pytest.mark.parametrize("extras", [False, True], ids=["plain", "action_mask_and_goal"])
def test_mapping_round_trip_gives_the_same_batch(extras):
    batch = make_batch(extras)
    before, after = leaves(batch), leaves(SeqBatch.from_mapping(batch.to_mapping()))
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert after[name].dtype == value.dtype, name
        assert torch.equal(after[name], value), name


def test_to_mapping_has_robomimics_shapes():
    batch = make_batch()
    mapping = batch.to_mapping()
    assert mapping["obs"]["x"].shape == (B, T, 2)
    assert torch.equal(mapping["next_obs"]["x"], batch.inputs.obs["x"][:, 1:])
    assert mapping["pad_mask"].shape == (B, T, 1)
    assert torch.equal(mapping["dones"], batch.terminated)


def test_from_mapping_of_a_bare_numpy_batch():
    rng = np.random.default_rng(0)
    obs, actions = rng.random((B, T, 2)), rng.random((B, T, A))
    batch = SeqBatch.from_mapping({"obs": {"x": obs}, "actions": actions})
    assert batch.num_transitions == T
    np.testing.assert_array_equal(batch.inputs.obs["x"][:, :T], obs)
    np.testing.assert_array_equal(batch.inputs.obs["x"][:, T], obs[:, -1])
    assert batch.actions.dtype == torch.float32
    assert not batch.inputs.prev_action[:, 0].any()
    np.testing.assert_array_equal(batch.inputs.prev_action[:, 1:], actions.astype(np.float32))
    assert not batch.rewards.any()
    assert not batch.terminated.any()
    assert not batch.truncated.any()
    assert batch.mask.all()
    assert batch.inputs.step.tolist() == [list(range(T + 1))] * B
    assert batch.inputs.action_mask is None


def test_from_mapping_uses_the_last_next_obs_and_flattens_columns():
    rng = np.random.default_rng(0)
    after = rng.random((B, T, 2)).astype(np.float32)
    batch = SeqBatch.from_mapping(
        {
            "obs": {"x": np.zeros((B, T, 2), np.float32)},
            "next_obs": {"x": after},
            "actions": np.zeros((B, T, A)),
            "rewards": np.ones((B, T, 1)),
            "dones": np.ones((B, T, 1), np.int64),
            "pad_mask": np.array([[1, 1, 1, 1], [1, 0, 0, 0]])[..., None],
        }
    )
    np.testing.assert_array_equal(batch.inputs.obs["x"][:, T], after[:, -1])
    assert batch.rewards.shape == batch.terminated.shape == batch.mask.shape == (B, T)
    assert batch.terminated.dtype == batch.mask.dtype == torch.bool
    assert batch.mask.tolist() == [[True] * 4, [True, False, False, False]]
    assert batch.inputs.prev_reward.tolist() == [[0, 1, 1, 1, 1]] * B


def test_from_mapping_starts_where_it_is_told():
    batch = SeqBatch.from_mapping(
        {
            "obs": {"x": torch.zeros(B, T, 2)},
            "actions": torch.zeros(B, T, A),
            "step": torch.tensor([7, 0]),
            "prev_action": torch.ones(B, A),
            "prev_reward": torch.tensor([2.0, 3.0]),
        }
    )
    assert batch.inputs.step[:, 0].tolist() == [7, 0]
    assert batch.inputs.step[:, -1].tolist() == [7 + T, T]
    assert batch.inputs.prev_action[:, 0].tolist() == [[1.0] * A] * B
    assert batch.inputs.prev_reward[:, 0].tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "lacks obs, actions"),
        ({"obs": {}}, "lacks actions; it has obs"),
        ({"actions": np.zeros((B, T, A)), "dones": 0}, "lacks obs; it has actions, dones"),
    ],
)
def test_missing_keys_are_named(mapping, message):
    with pytest.raises(DataError, match=message):
        SeqBatch.from_mapping(mapping)


@pytest.mark.parametrize("n", [1, 3, T])
def test_first_takes_the_first_positions_of_every_entry(n):
    inputs = make_batch(extras=True).inputs
    first = inputs.first(n)
    assert torch.equal(first.obs["x"], inputs.obs["x"][:, :n])
    assert torch.equal(first.obs["image"], inputs.obs["image"][:, :n])
    assert torch.equal(first.prev_action, inputs.prev_action[:, :n])
    assert torch.equal(first.prev_reward, inputs.prev_reward[:, :n])
    assert torch.equal(first.step, inputs.step[:, :n])
    assert torch.equal(first.action_mask, inputs.action_mask[:, :n])
    assert torch.equal(first.goal["g"], inputs.goal["g"][:, :n])


def test_first_without_an_action_mask():
    assert make_batch().inputs.first(2).action_mask is None


def test_input_is_real_at_the_start_and_after_a_real_transition():
    batch = make_batch()
    expected = [[t == 0 or bool(row[t - 1]) for t in range(T + 1)] for row in batch.mask]
    assert batch.input_mask.tolist() == expected
    assert batch.input_mask.dtype == torch.bool


def test_map_reaches_every_tensor_once():
    batch = make_batch(extras=True)
    seen = []
    doubled = batch.map(lambda x: seen.append(x) or x.clone())
    assert len(seen) == len(leaves(batch)) == len({id(x) for x in seen})
    assert all(torch.equal(a, b) for a, b in zip(leaves(doubled).values(), leaves(batch).values(), strict=True))


def test_to_device_and_with_inputs():
    batch = make_batch()
    assert all(v.device.type == "meta" for v in leaves(batch.to("meta")).values())
    other = batch.with_inputs(batch.inputs.first(2))
    assert other.inputs.step.shape == (B, 2)
    assert other.actions is batch.actions
