"""What every registered timestep encoder and modality has to do. A new one is covered by being registered."""

import pytest
import torch

from seqrl.conformance.timestep_encoders import CHECKS, encoder_cases, modality_cases
from seqrl.core.registry import MODALITIES, TIMESTEP_ENCODERS

CASES = {name: case for name in TIMESTEP_ENCODERS.names() for case in encoder_cases(name)}
CASES |= {f"modality-{n}-{i}": case for n in MODALITIES.names() for i, case in enumerate(modality_cases(n))}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("case", CASES)
def test_timestep_encoder(case, check):
    CHECKS[check](CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_statistics_of_every_normalizer_move(case):
    encoder = CASES[case].build()
    before = {k: v.clone() for k, v in encoder.state_dict().items()}
    encoder.update(encoder.stats(CASES[case].inputs(), torch.ones(3, 4, dtype=torch.bool)))
    moved = {k for k, v in encoder.state_dict().items() if not torch.equal(v, before[k])}
    assert moved == {name for name, _ in encoder.named_buffers() if "normalizer" in name}
