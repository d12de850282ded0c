"""Sections of what turns a memory into actions, and of the optimiser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from seqrl.configs.section import Section
from seqrl.configs.sections.names import ActivationName
from seqrl.core.registry import DISTRIBUTIONS


class OptimizerSection(Section):
    """How the weights move."""

    learning_rate: PositiveFloat = Field(1e-4, description="AdamW step size after warm-up.")
    warmup_steps: NonNegativeInt = Field(500, description="Linear warm-up, in optimiser steps.")
    weight_decay: NonNegativeFloat = Field(
        1e-3, description="AdamW decay of weight matrices; biases and norms have none."
    )
    grad_clip: PositiveFloat | None = Field(
        1.0, description="Largest L2 norm of the gradient; null turns clipping off."
    )


class ActorSection(Section):
    """From the memory's output to the parameters of the action distribution."""

    num_layers: NonNegativeInt = Field(2, description="Hidden layers, or residual blocks.")
    d_hidden: PositiveInt = Field(256, description="Width of the hidden layers.")
    activation: ActivationName = Field("leaky_relu", description="Activation.")
    is_residual: bool = Field(False, description="Residual blocks with norms, inner width 2 d_hidden.")
    obs_keys: list[str] = Field([], description="Observation entries that the actor reads besides the memory.")


@DISTRIBUTIONS.register_section("auto")
class AutoDistributionSection(Section):
    """Chosen by the action space: categorical, bernoulli or tanh_gaussian."""

    type: Literal["auto"] = "auto"


@DISTRIBUTIONS.register_section("categorical")
class CategoricalSection(Section):
    """One categorical per factor of a Discrete or MultiDiscrete space."""

    type: Literal["categorical"] = "categorical"
    min_probability_mass: float = Field(
        0.001, ge=0.0, lt=1.0, description="Probability mass spread evenly over the legal actions of each factor."
    )


@DISTRIBUTIONS.register_section("bernoulli")
class BernoulliSection(Section):
    """Independent bits, for MultiBinary spaces."""

    type: Literal["bernoulli"] = "bernoulli"


@DISTRIBUTIONS.register_section("tanh_gaussian")
class TanhGaussianSection(Section):
    """A Gaussian squashed into [-1, 1], with a learned standard deviation per state."""

    type: Literal["tanh_gaussian"] = "tanh_gaussian"
    min_log_std: float = Field(-5.0, description="Lower end of the log standard deviation.")
    max_log_std: float = Field(2.0, description="Upper end of the log standard deviation.")
    std_activation: Literal["tanh", "clip"] = Field("tanh", description="How it is kept within its range.")

    @model_validator(mode="after")
    def _ordered(self) -> TanhGaussianSection:
        if self.min_log_std >= self.max_log_std:
            raise ValueError(f"min_log_std {self.min_log_std} must be below max_log_std {self.max_log_std}")
        return self


@DISTRIBUTIONS.register_section("deterministic")
class DeterministicSection(Section):
    """One action per state; its log-probability is that of a unit-variance Gaussian, so BC fits it by least squares."""

    type: Literal["deterministic"] = "deterministic"


@DISTRIBUTIONS.register_section("gmm")
class GaussianMixtureSection(Section):
    """A mixture of squashed Gaussians; for imitation only, as its samples carry no gradient."""

    type: Literal["gmm"] = "gmm"
    num_modes: PositiveInt = Field(5, description="Gaussians in the mixture.")


@DISTRIBUTIONS.register_section("beta")
class BetaSection(Section):
    """A Beta distribution per dimension, stretched to [-1, 1]."""

    type: Literal["beta"] = "beta"
