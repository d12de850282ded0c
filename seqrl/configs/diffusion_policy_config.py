"""Run file of diffusion policies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.denoising import DenoisingSection
from seqrl.configs.sections.run import ImitationObservationSection


class DiffusionPolicySection(DenoisingSection):
    """A diffusion policy: a memory, a network that predicts noise in actions, an optimiser."""

    noise_steps: PositiveInt = Field(100, description="Levels of noise in training.")
    sampler: Literal["ddim", "ddpm"] = Field(
        "ddim", description="Noise that is removed for good, or drawn anew at each level (wants inference_steps high)."
    )
    inference_steps: int = Field(
        10, ge=5, description="Levels of noise in acting, each a pass of the network; noise_steps at most."
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
