"""Flow matching of actions (Lipman et al., 2023, arXiv 2210.02747), on any memory."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.denoising import Denoising
from seqrl.configs.flow_matching_config import FlowMatchingSection
from seqrl.models.denoisers import Denoiser
from seqrl.models.noise_schedules import follow_flow


@register_algo_factory_func("flow_matching")
def flow_matching_factory(algo_config: FlowMatchingSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of flow matching."""
    return FlowMatching, {}


class FlowMatching(Denoising[FlowMatchingSection]):
    r"""Imitate chunks of actions by learning where straight lines lead from noise to them.

    At a time s the network sees :math:`(1 - s) \epsilon + s a` and what the memory holds, and predicts
    :math:`a - \epsilon`. In acting, noise follows it from 0 to 1.
    """

    def _errors(
        self, denoiser: Denoiser, actions: Float[Tensor, "N K A"], hidden: Float[Tensor, "N D"]
    ) -> Float[Tensor, "N K"]:
        time = torch.rand(len(actions), dtype=actions.dtype, device=actions.device)
        noise = torch.randn_like(actions)
        point = torch.lerp(noise, actions, time[:, None, None])
        velocity: Tensor = denoiser(point, time, hidden)
        return (velocity - (actions - noise)).square().mean(-1)

    def _actions_from(
        self, denoiser: Denoiser, noise: Float[Tensor, "N K A"], hidden: Float[Tensor, "N D"], *, is_greedy: bool
    ) -> Float[Tensor, "N K A"]:
        def velocity(x: Tensor, time: float) -> Tensor:
            velocities: Tensor = denoiser(x, hidden.new_full((x.shape[0],), time), hidden)
            return velocities

        section = self.algo_config
        return follow_flow(velocity, noise, section.inference_steps, is_second_order=section.solver == "heun")
