"""Flow Q-learning (Park et al., 2025, arXiv 2502.02538), on any memory."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.heads import build_actor
from seqrl.algo.objectives import in_mean_size
from seqrl.algo.value_agent import Pass, Terms, ValueAgent
from seqrl.configs.fql_config import FQLSection
from seqrl.core.errors import ConfigError
from seqrl.core.registry import Choice
from seqrl.core.tensors import SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.denoisers import MLPDenoiser
from seqrl.models.noise_schedules import follow_flow
from seqrl.models.sequence_encoders import State


@register_algo_factory_func("fql")
def fql_factory(algo_config: FQLSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of flow Q-learning."""
    return FQL, {}


class FQL(ValueAgent[FQLSection]):
    r"""A flow that imitates the data, and a policy of one step that climbs the critics near what the flow does.

    The flow learns where noise has to go to become the data's actions. The policy :math:`\mu(h, z)` makes an action of
    noise z at once; its loss is :math:`-\lambda Q(h, \mu(h, z)) + \alpha |\mu(h, z) - F(h, z)|^2` with what the flow F
    makes of the same noise, and :math:`\lambda` so that values of any scale count alike. So the policy may take one
    of several ways that the data shows, where a mean would take none.
    """

    action_kinds = frozenset({"continuous"})
    auto_distribution: ClassVar[dict[str, Choice]] = {"continuous": ("deterministic", {})}
    fitted = ("loss/critic", "loss/flow")

    def _create_networks(self) -> None:
        super()._create_networks()
        sizes = self.algo_config.flow.model_dump(exclude={"num_steps"})
        self.flow = MLPDenoiser(1, self.codec.dim, self.trunk.d_output, **sizes)
        self.nets["flow"] = self.flow
        self._start = torch.randn(self.codec.dim, generator=torch.Generator().manual_seed(0)).to(self.device)

    def _build_actor(self) -> Actor:
        if (kind := self.algo_config.distribution.choice()[0]) not in ("auto", "deterministic"):
            raise ConfigError(
                f"algo.distribution.type: fql turns noise into one action: use auto or deterministic, not {kind}"
            )
        given = (self.trunk.d_output, self.algo_config, self.obs, self.codec, len(self.discounts), self.codec.dim)
        return build_actor(*given, auto=self.auto_distribution)

    def _parameters_at(self, state: Float[Tensor, "B L D"], inputs: SeqInputs, noise: Tensor) -> Tensor:
        return self.actor.parameters_of(torch.cat([state, noise.to(state.dtype)], dim=-1), inputs)

    def policy_parameters(self, state: Float[Tensor, "B L D"], inputs: SeqInputs) -> Float[Tensor, "B L G P"]:
        """Return the parameters of the policies, for noise that is drawn here."""
        noise = torch.randn(*state.shape[:2], self.codec.dim, dtype=self._start.dtype, device=self.device)
        return self._parameters_at(state, inputs, noise)

    def _imitated(self, state: Float[Tensor, "B T D"], noise: Float[Tensor, "B T A"]) -> Float[Tensor, "B T A"]:
        """Return what the flow makes of noise."""
        told = state.flatten(0, 1).float()  # bfloat16 would blur the time

        def velocity(x: Tensor, time: float) -> Tensor:
            speed: Tensor = self.flow(x, told.new_full((len(x),), time), told).float()
            return speed

        carried = follow_flow(velocity, noise.flatten(0, 1).unsqueeze(1), self.algo_config.flow.num_steps)
        return carried.clamp(-1.0, 1.0).reshape(noise.shape)

    def next_values(self, p: Pass) -> Float[Tensor, "B T G"]:
        """Return the target critics' value of the following policy's actions."""
        state, inputs = p.state[:, 1:].detach(), p.batch.inputs.after_first()
        action_BTGA = self.actor.distribution(self.policy_parameters(state, inputs), None).mode().clamp(-1.0, 1.0)
        q_BTGC = self.values_of(self.target_critic(self.target_critic.share(state), action_BTGA[None])[0])
        return q_BTGC.amin(-1) if self.algo_config.target_value == "min" else q_BTGC.mean(-1)

    def actor_terms(self, p: Pass) -> Terms:
        """Return the flow's error, the policy's distance to it, and minus the policy's values in their mean size."""
        state, actions = p.state[:, :-1], p.batch.actions
        noise, time = torch.randn_like(actions), torch.rand_like(actions[..., 0])
        point = torch.lerp(noise, actions, time.unsqueeze(-1)).flatten(0, 1).unsqueeze(1)
        speed = self.flow(point, time.flatten(), state.flatten(0, 1).float())
        flow_BT = (speed.reshape_as(actions) - (actions - noise)).square().mean(-1)

        noise = torch.randn_like(actions)
        with torch.no_grad():
            goal_BTA = self._imitated(state, noise)
        given = (state, p.batch.inputs.first(p.batch.num_transitions), noise)
        own_BTGA = self.actor.distribution(self._parameters_at(*given), None).mode()
        distance_BT = (own_BTGA - goal_BTA.unsqueeze(2)).square().mean((-1, -2))
        q_BTG = self._values_of_own(p, own_BTGA).mean(-1)
        climb_BT = -in_mean_size(q_BTG, p.batch.mask).mean(-1)
        losses = {"flow": (1.0, flow_BT), "distance": (self.algo_config.alpha, distance_BT), "climb": (1.0, climb_BT)}
        return Terms(losses)

    def _values_of_own(self, p: Pass, own: Float[Tensor, "B T G A"]) -> Float[Tensor, "B T G C"]:
        """Return the values of the policy's actions; gradients reach the policy alone."""
        return self.values_of(self.constant_critic()(p.share.detach(), own.clamp(-1.0, 1.0)[None])[0])

    def judged(self, p: Pass) -> dict[str, Float[Tensor, "B T G"]]:
        """Return V of the policy, and the advantage of the data's actions over it."""
        v_BTG = self._values_of_own(p, self.policy_over_data(p).mode()).mean(-1)
        return {"v": v_BTG, "advantage": self.values_of(p.raw).mean(-1) - v_BTG}

    @torch.no_grad()
    def policy_over(self, inputs: SeqInputs, num_samples: int) -> Float[Tensor, "K B L A"]:
        """Return ``num_samples`` actions at every input, each of its own noise."""
        hidden, _ = self.trunk(inputs)
        return torch.stack([self._acting_policy(hidden, inputs).mode()[:, :, 0] for _ in range(num_samples)])

    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return the action of noise that is drawn, or if greedy of noise that is always the same."""
        if not deterministic:
            return super().act(inputs, state, deterministic)
        hidden, state = self.trunk(inputs, state)
        noise = self._start.expand(*hidden.shape[:2], -1)
        return self.actor.distribution(self._parameters_at(hidden, inputs, noise), None).mode()[:, -1, -1], state
