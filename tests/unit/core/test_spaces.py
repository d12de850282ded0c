"""Spaces survive JSON; actions survive the codec."""

import json

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from seqrl.core.errors import DataError, EnvError
from seqrl.core.spaces import (
    ActionCodec,
    ObsSpec,
    flatten_obs,
    infer_action_space,
    obs_specs,
    space_from_json,
    space_to_json,
)

INF = np.inf
INT64 = np.iinfo(np.int64)
UNEVEN_LOW = np.array([[-1, 0, 5], [-10, 2, -3]], np.float32)
UNEVEN_HIGH = np.array([[1, 3, 6], [10, 2.5, 100]], np.float32)

SPACES = {
    "box": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "box_scalar": spaces.Box(-2.0, 1.0, (), np.float32),
    "box_empty": spaces.Box(-1.0, 1.0, (0,), np.float32),
    "box_unbounded": spaces.Box(-INF, INF, (2, 2), np.float64),
    "box_half_bounded": spaces.Box(np.array([-INF, 0.0]), np.array([1.0, INF]), dtype=np.float64),
    "box_uneven": spaces.Box(UNEVEN_LOW, UNEVEN_HIGH, dtype=np.float32),
    "box_float32_fractions": spaces.Box(np.array([0.1, 0.2], np.float32), np.array([0.3, 0.7], np.float32)),
    "box_float16": spaces.Box(-0.1, 0.1, (2,), np.float16),
    "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "box_int": spaces.Box(-3, 7, (2,), np.int32),
    "box_int64_limits": spaces.Box(INT64.min, INT64.max, (2,), np.int64),
    "box_int64_large": spaces.Box(np.array([0, -(2**62) - 1]), np.array([5, 2**62 + 1]), dtype=np.int64),
    "box_uint64_large": spaces.Box(
        np.array([0, 2**63 + 5], np.uint64), np.array([7, 2**64 - 1], np.uint64), dtype=np.uint64
    ),
    "discrete": spaces.Discrete(3),
    "discrete_start": spaces.Discrete(3, start=-1),
    "discrete_int32": spaces.Discrete(5, dtype=np.int32),
    "multi_discrete": spaces.MultiDiscrete([3, 4, 2]),
    "multi_discrete_start": spaces.MultiDiscrete([3, 4], start=[1, -2]),
    "multi_discrete_2d": spaces.MultiDiscrete([[3, 4], [2, 2]], start=[[0, 1], [2, 3]]),
    "multi_discrete_int32": spaces.MultiDiscrete([3, 4], dtype=np.int32),
    "multi_binary": spaces.MultiBinary(4),
    "multi_binary_2d": spaces.MultiBinary((2, 3)),
    "dict_empty": spaces.Dict({}),
    "nested": spaces.Dict(
        {
            "z": spaces.Box(-INF, INF, (2,), np.float32),
            "a": spaces.Dict({"t": spaces.Tuple((spaces.Discrete(2, start=5), spaces.Box(0, 1, (2,))))}),
        }
    ),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Tuple((spaces.MultiBinary((1, 2)),)))),
}


def through_json(space):
    return space_from_json(json.loads(json.dumps(space_to_json(space), allow_nan=False)))


# ------------------------------------------------------------------------------------------------ JSON
@pytest.mark.parametrize("name", SPACES)
def test_json_round_trip_gives_an_equal_space(name):
    space = SPACES[name]
    back = through_json(space)
    assert type(back) is type(space)
    assert back == space
    assert back.dtype == space.dtype
    assert back.shape == space.shape


def test_json_of_uniform_bounds_is_short():
    text = json.dumps(space_to_json(spaces.Box(0, 255, (84, 84, 3), np.uint8)))
    assert len(text) < 120


@given(
    low=npst.arrays(np.float32, (2, 3), elements=st.floats(-1e6, 1e6, width=32)),
    width=npst.arrays(np.float32, (2, 3), elements=st.floats(0, 1e6, width=32)),
    unbounded=npst.arrays(np.bool_, (2, 3)),
)
@settings(max_examples=60, deadline=None)
def test_json_round_trip_of_any_float_box_is_exact(low, width, unbounded):
    high = low + width
    low, high = np.where(unbounded, np.float32(-INF), low), np.where(unbounded, np.float32(INF), high)
    back = through_json(spaces.Box(low, high, dtype=np.float32))
    assert np.array_equal(back.low, low)
    assert np.array_equal(back.high, high)


