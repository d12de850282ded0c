"""The part that all algorithms share: timestep encoder, then memory; and the builders from config sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

from seqrl.configs import BaseConfig, Section
from seqrl.core.errors import ConfigError
from seqrl.core.spaces import GOAL_PREFIX, ActionCodec, ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.image_randomizers import ImageRandomizer
from seqrl.models.sequence_encoders import SequenceEncoder, State, make_sequence_encoder
from seqrl.models.timestep_encoders import TimestepEncoder, build_timestep_encoder


class Trunk(nn.Module):
    """What has been seen so far, as one vector per input.

    Args:
        timestep_encoder: Encodes each input alone.
        sequence_encoder: Remembers.
        prev_dropout: Share of windows in which the previous action and reward are 0 throughout, in training.
        memory_dropout: Share of the memory's outputs that are 0, in training.
        memory_bypass: Append the input's encoding to the memory's output, which is 0 throughout in this share of
            windows, in training; None appends nothing.
    """

    def __init__(
        self,
        timestep_encoder: TimestepEncoder,
        sequence_encoder: SequenceEncoder,
        prev_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        memory_bypass: float | None = None,
    ) -> None:
        super().__init__()
        self.timestep_encoder = timestep_encoder
        self.sequence_encoder = sequence_encoder
        self.d_output = sequence_encoder.d_output + (0 if memory_bypass is None else timestep_encoder.d_output)
        self.prev_dropout = prev_dropout
        self.memory_dropout = memory_dropout
        self.memory_bypass = memory_bypass

    def forward(
        self, inputs: SeqInputs, state: State | None = None, *, before: SeqInputs | None = None
    ) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return the vectors, and the next state if one was given.

        Args:
            inputs: Of the steps to encode.
            state: What is remembered; None is nothing.
            before: Inputs before these, which a recurrent memory reads first, where their steps lead up to these.
        """
        hidden = self._hidden_windows(inputs)
        now = _with_prev_hidden(inputs, hidden)
        if before is None or not self.sequence_encoder.is_recurrent:
            seen, start = self.timestep_encoder(now), state if before is None else None
        else:
            seen_before, seen = self._encoded(_with_prev_hidden(before, hidden), now)
            start = self._burned_in(before.step, seen_before, inputs.step[:, 0])
        encoded, after = self.sequence_encoder(seen, inputs.step, start)
        encoded = dropout(encoded, self.memory_dropout, self.training)
        if self.memory_bypass is not None:
            if self.training:
                encoded = encoded * (torch.rand(len(encoded), 1, 1, device=encoded.device) >= self.memory_bypass)
            encoded = torch.cat([encoded, seen], -1)
        return encoded, None if state is None else after

    def _encoded(self, before: SeqInputs, inputs: SeqInputs) -> tuple[Tensor, Tensor]:
        """Return both as vectors, those before without gradients; images are altered in the same way in both."""
        encoder = self.timestep_encoder
        if self.training and any(isinstance(part, ImageRandomizer) for part in encoder.modules()):
            seen = encoder(_joined(before, inputs))
            return seen[:, : before.step.shape[1]].detach(), seen[:, before.step.shape[1] :]
        seen = encoder(inputs)
        with torch.no_grad():
            return encoder(before), seen

    def _burned_in(self, step: Int[Tensor, "B N"], seen: Float[Tensor, "B N D"], first: Int[Tensor, " B"]) -> State:
        """Return the memory after these inputs; empty in rows where they do not lead up to the first step.

        In training they follow what another row's left, unless an episode begins with them: a policy acts with memories
        older than any window, and shall not depend on what they hold. The burn-in itself is that of R2D2 (Kapturowski
        et al., 2019, Recurrent experience replay in distributed reinforcement learning).
        """
        encoder, begin = self.sequence_encoder, step[:, 0]
        with torch.no_grad():
            _, state = encoder(seen, step, encoder.init_state(len(begin), device=first.device))
            if self.training:
                order = torch.rand(len(begin), device=first.device).argsort()
                left = {k: v[order] for k, v in state.items()}
                _, state = encoder(seen, step, encoder.with_empty_rows(left, begin == 0))
        return encoder.with_empty_rows(state, begin + step.shape[1] != first)

    def _hidden_windows(self, inputs: SeqInputs) -> Bool[Tensor, "B 1"] | None:
        """Return in which windows the previous action and reward are hidden."""
        if not (self.training and self.prev_dropout):
            return None
        return torch.rand(len(inputs.step), 1, device=inputs.step.device) < self.prev_dropout

    def stats(self, inputs: SeqInputs, mask: Bool[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return the sums for :meth:`update`."""
        return {f"trunk/{k}": v for k, v in self.timestep_encoder.stats(inputs, mask).items()}

    def update(self, stats: Mapping[str, Tensor]) -> None:
        """Move the statistics of the inputs.

        Raises:
            ConfigError: If the losses brought none, and the encoder needs them.
        """
        own = {k[6:]: v for k, v in stats.items() if k.startswith("trunk/")}
        try:
            self.timestep_encoder.update(own)
        except KeyError as error:
            if own:
                raise
            raise ConfigError(
                "the losses bring no statistics of the inputs, which the timestep encoder is normalised by: return "
                "Losses(..., stats=self.trunk.stats(batch.inputs, mask))"
            ) from error


def _with_prev_hidden(inputs: SeqInputs, hidden: Bool[Tensor, "B 1"] | None) -> SeqInputs:
    if hidden is None:
        return inputs
    return replace(
        inputs,
        prev_action=inputs.prev_action.masked_fill(hidden.unsqueeze(-1), 0.0),
        prev_reward=inputs.prev_reward.masked_fill(hidden, 0.0),
    )


def _joined(before: SeqInputs, inputs: SeqInputs) -> SeqInputs:
    """Return both, one after the other, without action masks."""
    pairs = {k: (getattr(before, k), getattr(inputs, k)) for k in ("prev_action", "prev_reward", "step")}
    obs, goal = (
        {k: torch.cat([then[k], now[k]], dim=1) for k in now}
        for then, now in ((before.obs, inputs.obs), (before.goal, inputs.goal))
    )
    return SeqInputs(obs=obs, goal=goal, **{k: torch.cat(pair, dim=1) for k, pair in pairs.items()})


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
    return Trunk(timestep_encoder, encoder, seen.prev_dropout, config.algo.memory_dropout, config.algo.memory_bypass)
