"""Which codec converts the actions of a space."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.rotations import RotationBox
from seqrl.core.spaces import ActionCodec


class RotationCodec(ActionCodec):
    """Converts actions with rotations: three numbers of an environment are six of the policy.

    Args:
        space: Action space of the environment.
    """

    def __init__(self, space: RotationBox) -> None:
        super().__init__(space)
        self._rotations, self._wide = space, ActionCodec(space.for_policies())
        self.dim, self.is_bounded = self._wide.dim, self._wide.is_bounded

    def encode(self, actions: np.ndarray) -> np.ndarray:
        """Return environment actions ``(..., W)`` as float32 ``(..., dim)``.

        Raises:
            DataError: If they are of another width.
        """
        return self._wide.encode(self._rotations.widened(np.asarray(actions)))

    def decode(self, actions: np.ndarray) -> np.ndarray:
        """Return policy actions ``(..., dim)`` as environment actions ``(..., W)``, within the bounds of the space.

        Raises:
            DataError: If they are of another width.
        """
        found = self._rotations.narrowed(self._wide.decode(actions))
        return np.asarray(np.clip(found, self._rotations.low, self._rotations.high).astype(self.dtype))

    def executed(self, actions: np.ndarray) -> np.ndarray:
        """Return policy actions as they are executed and stored: clipped, and six numbers of a rotation orthonormal."""
        return self.encode(self.decode(actions))


def action_codec(space: spaces.Space[Any]) -> ActionCodec:
    """Return what converts between an environment's actions and the policy's.

    Raises:
        EnvError: If policies cannot act in the space.
    """
    return RotationCodec(space) if isinstance(space, RotationBox) else ActionCodec(space)
