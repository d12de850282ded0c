"""What every registered timestep encoder and modality has to do. A new one is covered by being registered."""

import numpy as np
import pytest
import torch

import seqrl.models  # noqa: F401  (registers)
from seqrl.configs import config_factory
from seqrl.core.registry import MODALITIES, TIMESTEP_ENCODERS
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.timestep_encoders import build_timestep_encoder
from tests.helpers import ENCODER_OBS, OBS, SMALL_ENCODER, SMALL_IMAGE, random_obs

B, L, A = 3, 4, 5
SHIFTED = {"randomizers": [{"type": "shift", "pad": 2, "share": 1.0}, {"type": "noise"}]}
MODALITY_CASES = {
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
    "goal": [(ObsSpec((3, 2)), {}), (ObsSpec((6,)), {"num_goals": 2, "normalize_inputs": False})],
}
"""Entries and options that a modality is tested on; one that is not listed reads three numbers at its defaults."""


def cases():
    """Return id -> (section of the encoder, observations); a modality is the only one of a ``multimodal``."""
    encoders = {
        n: ({"type": n, **SMALL_ENCODER.get(n, {})}, ENCODER_OBS.get(n, OBS)) for n in TIMESTEP_ENCODERS.names()
    }
    for name in MODALITIES.names():
        for i, (spec, options) in enumerate(MODALITY_CASES.get(name, [(ObsSpec((3,)), {})])):
            section = {"type": "multimodal", "d_output": 16, "modalities": {"entry": {**options, "type": name}}}
            encoders[f"modality-{name}-{i}"] = (section, {"entry": spec})
    return encoders


CASES = cases()


@pytest.fixture(params=sorted(CASES))
def case(request):
    return request.param


def build(case, seed=0, d_action=A, d_reward=1):
    torch.manual_seed(seed)
    section, obs = CASES[case]
    chosen = config_factory("bc", {"observation": {"timestep_encoder": section}}).observation.timestep_encoder
    return build_timestep_encoder(chosen.type, chosen.options(), obs, d_action, d_reward)


def make_inputs(case, seed=0):
    rng = np.random.default_rng(seed)
    return SeqInputs(
        obs=random_obs(rng, CASES[case][1], B, L),
        prev_action=torch.from_numpy(rng.normal(size=(B, L, A)).astype(np.float32)),
        prev_reward=torch.from_numpy(rng.normal(size=(B, L)).astype(np.float32)),
        step=torch.arange(L).expand(B, L),
    )


def with_statistics(encoder, case):
    """Return the encoder after its statistics have moved."""
    mask = torch.ones(B, L, dtype=torch.bool)
    encoder.update(encoder.stats(make_inputs(case, seed=7), mask))
    return encoder


def copied(module):
    return {k: v.clone() for k, v in module.state_dict().items()}


@pytest.mark.parametrize(("d_action", "d_reward"), [(0, 0), (A, 0), (0, 1), (A, 1)])
def test_width_and_dtype(case, d_action, d_reward):
    y = build(case, d_action=d_action, d_reward=d_reward)(make_inputs(case))
    assert y.shape == (B, L, build(case).d_output)
    assert y.dtype == torch.float32
    assert torch.isfinite(y).all()


def test_each_modality_has_the_width_that_it_says(case):
    encoder, inputs = build(case), make_inputs(case)
    for (name, _), modality in zip(encoder.obs.items(), getattr(encoder, "modalities", []), strict=False):
        assert modality(inputs.obs[name]).shape == (B, L, modality.d_output)


def test_rows_and_positions_do_not_mix(case):
    encoder = with_statistics(build(case), case).eval()
    one, other = make_inputs(case), make_inputs(case, seed=1)
    here = torch.zeros(B, L, dtype=torch.bool)
    here[1, 2] = True

    def merged(a, b):
        a = a.clone()
        a[1, 2] = b[1, 2]
        return a

    obs = {k: merged(v, other.obs[k]) for k, v in one.obs.items()}
    for inputs in (
        SeqInputs(obs, one.prev_action, one.prev_reward, one.step),
        SeqInputs(one.obs, merged(one.prev_action, other.prev_action), one.prev_reward, one.step),
        SeqInputs(one.obs, one.prev_action, merged(one.prev_reward, other.prev_reward), one.step),
    ):
        moved = (encoder(inputs) - encoder(one)).abs().amax(-1)
        assert moved[here].item() > 1e-4
        assert moved[~here].max() < 1e-5


