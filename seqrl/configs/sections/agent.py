"""Sections of what learns values: critics, filters, and what such algorithms share."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from seqrl.configs.section import Component, Section
from seqrl.configs.sections.algo import PolicySection
from seqrl.configs.sections.names import ActivationName
from seqrl.configs.sections.policy import OptimizerSection
from seqrl.core.registry import FILTERS

Discount = Annotated[float, Field(ge=0.0, le=0.999999)]


class CriticSection(Section):
    """The ensemble of critics."""

    network: str = Field("mlp", description="The class: mlp, or one of a plug-in, registered with CRITICS.")
    num_critics: PositiveInt = Field(4, description="Critics in the ensemble.")
    num_layers: PositiveInt = Field(2, description="Hidden layers.")
    d_hidden: PositiveInt = Field(256, description="Width of the hidden layers.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the hidden layers.")
    norm: Literal["none", "layer"] = Field("none", description="Normalisation before each activation.")
    kwargs: dict[str, Any] = Field({}, description="Further arguments of a plug-in's class.")


class TwinCriticSection(CriticSection):
    """The ensemble of critics."""

    num_critics: int = Field(2, ge=1, description="Critics in the ensemble; the smallest of them counts.")


@FILTERS.register_section("binary")
class BinaryFilterSection(Section):
    """Imitate what is better than the policy (CRR)."""

    type: Literal["binary"] = "binary"
    threshold: float = Field(0.0, description="Advantage that must be exceeded.")


@FILTERS.register_section("exponential")
class ExponentialFilterSection(Section):
    """Weigh by the exponential of the advantage (AWAC)."""

    type: Literal["exponential"] = "exponential"
    beta: PositiveFloat = Field(1.0, description="Inverse temperature.")
    clip_low: float | None = Field(-10.0, description="Smallest advantage before the exponential; null has no limit.")
    clip_high: float | None = Field(10.0, description="Largest advantage before the exponential; null has no limit.")
    max_weight: PositiveFloat | None = Field(
        None, description="Largest weight after the exponential; null has no limit."
    )

    @model_validator(mode="after")
    def _ordered(self) -> ExponentialFilterSection:
        if self.clip_low is not None and self.clip_high is not None and self.clip_low >= self.clip_high:
            raise ValueError(f"clip_low {self.clip_low} must be below clip_high {self.clip_high}")
        return self


@FILTERS.register_section("ramp")
class RampFilterSection(Section):
    """A leaky ramp of the advantage, plus the binary filter."""

    type: Literal["ramp"] = "ramp"
    beta: PositiveFloat = Field(2.0, description="Width of the ramp.")
    tau: float = Field(0.01, description="Advantage at which it begins.")
    slope: NonNegativeFloat = Field(0.05, description="Slope below tau.")
    floor: NonNegativeFloat = Field(0.01, description="Weight of a transition without advantage.")
    add_binary: bool = Field(True, description="Add 1 where the advantage is positive.")


@FILTERS.register_section("none")
class NoFilterSection(Section):
    """Imitate everything: plain behaviour cloning, without a critic unless the online loss needs it."""

    type: Literal["none"] = "none"


class EntropySection(Section):
    """The entropy bonus: what it is worth to a policy to stay random (Haarnoja et al., 2018, arXiv 1812.05905)."""

    alpha: Literal["auto"] | PositiveFloat = Field(
        "auto",
        description="Value of one nat of entropy, in the unit of values with use_popart, else in multiplied rewards; "
        "auto learns it, one for each discount.",
    )
    target: float | None = Field(
        None,
        description="Entropy, in nats, towards which auto leads each policy; null takes minus the width of continuous "
        "actions, and a tenth of the entropy of random legal ones for others.",
    )
    backup: bool = Field(True, description="Add the entropy bonus to the critics' targets too, as SAC does.")

    @model_validator(mode="after")
    def _target_is_for_auto(self) -> EntropySection:
        if self.target is not None and self.alpha != "auto":
            raise ValueError(f"target {self.target} is for alpha 'auto'; alpha is {self.alpha}")
        return self


class BoltzmannSection(Section):
    """Training episodes in which values choose the actions, where the action is a single discrete one."""

    share: float = Field(
        0.2,
        gt=0.0,
        le=1.0,
        description="Share of the training episodes whose actions are drawn from softmax(Q / temperature).",
    )
    temperature: PositiveFloat = Field(
        0.1, description="Temperature, in standard deviations of targets with use_popart, else in multiplied rewards."
    )


class ValueOptions(Section):
    """What values of actions are, and how they are learned."""

    critic: CriticSection = CriticSection()
    gamma: Discount = Field(0.99, description="Discount of the policy that acts.")
    extra_gammas: list[Discount] = Field([], description="Further discounts, learned beside it; [] learns only one.")
    n_step: PositiveInt = Field(1, description="Transitions before bootstrapping, for gamma; extra_gammas use one.")
    time_limits: Literal["bootstrap", "end"] = Field(
        "bootstrap",
        description="What values assume after a time limit: the episode goes on (bootstrap), or ends (end).",
    )
    reward_multiplier: PositiveFloat = Field(1.0, description="Scales rewards in the losses only.")
    tau: float = Field(0.005, gt=0.0, le=1.0, description="Step of the target networks towards the online ones.")
    use_popart: bool = Field(False, description="Normalise values by the moving statistics of their targets.")
    popart_rate: float = Field(
        5e-4, gt=0.0, le=1.0, description="Update rate of these statistics; the first updates are larger."
    )

    @model_validator(mode="after")
    def _discounts_differ(self) -> Self:
        if len({self.gamma, *self.extra_gammas}) <= len(self.extra_gammas):
            raise ValueError(f"gamma {self.gamma} and extra_gammas {self.extra_gammas} name a discount twice")
        return self


class ValueSection(ValueOptions, PolicySection):
    """What all algorithms that learn action values share."""


class OfflineOptimizerSection(OptimizerSection):
    """The optimiser of algorithms that learn values from fixed data."""

    learning_rate: PositiveFloat = Field(3e-4, description="Step size after warm-up.")
    clip: Literal["global", "per_group"] = Field(
        "per_group", description="Clip the gradient of all networks together, or that of each network alone."
    )


class SoftSection(ValueSection):
    """What algorithms whose policy maximises its own critics share."""

    num_actions_for_value_in_critic_loss: PositiveInt = Field(1, description="Sampled actions per target value.")
    num_actions_for_value_in_actor_loss: PositiveInt = Field(1, description="Sampled actions per own value.")
    use_target_actor: bool = Field(True, description="Take the target's actions from a target (slowly updated) actor.")
    entropy: EntropySection | None = Field(
        None, description="Add the policy's entropy to targets and to the policy-gradient loss (SAC); null adds none."
    )
    online_value: Literal["min", "mean"] = Field(
        "min", description="How the ensemble judges the policy's own actions in the policy-gradient loss."
    )


class AgentSection(SoftSection):
    """What both agents share."""

    gamma: Discount = Field(0.999, description="Discount of the policy that acts.")
    extra_gammas: list[Discount] = Field(
        [0.1, 0.9, 0.95, 0.97, 0.99, 0.995], description="Further discounts, learned beside it; [] learns only one."
    )
    reward_multiplier: PositiveFloat = Field(10.0, description="Scales rewards in the losses only.")
    tau: float = Field(0.003, gt=0.0, le=1.0, description="Step of the target networks towards the online ones.")
    use_popart: bool = Field(True, description="Normalise values by the moving statistics of their targets.")
    filter: Annotated[Section, Component(FILTERS)] = Field(
        BinaryFilterSection(), description="Weight of each transition in the offline actor loss, by its advantage."
    )
    online_coeff: NonNegativeFloat = Field(1.0, description="Weight of the actor's policy-gradient loss.")
    offline_coeff: NonNegativeFloat = Field(0.1, description="Weight of the actor's filtered imitation loss.")
    num_critics_td: PositiveInt = Field(2, description="Distinct critics, drawn anew everywhere, that make a target.")
    critic_loss_weight: PositiveFloat = Field(10.0, description="Weight of the critic loss.")
    boltzmann: BoltzmannSection | None = Field(
        None, description="Act by the values in some training episodes; null acts by the policy in all."
    )
    novelty: NonNegativeFloat = Field(
        0.0,
        description="Random actions per train.window_steps steps of training, on average, taken where observations are "
        "unusual; for one discrete action and vectors.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> AgentSection:
        if self.num_critics_td > self.critic.num_critics:
            raise ValueError(
                f"num_critics_td {self.num_critics_td} exceeds critic.num_critics {self.critic.num_critics}"
            )
        if self.online_coeff == 0 and self.offline_coeff == 0:
            raise ValueError("online_coeff and offline_coeff are both 0, so the actor would learn nothing")
        if self.online_coeff == 0 and self.entropy is not None:
            raise ValueError("entropy is for the policy-gradient loss, but online_coeff is 0")
        return self
