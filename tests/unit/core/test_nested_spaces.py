"""Actions of Dict and Tuple spaces: as numbers, as the policy knows them, and as the environment takes them."""

from collections import OrderedDict

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError, EnvError
from seqrl.core.nested_spaces import action_names
from seqrl.core.spaces import ActionCodec, space_from_json, space_to_json

ARM = spaces.Dict(
    {
        "arm": spaces.Box(np.float32([-2, 0]), np.float32([2, 1])),
        "hand": spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0.0, 10.0, (), np.float64))),
        "tool": spaces.Discrete(3, start=1),
    }
)
SPACES = {
    "hybrid": (ARM, "hybrid"),
    "choices": (
        spaces.Tuple((spaces.Discrete(3), spaces.Dict({"a": spaces.MultiDiscrete([2, 4], start=[1, 0])}))),
        "multi_discrete",
    ),
    "choices and bits": (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.MultiBinary((2, 2))}), "multi_discrete"),
    "one choice": (spaces.Dict({"a": spaces.Discrete(5, start=-2)}), "discrete"),
    "bits": (spaces.Tuple((spaces.MultiBinary(3), spaces.MultiBinary((1, 2)))), "binary"),
    "boxes": (spaces.Dict({"x": spaces.Box(-1, 3, (2, 2)), "y": spaces.Box(0, 1, ())}), "continuous"),
    "whole numbers": (
        spaces.Dict({"x": spaces.Box(0, 9, (2,), np.int32), "y": spaces.Box(-5, 5, (1,), np.int32)}),
        "continuous",
    ),
}


def stacked(space, samples):
    """Return samples as gymnasium batches them."""
    from gymnasium.vector.utils import concatenate, create_empty_array

    return concatenate(space, samples, create_empty_array(space, len(samples)))


@pytest.mark.parametrize("name", SPACES)
def test_they_come_back_as_they_were(name):
    space, kind = SPACES[name]
    codec = ActionCodec(space)
    assert codec.action_kind == kind
    space.seed(0)
    samples = [space.sample() for _ in range(20)]
    flat = codec.flat(stacked(space, samples), 20)
    assert flat.shape == (20, *codec.shape)
    encoded = codec.encode(flat)
    assert encoded.shape == (20, codec.dim)
    assert encoded.dtype == np.float32
    assert np.abs(encoded).max() <= 1
    again = codec.decode(encoded)
    np.testing.assert_allclose(again, flat, atol=1e-5)
    np.testing.assert_allclose(codec.encode(codec.decode(codec.executed(encoded))), encoded, atol=1e-6)
    for row, sample in zip(again, samples, strict=True):
        taken = codec.nested(row)
        assert space.contains(taken)
        np.testing.assert_allclose(codec.flat(taken), codec.flat(sample), atol=1e-5)


def test_the_values_of_a_hybrid_action_come_first_and_its_choices_are_one_hot():
    codec = ActionCodec(ARM)
    action = {"arm": np.float32([2, 0.5]), "hand": (np.int8([1, 0]), np.float64(7.5)), "tool": 2}
    flat = codec.flat(action)
    np.testing.assert_allclose(flat, [2, 0.5, 1, 0, 7.5, 2])
    np.testing.assert_allclose(codec.encode(flat), [1, 0, 0.5, 0, 1, 1, 0, 0, 1, 0])
    assert action_names(ARM) == ["arm[0]", "arm[1]", "hand/0[0]", "hand/0[1]", "hand/1", "tool"]


def test_a_batch_is_what_a_vector_of_environments_takes():
    codec = ActionCodec(ARM)
    actions = codec.nested(codec.decode(codec.random(np.random.default_rng(0), 4)))
    assert actions["arm"].shape == (4, 2)
    assert actions["hand"][0].shape == (4, 2)
    assert actions["tool"].shape == (4,)
    assert actions["tool"].dtype == np.int64
    assert actions["arm"].dtype == np.float32


def test_only_choices_can_be_illegal():
    codec = ActionCodec(ARM)  # three values; two bits; three tools
    flags = np.array([1, 0, 1, 1, 0, 0, 1], bool)
    legal = codec.legal(flags)
    np.testing.assert_array_equal(legal, [True] * 3 + flags.tolist())
    np.testing.assert_array_equal(codec.legal(legal), legal)
    assert not codec.stuck(legal)
    assert codec.stuck(codec.legal(np.array([1, 0, 1, 1, 0, 0, 0], bool)))
    drawn = codec.random(np.random.default_rng(0), 200, np.tile(legal, (200, 1)))
    assert not (drawn[:, ~legal] > 0.5).any()
    assert (drawn[:, 9] == 1).all()
    assert np.unique(drawn[:, 5]).tolist() == [0, 1]
    assert np.ptp(drawn[:, 0]) > 1
    with pytest.raises(DataError, match="needs 7 flags"):
        codec.legal(np.ones(6, bool))


@pytest.mark.parametrize(
    ("action", "what"),
    [
        ({"arm": np.zeros(2)}, "lacks 'hand'"),
        ({"arm": np.zeros(3), "hand": (np.zeros(2), 0.0), "tool": 1}, r"'arm' has shape \(3,\), expected \(2,\)"),
    ],
)
def test_an_action_that_does_not_fit_is_a_data_error(action, what):
    with pytest.raises(DataError, match=what):
        ActionCodec(ARM).flat(action)


@pytest.mark.parametrize(
    ("space", "what"),
    [(spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Text(3)}), "b; supported"), (spaces.Dict({}), "no parts")],
)
def test_a_part_that_is_not_supported_is_named(space, what):
    with pytest.raises(EnvError, match=what):
        ActionCodec(space)


def test_the_order_of_a_dict_is_that_of_its_names():
    ordered = spaces.Dict(OrderedDict(z=spaces.Box(-1, 1, (2,)), a=spaces.Discrete(3), b=spaces.Discrete(2)))
    action = {"z": np.float32([0.5, 1]), "a": 2, "b": 1}
    for space in (ordered, space_from_json(space_to_json(ordered))):
        assert ActionCodec(space).flat(action).tolist() == [2, 1, 0.5, 1]


@pytest.mark.parametrize("more", [{}, {"tool": spaces.Discrete(2)}])
def test_whole_numbers_beside_others_are_rounded_where_they_are_remembered_too(more):
    codec = ActionCodec(spaces.Dict({"f": spaces.Box(-1, 1, (1,)), "i": spaces.Box(0, 10, (1,), np.int32), **more}))
    given = codec.zeros(1)
    given[0, :2] = 0.47, 0.47
    executed = codec.executed(given)
    np.testing.assert_allclose(executed[0, :2], [0.47, 0.4])
    taken = codec.nested(codec.decode(given))
    assert taken["i"].tolist() == [[7]]
    np.testing.assert_allclose(codec.encode(codec.flat(taken, 1))[0, :2], executed[0, :2], atol=1e-6)


def test_a_part_without_parts_is_nothing():
    codec = ActionCodec(spaces.Dict({"a": spaces.Dict({}), "b": spaces.Discrete(2)}))
    assert codec.nested(codec.decode(codec.zeros())) == {"a": {}, "b": 0}


def test_a_part_without_bounds_is_told():
    codec = ActionCodec(spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-np.inf, np.inf, (1,))}))
    with pytest.raises(EnvError, match="no bounds"):
        codec.check_bounded()
