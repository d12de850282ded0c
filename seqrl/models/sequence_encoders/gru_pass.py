"""A pass of the GRU that is fast on a CPU over long sequences of few rows."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def gru_pass(
    inputs: Float[Tensor, "L B G"], weight: Float[Tensor, "G H"], bias: Float[Tensor, " G"], start: Float[Tensor, "B H"]
) -> Float[Tensor, "L B H"]:
    r"""Return all states of one layer of a GRU, as :class:`torch.nn.GRU` computes them, up to rounding.

    On a CPU, PyTorch runs the gates one operation after the other and records each, and its backward pass adds a matrix
    of the size of the recurrent weights at every step. Here the gradients of the gates are collected, and become that
    of the weights in one product; what does not depend on other steps is computed for all at once.

    Args:
        inputs: What the inputs add to the gates: reset, keep, new value. G is 3 H.
        weight: From the state to the gates.
        bias: Of those.
        start: State before the first step.

    Source: Cho et al. (2014), arXiv 1406.1078, in the variant of cuDNN.
    """
    apply: Any = _GRUPass.apply
    states: Tensor = apply(inputs, weight, bias, start)
    return states


class _GRUPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, start: Tensor) -> Tensor:
        width = start.shape[1]
        states = torch.cat([start.unsqueeze(0), start.new_empty(len(inputs), *start.shape)])
        hidden, gates = torch.empty_like(inputs), torch.empty_like(inputs)
        matrix = weight.t()
        both, new = slice(None, 2 * width), slice(2 * width, None)
        rows = (
            inputs[..., both], inputs[..., new], hidden, hidden[..., both], hidden[..., new], gates[..., both],
            gates[..., :width], gates[..., width : 2 * width], gates[..., new], states[:-1], states[1:],
        )  # fmt: skip
        for to_both, to_new, h, h_both, h_new, opened, reset, keep, value, before, after in zip(
            *(row.unbind(0) for row in rows), strict=True
        ):
            torch.addmm(bias, before, matrix, out=h)
            torch.add(to_both, h_both, out=opened).sigmoid_()
            torch.addcmul(to_new, reset, h_new, out=value).tanh_()
            torch.lerp(value, before, keep, out=after)
        ctx.save_for_backward(weight, states, gates, hidden[..., new])
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        weight, states, gates, hidden_new = ctx.saved_tensors
        reset, keep, value = gates.chunk(3, dim=-1)
        width, before = states.shape[-1], states[:-1]
        of_value = (1 - keep) * (1 - value * value)
        of_keep = (before - value) * keep * (1 - keep)
        of_reset = of_value * hidden_new * reset * (1 - reset)
        of_hidden = of_value * reset
        factors = torch.stack([of_reset, of_keep, of_hidden], dim=2)  # (L, B, 3, H)
        back = torch.empty_like(factors)
        flat = back.flatten(2)
        later = torch.zeros_like(states[0])
        totals = torch.empty_like(before)
        steps = (grad, factors, back, flat, keep, totals)
        for grad_t, factor, out, out_flat, keep_t, total in zip(*(row.unbind(0)[::-1] for row in steps), strict=True):
            torch.add(grad_t, later, out=total)
            torch.mul(total.unsqueeze(1), factor, out=out)
            later = torch.addmm(total * keep_t, out_flat, weight)
        grad_weight = flat.flatten(0, 1).t() @ before.flatten(0, 1)
        grad_bias = flat.sum((0, 1))
        flat = torch.cat([flat[..., : 2 * width], totals * of_value], dim=-1)
        return flat, grad_weight, grad_bias, later
