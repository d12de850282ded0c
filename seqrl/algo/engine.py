"""Acting by ONNX Runtime: a step of the policy is exported once, and its weights are replaced as they change."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqrl.algo.acting import evaluating
from seqrl.algo.algo import Algo
from seqrl.algo.export import (
    ACTION,
    MASK,
    NOISE,
    OBS,
    PREV_ACTION,
    REWARD,
    STEP,
    check_exportable,
    example_obs,
    found_draws,
    onnx_model,
    reads_mask,
)  # fmt: skip
from seqrl.algo.export_noise import NORMAL, Draw, GivenNoise
from seqrl.core.errors import ConfigError, SeqrlError
from seqrl.core.tensors import SeqInputs, flushed_denormals
from seqrl.models.sequence_encoders import State

logger = logging.getLogger(__name__)

LUCK, MEMORY = "luck", "memory/"


def check_engine(algo: Algo) -> None:
    """Refuse, without exporting it, a policy whose steps :class:`OnnxEngine` cannot take.

    Raises:
        ConfigError: If it is on a GPU, reads goals or text, or a package is not installed.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'seqrl[onnx]'") from error
    if algo.device.type != "cpu":
        raise ConfigError(f"engine 'onnx' acts on a CPU, and the policy is on {algo.device}; use 'eager'")
    check_exportable(algo)


