"""CQL (Kumar et al., 2020, arXiv 2006.04779) and Cal-QL (Nakamoto et al., 2023, arXiv 2303.05479), on any memory."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.objectives import masked_mean
from seqrl.algo.soft_agent import SoftAgent
from seqrl.algo.value_agent import Pass, Terms
from seqrl.configs.cql_config import CQLSection
from seqrl.core.errors import ConfigError
from seqrl.models.temperature import Temperature

MAX_WEIGHT = 1e6


@register_algo_factory_func("cql")
def cql_factory(algo_config: CQLSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of conservative Q-learning."""
    return CQL, {}


class CQL(SoftAgent[CQLSection]):
    r"""A soft actor-critic whose critics hold actions for worse than the data's unless it shows otherwise.

    To the squared error comes :math:`\alpha (\log \sum_a \exp Q(h, a) - Q(h, a_t))`: a soft maximum over all actions,
    pushed down, against the data's, pulled up. Where actions are continuous the sum is an importance-weighted one over
    uniform and the policy's own actions, without the constant log of their number, as the authors' code has it.
    """

    action_kinds = frozenset({"continuous", "discrete"})
    fitted = ("loss/conservative",)

    def _create_networks(self) -> None:
        super()._create_networks()
        self.looks_ahead = self.looks_ahead or not self.sums_over_actions
        section = self.algo_config
        is_learned = section.target_gap is not None
        self.push = Temperature(
            len(self.discounts),
            alpha=None if is_learned else section.conservative_weight,
            target=-(section.target_gap or 0.0),
            initial=section.conservative_weight,
        )
        self.nets["push"] = self.push
        if section.calibrate:
            if self.sums_over_actions:
                raise ConfigError("algo.calibrate is for continuous actions: the sum over discrete ones has no samples")
            self.needs = self.needs | {"mc_bound"}

    def critic_terms(self, p: Pass, targets: Float[Tensor, "B T G"]) -> Terms:
        """Return the squared error of Q, the push on other actions, and what moves a learned weight of it."""
        gap_BTG = (self._soft_maximum(p) - self.values_of(p.raw)).mean(-1)
        weight_G = self.push.alpha.clamp(max=MAX_WEIGHT)
        losses = {"critic": (1.0, self.critic_error(p.raw, targets))}
        losses["conservative"] = (1.0, (weight_G * gap_BTG).mean(-1))
        if self.push.is_learned:
            losses["push"] = (1.0, masked_mean(self.push.loss(-gap_BTG), p.batch.mask))
        metrics = {"conservative/gap": masked_mean(gap_BTG.detach().mean(-1), p.batch.mask)}
        return Terms(losses, {**metrics, "conservative/weight": weight_G.mean()})

    def _soft_maximum(self, p: Pass) -> Float[Tensor, "B T G C"]:
        """Return the logarithm of the sum of exp Q over the legal actions of every input that has an action."""
        num_t = p.batch.num_transitions
        if not self.sums_over_actions:
            q_KBTGC, log_density_KBTG = self._judged_samples(p)
            return (q_KBTGC - log_density_KBTG.unsqueeze(-1)).logsumexp(0)
        q_BTAGC = self.values_of(p.share.transpose(2, 3).unsqueeze(-1))
        legal = p.batch.inputs.action_mask
        if legal is not None:
            q_BTAGC = q_BTAGC.masked_fill(~legal[:, :num_t, :, None, None], -torch.inf)
        return q_BTAGC.logsumexp(2)

    def _judged_samples(self, p: Pass) -> tuple[Float[Tensor, "K B T G C"], Float[Tensor, "K B T G"]]:
        """Return values of uniform actions and of the policies' of this and of the next input, with log-densities."""
        num, shape = self.algo_config.num_samples, (*p.batch.actions.shape[:2], len(self.discounts))
        uniform = 2.0 * torch.rand(num, *shape, self.codec.dim, device=self.device) - 1.0
        actions, log_densities = [uniform], [uniform.new_full((num, *shape), -self.codec.dim * math.log(2.0))]
        with torch.no_grad():
            for parameters in (p.parameters[:, :-1], p.parameters[:, 1:]):
                policy = self.actor.distribution(parameters.expand(num, *parameters.shape), None)
                drawn, log_density = policy.sample_with_log_prob()
                actions.append(drawn.clamp(-1.0, 1.0))
                log_densities.append(log_density)
        q_KBTGC = self.values_of(self.critic(p.share, torch.cat(actions)))
        if self.algo_config.calibrate:
            floor_BT11 = self.multiplier * p.batch.extras["mc_bound"][:, : shape[1], None, None]
            q_KBTGC = torch.cat([q_KBTGC[:num], q_KBTGC[num:].maximum(floor_BT11)])
        return q_KBTGC, torch.cat(log_densities)
