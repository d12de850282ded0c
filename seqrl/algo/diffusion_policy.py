"""Diffusion policies (Chi et al., 2023, arXiv 2303.04137), on any memory."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.denoising import Denoising
from seqrl.configs.diffusion_policy_config import DiffusionPolicySection
from seqrl.models.denoisers import Denoiser
from seqrl.models.noise_schedules import add_noise, denoise, levels_asked, signal_shares


@register_algo_factory_func("diffusion_policy")
def diffusion_policy_factory(algo_config: DiffusionPolicySection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of diffusion policies."""
    return DiffusionPolicy, {}


class DiffusionPolicy(Denoising[DiffusionPolicySection]):
    r"""Imitate chunks of actions by learning the noise that was mixed into them.

    The network sees :math:`\sqrt{\bar\alpha_k} a + \sqrt{1 - \bar\alpha_k} \epsilon` at a level k and what the memory
    holds, and predicts :math:`\epsilon`. In acting, noise is removed level by level (DDIM, or DDPM).

    Source: Ho et al. (2020, arXiv 2006.11239), equation 14; Song et al. (2021, arXiv 2010.02502).
    """

    def _create_networks(self) -> None:
        section = self.algo_config
        self._shares = signal_shares(section.noise_steps)
        self._levels = levels_asked(section.noise_steps, section.inference_steps)
        self._shares_tensor = torch.tensor(self._shares, device=self.device)
        super()._create_networks()

    def _errors(
        self, denoiser: Denoiser, actions: Float[Tensor, "N K A"], hidden: Float[Tensor, "N D"]
    ) -> Float[Tensor, "N K"]:
        level = torch.randint(len(self._shares), actions.shape[:1], device=actions.device)
        noise = torch.randn_like(actions)
        noisy = add_noise(actions, noise, self._shares_tensor.to(actions.dtype)[level])
        return (self._predict(denoiser, noisy, level, hidden) - noise).square().mean(-1)

    def _predict(self, denoiser: Denoiser, noisy: Tensor, level: Tensor, hidden: Tensor) -> Tensor:
        predicted: Tensor = denoiser(noisy, level.to(hidden.dtype) / len(self._shares), hidden)
        return predicted

    def _actions_from(
        self, denoiser: Denoiser, noise: Float[Tensor, "N K A"], hidden: Float[Tensor, "N D"], *, is_greedy: bool
    ) -> Float[Tensor, "N K A"]:
        def predict(x: Tensor, level: int) -> Tensor:
            return self._predict(denoiser, x, hidden.new_full((x.shape[0],), level), hidden)

        eta = 1.0 if self.algo_config.sampler == "ddpm" and not is_greedy else 0.0
        return denoise(predict, noise, self._shares, self._levels, eta=eta)
