"""The part that all algorithms share: timestep encoder, then memory; and the builders from config sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqrl.configs import BaseConfig, Section
from seqrl.configs.sections.policy import ActorSection
from seqrl.core.errors import ConfigError
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.core.spaces import ActionCodec, ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.distributions import build_head
from seqrl.models.sequence_encoders import SequenceEncoder, State
from seqrl.models.timestep_encoders import TimestepEncoder, build_timestep_encoder


class Trunk(nn.Module):
    """What has been seen so far, as one vector per input.

    Args:
        timestep_encoder: Encodes each input alone.
        sequence_encoder: Remembers.
    """

    def __init__(self, timestep_encoder: TimestepEncoder, sequence_encoder: SequenceEncoder) -> None:
        super().__init__()
        self.timestep_encoder = timestep_encoder
        self.sequence_encoder = sequence_encoder
        self.d_output = sequence_encoder.d_output

    def forward(self, inputs: SeqInputs, state: State | None = None) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return the vectors, and the next state if one was given."""
        encoded: tuple[Tensor, State | None] = self.sequence_encoder(self.timestep_encoder(inputs), inputs.step, state)
        return encoded

    def stats(self, inputs: SeqInputs, mask: Bool[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return the sums for :meth:`update`."""
        return {f"trunk/{k}": v for k, v in self.timestep_encoder.stats(inputs, mask).items()}

    def update(self, stats: Mapping[str, Tensor]) -> None:
        """Move the statistics of the inputs."""
        self.timestep_encoder.update({k[6:]: v for k, v in stats.items() if k.startswith("trunk/")})


def build_trunk(config: BaseConfig, sequence_encoder: Section, obs: Mapping[str, ObsSpec], codec: ActionCodec) -> Trunk:
    """Return the trunk that a run file describes; the memory's window is the training window unless it has its own."""
    seen = config.observation
    section: Any = seen.timestep_encoder
    timestep_encoder = build_timestep_encoder(
        section.type,
        section.options(),
        obs,
        codec.dim if seen.use_prev_action else 0,
        int(seen.use_prev_reward),
    )
    memory: Any = sequence_encoder
    options = memory.options()
    window = options.pop("window_steps", None) or config.train.window_steps
    encoder = SEQUENCE_ENCODERS.get(memory.type)(timestep_encoder.d_output, window, **options)
    return Trunk(timestep_encoder, encoder)


def build_actor(
    d_input: int,
    actor: ActorSection,
    distribution: Section,
    obs: Mapping[str, ObsSpec],
    codec: ActionCodec,
    num_policies: int | None = None,
    d_latent: int = 0,
) -> Actor:
    """Return the policy head that the sections describe.

    Args:
        d_input: Width of the memory's output.
        actor: Its layers.
        distribution: What it gives.
        obs: What the policy sees.
        codec: Of its actions.
        num_policies: Distributions per input, one per discount or step of a chunk; None for a single one.
        d_latent: Width of a latent vector beside the memory's output.

    Raises:
        ConfigError: If ``algo.actor.obs_keys`` names an entry that the policy does not see.
    """
    section: Any = distribution
    options = actor.options()
    keys = options.pop("obs_keys")
    if missing := sorted(set(keys) - obs.keys()):
        raise ConfigError(f"algo.actor.obs_keys: {', '.join(missing)} not among the observations {', '.join(obs)}")
    head = build_head(section.type, section.options(), codec)
    return Actor(d_input + d_latent, head, obs={k: obs[k] for k in keys}, num_policies=num_policies, **options)
