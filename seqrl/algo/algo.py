"""The contract that every algorithm fulfils, and the registry of algorithms."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, cast

import numpy as np
import torch
from gymnasium import spaces
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqrl.algo.acting import VectorPolicy
from seqrl.algo.ema import add_averages, averaged, move_averages, with_averages
from seqrl.algo.heads import check_networks
from seqrl.algo.inputs import Inputs, check_masks
from seqrl.algo.losses import Losses, MaskEdits
from seqrl.algo.trunk import Trunk
from seqrl.algo.updater import Updater
from seqrl.configs import BaseConfig
from seqrl.configs.base_config import CONFIGS
from seqrl.configs.sections.algo import AlgoSection, PolicySection
from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import CheckpointError, ConfigError, DataError, PluginError, RegistryError
from seqrl.core.registry import Registry
from seqrl.core.spaces import ACTION_KINDS, GOAL_PREFIX, ActionCodec, ObsSpec
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.core.types import ColumnStats
from seqrl.models.data_normalizer import DataNormalizer
from seqrl.models.sequence_encoders import State
from seqrl.models.sigma_linear import SigmaLinear
from seqrl.models.timestep_encoders import values_read

SectionT = TypeVar("SectionT", bound=AlgoSection)
PartT = TypeVar("PartT", bound="Algo[Any]")

Need = Literal["next_obs", "next_action", "return_to_go", "mc_return", "mc_bound"]
"""What an algorithm may ask of its data, see :attr:`Algo.needs`."""

FactoryFunc = Callable[[Any], tuple[type["Algo[Any]"], dict[str, Any]]]

ALGOS: Registry[FactoryFunc] = Registry("algorithm")
"""Algorithm name -> function from its config section to the class and its extra arguments."""

register_algo_factory_func = ALGOS.register


class Algo(ABC, Generic[SectionT]):
    """Base of all algorithms: a plain object that holds networks and knows what to do with batches.

    Args:
        config: The whole run file.
        obs: Name -> spec of the observation entries that the policy reads.
        codec: Describes the policy's actions.
        device: Where the networks live.
        inputs: Of the algorithm that this one is a part of, which scales what both read; None makes its own.

    Attributes:
        nets: All networks; everything that a checkpoint has to hold.
        goal_keys: Observation entries whose goal the policy reads, as the entry ``goal/<key>`` of ``obs``.
        action_kinds: Kinds of actions that it can take, of :data:`~seqrl.core.spaces.ACTION_KINDS`; the others are
            refused when it is built.
        fitted: Metrics that fall when it fits a batch. An actor that maximises values has no total that falls.
        mask_edits: Which transitions count in the losses.
        needs: What it asks of the data: ``next_obs``, the observation after the last action, which some data does not
            have; and in :attr:`SeqBatch.extras` ``return_to_go``, ``mc_return`` and ``mc_bound`` (the same, but
            minus infinity where a time limit may have lifted it) ``(B, L)``, and ``next_action`` ``(B, L, A)`` as the
            networks know actions, with ``has_next_action`` ``(B, L)``: 0 where nothing follows.
        discount: Per step, of the returns ``mc_return`` and ``mc_bound``.
        needs_reward: Whether acting refuses a missing reward, even where no encoder reads it.
        trunk_obs: Name -> spec of entries that the memory reads beside those of the environment, such as a return to
            go: neither asked of the environment nor scaled. The algorithm adds them to the inputs.
        acts: Whether it gives actions; a planner alone does not.
        reads_vectors: Whether networks read vectors beside or of the observation, which an encoder of images alone
            does not give.
        wants_metrics: Whether the next losses should bring all their metrics, some of which make the host wait. The
            learner asks on logging steps only; on by default, so that a loop of one's own sees them.
    """

    action_kinds: frozenset[str] = frozenset(ACTION_KINDS)
    fitted: tuple[str, ...] = ("loss/total",)
    needs: frozenset[Need] = frozenset()
    needs_reward = False
    discount: float = 1.0
    acts = True
    reads_vectors = False
    wants_metrics = True

    @property
    def trunk_obs(self) -> Mapping[str, ObsSpec]:
        """Entries that the memory reads beside those of the environment; none by default."""
        return {}

    def __init__(
        self,
        config: BaseConfig,
        obs: Mapping[str, ObsSpec],
        codec: ActionCodec,
        device: torch.device | str,
        *,
        inputs: Inputs | None = None,
    ) -> None:
        self.config = config
        self.obs = dict(obs)
        self.goal_keys = tuple(config.observation.goal_keys)
        self.codec = codec
        self.device = torch.device(device)
        self.nets = nn.ModuleDict()
        self.mask_edits = MaskEdits()
        self.inputs = inputs or Inputs(
            config,
            obs,
            codec,
            self.device,
            may_be_unbounded=self._may_be_unbounded(),
            has_values=isinstance(self, ValueAlgo),
        )
        self._create_networks()
        check_networks(self, self.nets)
        self.inputs.values = {**self.inputs.values, **values_read(self.nets)}
        self._spectral = [module for module in self.nets.modules() if isinstance(module, SigmaLinear)]
        if inputs is None:
            add_averages(self.nets, self.algo_config.average_decay)
        if inputs is None and self.inputs.normalizer is not None:
            self.nets["normalizer"] = self.inputs.normalizer
        self.nets.to(self.device)
        self._updater: Updater | None = None
        self._acting: VectorPolicy | None = None

    @property
    def algo_config(self) -> SectionT:
        """The section ``algo`` of the config."""
        return cast(SectionT, self.config.algo)

    @property
    def normalizer(self) -> DataNormalizer | None:
        """What scales by the data's statistics, if the run file asks for it."""
        return self.inputs.normalizer

    def use_statistics(self, obs: Mapping[str, ColumnStats], action: ColumnStats | None) -> None:
        """Take the statistics of the training data that ``train.normalize_obs`` and ``normalize_actions`` need."""
        self.inputs.use_statistics(obs, action)

    @property
    def scales_rewards(self) -> bool:
        """Whether it can scale rewards by the range of the data's returns (``train.normalize_rewards``)."""
        return False

    @property
    def needs_returns(self) -> bool:
        """Whether :meth:`use_returns` wants to know the returns of the training data's episodes."""
        return False

    def use_returns(self, returns: Float[Tensor, " N"]) -> None:
        """Take the returns of the training data's episodes, in environment units."""

    def _may_be_unbounded(self) -> bool:
        """Tell whether the policy can give actions beyond [-1, 1]."""
        return False

    def _part(self, kind: type[PartT], section: AlgoSection, obs: Mapping[str, ObsSpec]) -> PartT:
        """Return an algorithm that is a part of this one, with a section of its own; put its ``nets`` into these."""
        config = self.config.model_copy(update={"algo": section})
        return kind(config, obs, self.codec, self.device, inputs=self.inputs)

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

    @property
    def explores(self) -> bool:
        """Whether it has an idea of its own of how to act in training environments: :meth:`explore`."""
        return False

    def explore(self, inputs: SeqInputs, state: State, luck: Float[Tensor, " B"]) -> tuple[Float[Tensor, "B A"], State]:
        """Return what :meth:`act` does, in training environments.

        Args:
            inputs: One more input per row ``(B, 1, ...)``.
            state: Consumed.
            luck: In [0, 1), drawn by each row for its episode.
        """
        return self.act(inputs, state, deterministic=False)

    @abstractmethod
    def init_state(self, num_rows: int) -> State:
        """Return the state of a policy that has seen nothing."""

    @abstractmethod
    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Forget the episode of the rows that are True."""

    def subgoals(self, state: State) -> dict[str, Tensor]:
        """Return what the rows are on their way to: observation entry -> ``(B, W)``; nothing without subgoals."""
        return {}

    # ------------------------------------------------------------------------------------------- training
    @property
    def max_step(self) -> int | None:
        """Largest step index that the memory can take, or None."""
        return None

    @property
    def updater(self) -> Updater:
        """What moves the weights; a default one is built on first use."""
        if self._updater is None:
            self._updater = Updater(self)
        return self._updater

    @updater.setter
    def updater(self, updater: Updater) -> None:
        self._updater = updater

    def postprocess_batch_for_training(self, batch: SeqBatch, obs_normalization_stats: None = None) -> SeqBatch:
        """Return the batch as it is, for training loops of robomimic: :meth:`process_batch_for_training` scales it."""
        return batch

    def process_batch_for_training(self, batch: SeqBatch | Mapping[str, Any]) -> SeqBatch:
        """Check a batch, and move it to the device.

        Args:
            batch: A SeqBatch, or a robomimic-style dict (see :meth:`SeqBatch.from_mapping`).

        Raises:
            DataError: If a step index is beyond what the memory can take, a dict contradicts its action mask, or
                ``extras`` lack what the algorithm needs.
        """
        if not isinstance(batch, SeqBatch):
            batch = SeqBatch.from_mapping(batch)
            check_masks(batch, self.codec)
        needed = {*self.needs, *(("has_next_action",) if "next_action" in self.needs else ())} - {"next_obs"}
        if missing := sorted(needed - batch.extras.keys()):
            raise DataError(
                f"{self.config.algo_name} needs {', '.join(missing)} in the batch's extras; let the dataset make them "
                "(SequenceDataset.provide), or add them"
            )
        steps = batch.inputs.step if "next_obs" in self.needs else batch.inputs.step[:, : batch.num_transitions]
        if self.max_step is not None and int(steps.max()) > self.max_step:
            raise DataError(self.step_problem(int(steps.max())))
        return self.inputs.batch(batch.to(self.device))

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
        """Move what follows the weights: statistics, targets, spectral norms, averages."""
        for module in self._spectral:
            module.power_iteration()
        move_averages(self.nets)

    def check_hardware(self, *, is_half: bool) -> None:
        """Raise a ConfigError if a network cannot train on this device, in half precision or not."""

    def on_epoch_end(self, epoch: int) -> None:
        """Called after the last gradient step of each epoch."""

    def on_checkpoint_loaded(self, *, is_resume: bool) -> None:
        """Called after weights have come from a checkpoint, to go on training or to act."""

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Let the averages of ``algo.average_decay`` stand in for the weights, as in validation and evaluation."""
        return averaged(self.nets)

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
        weights = with_averages(weights, own)
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
                " (train.normalize_obs and train.normalize_actions have to be as when the weights were trained)"
                if is_scaled
                else ""
            )
            raise CheckpointError("weights do not fit this config: " + "; ".join(sorted(wrong)[:5]) + hint)
        self.nets.load_state_dict(weights)

    # --------------------------------------------------------------------------------------------- acting
    def get_action(
        self, obs_dict: Mapping[str, Any], goal_dict: Mapping[str, Any] | None = None
    ) -> Float[Tensor, "B A"]:
        """Return policy actions for one more observation per row, remembering what came before (robomimic's verb).

        Args:
            obs_dict: Name -> ``(B, ...)`` tensor or array.
            goal_dict: Name -> ``(B, ...)``.
        """
        obs = {k: np.asarray(v.cpu() if isinstance(v, Tensor) else v) for k, v in obs_dict.items()}
        num_rows = len(next(iter(obs.values())))
        if self._acting is None or self._acting.num_rows != num_rows:
            self._acting = VectorPolicy(self, num_rows, deterministic=None)
        goal = {k: np.asarray(v.cpu() if isinstance(v, Tensor) else v) for k, v in (goal_dict or {}).items()}
        return torch.from_numpy(self._acting.act(obs, goal=goal))

    @torch.no_grad()
    def policy_over(self, inputs: SeqInputs, num_samples: int) -> Float[Tensor, "K B L A"]:
        """Return actions that the policy would take at every input of a window, given the inputs before it.

        By default it acts step by step; algorithms whose policy is a head of the memory need one pass.

        Args:
            inputs: Of a processed batch, from an episode's start.
            num_samples: K draws per input; each row of draws is an episode's, with a memory of its own.
        """
        num, length = inputs.step.shape
        repeated = inputs.map(lambda x: x.repeat(num_samples, *[1] * (x.dim() - 1)))
        state, actions = self.init_state(num_samples * num), []
        for t in range(length):
            one = repeated.map(lambda x, t=t: x[:, t : t + 1])  # type: ignore[misc]
            action, state = self.act(one, state, deterministic=False)
            actions.append(action)
        drawn: Tensor = torch.stack(actions, dim=1).unflatten(0, (num_samples, num))
        return drawn

    def reset(self) -> None:
        """Forget the episode that :meth:`get_action` remembers."""
        self._acting = None

    def step_problem(self, step: int) -> str:
        """Return what to say of a step that the memory cannot take."""
        return (
            f"step {step} is beyond the table of learned positions (max_steps {(self.max_step or 0) + 1}); "
            "raise algo.sequence_encoder.max_steps, or use positions 'fixed' or 'rotary'"
        )


