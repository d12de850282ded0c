"""The contract that every algorithm fulfils, and the registry of algorithms."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqrl.algo.trunk import Trunk
from seqrl.configs import BaseConfig, Section
from seqrl.core.errors import CheckpointError, ConfigError, DataError
from seqrl.core.registry import Registry
from seqrl.core.spaces import ACTION_KINDS, GOAL_PREFIX, ActionCodec, ObsSpec
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.core.types import ColumnStats
from seqrl.models.data_normalizer import DataNormalizer
from seqrl.models.sequence_encoders import State
from seqrl.models.sigma_linear import SigmaLinear

if TYPE_CHECKING:
    from seqrl.algo.acting import VectorPolicy
    from seqrl.algo.updater import Updater

FactoryFunc = Callable[[Any], tuple[type["Algo"], dict[str, Any]]]

ALGOS: Registry[FactoryFunc] = Registry("algorithm")
"""Algorithm name -> function from its config section to the class and its extra arguments."""

register_algo_factory_func = ALGOS.register


@dataclass(frozen=True)
class Losses:
    """What one batch says.

    Attributes:
        total: The scalar to descend.
        metrics: Name ``group/name`` -> detached scalar on the device, for the log.
        stats: Name -> detached *sums* over the batch; added over micro-batches and ranks, then handed to
            :meth:`Algo.on_gradient_step`.
    """

    total: Float[Tensor, ""]
    metrics: dict[str, Tensor] = field(default_factory=dict)
    stats: dict[str, Tensor] = field(default_factory=dict)


MaskEdit = Callable[[SeqBatch, Tensor, Tensor], Tensor]
"""From a batch, a loss ``(B, T)`` per transition (detached) and a mask ``(B, T)`` to another mask."""


def _same_mask(batch: SeqBatch, loss: Tensor, mask: Tensor) -> Tensor:
    return mask


@dataclass
class MaskEdits:
    """Which transitions count in which loss; an experiment may leave some out.

    Attributes:
        actor: Of the losses of the policy.
        critic: Of the losses of values.
    """

    actor: MaskEdit = _same_mask
    critic: MaskEdit = _same_mask


class Algo(ABC):
    """Base of all algorithms: a plain object that holds networks and knows what to do with batches.

    Args:
        config: The whole run file.
        obs: Name -> spec of the observation entries that the policy reads.
        codec: Describes the policy's actions.
        device: Where the networks live.

    Attributes:
        nets: All networks; everything that a checkpoint has to hold.
        goal_keys: Observation entries whose goal the policy reads, as the entry ``goal/<key>`` of ``obs``.
        action_kinds: Kinds of actions that it can take, of :data:`~seqrl.core.spaces.ACTION_KINDS`; the others are
            refused when it is built.
        fitted: Metrics that fall when it fits a batch. An actor that maximises values has no total that falls.
        mask_edits: Which transitions count in the losses.
        needs_next_obs: Whether it bootstraps from the last observation, which some data does not have.
        wants_metrics: Whether the next losses should bring all their metrics, some of which make the host wait. The
            learner asks on logging steps only; on by default, so that a loop of one's own sees them.
    """

    action_kinds: frozenset[str] = frozenset(ACTION_KINDS)
    fitted: tuple[str, ...] = ("loss/total",)
    needs_next_obs = False
    wants_metrics = True
    goal_keys: tuple[str, ...] = ()
    normalizer: DataNormalizer | None = None

    def __init__(
        self, config: BaseConfig, obs: Mapping[str, ObsSpec], codec: ActionCodec, device: torch.device | str
    ) -> None:
        self.config = config
        self.obs = dict(obs)
        self.goal_keys = tuple(config.observation.goal_keys)
        self.codec = codec
        self.device = torch.device(device)
        self.nets = nn.ModuleDict()
        self.normalizer = self._create_normalizer()
        self._create_networks()
        if self.normalizer is not None:
            self.nets["normalizer"] = self.normalizer
        self.nets.to(self.device)
        self.mask_edits = MaskEdits()
        self._updater: Updater | None = None
        self._acting: VectorPolicy | None = None

    @property
    def algo_config(self) -> Section:
        """The section ``algo`` of the config."""
        return self.config.algo

    # ---------------------------------------------------------------------- what a subclass has to write
    @abstractmethod
    def _create_networks(self) -> None:
        """Fill ``self.nets``."""

    @abstractmethod
    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the losses of a processed batch; write no parameter and no buffer."""

    @abstractmethod
    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return policy actions for one more input per row ``(B, 1, ...)``, and the next state.

        The given state is consumed: it may be overwritten.
        """

    @abstractmethod
    def init_state(self, num_rows: int) -> State:
        """Return the state of a policy that has seen nothing."""

    @abstractmethod
    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Forget the episode of the rows that are True."""

    # ------------------------------------------------------------------------------------------- training
    @property
    def max_step(self) -> int | None:
        """Largest step index that the memory can take, or None."""
        return None

    @property
    def updater(self) -> Updater:
        """What moves the weights; a default one is built on first use."""
        if self._updater is None:
            from seqrl.algo.updater import Updater

            self._updater = Updater(self)
        return self._updater

    @updater.setter
    def updater(self, updater: Updater) -> None:
        self._updater = updater

    def process_batch_for_training(self, batch: SeqBatch | Mapping[str, Any]) -> SeqBatch:
        """Check a batch, and move it to the device.

        Args:
            batch: A SeqBatch, or a robomimic-style dict (see :meth:`SeqBatch.from_mapping`).

        Raises:
            DataError: If a step index is beyond what the memory can take, or a dict contradicts its action mask.
        """
        if not isinstance(batch, SeqBatch):
            batch = SeqBatch.from_mapping(batch)
            self._check_masks(batch)
        if self.max_step is not None and int(batch.inputs.step.max()) > self.max_step:
            raise DataError(self._step_problem(int(batch.inputs.step.max())))
        return self._prepared(batch.to(self.device))

    def _prepared(self, batch: SeqBatch) -> SeqBatch:
        """Return a batch as the networks know it: goals among the observations, and everything scaled."""
        inputs = self._with_goals(batch.inputs)
        return replace(batch, inputs=self.scaled_inputs(inputs), actions=self.scaled_actions(batch.actions))

    def _with_goals(self, inputs: SeqInputs) -> SeqInputs:
        """Return inputs with the goals that the policy reads among the observations, as in acting."""
        goals = {}
        for key in self.goal_keys:
            name = GOAL_PREFIX + key
            if key in inputs.goal:
                goals[name] = inputs.goal[key]
            elif name not in inputs.obs and key == "achieved_goal" and "desired_goal" in inputs.obs:
                goals[name] = inputs.obs["desired_goal"]
            elif name not in inputs.obs:
                raise DataError(
                    f"the policy reads a goal of {key!r} (observation.goal_keys), and the data has none: set "
                    "train.goal_mode to 'last', or use data with goals"
                )
        return replace(inputs, obs={**inputs.obs, **goals}) if goals else inputs

    def scaled_inputs(self, inputs: SeqInputs) -> SeqInputs:
        """Return inputs as the networks know them (``train.normalize_obs``, ``train.normalize_actions``)."""
        normalizer = self.normalizer
        if normalizer is None:
            return inputs
        known = {k: v for k, v in inputs.obs.items() if k in self.obs}
        has_action = (inputs.step > 0).unsqueeze(-1)  # an episode's first input follows no action: zeros
        prev_action = torch.where(has_action, normalizer.scaled_actions(inputs.prev_action), 0.0)
        return replace(inputs, obs={**inputs.obs, **normalizer.scaled_obs(known)}, prev_action=prev_action)

    def scaled_actions(self, actions: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead A"]:
        """Return policy actions as the networks know them."""
        return actions if self.normalizer is None else self.normalizer.scaled_actions(actions)

    def own_actions(self, actions: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead A"]:
        """Return what the networks gave as policy actions: the inverse of :meth:`scaled_actions`."""
        return actions if self.normalizer is None else self.normalizer.own_actions(actions)

    def use_statistics(self, obs: Mapping[str, ColumnStats], action: ColumnStats | None) -> None:
        """Take the statistics of the training data that ``train.normalize_obs`` and ``normalize_actions`` need.

        Args:
            obs: Of every scaled observation entry.
            action: Of policy actions.
        """
        if self.normalizer is not None:
            goals = {GOAL_PREFIX + k: obs[k] for k in self.goal_keys if k in obs}
            self.normalizer.use({**goals, **obs}, action)

    def _create_normalizer(self) -> DataNormalizer | None:
        train = self.config.train
        is_continuous = self.codec.kind == "continuous"
        if train.normalize_actions == "none":
            self.codec.check_bounded()
        elif not is_continuous:
            raise ConfigError(
                f"train.normalize_actions: actions of {self.codec.space!r} are not continuous; use 'none'"
            )
        elif train.normalize_actions == "gaussian":
            self._check_unbounded_policy()
        d_action = self.codec.dim if is_continuous and train.normalize_actions != "none" else 0
        modalities = getattr(self.config.observation.timestep_encoder, "modalities", {})
        scaled = {k: v for k, v in self.obs.items() if k not in modalities or modalities[k].type == "vector"}
        normalizer = DataNormalizer(scaled, d_action, train.normalize_obs, train.normalize_actions)
        return normalizer.to(self.device) if normalizer.names or d_action else None

    def _check_unbounded_policy(self) -> None:
        distribution = getattr(self.algo_config, "distribution", None)
        if isinstance(self, ValueAlgo) or getattr(distribution, "is_bounded", True):
            raise ConfigError(
                "train.normalize_actions: 'gaussian' makes actions beyond [-1, 1], which "
                + ("critics do not read" if isinstance(self, ValueAlgo) else "this policy cannot give")
                + "; use 'min_max', or to imitate with an unbounded policy, such as "
                "algo.distribution.type='gaussian' with algo.distribution.is_bounded=false"
            )

    def train_on_batch(self, batch: SeqBatch, epoch: int = 0, validate: bool = False) -> dict[str, Tensor]:
        """Take one gradient step on a processed batch, or only compute its losses.

        Args:
            batch: From :meth:`process_batch_for_training`.
            epoch: Number of the epoch, for algorithms that depend on it.
            validate: Change nothing.

        Returns:
            Name -> detached scalar on the device; ``loss/total`` is always there. Reading them costs a sync.
        """
        if validate:
            precision = contextlib.nullcontext() if self._updater is None else self._updater.autocast()
            with torch.no_grad(), precision:
                losses = self.compute_losses(batch)
        else:
            losses = self.updater.step(batch)
        return {"loss/total": losses.total.detach(), **losses.metrics}

    def log_info(self, info: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the numbers of :meth:`train_on_batch` as floats, the total also as robomimic's ``Loss``."""
        names = list(info)
        values = torch.stack([info[n].detach().float() for n in names]).tolist() if names else []
        numbers = dict(zip(names, values, strict=True))
        return {**numbers, "Loss": numbers["loss/total"]} if "loss/total" in numbers else numbers

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move what follows the weights: statistics, targets, spectral norms."""
        for module in self.nets.modules():
            if isinstance(module, SigmaLinear):
                module.power_iteration()

    def check_hardware(self, *, is_half: bool) -> None:  # noqa: B027
        """Raise a ConfigError if a network cannot train on this device, in half precision or not."""

    def on_epoch_end(self, epoch: int) -> None:  # noqa: B027
        """Called after the last gradient step of each epoch."""

    def on_checkpoint_loaded(self, *, is_resume: bool) -> None:  # noqa: B027
        """Called after weights have come from a checkpoint, to go on training or to act."""

    def set_train(self) -> None:
        """Switch the networks to training."""
        self.nets.train()

    def set_eval(self) -> None:
        """Switch the networks to evaluation."""
        self.nets.eval()

    def serialize(self) -> dict[str, Tensor]:
        """Return a copy of all weights and buffers, on the CPU."""
        return {k: v.detach().cpu().clone().contiguous() for k, v in self.nets.state_dict().items()}

    def deserialize(self, weights: Mapping[str, Tensor]) -> None:
        """Load what :meth:`serialize` gave.

        Raises:
            CheckpointError: That names the weights which are missing, left over, or of another shape or dtype.
        """
        own = self.nets.state_dict()
        wrong = [f"{k} is missing" for k in own.keys() - weights.keys()]
        wrong += [f"{k} is unknown" for k in weights.keys() - own.keys()]
        wrong += [
            f"{k} is {weights[k].dtype} {tuple(weights[k].shape)}, not {v.dtype} {tuple(v.shape)}"
            for k, v in own.items()
            if k in weights and (weights[k].shape, weights[k].dtype) != (v.shape, v.dtype)
        ]
        if wrong:
            is_scaled = any(problem.startswith("normalizer.") for problem in wrong)
            hint = (
                " (train.normalize_obs and train.normalize_actions have to be those of the weights)"
                if is_scaled
                else ""
            )
            raise CheckpointError("weights do not fit this config: " + "; ".join(sorted(wrong)[:5]) + hint)
        self.nets.load_state_dict(dict(weights))

    # --------------------------------------------------------------------------------------------- acting
    def get_action(
        self, obs_dict: Mapping[str, Any], goal_dict: Mapping[str, Any] | None = None
    ) -> Float[Tensor, "B A"]:
        """Return policy actions for one more observation per row, remembering what came before (robomimic's verb).

        Args:
            obs_dict: Name -> ``(B, ...)`` tensor or array.
            goal_dict: Name -> ``(B, ...)``.
        """
        from seqrl.algo.acting import VectorPolicy

        obs = {k: np.asarray(v.cpu() if isinstance(v, Tensor) else v) for k, v in obs_dict.items()}
        num_rows = len(next(iter(obs.values())))
        if self._acting is None or self._acting.num_rows != num_rows:
            self._acting = VectorPolicy(self, num_rows, deterministic=True)
        goal = {k: np.asarray(v.cpu() if isinstance(v, Tensor) else v) for k, v in (goal_dict or {}).items()}
        return torch.from_numpy(self._acting.act(obs, goal=goal))

    def reset(self) -> None:
        """Forget the episode that :meth:`get_action` remembers."""
        self._acting = None

    def _check_masks(self, batch: SeqBatch) -> None:
        """Refuse masks of another width, without a legal action, or that forbid what was done."""
        mask = batch.inputs.action_mask
        if mask is None or self.codec.kind == "continuous":
            return
        legal = self.codec.legal(mask.cpu().numpy(), *mask.shape[:2])
        illegal = (batch.actions.cpu().numpy() > 0.5) & ~legal[:, :-1] & batch.mask.cpu().numpy()[..., None]
        for what, where in (
            ("leaves no legal action", self.codec.stuck(legal)),
            ("forbids the action", illegal.any(-1)),
        ):
            if where.any():
                row, step = np.argwhere(where)[0]
                raise DataError(f"action_mask of row {row} {what} at step {step}")

    def _step_problem(self, step: int) -> str:
        return (
            f"step {step} is beyond the table of learned positions (max_steps {(self.max_step or 0) + 1}); "
            "raise algo.sequence_encoder.max_steps, or use positions 'fixed' or 'rotary'"
        )


class PolicyAlgo(Algo):
    """Algorithms whose product is a policy on a memory.

    Attributes:
        trunk: Timestep encoder and memory; made by ``_create_networks``.
    """

    trunk: Trunk

    def init_state(self, num_rows: int) -> State:
        """Return an empty memory."""
        return self.trunk.sequence_encoder.init_state(num_rows, device=self.device)

    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Empty the memory of some rows."""
        return self.trunk.sequence_encoder.reset_rows(state, rows)

    def check_hardware(self, *, is_half: bool) -> None:
        """Raise a ConfigError if the memory cannot train on this device."""
        self.trunk.sequence_encoder.check(self.device, is_half=is_half)

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move the statistics of the inputs, and the spectral norms."""
        self.trunk.update(stats)
        super().on_gradient_step(stats)

    @property
    def max_step(self) -> int | None:
        """What the memory allows."""
        return self.trunk.sequence_encoder.max_step


class ValueAlgo(Algo):
    """Algorithms that also estimate values."""

    @abstractmethod
    def get_state_value(self, batch: SeqBatch) -> Tensor:
        """Return V of every input."""

    @abstractmethod
    def get_state_action_value(self, batch: SeqBatch) -> Tensor:
        """Return Q of every transition."""


def algo_factory(
    algo_name: str,
    config: BaseConfig,
    obs_key_shapes: Mapping[str, Sequence[int] | ObsSpec],
    ac_dim: int,
    device: torch.device | str,
    action_space: spaces.Space[Any] | None = None,
) -> Algo:
    """Build an algorithm.

    Args:
        algo_name: Registered name.
        config: Its run file.
        obs_key_shapes: Name -> shape (float32 is assumed) or :class:`ObsSpec` of every observation entry.
        ac_dim: Width of the policy's action; checked where ``action_space`` is given.
        device: Where the networks live.
        action_space: Of the environment; None means a Box of [-1, 1] of width ``ac_dim``.

    Raises:
        RegistryError: If the algorithm is unknown.
        ConfigError: If the algorithm cannot take such actions.
        DataError: If ``observation.keys`` names an entry that does not exist, or the widths disagree.
    """
    algo_class, kwargs = ALGOS.get(algo_name)(config.algo)
    codec = ActionCodec(spaces.Box(-1.0, 1.0, (ac_dim,)) if action_space is None else action_space)
    if codec.dim != ac_dim:
        raise DataError(f"ac_dim is {ac_dim}, but {action_space!r} makes policy actions of width {codec.dim}")
    if codec.action_kind not in algo_class.action_kinds:
        raise ConfigError(
            f"algorithm {algo_name!r} takes actions that are {' or '.join(sorted(algo_class.action_kinds))}; those of "
            f"{codec.space!r} are {codec.action_kind}"
        )
    specs = {k: s if isinstance(s, ObsSpec) else ObsSpec(tuple(s)) for k, s in obs_key_shapes.items()}
    keys = config.observation.keys
    missing = sorted(set(keys or ()) - specs.keys())
    if missing:
        raise DataError(f"observation.keys: {', '.join(missing)} not in the data, which has {', '.join(sorted(specs))}")
    seen = {k: specs[k] for k in keys or specs}
    goals = config.observation.goal_keys
    if missing := sorted(set(goals) - specs.keys()):
        raise DataError(f"observation.goal_keys: {', '.join(missing)} not in the data, which has {', '.join(specs)}")
    seen |= {GOAL_PREFIX + k: specs[k] for k in goals}
    return algo_class(config, seen, codec, device, **kwargs)