@given(n=st.integers(1, 10**6), start=st.integers(-(10**6), 10**6))
@settings(max_examples=60, deadline=None)
def test_json_round_trip_of_any_discrete(n, start):
    back = through_json(spaces.Discrete(n, start=start))
    assert (int(back.n), int(back.start)) == (n, start)


def test_unsupported_space_is_refused():
    with pytest.raises(EnvError, match=r"Text.*supported are Box"):
        space_to_json(spaces.Text(3))


@pytest.mark.parametrize(
    "value",
    [
        {},
        None,
        3,
        {"type": "Foo"},
        {"type": "Box"},
        {"type": "Box", "shape": [2], "dtype": "nope", "low": 0, "high": 1},
        {"type": "Box", "shape": [2], "dtype": "float32", "low": [1], "high": 1},
        {"type": "Box", "shape": [2], "dtype": "uint8", "low": -5, "high": 300},
        {"type": "Discrete", "n": -1, "start": 0, "dtype": "int64"},
        {"type": "Discrete", "n": "a", "start": 0, "dtype": "int64"},
        {"type": "Dict", "spaces": [1]},
    ],
)
def test_what_is_not_a_space_is_a_data_error(value):
    with pytest.raises(DataError, match="not the JSON of a space"):
        space_from_json(value)


# -------------------------------------------------------------------------------------- observations
def test_obs_specs_of_a_nested_space():
    space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
            "sub": spaces.Tuple((spaces.Discrete(3, start=2), spaces.MultiDiscrete([2, 5]))),
        }
    )
    assert obs_specs(space) == {
        "image": ObsSpec((4, 4, 3), "uint8", None),
        "sub/0": ObsSpec((), "int64", (3,)),
        "sub/1": ObsSpec((2,), "int64", (2, 5)),
    }


def test_obs_specs_of_a_single_space_has_one_entry():
    assert obs_specs(spaces.Box(-1, 1, (2,), np.float32)) == {"obs": ObsSpec((2,), "float32")}


def test_flatten_obs_joins_names_and_shifts_categories():
    space = spaces.Dict(
        {
            "x": spaces.Box(-1, 1, (2,), np.float32),
            "sub": spaces.Dict({"t": spaces.Tuple((spaces.Discrete(3, start=2), spaces.MultiBinary(2)))}),
            "m": spaces.MultiDiscrete([2, 3], start=[1, -1]),
        }
    )
    obs = {"x": [0.5, 0.25], "sub": {"t": (4, np.array([1, 0], np.int8))}, "m": np.array([2, 0])}
    flat = flatten_obs(space, obs)
    assert {k: v.tolist() for k, v in flat.items()} == {
        "x": [0.5, 0.25],
        "sub/t/0": 2,
        "sub/t/1": [1, 0],
        "m": [1, 1],
    }
    assert flat["x"].dtype == np.float32
    assert flat.keys() == obs_specs(space).keys()


def test_flatten_obs_of_a_batch():
    flat = flatten_obs(spaces.Discrete(3, start=1), np.array([1, 3, 2]))
    assert flat["obs"].tolist() == [0, 2, 1]


def test_flatten_obs_of_an_entry_called_obs():
    flat = flatten_obs(spaces.Dict({"obs": spaces.Discrete(3)}), {"obs": 2})
    assert flat["obs"].tolist() == 2


def test_flatten_obs_of_a_name_with_a_slash():
    """Nested groups of an HDF5 file become such names."""
    flat = flatten_obs(spaces.Dict({"robot/eef": spaces.Discrete(3)}), {"robot/eef": 2})
    assert flat["robot/eef"].tolist() == 2


# ------------------------------------------------------------------------------------------- actions
def one_hot(index, n):
    row = [0.0] * n
    row[index] = 1.0
    return row


def test_discrete_300_encodes_every_action_as_its_own_one_hot():
    codec = ActionCodec(spaces.Discrete(300))
    actions = np.arange(300)
    encoded = codec.encode(actions)
    assert (codec.kind, codec.dim, codec.factors) == ("categorical", 300, (300,))
    assert encoded.dtype == np.float32
    assert np.array_equal(encoded, np.eye(300))
    assert np.array_equal(codec.decode(encoded), actions)


def test_discrete_with_start():
    codec = ActionCodec(spaces.Discrete(4, start=-2))
    assert codec.encode(np.array([-2, 1])).tolist() == [one_hot(0, 4), one_hot(3, 4)]
    assert codec.decode(np.array([one_hot(0, 4), one_hot(3, 4)])).tolist() == [-2, 1]


