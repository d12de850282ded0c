"""Rotations as three and as six numbers agree with SciPy's, and spaces and codecs know where they are."""

import pickle

import numpy as np
import pytest
from gymnasium import spaces
from scipy.spatial.transform import Rotation

from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import DataError
from seqrl.core.rotations import RotationBox, axis_angle, six_numbers, with_rotations
from seqrl.core.spaces import space_from_json, space_to_json

ANGLES = (0.0, 1e-12, 1e-8, 1e-4, 0.5, 2.0, np.pi - 1e-4, np.pi - 1e-8, np.pi)
ARM = RotationBox(np.array([-2, 0, 0, -4, -4, -4, -1.0]), np.array([2, 1, 1, 4, 4, 4, 1.0]), [3])


def rotations(angle, num=500):
    axes = np.random.default_rng(0).normal(size=(num, 3))
    return axes / np.linalg.norm(axes, axis=-1, keepdims=True) * angle


@pytest.mark.parametrize("angle", ANGLES)
def test_six_numbers_are_the_first_two_rows_of_scipys_matrix(angle):
    vectors = rotations(angle)
    rows = Rotation.from_rotvec(vectors).as_matrix()[:, :2].reshape(-1, 6)
    np.testing.assert_allclose(six_numbers(vectors), rows, rtol=0, atol=1e-12)


@pytest.mark.parametrize("angle", ANGLES)
def test_there_and_back_is_the_same_rotation(angle):
    vectors = rotations(angle)
    back = axis_angle(six_numbers(vectors))
    np.testing.assert_allclose(
        Rotation.from_rotvec(back).as_matrix(), Rotation.from_rotvec(vectors).as_matrix(), atol=1e-12
    )
    if angle < np.pi:  # at pi an axis and its opposite are the same rotation
        np.testing.assert_allclose(back, vectors, rtol=0, atol=1e-12)


def test_what_a_policy_gives_becomes_the_rotation_that_gram_schmidt_makes_of_it():
    given = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    found = Rotation.from_rotvec(axis_angle(given)).as_matrix()
    first = given[:, :3] / np.linalg.norm(given[:, :3], axis=-1, keepdims=True)
    np.testing.assert_allclose(found[:, 0], first, atol=1e-6)
    np.testing.assert_allclose(np.einsum("bi,bi->b", found[:, 2], given[:, 3:]), 0, atol=1e-6)
    assert (np.einsum("bi,bi->b", found[:, 1], given[:, 3:]) > 0).all()


def test_zeros_are_no_rotation_and_what_is_not_finite_stays_so():
    np.testing.assert_array_equal(axis_angle(np.zeros((2, 6))), np.zeros((2, 3)))
    assert np.isnan(axis_angle(np.full(6, np.nan))).all()
    assert np.isfinite(axis_angle(np.array([0.0, 1, 0, 0, 2, 0]))).all()  # two vectors in one direction


def test_a_codec_widens_for_the_policy_and_narrows_for_the_environment():
    codec = action_codec(ARM)
    actions = np.array([[1.0, 0.5, 1.0, 0.0, 0.0, 3.0, -1.0], [-2.0, 0.0, 0.5, 0.1, -0.2, 0.3, 0.5]], np.float32)
    encoded = codec.encode(actions)
    assert (codec.dim, encoded.shape, encoded.dtype) == (10, (2, 10), np.float32)
    np.testing.assert_allclose(
        encoded[0], [0.5, 0, 1, np.cos(3), -np.sin(3), 0, np.sin(3), np.cos(3), 0, -1], atol=1e-6
    )
    np.testing.assert_allclose(codec.decode(encoded), actions, atol=1e-6)
    assert codec.decode(encoded).dtype == np.float32
    drawn = codec.decode(codec.random(np.random.default_rng(0), 50))
    assert all(ARM.contains(action) for action in drawn)
    assert np.abs(codec.executed(np.full((1, 10), 3.0))).max() == 1.0
    given = np.random.default_rng(0).normal(size=(50, 10)).astype(np.float32)
    executed = codec.executed(given)  # what is stored, read back
    np.testing.assert_allclose(executed, codec.encode(codec.decode(given)), atol=1e-6)
    np.testing.assert_allclose(codec.executed(executed), executed, atol=1e-5)


@pytest.mark.parametrize("width", [7, 9])
def test_another_width_is_refused(width):
    with pytest.raises(DataError, match=rf"the policy gives actions of width 10, got an array of shape \(2, {width}\)"):
        ARM.narrowed(np.zeros((2, width)))
    with pytest.raises(DataError, match="the environment takes actions of width 7"):
        action_codec(ARM).encode(np.zeros((2, 8)))


def test_two_rotations_and_actions_without_bounds():
    arms = RotationBox(np.full(14, -np.inf), np.full(14, np.inf), [10, 3])
    codec = action_codec(arms)
    assert (arms.rotations, codec.dim, codec.is_bounded) == ((3, 10), 20, False)
    actions = np.random.default_rng(0).normal(size=(4, 14)).astype(np.float32)
    np.testing.assert_allclose(codec.decode(codec.encode(actions)), actions, atol=1e-6)


def test_rotations_survive_json_and_pickles_and_make_a_difference():
    plain = spaces.Box(ARM.low, ARM.high)
    assert space_from_json(space_to_json(ARM)) == ARM == pickle.loads(pickle.dumps(ARM)) == with_rotations(plain, ARM)
    assert plain != ARM
    assert "rotations" not in space_to_json(plain)
    assert with_rotations(spaces.Box(-1, 1, (6,)), ARM) == spaces.Box(-1, 1, (6,))


@pytest.mark.parametrize("starts", [[5], [3, 4], [-1]])
def test_rotations_that_do_not_fit_are_refused(starts):
    with pytest.raises(DataError, match="not the JSON of a space"):
        space_from_json({**space_to_json(ARM), "rotations": starts})