class PolicyAlgo(Algo[SectionT]):
    """Algorithms whose product is a policy on a memory.

    Attributes:
        trunk: Timestep encoder and memory; made by ``_create_networks``.
    """

    trunk: Trunk

    def _may_be_unbounded(self) -> bool:
        section = self.algo_config
        if not isinstance(section, PolicySection):
            return False
        _, options = section.distribution.choice()
        return not (isinstance(self, ValueAlgo) or options.get("is_bounded", True))

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


class ValueAlgo(ABC):
    """Algorithms that also estimate values."""

    @abstractmethod
    def get_state_value(
        self, obs_dict: SeqBatch | Mapping[str, Any], goal_dict: Mapping[str, Any] | None = None
    ) -> Tensor:
        """Return V of a processed batch, or of observations."""

    @abstractmethod
    def get_state_action_value(
        self,
        obs_dict: SeqBatch | Mapping[str, Any],
        actions: Tensor | None = None,
        goal_dict: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """Return Q of a processed batch, or of observations and actions."""


def find_factory(algo_name: str) -> FactoryFunc:
    """Return the factory of an algorithm, or raise a RegistryError."""
    if algo_name in CONFIGS and algo_name not in ALGOS:
        raise RegistryError(f"algorithm {algo_name!r} has a config but no factory: see register_algo_factory_func")
    return ALGOS.get(algo_name)


def _made_by(factory: FactoryFunc, section: AlgoSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    made = factory(section)
    is_pair = isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Mapping)
    if not (is_pair and isinstance(made[0], type) and issubclass(made[0], Algo)):
        raise PluginError(f"{factory} has to return (a subclass of Algo, its arguments), it returned {made!r}")
    return made


def algo_factory(
    algo_name: str,
    config: BaseConfig,
    obs_key_shapes: Mapping[str, Sequence[int] | ObsSpec],
    ac_dim: int,
    device: torch.device | str,
    action_space: spaces.Space[Any] | None = None,
) -> Algo[Any]:
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
        PluginError: If the factory does not return a subclass of Algo and its arguments.
        DataError: If ``observation.keys`` names an entry that does not exist, or the widths disagree.
    """
    algo_class, kwargs = _made_by(find_factory(algo_name), config.algo)
    codec = action_codec(spaces.Box(-1.0, 1.0, (ac_dim,)) if action_space is None else action_space)
    if codec.dim != ac_dim:
        raise DataError(f"ac_dim is {ac_dim}, but {action_space!r} makes policy actions of width {codec.dim}")
    if codec.action_kind not in algo_class.action_kinds:
        raise ConfigError(
            f"algorithm {algo_name!r} takes actions that are {' or '.join(sorted(algo_class.action_kinds))}; those of "
            f"{codec.space!r} are {codec.action_kind}"
        )
    specs = {k: s if isinstance(s, ObsSpec) else ObsSpec(tuple(s)) for k, s in obs_key_shapes.items()}
    keys, goals = config.observation.keys, config.observation.goal_keys
    for key, names in (("keys", keys or ()), ("goal_keys", goals)):
        if missing := ", ".join(sorted(set(names) - specs.keys())):
            raise DataError(f"observation.{key}: {missing} not in the data, which has {', '.join(sorted(specs))}")
    seen = {k: specs[k] for k in keys or specs} | {GOAL_PREFIX + k: specs[k] for k in goals}
    return algo_class(config, seen, codec, device, **kwargs)
