"""Ensembles of critics as batched matrix products."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from seqrl.core.registry import CRITICS
from seqrl.models.mlp import make_activation
from seqrl.models.sequence_encoders.layers import no_autocast
from seqrl.models.two_hot import symlog

MAX_ACTION = 0.999


def discount_features(discounts: Float[Tensor, " G"]) -> Float[Tensor, "G 1"]:
    """Return ``symlog(1 / max(1 - gamma, 1e-6))``: the horizon, in a range that a network likes."""
    return symlog(1.0 / (1.0 - discounts).clamp(min=1e-6)).unsqueeze(-1)


class EnsembleLinear(nn.Module):
    """C linear layers in one product.

    Initialised as the reference does: weights ``U(+-sqrt(3 / fan_in))``, biases ``U(+-sqrt(1 / fan_in))``.

    Args:
        num: C.
        d_input: Width of the input.
        d_output: Width of the output.
        fan_in: What the bounds are computed from, where the layer is a part of a larger one.
        bias: Whether to add a bias.
    """

    def __init__(self, num: int, d_input: int, d_output: int, *, fan_in: int | None = None, bias: bool = True) -> None:
        super().__init__()
        fan_in = fan_in or d_input
        bound = math.sqrt(3 / fan_in)
        self.weight = nn.Parameter(torch.empty(num, d_input, d_output).uniform_(-bound, bound))
        bound = math.sqrt(1 / fan_in)
        self.bias = nn.Parameter(torch.empty(num, 1, d_output).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Float[Tensor, "C N D"]) -> Float[Tensor, "C N E"]:
        """Return each member's product of its own input."""
        return torch.bmm(x, self.weight) if self.bias is None else torch.baddbmm(self.bias, x, self.weight)

    def shared(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "C N E"]:
        """Return each member's product of one input that all share."""
        y = torch.bmm(x.expand(len(self.weight), *x.shape), self.weight)
        return y if self.bias is None else y + self.bias  # which stays wide where products are not


class EnsembleLayerNorm(nn.Module):
    """Layer normalisation with a scale and a bias of each member's own.

    Args:
        num: C.
        width: Of the features.
    """

    def __init__(self, num: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(num, 1, width))
        self.bias = nn.Parameter(torch.zeros(num, 1, width))

    def forward(self, x: Float[Tensor, "C N D"]) -> Float[Tensor, "C N D"]:
        """Return features of mean 0 and variance 1, scaled and shifted."""
        return layer_norm(x, x.shape[-1:]) * self.scale + self.bias


def make_norms(norm: str, num_layers: int, num: int, width: int) -> nn.ModuleList:
    """Return what comes before each of the activations: ``layer`` or ``none``."""
    return nn.ModuleList(EnsembleLayerNorm(num, width) if norm == "layer" else nn.Identity() for _ in range(num_layers))


class Critics(nn.Module, ABC):
    """C critics whose work on a state is done once and shared by all actions that are judged there."""

    last: EnsembleLinear

    @abstractmethod
    def share(self, state: Float[Tensor, "B L D"]) -> Float[Tensor, "B L *part"]:
        """Return what depends on the state alone."""

    @abstractmethod
    def forward(
        self, share: Float[Tensor, "B L *part"], action: Float[Tensor, "K B L H A"]
    ) -> Float[Tensor, "K B L G C O"]:
        """Return the outputs for K actions per input; H is G, or 1 where the discounts share the action."""

    def _last(self, x: Float[Tensor, "C N D"]) -> Float[Tensor, "C N E"]:
        """Return the last layer's outputs, float32 whatever the precision: differences of values are small."""
        with no_autocast(x):
            y: Tensor = self.last(x.to(self.last.weight.dtype))
            return y


