"""A modality of one's own: an array of tactile pads, read pad by pad, and a task to feel it work.

seqrl train --config cartpole.json --plugin examples/touch_modality_plugin.py --set env.id=examples/WhichPad-v0 \
    --set observation.timestep_encoder.type=multimodal \
    --set observation.timestep_encoder.modalities.touch.type=touch
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from seqrl.core.registry import MODALITIES
from seqrl.core.spaces import ObsSpec
from seqrl.models.mlp import make_mlp
from seqrl.models.timestep_encoders import Modality


@MODALITIES.register("touch")
class TouchModality(Modality):
    """Pressures (pads, rows, columns), at least 0: their logarithm, one network for each pad, the pads in order."""

    def __init__(self, name: str, spec: ObsSpec, *, d_pad: int = 16, d_output: int = 32) -> None:
        super().__init__(name, spec)
        if len(spec.shape) != 3:
            raise self.problem("type", "is not an array of touch, which has the shape (pads, rows, columns)")
        pads, rows, columns = spec.shape
        self.d_output = d_output
        self.pad = make_mlp(rows * columns, 32, 1, d_pad, "leaky_relu")
        self.join = nn.Linear(pads * d_pad, d_output)

    def forward(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        pressure = x.float().clamp(min=0.0).log1p().flatten(-2)
        y: Tensor = self.join(self.pad(pressure).flatten(-2))
        return y


class WhichPad(gym.Env[Any, Any]):
    """Something presses on one of three pads; name it. Eight times, a reward of 1 each."""

    def __init__(self, render_mode: str | None = None) -> None:
        touch = gym.spaces.Box(0.0, np.inf, (3, 4, 4), np.float32)
        self.observation_space = gym.spaces.Dict({"touch": touch, "grip": gym.spaces.Box(0.0, 1.0, (1,), np.float32)})
        self.action_space = gym.spaces.Discrete(3)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin anew."""
        super().reset(seed=seed)
        self.time = 0
        return self._press(), {}

    def step(self, action: np.int64) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Judge the answer, and press again."""
        reward = float(action == self.pressed)
        self.time += 1
        return self._press(), reward, self.time == 8, False, {}

    def _press(self) -> dict[str, np.ndarray]:
        self.pressed = int(self.np_random.integers(3))
        touch = self.np_random.exponential(0.1, (3, 4, 4))
        touch[self.pressed, self.np_random.integers(4), self.np_random.integers(4)] += 5.0
        return {"touch": touch.astype(np.float32), "grip": self.np_random.random(1).astype(np.float32)}


gym.register("examples/WhichPad-v0", entry_point=lambda **kwargs: WhichPad(**kwargs))