def test_uint8_actions_do_not_wrap():
    codec = ActionCodec(spaces.Discrete(4, start=3))
    assert codec.encode(np.array([3, 6], np.uint8)).argmax(-1).tolist() == [0, 3]
    with pytest.raises(DataError, match="outside"):
        codec.encode(np.array([2], np.uint8))


def test_multi_discrete_with_start():
    codec = ActionCodec(spaces.MultiDiscrete([3, 4, 2], start=[1, -2, 7]))
    actions = np.array([[1, -2, 7], [3, 1, 8], [2, 0, 7]])
    expected = [one_hot(a - 1, 3) + one_hot(b + 2, 4) + one_hot(c - 7, 2) for a, b, c in actions.tolist()]
    assert (codec.dim, codec.factors) == (9, (3, 4, 2))
    assert codec.encode(actions).tolist() == expected
    assert codec.decode(codec.encode(actions)).tolist() == actions.tolist()


def test_multi_discrete_of_two_dimensions():
    space = spaces.MultiDiscrete([[3, 4], [2, 5]], start=[[1, 2], [3, 4]])
    codec = ActionCodec(space)
    action = np.array([[3, 2], [4, 8]])
    assert codec.dim == 14
    assert codec.encode(action).tolist() == one_hot(2, 3) + one_hot(0, 4) + one_hot(1, 2) + one_hot(4, 5)
    assert space.contains(codec.decode(codec.encode(action)))
    assert codec.decode(codec.encode(action)).tolist() == action.tolist()


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3, dtype=np.int32), spaces.MultiDiscrete([3, 4], dtype=np.uint8), spaces.MultiBinary(3)]
)
def test_actions_for_the_environment_have_the_dtype_of_their_space(space):
    codec = ActionCodec(space)
    actions = codec.nested(codec.decode(codec.random(np.random.default_rng(0), 5)))
    assert actions.dtype == actions[0].dtype == space.dtype
    assert all(space.contains(action) for action in actions)


def test_categorical_decode_takes_the_largest_of_each_factor():
    codec = ActionCodec(spaces.MultiDiscrete([2, 3]))
    assert codec.decode(np.array([0.4, 0.6, 0.2, 0.1, 0.7], np.float32)).tolist() == [1, 2]


@pytest.mark.parametrize("n", [5, (2, 3)])
def test_multi_binary(n):
    space = spaces.MultiBinary(n)
    codec = ActionCodec(space)
    actions = np.random.default_rng(0).integers(0, 2, (7, *space.shape)).astype(np.int8)
    encoded = codec.encode(actions)
    assert codec.kind == "binary"
    assert encoded.shape == (7, int(np.prod(space.shape)))
    assert np.array_equal(encoded, actions.reshape(7, -1))
    assert np.array_equal(codec.decode(encoded), actions)
    assert space.contains(codec.decode(encoded)[0])


def test_box_with_uneven_bounds():
    space = spaces.Box(UNEVEN_LOW, UNEVEN_HIGH, dtype=np.float32)
    codec = ActionCodec(space)
    middle = (UNEVEN_LOW + UNEVEN_HIGH) / 2
    encoded = codec.encode(np.stack([UNEVEN_LOW, middle, UNEVEN_HIGH]))
    assert (codec.kind, codec.dim) == ("continuous", 6)
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, np.stack([-np.ones(6), np.zeros(6), np.ones(6)]), atol=1e-6)
    decoded = codec.decode(encoded)
    assert decoded.shape == (3, 2, 3)
    np.testing.assert_allclose(decoded, np.stack([UNEVEN_LOW, middle, UNEVEN_HIGH]), atol=1e-5)


@given(unit=npst.arrays(np.float32, (4, 6), elements=st.floats(-1, 1, width=32)))
@settings(max_examples=60, deadline=None)
def test_box_decode_is_affine_stays_inside_and_encode_inverts_it(unit):
    space = spaces.Box(UNEVEN_LOW, UNEVEN_HIGH, dtype=np.float32)
    codec = ActionCodec(space)
    decoded = codec.decode(unit)
    share = (unit.astype(np.float64).reshape(4, 2, 3) + 1) / 2
    np.testing.assert_allclose(decoded, UNEVEN_LOW + share * (UNEVEN_HIGH - UNEVEN_LOW), rtol=1e-5, atol=1e-5)
    assert all(space.contains(row) for row in decoded)
    np.testing.assert_allclose(codec.encode(decoded), unit, atol=1e-4)