@CRITICS.register("mlp")
class StateActionCritics(Critics):
    """C critics of a state, an action and a discount.

    The state's share of the first layer depends neither on the discount nor on the sampled action, so it is computed
    once per timestep; so is the action's share where all discounts share the action.

    Args:
        d_state: Width of the state.
        d_action: Width of the action.
        discounts: G discounts.
        num_active: One-hot blocks in the action, if it is made of them; their weights are then initialised by it, so
            that the choice weighs as much as the state. By the fan-in of the whole layer, as for other actions, a
            one-hot beside a wide state is hardly heard, and values that hang on both together are found late or never.
        num_critics: C.
        d_out: Width of the output: 1, or the number of bins.
        num_layers: Hidden layers, at least 1.
        d_hidden: Their width.
        activation: Their activation.
        norm: Before each activation: ``none`` or ``layer``.
    """

    horizon: Tensor

    def __init__(
        self,
        d_state: int,
        d_action: int,
        discounts: Float[Tensor, " G"],
        *,
        num_active: int | None = None,
        num_critics: int = 4,
        d_out: int = 1,
        num_layers: int = 2,
        d_hidden: int = 256,
        activation: str = "leaky_relu",
        norm: str = "none",
    ) -> None:
        super().__init__()
        self.register_buffer("horizon", discount_features(discounts), persistent=False)
        fan_in = d_state + d_action + 1
        self.first_state = EnsembleLinear(num_critics, d_state, d_hidden, fan_in=fan_in)
        self.first_action = EnsembleLinear(num_critics, d_action, d_hidden, fan_in=num_active or fan_in, bias=False)
        self.first_discount = EnsembleLinear(num_critics, 1, d_hidden, fan_in=fan_in, bias=False)
        self.activation = make_activation(activation)
        self.hidden = nn.ModuleList(EnsembleLinear(num_critics, d_hidden, d_hidden) for _ in range(num_layers - 1))
        self.norms = make_norms(norm, num_layers, num_critics, d_hidden)
        self.last = EnsembleLinear(num_critics, d_hidden, d_out)

    def share(self, state: Float[Tensor, "B L D"]) -> Float[Tensor, "B L C E"]:
        """Return the state's share of the first layer, which serves any number of actions and discounts."""
        of_state: Tensor = self.first_state.shared(state.flatten(0, 1)).unflatten(1, state.shape[:2])
        return of_state.movedim(0, 2)

    def forward(
        self, share: Float[Tensor, "B L C E"], action: Float[Tensor, "K B L H A"]
    ) -> Float[Tensor, "K B L G C O"]:
        """Return the outputs for K actions per input; H is G, or 1 where the discounts share the action."""
        outputs: Tensor = self._rest(self._first(share, action)).movedim(0, -2)
        return outputs

    def action_gradients(
        self, share: Float[Tensor, "B L C E"], action: Float[Tensor, "B L H A"]
    ) -> Float[Tensor, "B L G C A"]:
        """Return each critic's gradient with respect to the action, through which gradients flow in turn.

        One backward pass to the first layer serves all critics, as they share nothing behind it.
        """
        with torch.enable_grad():
            first = self._first(share, action.unsqueeze(0))
            first = first if first.requires_grad else first.requires_grad_()
            (of_first,) = torch.autograd.grad(self._rest(first).sum(), first, create_graph=True)
        gradients: Tensor = torch.einsum("cblge,cae->blgca", of_first.squeeze(1), self.first_action.weight)
        return gradients

    def _first(
        self, share: Float[Tensor, "B L C E"], action: Float[Tensor, "K B L H A"]
    ) -> Float[Tensor, "C K B L G E"]:
        """Return the first layer's features of states, actions and discounts."""
        lead = action.shape[:-1]
        clipped = action.clamp(-MAX_ACTION, MAX_ACTION)
        if action.requires_grad:
            clipped = action + (clipped - action).detach()  # gradients pass at the limit too
        of_action = self.first_action.shared(clipped.flatten(0, -2)).unflatten(1, lead)
        of_discount = (self.first_discount.weight * self.horizon).unflatten(1, (1, 1, 1, -1))
        of_state = share.movedim(2, 0)[:, None, :, :, None]
        is_small = action.shape[0] == 1 and action.shape[3] == 1  # an action that all discounts share
        small, large = (of_action, of_discount) if is_small else (of_discount, of_action)
        features: Tensor = of_state + small + large  # one pass over what is large
        return features

    def _rest(self, first: Float[Tensor, "C K B L G E"]) -> Float[Tensor, "C K B L G O"]:
        """Return what all that follows the first layer makes of its features."""
        x = self.activation(self.norms[0](first.flatten(1, 4)))
        for layer, norm in zip(self.hidden, self.norms[1:], strict=True):
            x = self.activation(norm(layer(x)))
        outputs: Tensor = self._last(x).unflatten(1, first.shape[1:5])
        return outputs


class StateCritics(Critics):
    """C critics of a state that give the value of every discrete action under every discount at once.

    Args:
        d_state: Width of the state.
        num_actions: A.
        num_discounts: G.
        num_critics: C.
        num_layers: Hidden layers, at least 1.
        d_hidden: Their width.
        activation: Their activation.
        norm: Before each activation: ``none`` or ``layer``.
    """

    def __init__(
        self,
        d_state: int,
        num_actions: int,
        num_discounts: int,
        *,
        num_critics: int = 4,
        num_layers: int = 2,
        d_hidden: int = 256,
        activation: str = "leaky_relu",
        norm: str = "none",
    ) -> None:
        super().__init__()
        self.sizes = (num_discounts, num_actions)
        self.activation = make_activation(activation)
        self.first = EnsembleLinear(num_critics, d_state, d_hidden)
        self.hidden = nn.ModuleList(EnsembleLinear(num_critics, d_hidden, d_hidden) for _ in range(num_layers - 1))
        self.norms = make_norms(norm, num_layers, num_critics, d_hidden)
        self.last = EnsembleLinear(num_critics, d_hidden, num_discounts * num_actions)

    def share(self, state: Float[Tensor, "B L D"]) -> Float[Tensor, "B L G A C"]:
        """Return the value of every action."""
        x = self.activation(self.norms[0](self.first.shared(state.flatten(0, 1))))
        for layer, norm in zip(self.hidden, self.norms[1:], strict=True):
            x = self.activation(norm(layer(x)))
        y = self._last(x)
        table: Tensor = y.unflatten(-1, self.sizes).unflatten(1, state.shape[:2]).movedim(0, -1)
        return table

    def forward(
        self, share: Float[Tensor, "B L G A C"], action: Float[Tensor, "K B L H A"]
    ) -> Float[Tensor, "K B L G C 1"]:
        """Return the values of K one-hot actions per input; H is G, or 1 where the discounts share the action."""
        num_g, num_c = share.shape[2], share.shape[-1]
        index_KBLH = action.argmax(-1)
        index = index_KBLH[..., None, None].expand(*index_KBLH.shape[:3], num_g, 1, num_c)
        return share.expand(len(action), *share.shape).gather(-2, index).transpose(-1, -2)
