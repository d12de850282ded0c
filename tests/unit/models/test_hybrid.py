"""Hybrids: their layers in their order, attention's window, and stepping."""

import pytest
import torch

from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError
from seqrl.models.sequence_encoders import Hybrid
from seqrl.models.sequence_encoders.hybrid import AttentionLayer
from tests.recurrences import check_steps, clock, sequences, small_encoder

SIZES = {"d_model": 4, "num_heads": 2, "d_state": 3, "d_ff": 8}


def build(*layers, window=8, **options):
    return small_encoder("hybrid", window=window, layers=layers, **SIZES, **options)


def test_steps_equal_the_pass_with_every_kind_of_layer():
    encoder = build("mamba2", "attention", "gated_deltanet", "lru", "min_gru", "attention", "mlstm")
    names = [type(getattr(layer, "mixer", layer)).__name__.removesuffix("Mixer") for layer in encoder.layers]
    assert names == ["Mamba2", "AttentionLayer", "GatedDeltaNet", "LRU", "MinGRU", "AttentionLayer", "MLSTM"]
    check_steps(encoder, length=30)


def test_one_layer_is_that_of_the_memory_of_its_name():
    hybrid = build("mamba2", "mamba2")
    other = small_encoder("mamba2", d_model=4, num_heads=2, d_state=3, num_layers=2)
    other.load_state_dict(hybrid.state_dict())
    x = sequences(20)
    assert torch.equal(hybrid(x, clock(x))[0], other(x, clock(x))[0])


@pytest.mark.parametrize(("layers", "seen"), [(("attention",), 8), (("attention", "attention"), 15)])
def test_attention_alone_sees_its_window(layers, seen):
    x = sequences(30)
    y, _ = build(*layers)(x, clock(x))
    (gradient,) = torch.autograd.grad(y[:, -1].square().sum(), x)
    assert (gradient.abs().amax((0, 2)) > 0).nonzero().flatten().tolist() == list(range(30 - seen, 30))


def test_a_window_of_attention_leaves_the_time_scales_of_the_others():
    narrow, wide = (build("mamba2", "attention", attention_window=n) for n in (2, None))
    assert torch.equal(narrow.layers[0].mixer.step_bias, wide.layers[0].mixer.step_bias)
    x = sequences(30)
    y = narrow.layers[1](x @ torch.ones(x.shape[-1], 4, dtype=x.dtype), clock(x), None)[0]
    (gradient,) = torch.autograd.grad(y[:, -1].square().sum(), x)
    assert (gradient.abs().amax((0, 2)) > 0).sum() == 2


def test_attention_equals_its_formula():
    """Softmax of the products of rotated queries and keys within the window, one query after the other."""
    encoder = build("attention")
    layer = encoder.layers[0]
    assert isinstance(layer, AttentionLayer)
    inner, x = layer.inner, encoder.input(sequences(20))
    q, k, v = (inner.norm1(x) @ inner.attention.qkv.weight.T).unflatten(-1, (3, 2, 2)).unbind(2)
    turn = torch.polar(torch.ones(20, dtype=torch.float64), torch.arange(20, dtype=torch.float64))[:, None]
    q, k = (torch.view_as_complex(part.contiguous()) * turn for part in (q, k))
    outputs = torch.zeros(2, 20, 2, 2, dtype=torch.float64)
    for t in range(20):
        at = slice(max(0, t - 7), t + 1)
        score = (q[:, t, None] * k[:, at].conj()).real / 2**0.5
        outputs[:, t] = (score.softmax(1).unsqueeze(-1) * v[:, at]).sum(1)
    x = x + inner.attention.out(outputs.flatten(2))
    x = x + inner.ff2(torch.nn.functional.gelu(inner.ff1(inner.norm3(x))))
    got, _ = encoder(sequences(20), torch.arange(20).expand(2, -1))
    torch.testing.assert_close(got, encoder.norm(x), rtol=1e-6, atol=1e-6)  # angles are float32


def test_an_unknown_layer_is_an_error():
    with pytest.raises(ConfigError, match="unknown layer 'mamba'; did you mean 'mamba2'"):
        Hybrid(3, 8, layers=["mamba"])


def test_the_former_name_of_the_window_is_told():
    with pytest.raises(ConfigError, match="window_steps  is attention_window now"):
        config_factory("bc", {"algo": {"sequence_encoder": {"type": "hybrid", "window_steps": None}}})
