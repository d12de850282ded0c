"""What every registered memory has to do. A new one is covered by being registered."""

import pytest
import torch

from seqrl.conformance.memories import CHECKS, MemoryCase
from seqrl.core.registry import SEQUENCE_ENCODERS

VARIANTS = [(name, {}) for name in SEQUENCE_ENCODERS.names()] + [
    ("transformer", {"positions": "rotary"}),
    ("transformer", {"positions": "learned", "max_steps": 64}),
    ("transformer", {"positions": "none", "use_sigma_reparam": False, "norm": "rms"}),
    ("transformer", {"attention": "vanilla"}),
    ("transformer", {"attention": "flex", "num_sinks": 3, "sink_bias": 1.0, "logit_clip": 4.0}),
    ("transformer", {"attention": "sdpa", "num_sinks": 5}),
    ("gru", {"start": "learned", "d_output": None, "norm": "simnorm"}),
    ("lstm", {"start": "learned", "d_output": None, "norm": "hypersphere"}),
    ("mamba", {"d_conv": 1, "expand": 1, "norm": "rms"}),
    ("mamba2", {"d_conv": 1, "expand": 1, "norm": "rms"}),
    ("hybrid", {"layers": ["gated_deltanet", "lru"]}),
    ("hybrid", {"layers": ["min_gru", "attention", "mlstm"]}),
]
CASES = {f"{name}-{'-'.join(map(str, options.values()))}": MemoryCase(name, options) for name, options in VARIANTS}
FITTING = [(case, check) for case in CASES for check in CHECKS if CHECKS[check].fits(CASES[case])]


@pytest.mark.parametrize(("case", "check"), FITTING)
def test_memory(case, check):
    CHECKS[check](CASES[case])


def test_all_but_the_controls_are_asked_to_remember():
    asked = {CASES[case].name for case, check in FITTING if check == "remembers"}
    assert asked == set(SEQUENCE_ENCODERS.names()) - {"feedforward", "identity"}


@pytest.mark.parametrize("name", sorted(set(SEQUENCE_ENCODERS.names()) - {"feedforward", "identity"}))
def test_built_in_memories_reach_back_to_the_start_of_the_window(name):
    encoder = MemoryCase(name).build(window=8)
    x = torch.randn(1, 8, encoder.d_input, requires_grad=True)
    y, _ = encoder(x, torch.arange(8).unsqueeze(0))
    (gradient,) = torch.autograd.grad(y[:, -1].square().sum(), x)
    assert gradient[:, 0].abs().max() > 0


def test_transformer_band_ends_where_it_should():
    """One layer of window 4 sees four inputs; two layers see seven."""
    for layers, reach in ((1, 4), (2, 7)):
        encoder = MemoryCase("transformer", {"num_layers": layers}).build(window=4)
        x = torch.randn(1, 16, encoder.d_input, requires_grad=True)
        y, _ = encoder(x, torch.arange(16).unsqueeze(0))
        (gradient,) = torch.autograd.grad(y[:, -1].square().sum(), x)
        seen = (gradient.abs().amax((0, 2)) > 0).nonzero().flatten().tolist()
        assert seen == list(range(16 - reach, 16))
