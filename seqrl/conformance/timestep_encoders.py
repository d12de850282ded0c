"""What every timestep encoder, and every modality as the only one of a ``multimodal``, must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import seqrl.models  # noqa: F401  (registers)
from seqrl.configs import config_factory
from seqrl.conformance.cases import ENCODER_OBS, OBS, SMALL_ENCODER, SMALL_IMAGE, random_obs
from seqrl.conformance.check import Check, ConformanceError, expect, expect_close, named, seeded
from seqrl.core.errors import ConfigError
from seqrl.core.registry import MODALITIES
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.timestep_encoders import TimestepEncoder, build_timestep_encoder
from seqrl.models.timestep_encoders.multimodal import MultimodalTimestepEncoder

B, L, A = 3, 4, 5
SHIFTED = {"randomizers": [{"type": "shift", "pad": 2, "share": 1.0}, {"type": "noise"}]}
MODALITY_CASES: dict[str, list[tuple[ObsSpec, dict[str, Any]]]] = {
    "vector": [(ObsSpec((2, 3)), {}), (ObsSpec((2,), "int64", (3, 4)), {"num_layers": 1, "normalize_inputs": False})],
    "image": [
        (ObsSpec((8, 8, 3), "uint8"), {**SMALL_IMAGE, **SHIFTED}),
        (ObsSpec((3, 8, 8)), SMALL_IMAGE),
        (ObsSpec((6, 7), "uint8"), {**SMALL_IMAGE, "scale": "none"}),
    ],
    "depth": [
        (ObsSpec((8, 9)), {**SMALL_IMAGE, **SHIFTED, "max_depth": 1.0}),
        (ObsSpec((8, 9, 1), "uint16"), {**SMALL_IMAGE, "max_depth": 100.0}),
    ],
    "scan": [(ObsSpec((2, 21)), {"max_range": 1.0}), (ObsSpec((30,)), {"pooling": "mean"})],
    "tokens": [
        (ObsSpec((5,), "int64", (4,) * 5), {}),
        (ObsSpec((6,), "int32"), {"vocabulary": 90, "pad_token": 0}),
    ],
    "text": [(ObsSpec((256,), "uint8"), {"d_vector": 8})],
    "goal": [(ObsSpec((3, 2)), {}), (ObsSpec((6,)), {"num_goals": 2, "normalize_inputs": False})],
}
"""Entries and options that a modality is checked on; one that is not listed, at its defaults on what it can read."""
READABLE = (
    ObsSpec((3,)), ObsSpec((8, 8, 3), "uint8"), ObsSpec((3, 8, 8)), ObsSpec((8, 9)), ObsSpec((5,), "int64", (4,) * 5),
)  # fmt: skip
"""What a modality that is not listed is offered; it refuses with a ConfigError what it cannot read."""


@dataclass(frozen=True)
class EncoderCase:
    """A timestep encoder to check.

    Attributes:
        section: Its section of a run file.
        obs: What it reads.
        is_random: Whether it is random in training; None if that is not known.
    """

    section: Mapping[str, Any]
    obs: Mapping[str, ObsSpec]
    is_random: bool | None = None

    def build(self, seed: int = 0, d_action: int = A, d_reward: int = 1) -> TimestepEncoder:
        """Return the encoder, its weights from a seed."""
        values = {"observation": {"timestep_encoder": self.section}}
        chosen: Any = config_factory("bc", values).observation.timestep_encoder
        with seeded(seed):
            return build_timestep_encoder(chosen.type, chosen.options(), self.obs, d_action, d_reward)

    def build_for_acting(self) -> TimestepEncoder:
        """Return the encoder in evaluation, after its statistics have moved."""
        encoder = self.build()
        encoder.update(encoder.stats(self.inputs(seed=7), torch.ones(B, L, dtype=torch.bool)))
        return encoder.eval()

    def inputs(self, seed: int = 0) -> SeqInputs:
        """Return random inputs."""
        rng = np.random.default_rng(seed)
        return SeqInputs(
            obs=random_obs(rng, self.obs, B, L),
            prev_action=torch.from_numpy(rng.normal(size=(B, L, A)).astype(np.float32)),
            prev_reward=torch.from_numpy(rng.normal(size=(B, L)).astype(np.float32)),
            step=torch.arange(L).expand(B, L),
        )


def encoder_cases(name: str) -> list[EncoderCase]:
    """Return the cases of a timestep encoder."""
    section = {"type": name, **SMALL_ENCODER.get(name, {})}
    return [EncoderCase(section, ENCODER_OBS.get(name, OBS), False if name in SMALL_ENCODER else None)]


def modality_cases(name: str) -> list[EncoderCase]:
    """Return the cases of a modality.

    Raises:
        ConformanceError: If it is not listed, and refuses everything that it is offered.
    """
    if name in MODALITY_CASES:
        return [
            EncoderCase(_multimodal(name, options), {"entry": spec}, "randomizers" in options)
            for spec, options in MODALITY_CASES[name]
        ]
    problems = []
    for spec in READABLE:
        try:
            MODALITIES.get(name)("entry", spec)
        except ConfigError as error:
            problems.append(str(error))
        else:
            return [EncoderCase(_multimodal(name, {}), {"entry": spec})]
    raise ConformanceError("refuses every entry that it was offered: " + "; ".join(problems))


def _multimodal(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "multimodal", "d_output": 16, "modalities": {"entry": {**options, "type": name}}}


# ------------------------------------------------------------------------------------------------ checks
def width_and_dtype(case: EncoderCase) -> None:
    """Finite float32 vectors of the width that it says, with and without previous actions and rewards."""
    for d_action, d_reward in ((0, 0), (A, 0), (0, 1), (A, 1)):
        encoder = case.build(d_action=d_action, d_reward=d_reward)
        y, expected = encoder(case.inputs()), (B, L, encoder.d_output)
        sizes = f"with d_action {d_action} and d_reward {d_reward}"
        expect(y.shape == expected, f"{sizes} it gives {tuple(y.shape)}, expected {expected} (d_output)")
        expect(y.dtype == torch.float32, f"{sizes} it gives {y.dtype}, expected torch.float32")
        expect(torch.isfinite(y).all(), f"{sizes} it gives infinite or NaN values")


def modality_width(case: EncoderCase) -> None:
    """Each modality gives vectors of the width that it declares."""
    encoder, inputs = case.build(), case.inputs()
    if isinstance(encoder, MultimodalTimestepEncoder):
        for (name, _), modality in zip(encoder.obs.items(), encoder.modalities, strict=True):
            given, expected = tuple(modality(inputs.obs[name]).shape), (B, L, modality.d_output)
            expect(given == expected, f"entry {name!r} becomes {given}, expected {expected} (d_output)")


def rows_and_positions_do_not_mix(case: EncoderCase) -> None:
    """An output depends on its own observation, action and reward, and on no others."""
    encoder = case.build_for_acting()
    one, other = case.inputs(), case.inputs(seed=1)
    here = torch.zeros(B, L, dtype=torch.bool)
    here[1, 2] = True

    def merged(a: Tensor, b: Tensor) -> Tensor:
        a = a.clone()
        a[1, 2] = b[1, 2]
        return a

    obs = {k: merged(v, other.obs[k]) for k, v in one.obs.items()}
    for what, inputs in {
        "observation": SeqInputs(obs, one.prev_action, one.prev_reward, one.step),
        "prev_action": SeqInputs(one.obs, merged(one.prev_action, other.prev_action), one.prev_reward, one.step),
        "prev_reward": SeqInputs(one.obs, one.prev_action, merged(one.prev_reward, other.prev_reward), one.step),
    }.items():
        moved = (encoder(inputs) - encoder(one)).abs().amax(-1)
        expect(moved[here] > 1e-4, f"does not read the {what}: the output stays the same when it changes")
        expect(moved[~here].max() < 1e-5, f"mixes rows or positions: other outputs change with one {what}")


def alone_as_within_a_sequence(case: EncoderCase) -> None:
    """One input by itself, as in acting, is encoded as within a sequence, as in training."""
    encoder, inputs = case.build_for_acting(), case.inputs()
    whole = encoder(inputs)
    for t in range(L):
        alone = encoder(inputs.map(lambda x, t=t: x[:, t : t + 1]))  # type: ignore[misc]
        problem = f"input {t} by itself is encoded differently than within a sequence"
        expect_close(alone, whole[:, t : t + 1], problem, atol=1e-5, rtol=1.3e-6)


def rarity_is_of_one_input(case: EncoderCase) -> None:
    """How unusual an observation is, where that is known, is a finite number of its own, and no less than 0."""
    encoder, inputs = case.build_for_acting(), case.inputs()
    if (found := encoder.rarity(inputs)) is None:
        return
    expect(found.shape == (B, L), f"rarity gives {tuple(found.shape)}, expected {(B, L)}")
    expect(torch.isfinite(found).all() and (found >= 0).all(), "rarity gives numbers that are infinite, NaN or below 0")
    alone = encoder.rarity(inputs.map(lambda x: x[:1, :1]))
    assert alone is not None
    expect_close(alone, found[:1, :1], "rarity mixes rows or positions", atol=1e-5, rtol=1.3e-6)


def forward_writes_nothing(case: EncoderCase) -> None:
    """Neither forward pass nor ``stats`` write a weight, a buffer or an observation."""
    encoder, inputs = case.build().train(), case.inputs()
    before, seen = _copied(encoder), {k: v.clone() for k, v in inputs.obs.items()}
    encoder(inputs).sum().backward()
    stats = encoder.stats(inputs, torch.ones(B, L, dtype=torch.bool))
    expect(not any(v.requires_grad for v in stats.values()), "stats carry a gradient: detach them")
    written = _changed(encoder, before)
    expect(not written, f"forward or stats write {', '.join(written)}: change buffers only in update")
    spoilt = [k for k, v in inputs.obs.items() if not torch.equal(v, seen[k])]
    expect(not spoilt, f"forward or stats write into observation {', '.join(spoilt)}")


def statistics_are_of_real_inputs(case: EncoderCase) -> None:
    """``stats`` ignore what is not real, and ``update`` moves buffers with them, weights never."""
    encoder, inputs, garbage = case.build(), case.inputs(), case.inputs(seed=1)
    mask = torch.rand(B, L, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[0] = True
    spoilt = {
        k: torch.where(mask.view(B, L, *[1] * (v.dim() - 2)), v, garbage.obs[k])
        if v.dtype != torch.uint16
        else v  # no arithmetic
        for k, v in inputs.obs.items()
    }
    stats = encoder.stats(inputs, mask)
    other = encoder.stats(SeqInputs(spoilt, inputs.prev_action, inputs.prev_reward, inputs.step), mask)
    leaks = [k for k in stats.keys() | other.keys() if k not in stats or k not in other or stats[k].ne(other[k]).any()]
    expect(not leaks, f"stats {', '.join(leaks)} change with inputs that the mask leaves out")
    before = _copied(encoder)
    encoder.update(stats)
    moved = _changed(encoder, before)
    weights = sorted(set(moved) & {k for k, _ in encoder.named_parameters()})
    expect(not weights, f"update moves the weight {', '.join(weights)}, which the optimiser trains")
    expect(bool(moved) == bool(stats), "stats are given but update moves nothing" if stats else "update moves buffers")


def weights_there_and_back(case: EncoderCase) -> None:
    """Loaded weights give the outputs of those that were saved."""
    one, other, inputs = case.build_for_acting(), case.build(seed=1).eval(), case.inputs()
    expect(not torch.equal(one(inputs), other(inputs)), "two seeds give the same outputs")
    other.load_state_dict(one.state_dict())
    expect(torch.equal(one(inputs), other(inputs)), "loaded weights give other outputs: something is not in state_dict")


def seeded_builds_are_equal(case: EncoderCase) -> None:
    """The same seed gives the same weights and, in training, the same outputs."""
    one, other = case.build(), case.build()
    different = _changed(other, _copied(one))
    expect(not different, f"two builds with the same seed differ in {', '.join(different)}")
    outputs = []
    for encoder in (one, other):
        with seeded(3):
            outputs.append(encoder.train()(case.inputs()))
    expect(torch.equal(*outputs), "the same seed gives other outputs in training")


def every_weight_gets_a_gradient(case: EncoderCase) -> None:
    """No weight is without influence."""
    encoder = case.build()
    y = encoder(case.inputs())
    (y * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
    idle = [k for k, v in encoder.named_parameters() if v.grad is None or not v.grad.abs().max() > 0]
    expect(not idle, f"no gradient reaches {', '.join(idle)}")


def deterministic_in_evaluation(case: EncoderCase) -> None:
    """In evaluation the same inputs give the same outputs."""
    encoder, inputs = case.build(), case.inputs()
    is_random = not torch.equal(encoder(inputs), encoder(inputs))
    expect(case.is_random in (None, is_random), f"in training it is {'' if is_random else 'not '}random")
    encoder.eval()
    expect(torch.equal(encoder(inputs), encoder(inputs)), "in evaluation the same inputs give different outputs")


def runs_in_bfloat16(case: EncoderCase) -> None:
    """Under autocast its outputs are about those of float32."""
    encoder, inputs = case.build().eval(), case.inputs()
    with torch.autocast("cpu", torch.bfloat16):
        y = encoder(inputs)
    expect_close(y.float(), encoder(inputs), "in bfloat16 its outputs are far off", atol=0.1, rtol=0.1)


CHECKS: dict[str, Check[EncoderCase]] = named(
    Check("gives vectors of the width that it declares", width_and_dtype, cheap=True),
    Check("gives each entry the width that it declares", modality_width, cheap=True),
    Check("mixes neither rows nor positions", rows_and_positions_do_not_mix, cheap=True),
    Check("encodes one input as within a sequence", alone_as_within_a_sequence, cheap=True),
    Check("tells how unusual each input is by itself", rarity_is_of_one_input, cheap=True),
    Check("writes nothing in forward and stats", forward_writes_nothing, cheap=True),
    Check("takes statistics of real inputs", statistics_are_of_real_inputs, cheap=True),
    Check("gives the same after weights are saved and loaded", weights_there_and_back, cheap=True),
    Check("is the same with the same seed", seeded_builds_are_equal, cheap=True),
    Check("gives every weight a gradient", every_weight_gets_a_gradient, cheap=True),
    Check("is deterministic in evaluation", deterministic_in_evaluation, cheap=True),
    Check("runs in bfloat16", runs_in_bfloat16, cheap=True),
)


def _copied(module: torch.nn.Module) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in module.state_dict().items()}


def _changed(module: torch.nn.Module, before: Mapping[str, Tensor]) -> list[str]:
    return [k for k, v in module.state_dict().items() if not torch.equal(v, before[k])]
