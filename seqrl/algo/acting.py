"""A policy over many rows at once: NumPy in, policy actions out, each row remembering its own episode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from seqrl.algo.inputs import Inputs, obs_entries, with_goals
from seqrl.configs import BaseConfig
from seqrl.core.errors import DataError, PluginError
from seqrl.core.image_bytes import is_image_of_bytes
from seqrl.core.obs_entry import check_finite_actions, check_present, check_rewards, counted_rows
from seqrl.core.spaces import GOAL_PREFIX, MASK_KEY, ActionCodec, ObsSpec
from seqrl.core.tensors import SeqInputs


@runtime_checkable
class ActingAlgo(Protocol):
    """What of an :class:`~seqrl.algo.Algo` it takes to act."""

    config: BaseConfig
    obs: dict[str, ObsSpec]
    codec: ActionCodec
    device: torch.device
    nets: nn.ModuleDict
    inputs: Inputs
    goal_keys: tuple[str, ...]
    needs_reward: bool

    @property
    def max_step(self) -> int | None:
        """Largest step index that the memory can take, or None."""

    def set_train(self) -> None:
        """Switch the networks to training."""

    def set_eval(self) -> None:
        """Switch the networks to evaluation."""

    def init_state(self, num_rows: int) -> dict[str, Any]:
        """Return the state of a policy that has seen nothing."""

    def reset_rows(self, state: dict[str, Any], rows: Tensor) -> dict[str, Any]:
        """Forget the episode of the rows that are True."""

    def act(self, inputs: SeqInputs, state: dict[str, Any], deterministic: bool) -> tuple[Tensor, dict[str, Any]]:
        """Return policy actions for one more input per row, and the next state."""

    @property
    def explores(self) -> bool:
        """Whether :meth:`explore` differs from :meth:`act`."""

    def explore(self, inputs: SeqInputs, state: dict[str, Any], luck: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return the same for training environments."""

    def subgoals(self, state: dict[str, Any]) -> dict[str, Tensor]:
        """Return what the rows are on their way to."""

    def step_problem(self, step: int) -> str:
        """Return what to say of a step that the memory cannot take."""


@contextlib.contextmanager
def evaluating(algo: ActingAlgo) -> Iterator[None]:
    """Have the networks in evaluation within the block: no dropout, no augmentation; then as they were."""
    if not algo.nets.training:
        yield
        return
    frozen = [net for net in algo.nets.modules() if not net.training]
    algo.set_eval()
    try:
        yield
    finally:
        algo.set_train()
        for net in frozen:
            net.training = False