def test_box_clips_what_is_outside():
    codec = ActionCodec(spaces.Box(0.0, 4.0, (2,), np.float32))
    assert codec.encode(np.array([-1.0, 9.0])).tolist() == [-1.0, 1.0]
    assert codec.decode(np.array([-3.0, 3.0], np.float32)).tolist() == [0.0, 4.0]


def test_integer_box_rounds_to_every_integer():
    space = spaces.Box(-3, 7, (1,), np.int32)
    codec = ActionCodec(space)
    actions = np.arange(-3, 8, dtype=np.int32)[:, None]
    decoded = codec.decode(codec.encode(actions))
    assert decoded.dtype == np.int32
    assert np.array_equal(decoded, actions)
    assert codec.decode(np.array([0.04], np.float32)).tolist() == [2]


def test_executed_actions_are_clipped_and_rounded_as_the_environment_does():
    outside = np.array([[-1.5, 0.25], [0.5, 7.0]], np.float32)
    plain = ActionCodec(spaces.Box(-2.0, 6.0, (2,)))
    assert plain.executed(outside).tolist() == [[-1.0, 0.25], [0.5, 1.0]]
    np.testing.assert_allclose(plain.executed(outside), plain.encode(plain.decode(outside)), atol=1e-6)
    assert ActionCodec(spaces.Box(-2, 2, (2,), np.int32)).executed(outside).tolist() == [[-1.0, 0.0], [0.5, 1.0]]
    one_hot = np.eye(3, dtype=np.float32)
    assert ActionCodec(spaces.Discrete(3)).executed(one_hot).tolist() == one_hot.tolist()


def test_uint8_box_round_trips_all_values():
    codec = ActionCodec(spaces.Box(0, 255, (1,), np.uint8))
    actions = np.arange(256, dtype=np.uint8)[:, None]
    assert np.array_equal(codec.decode(codec.encode(actions)), actions)


def test_box_with_one_point_gives_finite_codes():
    codec = ActionCodec(spaces.Box(np.array([2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)))
    encoded = codec.encode(np.array([2.0, 0.5], np.float32))
    assert np.isfinite(encoded).all()
    assert codec.decode(encoded).tolist() == [2.0, 0.5]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([3, 4, 2], start=[1, -2, 7]),
        spaces.MultiBinary((2, 3)),
        spaces.Box(UNEVEN_LOW, UNEVEN_HIGH, dtype=np.float32),
        spaces.Box(-3, 7, (2,), np.int32),
    ],
    ids=["discrete", "multi_discrete", "multi_binary", "box", "integer_box"],
)
@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (0,), (2, 0)], ids=str)
def test_samples_round_trip_with_any_leading_shape(space, lead):
    space.seed(0)
    actions = np.array([space.sample() for _ in range(int(np.prod(lead)))]).reshape((*lead, *space.shape))
    codec = ActionCodec(space)
    encoded = codec.encode(actions)
    assert encoded.shape == (*lead, codec.dim)
    assert (np.abs(encoded) <= 1).all()
    assert codec.decode(encoded).shape == actions.shape
    np.testing.assert_allclose(codec.decode(encoded), actions, atol=1e-5)
    assert codec.zeros(*lead).tolist() == np.zeros((*lead, codec.dim)).tolist()


