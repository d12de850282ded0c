"""The torch containers that cross borders: the inputs of a sequence, and a training batch of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from seqrl.core.errors import DataError


@dataclass(frozen=True)
class SeqInputs:
    """What a policy sees. The same struct feeds training (L > 1) and acting (L = 1).

    Attributes:
        obs: Name -> ``(B, L, ...)``.
        prev_action: ``(B, L, A)`` float32, policy units; zeros at an episode's first step.
        prev_reward: ``(B, L)`` float32, environment units; zero at an episode's first step.
        step: ``(B, L)`` int64, steps since the episode began.
        action_mask: Optional ``(B, L, A)`` bool, True where the action is legal.
        goal: Name -> ``(B, L, ...)``.
    """

    obs: dict[str, Tensor]
    prev_action: Tensor
    prev_reward: Tensor
    step: Tensor
    action_mask: Tensor | None = None
    goal: dict[str, Tensor] = field(default_factory=dict)

    def first(self, n: int) -> SeqInputs:
        """Return the first ``n`` positions."""
        return self.map(lambda x: x[:, :n])

    def after_first(self) -> SeqInputs:
        """Return all positions but the first."""
        return self.map(lambda x: x[:, 1:])

    def map(self, f: Callable[[Tensor], Tensor]) -> SeqInputs:
        """Return a copy with ``f`` applied to every tensor."""
        return SeqInputs(**{k.name: _map(f, getattr(self, k.name)) for k in fields(self)})


@dataclass(frozen=True)
class SeqBatch:
    """B windows of T transitions, hence L = T + 1 inputs. Padding is on the right.

    Attributes:
        inputs: The L inputs.
        actions: ``(B, T, A)`` float32, in [-1, 1] or one-hot.
        rewards: ``(B, T)`` float32, environment units.
        terminated: ``(B, T)`` bool.
        truncated: ``(B, T)`` bool.
        mask: ``(B, T)`` bool, True where the transition is real: the only truth about padding.
        extras: Name -> ``(B, L, ...)`` float32, what :attr:`seqrl.algo.Algo.needs` asks the data for.
        before: The N inputs ``(B, N, ...)`` just before each window, without action masks, to fill a memory with;
            None without burn-in. Where fewer are there, these are others, whose steps do not lead up to the window.
    """

    inputs: SeqInputs
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    mask: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict)
    before: SeqInputs | None = None

    @property
    def num_transitions(self) -> int:
        """T, padding included."""
        return self.rewards.shape[1]

    @property
    def input_mask(self) -> Tensor:
        """``(B, L)`` bool: the first input is real, and each input that follows a real transition."""
        return torch.cat([torch.ones_like(self.mask[:, :1]), self.mask], dim=1)

    def map(self, f: Callable[[Tensor], Tensor]) -> SeqBatch:
        """Return a copy with ``f`` applied to every tensor."""
        others = {k.name: _map(f, getattr(self, k.name)) for k in fields(self) if k.name != "inputs"}
        return SeqBatch(inputs=self.inputs.map(f), **others)

    def to(self, device: torch.device | str) -> SeqBatch:
        """Return a copy on ``device``; asynchronous where the memory is pinned."""
        return self.map(lambda x: x.to(device, non_blocking=True))

    def with_inputs(self, inputs: SeqInputs) -> SeqBatch:
        """Return a copy with other inputs, and none before them."""
        return replace(self, inputs=inputs, before=None)

    def to_mapping(self) -> dict[str, Any]:
        """Return the dict batch that robomimic users know.

        ``obs`` and ``next_obs`` hold the T inputs before and after each action; ``pad_mask`` is ``(B, T, 1)``;
        ``goal``, ``action_mask`` and ``extras``, where there are any, belong to the T + 1 inputs.
        """
        return {
            "obs": {k: v[:, :-1] for k, v in self.inputs.obs.items()},
            "next_obs": {k: v[:, 1:] for k, v in self.inputs.obs.items()},
            "actions": self.actions,
            "rewards": self.rewards,
            "dones": self.terminated,
            "truncated": self.truncated,
            "pad_mask": self.mask[..., None],
            "step": self.inputs.step[:, 0],
            "prev_action": self.inputs.prev_action[:, 0],
            "prev_reward": self.inputs.prev_reward[:, 0],
            **({"goal": self.inputs.goal} if self.inputs.goal else {}),
            **({"action_mask": self.inputs.action_mask} if self.inputs.action_mask is not None else {}),
            **({"extras": self.extras} if self.extras else {}),
        }

    @classmethod
    def from_mapping(cls, batch: Mapping[str, Any]) -> SeqBatch:
        """Return the batch that a robomimic-style dict describes.

        ``obs`` and ``actions`` ``(B, T, ...)`` are needed. Without ``next_obs`` the last observation is repeated;
        without ``rewards`` or ``dones`` they are zero; without ``pad_mask`` everything is real. ``action_mask``
        ``(B, T + 1, A)`` is set all-legal on padding and on terminal inputs, where no action is taken. ``step``,
        ``prev_action`` and ``prev_reward`` describe the first input; an episode's start if absent.

        Raises:
            DataError: If ``obs`` or ``actions`` is missing, or ``action_mask`` is not of all inputs.
        """
        missing = [k for k in ("obs", "actions") if k not in batch]
        missing += [
            f"next_obs/{k}" for k in batch.get("obs", ()) if batch.get("next_obs") and k not in batch["next_obs"]
        ]
        if missing:
            raise DataError(f"batch lacks {', '.join(missing)}; it has {', '.join(map(str, batch))}")
        actions = torch.as_tensor(batch["actions"]).float()
        num, steps = actions.shape[:2]
        obs = {k: torch.as_tensor(v) for k, v in batch["obs"].items()}
        after = {k: torch.as_tensor(v) for k, v in (batch.get("next_obs") or obs).items()}
        rewards = torch.as_tensor(batch.get("rewards", torch.zeros(num, steps))).float().reshape(num, steps)
        terminated = _flags(batch.get("dones"), num, steps, default=False)
        mask = _flags(batch.get("pad_mask"), num, steps, default=True)
        legal = None if batch.get("action_mask") is None else torch.as_tensor(batch["action_mask"]).bool()
        if legal is not None and legal.shape[:2] != (num, steps + 1):
            raise DataError(f"action_mask has shape {tuple(legal.shape)}, not (B, T + 1, A) with T = {steps} actions")
        inputs = SeqInputs(
            obs={k: torch.cat([v, after[k][:, -1:]], dim=1) for k, v in obs.items()},
            prev_action=_shifted(actions, batch.get("prev_action")),
            prev_reward=_shifted(rewards, batch.get("prev_reward")),
            step=_first_step(batch, num).unsqueeze(1) + torch.arange(steps + 1),
            action_mask=None if legal is None else legal_where_unused(legal, terminated, mask),
            goal={k: torch.as_tensor(v) for k, v in (batch.get("goal") or {}).items()},
        )
        return cls(
            inputs=inputs,
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            truncated=_flags(batch.get("truncated"), num, steps, default=False),
            mask=mask,
            extras={k: torch.as_tensor(v).float() for k, v in (batch.get("extras") or {}).items()},
        )


@contextlib.contextmanager
def flushed_denormals() -> Iterator[None]:
    """Take numbers below 1e-38 for zero in this thread: cores compute with them very slowly."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def legal_where_unused(action_mask: Any, terminated: Any, mask: Any) -> Any:
    """Return a copy of action masks ``(B, L, A)``, all-legal on padding and terminal inputs, where no action is taken.

    Args:
        action_mask: Tensors, or NumPy arrays.
        terminated: ``(B, T)``.
        mask: ``(B, T)``, True where the transition is real.
    """
    legal = action_mask | False
    legal[:, 1:] |= (terminated | ~mask)[..., None]
    return legal


def _map(f: Callable[[Tensor], Tensor], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, SeqInputs):
        return value.map(f)
    return {k: f(v) for k, v in value.items()} if isinstance(value, dict) else f(value)


def _shifted(values: Tensor, first: Any) -> Tensor:
    head = torch.zeros_like(values[:, :1]) if first is None else torch.as_tensor(first).float().unsqueeze(1)
    return torch.cat([head, values], dim=1)


def _first_step(batch: Mapping[str, Any], num: int) -> Tensor:
    return torch.as_tensor(batch.get("step", torch.zeros(num, dtype=torch.int64)))


def _flags(value: Any, num: int, steps: int, *, default: bool) -> Tensor:
    if value is None:
        return torch.full((num, steps), default)
    return torch.as_tensor(value).reshape(num, steps).bool()
