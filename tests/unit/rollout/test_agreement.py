"""What an environment observes has to be what a policy reads."""

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import EnvError
from seqrl.core.spaces import obs_specs
from seqrl.rollout.agreement import check_observations


def box(shape, dtype):
    return spaces.Dict({"image": spaces.Box(0, 1, shape, dtype)})


def test_an_image_of_bytes_is_not_one_of_floats():
    floats = obs_specs(box((8, 8, 3), np.float32))
    check_observations(box((8, 8, 3), np.float64), floats, "Env-v0")
    check_observations(box((8,), np.uint8), obs_specs(box((8,), np.float32)), "Env-v0")
    with pytest.raises(EnvError, match=r"image is an image of uint8 \(0 to 255\), not of float32 as in training"):
        check_observations(box((8, 8, 3), np.uint8), floats, "Env-v0")
    with pytest.raises(EnvError, match=r"image has shape \(8, 8, 1\), not \(8, 8, 3\)"):
        check_observations(box((8, 8, 1), np.float32), floats, "Env-v0")