@runtime_checkable
class Engine(Protocol):
    """Another way to take an algorithm's steps, such as :class:`~seqrl.algo.engine.OnnxEngine`."""

    def refresh(self) -> None:
        """Take the weights that the algorithm has now."""

    def __call__(self, inputs: SeqInputs, state: dict[str, Any], luck: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return policy actions for one more input per row, not scaled yet, and the next state."""


def acts_greedily(config: BaseConfig, deterministic: bool | None) -> bool:
    """Return what was asked for, or (None) how the run's evaluations acted."""
    return config.experiment.evaluation.deterministic if deterministic is None else deterministic


class VectorPolicy:
    """Keeps memory, step, previous action and previous reward for ``num_rows`` environments.

    It acts with the networks in evaluation, whichever mode they are in between.

    Args:
        algo: Gives the actions.
        num_rows: How many environments.
        deterministic: Act greedily; False samples, None does what the run's evaluations did.
        explores: Sample as the algorithm does in training environments.
        engine: Takes the steps instead of the algorithm; made for the same ``deterministic`` and ``explores``.

    Raises:
        PluginError: If the algorithm gives no state.
    """

    def __init__(
        self,
        algo: ActingAlgo,
        num_rows: int,
        *,
        deterministic: bool | None,
        explores: bool = False,
        engine: Engine | None = None,
    ) -> None:
        self.algo = algo
        self._engine = engine
        self.num_rows = num_rows
        self.deterministic = acts_greedily(algo.config, deterministic)
        self._explores = explores and algo.explores and not self.deterministic
        self._luck = torch.ones(num_rows, device=algo.device)
        self._state = algo.init_state(num_rows)
        if not isinstance(self._state, Mapping):
            raise PluginError(
                f"{type(algo).__name__}.init_state has to return a dict, it returned {type(self._state).__name__}"
            )
        self._step = np.zeros(num_rows, np.int64)
        self._prev_action = algo.codec.zeros(num_rows)
        self._entries = obs_entries(algo.obs, algo.inputs.values)

    @torch.inference_mode()
    def reset(self, rows: np.ndarray) -> None:
        """Begin a new episode in the rows that are True."""
        self.clear_memory(rows)
        if self._explores and rows.any():
            self._luck = torch.where(self._tensor(rows)[:, 0], torch.rand_like(self._luck), self._luck)
        self._step[rows] = 0
        self._prev_action[rows] = 0.0

    @torch.inference_mode()
    def clear_memory(self, rows: np.ndarray) -> None:
        """Forget what was seen in the rows that are True, in the middle of an episode, whose steps go on counting."""
        if rows.any():
            self._state = self.algo.reset_rows(
                self._state, torch.from_numpy(np.ascontiguousarray(rows)).to(self.algo.device)
            )

    @torch.inference_mode()
    def act(
        self,
        obs: Mapping[str, np.ndarray],
        reward: np.ndarray | None = None,
        *,
        action_mask: np.ndarray | None = None,
        goal: Mapping[str, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Return the actions ``(B, A)`` in policy units, and remember them as executed.

        Args:
            obs: Name -> ``(B, ...)``, the input to act on.
            reward: ``(B,)`` reward of the last action; ignored in rows at their first step.
            action_mask: ``(B, A)`` bool, True where legal; None takes the observation entry ``action_mask``, if any.
            goal: Name -> ``(B, ...)``.

        Raises:
            DataError: If an entry or a reward that the policy reads is missing or not as in training, or no action is
                legal; the memory is then as before. If an action is not finite; the episode is then over.
            PluginError: If the algorithm does not return actions and the next state.
        """
        obs = with_goals(self.algo.goal_keys, obs, goal or {}, missing_goal)
        check_present(self.algo.obs, obs)
        with np.errstate(over="ignore"):  # a double that is too large becomes infinite, which is refused
            obs = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in obs.items()}
        self._check(obs)
        if self.algo.max_step is not None and self._step.max() > self.algo.max_step:
            raise DataError(self.algo.step_problem(int(self._step.max())))
        legal = self._legal(obs, action_mask)
        inputs = SeqInputs(
            obs={k: self._tensor(obs[k]) for k in self.algo.obs},
            prev_action=self._tensor(self._prev_action),
            prev_reward=self._tensor(self._reward(reward)),
            step=self._tensor(self._step),
            action_mask=None if legal is None else self._tensor(legal),
        )
        actions, self._state = self._next(inputs)
        executed = actions.cpu().numpy()
        check_finite_actions(executed)
        self._prev_action = self.algo.codec.executed(executed)
        self._step += 1
        return executed

    def _next(self, inputs: SeqInputs) -> tuple[Tensor, dict[str, Any]]:
        """Return the actions as the environment's codec reads them, and the next state."""
        if self._engine is not None:
            return self._engine(inputs, self._state, self._luck)
        with evaluating(self.algo):
            scaled = self.algo.inputs.scaled(inputs)
            if self._explores:
                found = self.algo.explore(scaled, self._state, self._luck)
            else:
                found = self.algo.act(scaled, self._state, self.deterministic)
        if problem := _step_problem(found, (self.num_rows, self.algo.codec.dim), self._state):
            method = "explore" if self._explores else "act"
            raise PluginError(f"{type(self.algo).__name__}.{method} has to return (actions, next state): {problem}")
        actions, state = found
        return self.algo.inputs.own_actions(actions.float()), state

    def subgoals(self) -> dict[str, np.ndarray]:
        """Return what the rows are on their way to since the last step: entry -> ``(B, W)``; often nothing."""
        return {k: v.cpu().numpy() for k, v in self.algo.subgoals(self._state).items()}

    def note_executed(self, actions: np.ndarray) -> None:
        """Remember other actions ``(B, A)`` than those that were returned, because they were executed instead."""
        self._prev_action = self.algo.codec.executed(actions)

    def _legal(self, obs: Mapping[str, np.ndarray], action_mask: np.ndarray | None) -> np.ndarray | None:
        """Return which actions are legal ``(B, A)``, if that is known."""
        codec = self.algo.codec
        if action_mask is None and codec.kind != "continuous":
            action_mask = obs.get(MASK_KEY)
        if action_mask is None:
            return None
        legal = codec.legal(action_mask, self.num_rows)
        if (stuck := codec.stuck(legal)).any():
            raise DataError(f"the action mask of row {np.argmax(stuck)} leaves no legal action")
        return legal

    def _check(self, obs: Mapping[str, np.ndarray]) -> None:
        for name, entry in self._entries.items():
            value = obs[name]
            entry.check_form(value, is_batched=True)
            if len(value) != self.num_rows:
                raise DataError(f"{entry.label} has {counted_rows(len(value))}, expected {self.num_rows}")
            if is_image_of_bytes(value.dtype, entry.shape, entry.dtype):
                raise DataError(f"{entry.label} is uint8 (0 to 255), but was an image of floats in training")
            entry.check_values(value)

    def _reward(self, reward: np.ndarray | None) -> np.ndarray:
        started = self._step > 0
        if reward is None:
            if self.algo.needs_reward and started.any():
                raise DataError(
                    "this policy counts its rewards, and none was given after the first step: pass reward=..."
                )
            if self.algo.config.observation.use_prev_reward and started.any():
                raise DataError(
                    "this policy was trained to read the previous reward, and none was given after the first step: "
                    "pass reward=..., play in seqrl.with_prev_reward(env), or train with "
                    "observation.use_prev_reward=false"
                )
            return np.zeros(self.num_rows, np.float32)
        rewards = np.where(started, reward, 0.0).astype(np.float32)
        if self.algo.needs_reward or self.algo.config.observation.use_prev_reward:
            check_rewards(rewards)
        return rewards

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        """Return ``(B, 1, ...)`` on the device."""
        return torch.tensor(np.ascontiguousarray(array)).to(self.algo.device, non_blocking=True).unsqueeze(1)


def _step_problem(found: object, shape: tuple[int, int], before: Mapping[str, Any]) -> str:
    """Return what is wrong with what an algorithm returned for a step; "" if nothing."""
    if not isinstance(found, tuple) or len(found) != 2:
        return f"it returned {type(found).__name__}"
    actions, after = found
    if not isinstance(actions, Tensor) or actions.shape != shape:
        kind = f"of shape {tuple(actions.shape)}" if isinstance(actions, Tensor) else f"a {type(actions).__name__}"
        return f"the actions are {kind}, expected a tensor of shape {shape}"
    if not isinstance(after, Mapping) or not before.keys() <= after.keys():
        given = sorted(after) if isinstance(after, Mapping) else type(after).__name__
        return f"the state is {given}, expected a dict with {sorted(before)}"
    return ""


def missing_goal(key: str) -> str:
    """Return what to say where a goal is missing."""
    return (
        f"the policy reads a goal of {key!r}, and none was given: pass goal={{{key!r}: ...}}, or observe "
        f"{GOAL_PREFIX + key!r}" + (" or 'desired_goal'" if key == "achieved_goal" else "")
    )
