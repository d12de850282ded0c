"""What every distribution of actions must keep, in every action space that it can represent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

import seqrl.models  # noqa: F401  (registers)
from seqrl.conformance.algorithms import AlgoCase, every_weight_learns, learns_by_heart
from seqrl.conformance.cases import ACTION_SPACES
from seqrl.conformance.check import Check, ConformanceError, expect, expect_kinds, named, seeded
from seqrl.core.registry import DISTRIBUTIONS
from seqrl.core.spaces import ActionCodec, ActionKind
from seqrl.models.distributions import ActionDistribution, DistributionHead, build_head

LEAD = (3, 5, 2)


@dataclass(frozen=True)
class DistributionCase:
    """A distribution to check.

    Attributes:
        name: Registered name.
        actions: Name of an action space in :data:`~seqrl.conformance.cases.ACTION_SPACES`.
    """

    name: str
    actions: str

    @property
    def codec(self) -> ActionCodec:
        """Of the action space."""
        return ActionCodec(ACTION_SPACES[self.actions])

    @property
    def has_rsample(self) -> bool:
        """Whether gradients are to flow through its samples."""
        return bool(DISTRIBUTIONS.get(self.name).has_rsample)

    def build(self) -> tuple[DistributionHead, ActionDistribution, Tensor]:
        """Return the head, distributions ``LEAD`` and their random parameters."""
        with seeded(0):
            head = build_head(self.name, {}, self.codec)
            parameters = torch.randn(*LEAD, head.num_parameters).requires_grad_()
        return head, head(parameters, None), parameters


def cases(name: str) -> list[DistributionCase]:
    """Return the cases of a distribution: every action space that it can represent.

    Raises:
        ConformanceError: If it names an unknown kind.
    """
    kinds = DISTRIBUTIONS.get(name).kinds
    expect_kinds("kinds", kinds, get_args(ActionKind))
    return [DistributionCase(name, space) for space, value in ACTION_SPACES.items() if ActionCodec(value).kind in kinds]


def actions_can_be_executed(case: DistributionCase) -> None:
    """Samples and modes are float32 actions that the environment takes; log-probabilities are one number each."""
    _, dist, _ = case.build()
    codec = case.codec
    for what, draw in {"": dist, "low_noise() ": dist.low_noise()}.items():
        for how, action in {"sample": draw.sample(), "mode": draw.mode()}.items():
            expected = (*LEAD, codec.dim)
            expect(action.shape == expected, f"{what}{how} has shape {tuple(action.shape)}, expected {expected}")
            expect(action.dtype == torch.float32, f"{what}{how} is {action.dtype}, expected torch.float32")
            executed = codec.decode(action.detach().numpy()).reshape(-1, *codec.shape)
            legal = all(codec.space.contains(codec.nested(a.astype(codec.dtype))) for a in executed)
            expect(legal, f"{what}{how} gives actions outside {codec.space!r}")
            for name, value in {"log_prob": draw.log_prob(action), "entropy": draw.entropy()}.items():
                expect(value.shape == LEAD, f"{what}{name} has shape {tuple(value.shape)}, expected {LEAD}")
        expect(not draw.sample().requires_grad, f"{what}sample carries a gradient; that is rsample's")
        expect(torch.equal(draw.mode(), dist.mode()), "low_noise() has another mode")


def gradients_reach_every_parameter(case: DistributionCase) -> None:
    """Those of the log-probability and of reparametrised samples do, and are finite."""
    head, dist, parameters = case.build()
    rng, codec = np.random.default_rng(0), case.codec
    values = {"log_prob": dist.log_prob(torch.from_numpy(codec.random(rng, 30)).reshape(*LEAD, -1))}
    if head.has_rsample:
        weights = torch.from_numpy(rng.normal(size=codec.dim).astype(np.float32))
        values["rsample"] = dist.rsample() * weights
    else:
        _expect_no_rsample(dist)
    for name, value in values.items():
        (gradient,) = torch.autograd.grad(value.sum(), parameters, retain_graph=True)
        expect(torch.isfinite(gradient).all(), f"the gradient of {name} is infinite or NaN")
        idle = (gradient == 0).flatten(0, -2).all(0).nonzero().flatten().tolist()
        expect(not idle, f"no gradient of {name} reaches parameter {idle}")


def _expect_no_rsample(dist: ActionDistribution) -> None:
    try:
        dist.rsample()
    except NotImplementedError:
        return
    raise ConformanceError("has_rsample is False, but rsample does not raise NotImplementedError")


def saturated_parameters_are_harmless(case: DistributionCase) -> None:
    """Far-off parameters, and zeros, give finite gradients."""
    head = build_head(case.name, {}, case.codec)
    rng = np.random.default_rng(0)
    far = torch.from_numpy(50 * rng.normal(size=(200, head.num_parameters)).astype(np.float32))
    parameters = torch.cat([far, torch.zeros(1, head.num_parameters)]).requires_grad_()
    action = torch.from_numpy(case.codec.random(rng, 201))
    (gradient,) = torch.autograd.grad(head(parameters, None).log_prob(action).sum(), parameters)
    bad = (~torch.isfinite(gradient)).any(-1)
    expect(not bad.any(), f"log_prob of {int(bad.sum())} of 201 extreme parameters has a gradient that is not finite")


def imitation_learns_through_it(case: DistributionCase) -> None:
    """Behaviour cloning learns a batch by heart with it."""
    learns_by_heart(_algo(case, "bc"))


def policy_gradient_flows_through_it(case: DistributionCase) -> None:
    """An actor that learns by the gradient of values alone moves all its weights."""
    every_weight_learns(_algo(case, "actor_critic", offline_coeff=0.0))


def _algo(case: DistributionCase, name: str, **values: Any) -> AlgoCase:
    return AlgoCase(name, "gru", case.actions, values={"distribution": {"type": case.name}, **values})


def _has_rsample(case: DistributionCase) -> bool:
    return case.has_rsample


CHECKS: dict[str, Check[DistributionCase]] = named(
    Check("gives actions that can be executed", actions_can_be_executed, cheap=True),
    Check("passes gradients to every parameter", gradients_reach_every_parameter, cheap=True),
    Check("handles extreme parameters", saturated_parameters_are_harmless, cheap=True),
    Check("lets imitation learn", imitation_learns_through_it),
    Check("lets the policy gradient through", policy_gradient_flows_through_it, fits=_has_rsample),
)
