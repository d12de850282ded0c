"""Sections of what turns a memory into actions, and of the optimiser."""

from __future__ import annotations

import itertools
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from seqrl.configs.section import Section
from seqrl.configs.sections.names import ActivationName
from seqrl.core.registry import DISTRIBUTIONS


class OptimizerSection(Section):
    """The optimiser: step sizes, their schedule, and gradient clipping."""

    method: Literal["adamw", "adam"] = Field(
        "adamw", description="adam adds weight_decay times the weights to the gradient; adamw keeps the two apart."
    )
    learning_rate: PositiveFloat = Field(1e-4, description="Step size after warm-up.")
    warmup_steps: NonNegativeInt = Field(500, description="Linear warm-up, in optimiser steps.")
    schedule: Literal["constant", "linear", "cosine", "multistep"] = Field(
        "constant", description="Schedule of the learning rate after warm-up."
    )
    decay_steps: PositiveInt | None = Field(
        None,
        description="Steps after warm-up in which linear and cosine reach final_factor; null takes all that "
        "train.num_epochs leaves, so a run that is resumed for longer has another schedule.",
    )
    final_factor: float = Field(
        0.0, ge=0.0, le=1.0, description="Share of the learning rate that is left at the end of linear and cosine."
    )
    milestones: list[PositiveInt] = Field(
        [], description="Optimiser steps, rising, at which multistep multiplies the learning rate by milestone_factor."
    )
    milestone_factor: float = Field(0.1, gt=0.0, le=1.0, description="What multistep multiplies by at each milestone.")
    weight_decay: NonNegativeFloat = Field(1e-3, description="Decay of weight matrices; biases and norms have none.")
    grad_clip: PositiveFloat | None = Field(
        1.0, description="Largest L2 norm of the gradient; null turns clipping off."
    )
    clip: Literal["global", "per_group"] = Field(
        "global", description="Clip the gradient of all networks together, or that of each network alone."
    )
    spike_clip: PositiveFloat | None = Field(
        3.0,
        description="Largest norm of one parameter's gradient, in multiples of its root mean square so far; null turns "
        "it off, and rare large gradients may erase what was learned.",
    )
    rates: dict[str, PositiveFloat] = Field(
        {}, description="Network (trunk, actor, critic, ...) -> factor of its learning rate; those not named have 1."
    )

    @model_validator(mode="after")
    def _fits_the_schedule(self) -> OptimizerSection:
        if (self.schedule == "multistep") != bool(self.milestones):
            raise ValueError(
                f"schedule {self.schedule!r} and milestones {self.milestones} do not fit: multistep needs milestones, "
                "the others take none"
            )
        if any(b <= a for a, b in itertools.pairwise(self.milestones)):
            raise ValueError(f"milestones must rise, got {self.milestones}")
        if self.decay_steps is not None and self.schedule not in ("linear", "cosine"):
            raise ValueError(f"decay_steps is for schedule 'linear' or 'cosine', not {self.schedule!r}")
        return self


class ActorSection(Section):
    """From the memory's output to the parameters of the action distribution."""

    network: str = Field("mlp", description="The class: mlp, or one of a plug-in, registered with ACTORS.")
    num_layers: NonNegativeInt = Field(2, description="Hidden layers, or residual blocks.")
    d_hidden: PositiveInt = Field(256, description="Width of the hidden layers.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the hidden layers.")
    is_residual: bool = Field(False, description="Residual blocks with norms, inner width 2 d_hidden.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Share of hidden features dropped in training.")
    obs_keys: list[str] = Field([], description="Observation entries that the actor reads besides the memory.")
    kwargs: dict[str, Any] = Field({}, description="Further arguments of a plug-in's class.")


@DISTRIBUTIONS.register_section("auto")
class AutoDistributionSection(Section):
    """Chosen by the action space: categorical, bernoulli, tanh_gaussian or hybrid."""

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


