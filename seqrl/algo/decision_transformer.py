"""Return-conditioned imitation, as the Decision Transformer does it (Chen et al., 2021), on any memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.bc import BC
from seqrl.algo.losses import Losses
from seqrl.algo.states import nest, split_state
from seqrl.configs.decision_transformer_config import DecisionTransformerSection
from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.return_target import ReturnTarget
from seqrl.models.sequence_encoders import State

RETURN_TO_GO = "return_to_go"


@register_algo_factory_func("decision_transformer")
def decision_transformer_factory(algo_config: DecisionTransformerSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of return-conditioned imitation."""
    return DecisionTransformer, {}


class DecisionTransformer(BC[DecisionTransformerSection]):
    """Imitate what was done where as much return was still to come; in acting, ask for much.

    The return to go is one more entry of each input, beside the observation, the previous action and the reward. In
    acting it begins at the target, and each reward is taken off.
    """

    needs = frozenset({"return_to_go"})
    needs_reward = True
    reads_vectors = True

    @property
    def trunk_obs(self) -> Mapping[str, ObsSpec]:
        """The return to go, in units of the data's largest."""
        return {RETURN_TO_GO: ObsSpec((1,))}

    @property
    def needs_returns(self) -> bool:
        """Whether the target or the unit comes from the data."""
        return bool(self.returns.waits_for)

    def _create_networks(self) -> None:
        if RETURN_TO_GO in self.obs:
            raise ConfigError(f"observation {RETURN_TO_GO!r} has the name of the policy's own input; leave it out")
        super()._create_networks()
        self.returns = ReturnTarget(self.algo_config.target_return, self.algo_config.return_scale)
        self.nets["returns"] = self.returns

    def deserialize(self, weights: Mapping[str, Tensor]) -> None:
        """Load what :meth:`serialize` gave; a target that the run file names stays."""
        super().deserialize(weights)
        if self.algo_config.target_return is not None:
            self.returns.target.fill_(self.algo_config.target_return)
            self.returns.is_known.fill_(True)

    def use_returns(self, returns: Float[Tensor, " N"]) -> None:
        """Take target and unit from the training data, where they are not given."""
        self.returns.use(returns)

    def _told(self, inputs: SeqInputs, to_go: Float[Tensor, "B L"]) -> SeqInputs:
        entry = (to_go / self.returns.scale).unsqueeze(-1)
        return replace(inputs, obs={**inputs.obs, RETURN_TO_GO: entry})

    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the losses of imitation, given the return that followed."""
        return super().compute_losses(batch.with_inputs(self._told(batch.inputs, batch.extras["return_to_go"])))

    # --------------------------------------------------------------------------------------------- acting
    def init_state(self, num_rows: int) -> State:
        """Return an empty memory, and the whole target."""
        left = self.returns.asked().float().expand(num_rows).clone()
        return {**super().init_state(num_rows), **nest(RETURN_TO_GO, {"left": left})}

    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Empty the memory of some rows; what is still asked for begins anew with the episode."""
        told, rest = split_state(state, RETURN_TO_GO)
        return {**super().reset_rows(rest, rows), **nest(RETURN_TO_GO, told)}

    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return the action for what is still to come."""
        told, rest = split_state(state, RETURN_TO_GO)
        is_first = inputs.step[:, -1] == 0
        left = torch.where(is_first, self.returns.target.float(), told["left"] - inputs.prev_reward[:, -1])
        action, rest = super().act(self._told(inputs, left.unsqueeze(-1)), rest, deterministic)
        return action, {**rest, **nest(RETURN_TO_GO, {"left": left})}

    @torch.no_grad()
    def policy_over(self, inputs: SeqInputs, num_samples: int) -> Float[Tensor, "K B L A"]:
        """Return draws at every input, asking for the target at the first."""
        to_go = self.returns.asked().float() - inputs.prev_reward.cumsum(1)
        return super().policy_over(self._told(inputs, to_go), num_samples)