@given(data=st.data(), nvec=st.lists(st.integers(1, 9), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_multi_discrete_round_trips(data, nvec):
    start = [data.draw(st.integers(-50, 50)) for _ in nvec]
    action = np.array([data.draw(st.integers(s, s + n - 1)) for s, n in zip(start, nvec, strict=True)])
    codec = ActionCodec(spaces.MultiDiscrete(nvec, start=start))
    encoded = codec.encode(action)
    assert encoded.sum() == len(nvec)
    assert codec.decode(encoded).tolist() == action.tolist()


@pytest.mark.parametrize(
    ("space", "bad"),
    [
        (spaces.Discrete(4), np.array([4])),
        (spaces.Discrete(4), np.array([0, -1])),
        (spaces.Discrete(4), np.array([1.5])),
        (spaces.Discrete(4, start=2), np.array([0])),
        (spaces.MultiDiscrete([2, 3]), np.array([2, 0])),
        (spaces.MultiDiscrete([2, 3], start=[1, 1]), np.array([[1, 1], [1, 4]])),
        (spaces.MultiBinary(2), np.array([2, 0])),
    ],
)
def test_discrete_action_outside_the_space_is_a_data_error(space, bad):
    with pytest.raises(DataError, match="outside"):
        ActionCodec(space).encode(bad)


@pytest.mark.parametrize(
    "space", [spaces.MultiBinary(2), spaces.MultiDiscrete([2, 2]), spaces.Box(-1, 1, (2,))], ids=str
)
def test_action_of_another_width_is_refused(space):
    with pytest.raises((DataError, ValueError)):
        ActionCodec(space).encode(np.zeros((5, 3), np.int64))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-INF, INF, (2,)),
        spaces.Box(-INF, 1, (2,)),
        spaces.Box(np.array([0, 0], np.float32), np.array([1, INF], np.float32)),
    ],
    ids=str,
)
def test_a_box_without_bounds_keeps_its_units_and_says_so(space):
    codec = ActionCodec(space)
    with pytest.raises(EnvError, match="no bounds"):
        codec.check_bounded()
    has_both = np.isfinite(space.low) & np.isfinite(space.high)
    actions = np.where(has_both, 0.25, -3.0).astype(np.float32)
    encoded = codec.encode(actions)
    np.testing.assert_allclose(encoded[~has_both], -3.0)
    np.testing.assert_allclose(encoded[has_both], -0.5)  # of [0, 1]
    np.testing.assert_allclose(codec.executed(encoded), encoded)


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))], ids=str)
def test_action_spaces_of_other_kinds_are_refused(space):
    with pytest.raises(EnvError, match="not supported; supported are Discrete"):
        ActionCodec(space)


# ----------------------------------------------------------------------------------------- inference
def test_floats_imply_a_box_of_one():
    assert infer_action_space(np.array([[0.5, -1.0]], np.float64)) == spaces.Box(-1.0, 1.0, (2,), np.float32)


def test_a_vector_of_integers_implies_discrete():
    assert infer_action_space(np.array([0, 3, 2])) == spaces.Discrete(4)
    assert infer_action_space(np.array([0, 255], np.uint8)) == spaces.Discrete(256)


def test_several_integers_imply_multi_discrete():
    assert infer_action_space(np.array([[0, 3], [2, 1]])) == spaces.MultiDiscrete([3, 4])
    assert infer_action_space(np.array([[0, 255], [2, 1]], np.uint8)) == spaces.MultiDiscrete([3, 256])
    with pytest.raises(DataError, match=r"integer actions reach \[-1, 3\], but they have to be 0 to"):
        infer_action_space(np.array([[0, 3], [-1, 1]]))
    with pytest.raises(
        DataError, match=r"int64 actions of shape \(1,\) cannot be inferred: store one integer per step"
    ):
        infer_action_space(np.array([[0], [2]]))


def test_floats_beyond_one_imply_a_box_without_bounds():
    assert infer_action_space(np.array([[0.5], [-1.5]])) == spaces.Box(-INF, INF, (1,), np.float32)


def test_negative_integers_are_refused_or_inside_the_space():
    """Discrete(3) for the actions -1, 2 would only fail later, in the first batch."""
    actions = np.array([-1, 2])
    try:
        space = infer_action_space(actions)
    except DataError:
        return
    assert all(space.contains(a) for a in actions)


@pytest.mark.parametrize("space", [spaces.Discrete(4, start=3), spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(4)])
def test_random_actions_are_uniform_over_the_legal_ones(space):
    codec, rng = ActionCodec(space), np.random.default_rng(0)
    mask = np.ones((6000, codec.dim), bool)
    mask[:, 1] = False
    actions = codec.random(rng, 6000, mask)
    assert actions.dtype == np.float32
    assert not actions[:, 1].any()
    share = actions.mean(0)
    blocks = [] if not codec.factors else np.split(np.arange(codec.dim), codec._offsets[1:])
    for block in blocks:
        legal = [i for i in block if i != 1]
        np.testing.assert_allclose(share[legal], 1 / len(legal), atol=0.03)
    if codec.kind == "binary":
        np.testing.assert_allclose(share[[0, 2, 3]], 0.5, atol=0.03)
    assert all(space.contains(a) for a in codec.decode(codec.random(rng, 20)))


def test_random_continuous_actions_fill_the_range():
    codec = ActionCodec(spaces.Box(-2.0, 3.0, (2,)))
    actions = codec.random(np.random.default_rng(0), 4000)
    assert actions.shape == (4000, 2)
    assert np.abs(actions).max() <= 1.0
    np.testing.assert_allclose([actions.mean(), actions.std()], [0.0, 3**-0.5], atol=0.03)
