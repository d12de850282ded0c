"""Fitted Q evaluation (Le et al., 2019, arXiv 1903.08738): what a policy would earn, from data of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo
from seqrl.algo.heads import build_critics, critic_class
from seqrl.algo.losses import Losses
from seqrl.algo.objectives import masked_mean, n_step_targets
from seqrl.algo.targets import follow, frozen_copy
from seqrl.algo.trunk import build_trunk
from seqrl.configs.fqe_config import FQESection
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.critics import Critics, StateCritics

PROPOSED = "policy_actions"
"""Name of the extra ``(B, L, K, A)``: what the policy would do at every input, given what came before."""


class FQE(Algo[FQESection]):
    r"""Q of a policy that is never changed, whose actions come with the data.

    .. math:: y_t = r_t + \gamma (1 - d_t) \frac{1}{K} \sum_j \bar Q(h_{t+1}, a_j)

    Its memory is its own; the policy's actions were computed with the policy's. It judges, and acts nowhere.
    """

    fitted = ("loss/critic",)
    needs = frozenset({"next_obs"})

    def _create_networks(self) -> None:
        section = self.algo_config
        self.discounts = torch.tensor([section.gamma], device=self.device)
        self.trunk = build_trunk(self.config, section.sequence_encoder, self.obs, self.codec)
        given = (self.trunk.d_output, section.critic, self.codec, self.discounts)
        self.critic = build_critics(critic_class(section.critic, self.codec), *given)
        self.target_critic = frozen_copy(self.critic)
        self.nets.update({"trunk": self.trunk, "critic": self.critic, "target_critic": self.target_critic})

    def _may_be_unbounded(self) -> bool:
        return True  # it judges whatever the policy gives

    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the squared error of Q."""
        state, _ = self.trunk(batch.inputs, before=batch.before)
        q_BTC = self._q(self.critic, state[:, :-1], batch.actions[:, :, None])
        with torch.no_grad():
            after = (state[:, 1:], self.inputs.scaled_actions(batch.extras[PROPOSED][:, 1:]))
            value_BT1 = self._q(self.target_critic, *after).mean(-1, keepdim=True)
            given = (batch.rewards * self.algo_config.reward_multiplier, batch.terminated, batch.mask)
            target_BT1 = n_step_targets(*given, value_BT1, self.discounts, 1)
        loss = masked_mean((q_BTC - target_BT1).square().mean(-1), batch.mask)
        return Losses(loss, {"loss/critic": loss.detach()}, self.trunk.stats(batch.inputs, batch.input_mask))

    def _q(
        self, critic: Critics, state: Float[Tensor, "B N D"], actions: Float[Tensor, "B N K A"]
    ) -> Float[Tensor, "B N C"]:
        """Return the mean value of K actions, scaled as rewards are."""
        start = self.algo_config.value_offset * self.algo_config.reward_multiplier
        share = critic.share(state)
        if isinstance(critic, StateCritics):
            return start + torch.einsum("bnac,bna->bnc", share[:, :, 0], actions.mean(2))
        values: Tensor = critic(share, actions.movedim(2, 0).unsqueeze(-2))[..., 0, :, 0]
        return start + values.mean(0)

    @torch.no_grad()
    def values(self, inputs: SeqInputs, actions: Float[Tensor, "B L K A"]) -> Float[Tensor, "B L"]:
        """Return the policy's value at every input, in the data's reward units, from what it would do there."""
        state, _ = self.trunk(inputs)
        scaled = self.inputs.scaled_actions(actions)
        return self._q(self.critic, state, scaled).mean(-1) / self.algo_config.reward_multiplier

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move input statistics and target critics."""
        self.trunk.update(stats)
        super().on_gradient_step(stats)
        follow(self.target_critic, self.critic, self.algo_config.tau)

    def act(self, *args: object) -> NoReturn:
        """Refuse.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("fitted Q evaluation judges a policy, and has none of its own")

    def init_state(self, num_rows: int) -> NoReturn:
        """Refuse, as :meth:`act` does."""
        self.act()

    def reset_rows(self, state: object, rows: object) -> NoReturn:
        """Refuse, as :meth:`act` does."""
        self.act()