@DISTRIBUTIONS.register_section("hybrid")
class HybridSection(Section):
    """Values and choices, independent given the state, for Dict and Tuple spaces that have both."""

    type: Literal["hybrid"] = "hybrid"
    values: Literal["tanh_gaussian", "gaussian", "beta"] = Field(
        "tanh_gaussian", description="Distribution of the values, at its defaults."
    )
    min_probability_mass: float = Field(
        0.001, ge=0.0, lt=1.0, description="Probability mass spread evenly over the legal actions of each factor."
    )


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


@DISTRIBUTIONS.register_section("gaussian")
class GaussianSection(Section):
    """Independent Gaussians, not squashed; samples are clipped to [-1, 1] when they are executed."""

    type: Literal["gaussian"] = "gaussian"
    is_bounded: bool = Field(
        True, description="Keep the mean in [-1, 1] by a tanh; false leaves it unbounded, for normalised actions."
    )
    fixed_std: PositiveFloat | None = Field(None, description="Standard deviation everywhere; null learns it.")
    std: Literal["per_state", "shared"] = Field(
        "per_state", description="Learn the standard deviation of each state, or one for all of them."
    )
    init_std: PositiveFloat = Field(
        0.5, description="Learned standard deviation where the network outputs 0, as it nearly does at first."
    )
    min_std: PositiveFloat = Field(0.01, description="Smallest learned standard deviation; std_activation adds to it.")
    std_activation: Literal["softplus", "exp"] = Field(
        "softplus", description="What makes a learned standard deviation positive."
    )
    low_noise_eval: bool = Field(
        True, description="Where imitation acts by sampling, the standard deviation is 1e-4 instead."
    )

    @model_validator(mode="after")
    def _ordered(self) -> GaussianSection:
        if self.init_std <= self.min_std:
            raise ValueError(f"init_std {self.init_std} must exceed min_std {self.min_std}")
        return self


@DISTRIBUTIONS.register_section("deterministic")
class DeterministicSection(Section):
    """One action per state. Its log-probability is minus an error, so imitation minimises that error.

    The error is ``l2_weight * |a - b|^2 / 2 + l1_weight * |a - b|_1 + cosine_weight * (1 - cos(a, b))`` of the action a
    of the policy and the demonstrated b, summed over the action's dimensions.
    """

    type: Literal["deterministic"] = "deterministic"
    is_bounded: bool = Field(
        True, description="Keep the action in [-1, 1] by a tanh; false leaves it unbounded, for normalised actions."
    )
    l2_weight: NonNegativeFloat = Field(1.0, description="Weight of half the squared error, summed over dimensions.")
    l1_weight: NonNegativeFloat = Field(0.0, description="Weight of the absolute error, summed over dimensions.")
    cosine_weight: NonNegativeFloat = Field(
        0.0, description="Weight of 1 minus the cosine of the angle between the two action vectors."
    )

    @model_validator(mode="after")
    def _counts_something(self) -> DeterministicSection:
        if self.l2_weight == self.l1_weight == self.cosine_weight == 0.0:
            raise ValueError("l2_weight, l1_weight and cosine_weight are all 0; at least one must be > 0")
        return self


@DISTRIBUTIONS.register_section("gmm")
class GaussianMixtureSection(Section):
    """A mixture of Gaussians over the whole action; for imitation only, as its samples carry no gradient."""

    type: Literal["gmm"] = "gmm"
    num_modes: PositiveInt = Field(5, description="Gaussians in the mixture.")
    min_std: PositiveFloat = Field(
        0.05,
        description="Smallest standard deviation; std_activation adds to it. Too small, and steps at which all "
        "demonstrators do the same drown out the others.",
    )
    std_activation: Literal["softplus", "exp"] = Field(
        "softplus", description="What makes standard deviations positive."
    )
    is_bounded: bool = Field(
        True, description="Keep the means in [-1, 1] by a tanh; false leaves them unbounded, for normalised actions."
    )
    low_noise_eval: bool = Field(
        True, description="Where imitation acts by sampling, every standard deviation is 1e-4 instead."
    )


@DISTRIBUTIONS.register_section("beta")
class BetaSection(Section):
    """A Beta distribution per dimension, stretched to [-1, 1]."""

    type: Literal["beta"] = "beta"
