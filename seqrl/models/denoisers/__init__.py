"""Networks that see noisy actions, how noisy they are and what is remembered: of diffusion and flow policies."""

from seqrl.models.denoisers.base import Denoiser, build_denoiser
from seqrl.models.denoisers.mlp import MLPDenoiser
from seqrl.models.denoisers.transformer import TransformerDenoiser
from seqrl.models.denoisers.unet1d import UNet1d

__all__ = ["Denoiser", "MLPDenoiser", "TransformerDenoiser", "UNet1d", "build_denoiser"]
