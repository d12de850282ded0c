"""Run file of diffusion policies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.denoising import DenoisingSection
from seqrl.configs.sections.run import ImitationObservationSection


class DiffusionPolicySection(DenoisingSection):
    """A diffusion policy: a memory, a network that predicts noise in actions, an optimiser."""

    noise_steps: PositiveInt = Field(100, description="Noise levels in training.")
    sampler: Literal["ddim", "ddpm"] = Field(
        "ddim", description="ddim only removes noise; ddpm adds new noise at each level (needs many inference_steps)."
    )
    inference_steps: int = Field(
        10, ge=5, description="Noise levels when acting, each a pass of the network; at most noise_steps."
    )

    @model_validator(mode="after")
    def _levels_exist(self) -> DiffusionPolicySection:
        if self.inference_steps > self.noise_steps:
            raise ValueError(f"inference_steps {self.inference_steps} exceeds noise_steps {self.noise_steps}")
        return self


@register_config("diffusion_policy")
class DiffusionPolicyConfig(BaseConfig):
    """Run file of diffusion policies."""

    observation: ImitationObservationSection = ImitationObservationSection()
    algo: DiffusionPolicySection = DiffusionPolicySection()