class _Step(nn.Module):
    """From one more input per row and the memory to policy actions and the next memory, as named tensors.

    Args:
        algo: The policy.
        deterministic: Act greedily.
        explores: Act by :meth:`~seqrl.algo.Algo.explore`.
    """

    def __init__(self, algo: Algo, *, deterministic: bool, explores: bool) -> None:
        super().__init__()
        self._algo = [algo]  # not a child: its networks are
        self.algo_name = algo.config.algo_name
        self.nets, self.normalizer = algo.nets, algo.inputs.normalizer
        self.deterministic, self.explores = deterministic, explores and not deterministic
        self._draws: list[Draw] = []
        self.noise: dict[str, int] = {}
        if not deterministic:
            self._draws, self.noise = found_draws(algo, lambda num_rows: self._acted(self.example(num_rows)))
        self.example_names = list(self.example(1))

    def example(self, num_rows: int) -> dict[str, Tensor]:
        """Return inputs of the right names, shapes and dtypes."""
        algo = self._algo[0]
        found = example_obs(algo.obs, num_rows)
        found[PREV_ACTION] = torch.zeros(num_rows, algo.codec.dim)
        found[REWARD] = torch.zeros(num_rows)
        found[STEP] = torch.zeros(num_rows, dtype=torch.int64)
        if reads_mask(algo):
            found[MASK] = torch.ones(num_rows, algo.codec.dim, dtype=torch.bool)
        if self.explores:
            found[LUCK] = torch.full((num_rows,), 0.5)
        found |= {NOISE + kind: torch.full((num_rows, width), 0.5) for kind, width in self.noise.items()}
        return found | {MEMORY + name: value for name, value in algo.init_state(num_rows).items()}

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return the actions and the next memory, from the values of :meth:`example` in their order."""
        given = dict(zip(self.example_names, values, strict=True))
        if self.deterministic:
            return self._acted(given)
        with GivenNoise(self._draws, {kind: given[NOISE + kind] for kind in self.noise}):
            return self._acted(given)

    def _acted(self, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
        algo = self._algo[0]
        inputs = SeqInputs(
            obs={name: given[OBS + name].unsqueeze(1) for name in algo.obs},
            prev_action=given[PREV_ACTION].unsqueeze(1),
            prev_reward=given[REWARD].unsqueeze(1),
            step=given[STEP].unsqueeze(1),
            action_mask=given[MASK].unsqueeze(1) if MASK in given else None,
        )
        state = {name.removeprefix(MEMORY): v for name, v in given.items() if name.startswith(MEMORY)}
        scaled = algo.inputs.scaled(inputs)
        if self.explores:
            action, after = algo.explore(scaled, state, given[LUCK])
        else:
            action, after = algo.act(scaled, state, self.deterministic)
        return (algo.inputs.own_actions(action.float()), *(after[name] for name in state))


class OnnxEngine:
    """Takes the steps of an algorithm on a CPU: faster than its own, because a graph has no Python between operations.

    Making one takes several seconds, :meth:`refresh` some hundredths of a second.

    Args:
        algo: The policy.
        deterministic: Act greedily rather than by sampling.
        explores: Sample as the algorithm does in training environments.

    Raises:
        ConfigError: If the policy is no graph, is on a GPU, or onnx or onnxruntime is not installed.
    """

    def __init__(self, algo: Algo, *, deterministic: bool, explores: bool = False) -> None:
        check_engine(algo)
        self.algo = algo
        with evaluating(algo), torch.random.fork_rng([]):
            self._export(_Step(algo, deterministic=deterministic, explores=explores and algo.explores).eval())
        self.refresh()

    def _export(self, step: _Step) -> None:
        example = step.example(3)
        self._has_mask, self._reads_luck, self._noise = MASK in example, step.explores, step.noise
        self._dtypes = {name: value.dtype for name, value in example.items()}
        self._state_names = [name.removeprefix(MEMORY) for name in example if name.startswith(MEMORY)]
        writing: list[Any] = [net for net in self.algo.nets.modules() if hasattr(net, "defers_writes")]
        try:
            for net in writing:
                net.defers_writes = True
            with torch.no_grad():
                after = dict(zip(self._state_names, step(*example.values())[1:], strict=True))
            outputs = [ACTION, *(f"next_{MEMORY}{name}" for name in self._state_names)]
            self._proto = onnx_model(step, step.example(3), outputs, folds=False)
        finally:
            for net in writing:
                net.defers_writes = False
        self._written = [name for name in self._state_names if after[name].shape != example[MEMORY + name].shape]
        self._step = step

    def refresh(self) -> None:
        """Take the weights that the algorithm has now."""
        import onnxruntime

        step = self._step  # a module may have two names, of which the graph has either
        weights = dict(step.named_parameters(remove_duplicate=False)) | dict(step.named_buffers(remove_duplicate=False))
        for entry in self._proto.graph.initializer:
            if (weight := weights.get(entry.name)) is not None:
                entry.raw_data = weight.detach().contiguous().numpy().tobytes()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        with flushed_denormals():  # the first session sets that for this thread too, and for good
            self._session = onnxruntime.InferenceSession(
                self._proto.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=["MatMulScaleFusion"],  # products with a scale take a slower way for one query
            )
        self._read = [entry.name for entry in self._session.get_inputs()]

    def __call__(self, inputs: SeqInputs, state: State, luck: Tensor) -> tuple[Tensor, State]:
        """Return policy actions ``(B, A)`` for inputs ``(B, 1, ...)`` in the environment's units, and the next state.

        Args:
            inputs: One more input per row.
            state: Consumed.
            luck: ``(B,)``, see :meth:`~seqrl.algo.Algo.explore`.
        """
        given = {OBS + name: value for name, value in inputs.obs.items()}
        given |= {PREV_ACTION: inputs.prev_action, REWARD: inputs.prev_reward, STEP: inputs.step}
        num_rows = len(luck)
        if self._has_mask:
            legal = inputs.action_mask
            given[MASK] = torch.ones(inputs.prev_action.shape, dtype=torch.bool) if legal is None else legal
        feeds: dict[str, np.ndarray] = {k: v.squeeze(1).to(self._dtypes[k]).numpy() for k, v in given.items()}
        feeds |= {NOISE + kind: _drawn(kind, (num_rows, width)).numpy() for kind, width in self._noise.items()}
        if self._reads_luck:
            feeds[LUCK] = luck.numpy()
        feeds |= {MEMORY + name: state[name].numpy() for name in self._state_names}
        with flushed_denormals():  # ONNX Runtime's softmax is full of them where the window has not filled
            action, *after = self._session.run(None, {name: feeds[name] for name in self._read})
        found = dict(zip(self._state_names, after, strict=True))
        rows = np.arange(num_rows)
        for name in self._written:
            state[name].numpy()[rows, :, state[_slot_of(name, state)].numpy()] = found.pop(name)[:, :, 0]
        return torch.from_numpy(action), {**state, **{name: torch.from_numpy(v) for name, v in found.items()}}


def _slot_of(name: str, state: State) -> str:
    """Return the entry that tells where an entry is written to: of ``keys_1``, ``slot_1`` or else ``slot``."""
    folder = name[: name.rfind("/") + 1]
    own = f"{folder}slot_{name.rpartition('_')[2]}"
    return own if own in state else f"{folder}slot"


def _drawn(kind: str, shape: tuple[int, int]) -> Tensor:
    return torch.randn(shape) if kind == NORMAL else torch.rand(shape)


class Engines:
    """Makes the engine of a policy on first use, and brings it up to date from then on.

    Args:
        name: ``eager`` or ``onnx``, of a run file.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._made: OnnxEngine | None = None

    def ready(self, algo: Algo, *, deterministic: bool, explores: bool = False) -> OnnxEngine | None:
        """Return the engine with the weights that the algorithm has now; None if the algorithm takes its own steps.

        Raises:
            ConfigError: If the engine cannot be made.
        """
        if self._name != "onnx":
            return None
        if self._made is None or self._made.algo is not algo:
            self._made = OnnxEngine(algo, deterministic=deterministic, explores=explores)
        else:
            self._made.refresh()
        return self._made


def can_act(algo: Algo, *, deterministic: bool, explores: bool = False) -> bool:
    """Tell whether :class:`OnnxEngine` can take a policy's steps, by making one; the log says why it cannot."""
    try:
        OnnxEngine(algo, deterministic=deterministic, explores=explores)
    except SeqrlError as error:
        logger.info("the engine 'auto' is 'eager': %s", error)
        return False
    return True
