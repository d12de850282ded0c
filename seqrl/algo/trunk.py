"""The part that all algorithms share: timestep encoder, then memory; and the builders from config sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import dropout

from seqrl.configs import BaseConfig, Section
from seqrl.core.spaces import GOAL_PREFIX, ActionCodec, ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.sequence_encoders import SequenceEncoder, State, make_sequence_encoder
from seqrl.models.timestep_encoders import TimestepEncoder, build_timestep_encoder


class Trunk(nn.Module):
    """What has been seen so far, as one vector per input.

    Args:
        timestep_encoder: Encodes each input alone.
        sequence_encoder: Remembers.
        prev_dropout: Share of windows in which the previous action and reward are 0 throughout, in training.
        memory_dropout: Share of the memory's outputs that are 0, in training.
    """

    def __init__(
        self,
        timestep_encoder: TimestepEncoder,
        sequence_encoder: SequenceEncoder,
        prev_dropout: float = 0.0,
        memory_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.timestep_encoder = timestep_encoder
        self.sequence_encoder = sequence_encoder
        self.d_output = sequence_encoder.d_output
        self.prev_dropout = prev_dropout
        self.memory_dropout = memory_dropout

    def forward(self, inputs: SeqInputs, state: State | None = None) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return the vectors, and the next state if one was given."""
        seen = self.timestep_encoder(self._with_prev_hidden(inputs))
        encoded, state = self.sequence_encoder(seen, inputs.step, state)
        return dropout(encoded, self.memory_dropout, self.training), state

    def _with_prev_hidden(self, inputs: SeqInputs) -> SeqInputs:
        if not (self.training and self.prev_dropout):
            return inputs
        hidden = torch.rand(len(inputs.step), 1, device=inputs.step.device) < self.prev_dropout
        return replace(
            inputs,
            prev_action=inputs.prev_action.masked_fill(hidden.unsqueeze(-1), 0.0),
            prev_reward=inputs.prev_reward.masked_fill(hidden, 0.0),
        )

    def stats(self, inputs: SeqInputs, mask: Bool[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return the sums for :meth:`update`."""
        return {f"trunk/{k}": v for k, v in self.timestep_encoder.stats(inputs, mask).items()}

    def update(self, stats: Mapping[str, Tensor]) -> None:
        """Move the statistics of the inputs."""
        self.timestep_encoder.update({k[6:]: v for k, v in stats.items() if k.startswith("trunk/")})


def build_trunk(
    config: BaseConfig,
    sequence_encoder: Section,
    obs: Mapping[str, ObsSpec],
    codec: ActionCodec,
    own: Mapping[str, ObsSpec] | None = None,
) -> Trunk:
    """Return the trunk that a run file describes; the memory's window is the training window unless it has its own.

    Args:
        config: Of the run.
        sequence_encoder: Of the memory.
        obs: Name -> spec of what the policy observes.
        codec: Of the actions.
        own: The algorithm's further entries. ``timestep_encoder.obs_keys`` hides neither them nor goals.
    """
    seen, own = config.observation, own or {}
    kind, given = seen.timestep_encoder.choice()
    if given.get("obs_keys") is not None:
        goals = {GOAL_PREFIX + key for key in seen.goal_keys}
        given["obs_keys"] = sorted({*given["obs_keys"], *own, *goals & obs.keys()})
    d_action = codec.dim if seen.use_prev_action else 0
    timestep_encoder = build_timestep_encoder(kind, given, {**obs, **own}, d_action, int(seen.use_prev_reward))
    name, options = sequence_encoder.choice()
    window = options.pop("window_steps", None) or config.train.window_steps
    encoder = make_sequence_encoder(name, timestep_encoder.d_output, window, options)
    return Trunk(timestep_encoder, encoder, seen.prev_dropout, config.algo.memory_dropout)
