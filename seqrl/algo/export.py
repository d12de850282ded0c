"""One step of a policy as a function of tensors, and as an ONNX file that needs no torch."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from seqrl.algo.acting import evaluating
from seqrl.algo.algo import Algo
from seqrl.algo.export_noise import NORMAL, UNIFORM, Draw, GivenNoise, draws_of
from seqrl.core.checkpoint_card import EXPORT_VERSION
from seqrl.core.errors import ConfigError
from seqrl.core.files import write_atomic
from seqrl.core.rotations import RotationBox
from seqrl.core.spaces import MASK_KEY, ActionCodec, ObsSpec, space_to_json
from seqrl.core.tensors import SeqInputs
from seqrl.models.timestep_encoders import TextModality
from seqrl.version import __version__

OBS, STATE, NOISE = "obs/", "state/", "noise/"
"""Prefixes of names of inputs and outputs."""

REWARD, RESET, MASK, ACTION = "reward", "reset", "action_mask", "action"
STEP, PREV_ACTION = "step", "prev_action"
"""What the state holds beside the memory."""

_EXPORTING = threading.Lock()
"""What :func:`_quiet` changes belongs to the whole process."""

_DTYPES = {"uint8": torch.uint8, "bool": torch.bool, "int64": torch.int64, "int32": torch.int32}


def check_exportable(algo: Algo) -> None:
    """Raise a ConfigError if one step of this policy is no graph: it gives no actions, or reads goals or text.

    A policy on a GPU is refused, too.
    """
    if algo.device.type != "cpu":
        raise ConfigError(f"a policy is exported on the CPU, and this one is on {algo.device}: load it there")
    if not algo.acts:
        raise ConfigError(f"algorithm {algo.config.algo_name!r} gives no actions, so there is no policy to export")
    if algo.goal_keys:
        raise ConfigError("a policy that reads goals (observation.goal_keys) cannot be exported yet")
    if any(isinstance(net, TextModality) for net in algo.nets.modules()):
        raise ConfigError("a policy that reads text cannot be exported: looking it up is not a tensor computation")


def reads_mask(algo: Algo) -> bool:
    """Tell whether the legal actions are an input of the graph."""
    return algo.codec.kind != "continuous" and getattr(algo, "chunk_steps", 1) == 1


def example_obs(obs: Mapping[str, ObsSpec], num_rows: int) -> dict[str, Tensor]:
    """Return observations of the right names, shapes and dtypes, all zero."""
    return {
        OBS + name: torch.zeros((num_rows, *spec.shape), dtype=_DTYPES.get(spec.dtype, torch.float32))
        for name, spec in obs.items()
    }


def found_draws(algo: Algo, act: Callable[[int], Any]) -> tuple[list[Draw], dict[str, int]]:
    """Return what a sampled step draws, and how many numbers of each kind of noise that takes per row.

    Args:
        algo: Named in errors.
        act: Takes a step of so many rows.

    Raises:
        ConfigError: If noise cannot be an input of it.
    """
    try:
        with torch.no_grad():
            draws = draws_of(act)
    except ConfigError as error:
        raise ConfigError(f"algorithm {algo.config.algo_name!r} cannot be exported with samples: {error}") from None
    widths = {kind: sum(d.width for d in draws if d.kind == kind) for kind in (NORMAL, UNIFORM)}
    return draws, {kind: width for kind, width in widths.items() if width}


class PolicyStep(nn.Module):
    """From observations and a state to the environment's actions and the next state.

    The state holds the memory, the step and the previous action; rows whose ``reset`` is True begin an episode.

    Args:
        algo: The policy.
        is_sampled: Whether actions are sampled, from noise that is an input; else they are greedy.

    Raises:
        ConfigError: If it gives no actions, or reads goals or text, or noise cannot be an input of its samples.
    """

    def __init__(self, algo: Algo, *, is_sampled: bool = False) -> None:
        super().__init__()
        check_exportable(algo)
        self._algo = [algo]  # not a child: its networks are
        self.algo_name = algo.config.algo_name
        self.nets = algo.nets
        self.obs = dict(algo.obs)
        self.has_mask = reads_mask(algo)
        self.action_head = EnvironmentAction(algo.codec)
        with torch.no_grad():
            fresh = algo.init_state(1)
        zeros = {STEP: torch.zeros(1, dtype=torch.int64), PREV_ACTION: torch.zeros(1, algo.codec.dim)}
        self.state_names = [*zeros, *(f"memory/{name}" for name in fresh)]
        for number, value in enumerate((*zeros.values(), *fresh.values())):
            self.register_buffer(f"fresh_{number}", value.detach().clone().contiguous(), persistent=False)
        self.is_sampled = is_sampled
        self._draws: list[Draw] = []
        self.noise: dict[str, int] = {}
        if is_sampled:
            self._draws, self.noise = found_draws(algo, lambda num_rows: self._acted(self.example(num_rows)))
        self.example_names = list(self.example(1))

    def example(self, num_rows: int) -> dict[str, Tensor]:
        """Return inputs of the right names, shapes and dtypes, for rows that begin an episode: zeros, legal draws."""
        found = example_obs(self.obs, num_rows)
        found[REWARD] = torch.zeros(num_rows)
        found[RESET] = torch.ones(num_rows, dtype=torch.bool)
        if self.has_mask:
            found[MASK] = torch.ones((num_rows, self._algo[0].codec.dim), dtype=torch.bool)
        found |= {NOISE + kind: torch.full((num_rows, width), 0.5) for kind, width in self.noise.items()}
        fresh = {name: self._fresh(number) for number, name in enumerate(self.state_names)}
        return found | {STATE + k: v.expand(num_rows, *v.shape[1:]).clone() for k, v in fresh.items()}

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return the actions and the next state, from the values of :meth:`example` in their order."""
        given = dict(zip(self.example_names, values, strict=True))
        if not self.is_sampled:
            return self._acted(given)
        with GivenNoise(self._draws, {kind: given[NOISE + kind] for kind in self.noise}):
            return self._acted(given)

    def _acted(self, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
        state = {n: _chosen(given[RESET], self._fresh(i), given[STATE + n]) for i, n in enumerate(self.state_names)}
        step = state[STEP]
        inputs = SeqInputs(
            obs={name: given[OBS + name].unsqueeze(1) for name in self.obs},
            prev_action=state[PREV_ACTION].unsqueeze(1),
            prev_reward=torch.where(step > 0, given[REWARD], 0.0).unsqueeze(1),
            step=step.unsqueeze(1),
            action_mask=given[MASK].unsqueeze(1) if self.has_mask else None,
        )
        algo = self._algo[0]
        memory = {name.removeprefix("memory/"): v for name, v in state.items() if name.startswith("memory/")}
        action, memory = algo.act(algo.inputs.scaled(inputs), memory, not self.is_sampled)
        executed, chosen = self.action_head(algo.inputs.own_actions(action.float()))
        after = {STEP: step + 1, PREV_ACTION: executed, **{f"memory/{k}": v for k, v in memory.items()}}
        return (chosen, *(after[name] for name in self.state_names))

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in their order."""
        return [ACTION, *(f"next_{STATE}{name}" for name in self.state_names)]

    def _fresh(self, number: int) -> Tensor:
        value: Tensor = getattr(self, f"fresh_{number}")
        return value


def _chosen(is_first: Tensor, fresh: Tensor, held: Tensor) -> Tensor:
    """Return rows of ``fresh`` where ``is_first``, and else of ``held``; ONNX Runtime selects no bools."""
    first = is_first.reshape(-1, *[1] * (held.dim() - 1))
    return (fresh & first) | (held & ~first) if held.dtype == torch.bool else torch.where(first, fresh, held)


class EnvironmentAction(nn.Module):
    """From policy actions ``(B, A)`` to what is executed, in policy units and as the environment takes it.

    Args:
        codec: Of the action space.
    """

    def __init__(self, codec: ActionCodec) -> None:
        super().__init__()
        self.kind, self.factors, self.shape = codec.kind, codec.factors, codec.shape
        self.parts = nn.ModuleList(EnvironmentAction(part) for part in codec.parts)
        self.width = codec.parts[0].dim if codec.parts else 0
        for name, value in codec.scaling().items():
            self.register_buffer(f"of_{name}", torch.from_numpy(value), persistent=False)
        self.rounds = codec.kind == "continuous" and bool(self._of("is_whole").any())

    def forward(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return both: ``(B, A)``, and ``(B, *shape)``, int64 for what is discrete; float32 with values beside it."""
        if self.kind == "hybrid":
            (clipped, values), (chosen, numbers) = (
                part(own)
                for part, own in zip(self.parts, (actions[:, : self.width], actions[:, self.width :]), strict=True)
            )
            return torch.cat([clipped, chosen], -1), torch.cat([values, numbers.float()], -1)[:, self._of("order")]
        if self.kind == "binary":
            return actions, (actions > 0.5).to(torch.int64).reshape(-1, *self.shape)
        if self.kind == "categorical":
            index = torch.stack([part.argmax(-1) for part in actions.split(self.factors, dim=-1)], dim=-1)
            return actions, (index + self._of("start")).reshape(-1, *self.shape)
        limit, half, center = self._of("limit"), self._of("half"), self._of("center")
        clipped = torch.maximum(torch.minimum(actions, limit), -limit)
        scaled = clipped * half + center
        if self.rounds:
            whole = self._of("is_whole")
            scaled = torch.where(whole, scaled.round(), scaled)
            clipped = torch.where(whole, (scaled - center) / half, clipped)
        scaled = torch.maximum(torch.minimum(scaled, self._of("high")), self._of("low"))
        return clipped, scaled.reshape(-1, *self.shape)

    def _of(self, name: str) -> Tensor:
        value: Tensor = getattr(self, f"of_{name}")
        return value


def export_onnx(
    algo: Algo, file: Path, observation_space: Any, action_space: Any, *, is_sampled: bool = False
) -> dict[str, Any]:
    """Write one step of a policy as an ONNX file with an explicit state, and return its metadata.

    The batch is dynamic; normalisation of observations and decoding of actions are part of the graph. The metadata
    (``seqrl``) name spaces, inputs and state.

    Args:
        algo: The policy.
        file: Where to.
        observation_space: Of one environment.
        action_space: Of one environment.
        is_sampled: Sample actions, from inputs of noise; else act greedily.

    Raises:
        ConfigError: If the policy cannot be exported, or onnx is not installed.
    """
    if isinstance(algo.codec.space, RotationBox):
        raise ConfigError("this policy's actions have rotations (action_rotations), which are not exported")
    with evaluating(algo):
        module = PolicyStep(algo, is_sampled=is_sampled).eval()
        proto = onnx_model(module, module.example(3), module.output_names)
    facts = _facts(module, observation_space, action_space)
    import onnx

    onnx.helper.set_model_props(proto, {"seqrl": json.dumps(facts)})
    write_atomic(file, proto.SerializeToString())
    return facts


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what the exporter says of its own internals, and of packages that it does not need."""
    with _EXPORTING:
        logs = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx", "torch.export")]
        levels, checks_arguments = [log.level for log in logs], Distribution._validate_args
        try:
            for log in logs:
                log.setLevel(logging.ERROR)
            Distribution.set_default_validate_args(False)  # its checks depend on values
            with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore", FutureWarning)
                warnings.filterwarnings("ignore", message="The tensor attributes? ")
                yield
        finally:
            Distribution.set_default_validate_args(checks_arguments)
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)


def onnx_model(module: nn.Module, example: Mapping[str, Tensor], outputs: Sequence[str], *, folds: bool = True) -> Any:
    """Return a module of tensors as an ONNX model with a dynamic batch.

    Args:
        module: Takes the values of ``example`` in their order.
        example: Name -> input, of several rows.
        outputs: Names.
        folds: Whether constants may be computed in advance; else each weight stays an initializer under its name.

    Raises:
        ConfigError: If that cannot be done, or onnx is not installed.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # type: ignore[import-untyped]  # noqa: F401  (torch's exporter needs it)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'seqrl[onnx]'") from error
    batch = torch.export.Dim("batch", min=1)
    shapes = {"values": tuple({0: batch} for _ in example)}
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(module, tuple(example.values()), dynamic_shapes=shapes)
            model = torch.onnx.export(
                program, dynamo=True, verbose=False, optimize=folds, input_names=list(example), output_names=outputs
            )
    except Exception as error:
        raise _refusal(module, error) from error
    assert model is not None
    return model.model_proto


def _refusal(module: Any, error: Exception) -> ConfigError:
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    said = re.sub(r"\x1b\[[0-9;]*m", "", str(root)).strip().splitlines()
    frames = [f for each in (root, error) for f in traceback.extract_tb(each.__traceback__)]
    packages = {Path(torch.__file__).parent, Path(__file__).parents[1]}
    own = [f for f in frames if not packages & set(Path(f.filename).parents)]
    reason = ": ".join([type(root).__name__, *said[:1], *(f"{Path(f.filename).name}:{f.lineno}" for f in own[-1:])])
    return ConfigError(
        f"algorithm {module.algo_name!r} cannot be exported ({reason}); a policy that draws while it acts, or whose "
        "control flow depends on tensor values, cannot be"
    )


def _choices(codec: ActionCodec) -> ActionCodec:
    return codec.parts[1] if codec.parts else codec


def _facts(module: PolicyStep, observation_space: Any, action_space: Any) -> dict[str, Any]:
    config = module._algo[0].config
    state = module.example(1)
    return {
        "format_version": EXPORT_VERSION,
        "seqrl": __version__,
        "algorithm": config.algo_name,
        "memory": config.algo.sequence_encoder.choice()[0],
        "environment": config.env.id,
        "observations": {
            k: {
                "shape": list(v.shape),
                "dtype": v.dtype,
                "categories": None if v.nvec is None else list(v.nvec),
                "values": module._algo[0].inputs.values.get(k, "finite"),
            }
            for k, v in module.obs.items()
        },
        "max_step": module._algo[0].max_step,
        "factors": list(_choices(module._algo[0].codec).factors),
        "observation_space": space_to_json(observation_space),
        "action_space": space_to_json(action_space),
        "reads_reward": bool(config.observation.use_prev_reward or module._algo[0].needs_reward),
        "mask_entry": MASK_KEY if module.has_mask else None,
        "sampled": module.is_sampled,
        "noise": module.noise,
        "state": {
            n: {"shape": list(state[STATE + n].shape[1:]), "dtype": str(state[STATE + n].dtype).removeprefix("torch.")}
            for n in module.state_names
        },
    }