def test_one_input_alone_is_encoded_as_within_a_sequence(case):
    """What acting sees equals what training sees."""
    encoder, inputs = with_statistics(build(case), case).eval(), make_inputs(case)
    whole = encoder(inputs)
    for t in range(L):
        torch.testing.assert_close(encoder(inputs.map(lambda x, t=t: x[:, t : t + 1])), whole[:, t : t + 1])


def test_forward_and_stats_write_nothing(case):
    encoder, inputs = build(case).train(), make_inputs(case)
    before, seen = copied(encoder), {k: v.clone() for k, v in inputs.obs.items()}
    encoder(inputs).sum().backward()
    stats = encoder.stats(inputs, torch.ones(B, L, dtype=torch.bool))
    assert all(not v.requires_grad for v in stats.values())
    assert all(torch.equal(v, before[k]) for k, v in encoder.state_dict().items())
    assert all(torch.equal(v, seen[k]) for k, v in inputs.obs.items())


def test_statistics_are_of_real_inputs_and_move_in_update(case):
    encoder, inputs, garbage = build(case), make_inputs(case), make_inputs(case, seed=1)
    mask = torch.rand(B, L) < 0.5
    mask[0] = True
    spoilt = {
        k: torch.where(mask.view(B, L, *[1] * (v.dim() - 2)), v, garbage.obs[k])
        if v.dtype != torch.uint16
        else v  # no arithmetic
        for k, v in inputs.obs.items()
    }
    stats = encoder.stats(inputs, mask)
    other = encoder.stats(SeqInputs(spoilt, inputs.prev_action, inputs.prev_reward, inputs.step), mask)
    assert stats.keys() == other.keys()
    assert all(torch.equal(v, other[k]) for k, v in stats.items())
    before = copied(encoder)
    encoder.update(stats)
    moved = {k for k, v in encoder.state_dict().items() if not torch.equal(v, before[k])}
    assert moved == {name for name, _ in encoder.named_buffers() if "normalizer" in name}
    assert bool(moved) == bool(stats)


def test_weights_there_and_back(case):
    one, other, inputs = with_statistics(build(case), case).eval(), build(case, seed=1).eval(), make_inputs(case)
    assert not torch.equal(one(inputs), other(inputs))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(inputs), other(inputs))


def test_two_seeded_builds_are_equal(case):
    one, other = build(case), build(case)
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in one.state_dict().items())
    outputs = []
    for encoder in (one, other):
        torch.manual_seed(3)
        outputs.append(encoder.train()(make_inputs(case)))
    assert torch.equal(*outputs)


def test_every_weight_gets_a_gradient(case):
    encoder = build(case)
    y = encoder(make_inputs(case))
    torch.manual_seed(1)
    (y * torch.randn_like(y)).sum().backward()
    assert not [k for k, v in encoder.named_parameters() if v.grad is None or not v.grad.abs().max() > 0]


def test_is_deterministic_in_evaluation(case):
    encoder, inputs = build(case), make_inputs(case)
    is_random = "randomizers" in str(CASES[case][0])
    assert torch.equal(encoder(inputs), encoder(inputs)) != is_random
    encoder.eval()
    assert torch.equal(encoder(inputs), encoder(inputs))


def test_runs_in_bfloat16(case):
    encoder, inputs = build(case).eval(), make_inputs(case)
    with torch.autocast("cpu", torch.bfloat16):
        y = encoder(inputs)
    torch.testing.assert_close(y.float(), encoder(inputs), atol=0.1, rtol=0.1)
