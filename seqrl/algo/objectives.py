"""Pure pieces of losses: tensors in, tensors out."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def masked_mean(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean of ``values`` where ``mask`` is True; padding has no influence, whatever it holds; 0 if all is padding."""
    total = values.masked_fill(~mask, 0.0).sum()
    return total / mask.sum().clamp(min=1)
