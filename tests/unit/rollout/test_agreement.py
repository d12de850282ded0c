"""What an environment observes has to be what a policy reads."""

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import EnvError
from seqrl.core.spaces import obs_specs
from seqrl.rollout.agreement import check_actions, check_observations


def box(shape, dtype):
    return spaces.Dict({"image": spaces.Box(0, 1, shape, dtype)})


def test_an_environment_may_take_actions_of_higher_precision_but_not_of_other_bounds():
    acting = spaces.Box(-0.1, 0.1, (3,), np.float32)
    check_actions(spaces.Box(-0.1, 0.1, (3,), np.float64), acting, "Env-v0")
    wrong = [spaces.Box(-1.0, 1.0, (3,), np.float64), spaces.Box(0, 0, (3,), np.int64)]
    for other in [*wrong, spaces.Box(-0.1, 0.1, (3,), np.float16), spaces.Box(-0.1, 1e300, (3,), np.float64)]:
        with pytest.raises(EnvError, match="but the data or policy has Box"):
            check_actions(other, acting, "Env-v0")


def test_an_image_of_bytes_is_not_one_of_floats():
    floats = obs_specs(box((8, 8, 3), np.float32))
    check_observations(box((8, 8, 3), np.float64), floats, "Env-v0")
    check_observations(box((8,), np.uint8), obs_specs(box((8,), np.float32)), "Env-v0")
    with pytest.raises(EnvError, match=r"image is an image of uint8 \(0 to 255\), not of float32 as in training"):
        check_observations(box((8, 8, 3), np.uint8), floats, "Env-v0")
    with pytest.raises(EnvError, match=r"image has shape \(8, 8, 1\), not \(8, 8, 3\)"):
        check_observations(box((8, 8, 1), np.float32), floats, "Env-v0")
