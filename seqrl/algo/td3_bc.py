"""TD3+BC (Fujimoto & Gu, 2021, arXiv 2106.06860) and ReBRAC (Tarasov et al., 2023, arXiv 2305.09836), on any memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.objectives import in_mean_size
from seqrl.algo.value_agent import Pass, Terms, ValueAgent
from seqrl.configs.td3_bc_config import TD3BCSection
from seqrl.core.registry import Choice
from seqrl.core.tensors import SeqBatch


@register_algo_factory_func("td3_bc")
def td3_bc_factory(algo_config: TD3BCSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of TD3+BC."""
    return TD3BC, {}


class TD3BC(ValueAgent[TD3BCSection]):
    r"""A deterministic policy that climbs its critics, held near the data's actions.

    The policy's loss is :math:`-\lambda Q(h, \mu(h)) + d`, with :math:`\lambda` so that values of any scale count
    alike. ``td3_bc`` takes the first critic and the mean squared distance d; ``rebrac`` the smallest critic and a
    weighted sum, and lowers targets by the distance of their own actions to the data's next ones.
    """

    action_kinds = frozenset({"continuous"})
    auto_distribution: ClassVar[Mapping[str, Choice]] = {"continuous": ("deterministic", {})}
    uses_target_actor = True

    def _create_networks(self) -> None:
        super()._create_networks()
        self.is_rebrac = self.algo_config.variant == "rebrac"
        if self.is_rebrac and self.algo_config.critic_beta > 0:
            self.needs = self.needs | {"next_action"}

    def train_on_batch(self, batch: SeqBatch, epoch: int = 0, validate: bool = False) -> dict[str, Tensor]:
        """Take one gradient step, of the critics alone unless it is a ``policy_delay``-th, or compute the losses.

        The delay is kept here alone: the updater's own ``step`` moves the policy each time.
        """
        self.rests = not validate and (self.updater.num_steps + 1) % self.algo_config.policy_delay != 0
        try:
            return super().train_on_batch(batch, epoch, validate)
        finally:
            self.rests = False

    def next_values(self, p: Pass) -> Float[Tensor, "B T G"]:
        """Return the smallest target critic's value of the following policy's actions, with noise."""
        section, state = self.algo_config, p.state[:, 1:].detach()
        action_BTGA = self.target_actor(state, p.batch.inputs.after_first()).mode()
        noise = (section.target_noise * torch.randn_like(action_BTGA)).clamp(
            -section.target_noise_clip, section.target_noise_clip
        )
        action_BTGA = (action_BTGA + noise).clamp(-1.0, 1.0)
        q_BTGC = self.values_of(self.target_critic(self.target_critic.share(state), action_BTGA[None])[0])
        least_BTG: Tensor = q_BTGC.amin(-1)
        if "next_action" not in self.needs:
            return least_BTG
        next_action, is_there = (p.batch.extras[name][:, 1:] for name in ("next_action", "has_next_action"))
        distance_BTG = (action_BTGA - next_action.unsqueeze(2)).square().sum(-1)
        penalty_BTG: Tensor = section.critic_beta * distance_BTG * is_there.unsqueeze(-1)
        return least_BTG - penalty_BTG

    def actor_terms(self, p: Pass) -> Terms:
        """Return minus the own actions' values, in units of their mean size, and the distance to the data's."""
        section = self.algo_config
        own_BTGA, q_BTGC = self._own(p)
        q_BTG = q_BTGC.amin(-1) if self.is_rebrac else q_BTGC[..., 0]
        climb_BT = -in_mean_size(q_BTG, p.batch.mask).mean(-1)
        squares_BTGA = (own_BTGA - p.batch.actions.unsqueeze(2)).square()
        if self.is_rebrac:
            climb, stay = (1.0, climb_BT), (section.actor_beta, squares_BTGA.sum(-1).mean(-1))
        else:
            climb, stay = (section.alpha, climb_BT), (1.0, squares_BTGA.mean((-1, -2)))
        return Terms({"actor_online": climb, "actor_offline": stay})

    def _own(self, p: Pass) -> tuple[Float[Tensor, "B T G A"], Float[Tensor, "B T G C"]]:
        """Return the policy's actions and their values; gradients reach the policy alone."""
        own_BTGA = self.policy_over_data(p).mode()
        return own_BTGA, self.values_of(self.constant_critic()(p.share.detach(), own_BTGA.clamp(-1.0, 1.0)[None])[0])

    def judged(self, p: Pass) -> dict[str, Float[Tensor, "B T G"]]:
        """Return V of the policy, and the advantage of the data's actions over it."""
        v_BTG = self._own(p)[1].mean(-1)
        return {"v": v_BTG, "advantage": self.values_of(p.raw).mean(-1) - v_BTG}
