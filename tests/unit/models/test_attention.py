"""Every attention back-end equals a dense float64 softmax, and windows cost in proportion to the length."""

import copy
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from seqrl.configs.sections.sequence_encoders import ATTENTION_LACKS
from seqrl.core.errors import ConfigError
from seqrl.core.registry import ATTENTIONS
from seqrl.models.sequence_encoders.attention import (
    Alibi,
    AttentionScore,
    Pattern,
    bias_of_past,
    blocks,
    flash,
    make_attention,
    next_slot,
    num_slots,
    ring_slots,
    step_unwritten,
)

PAIRS = [
    (1, 1), (1, 5), (2, 1), (7, 1), (5, 8), (8, 8), (9, 8), (15, 8), (16, 8), (17, 8), (24, 8), (25, 8), (31, 8),
    (10, 3), (11, 3), (12, 3), (13, 3), (4, 3), (6, 2), (7, 2), (50, 7), (40, 39), (40, 40), (40, 41), (33, 16),
]  # fmt: skip


class EverySecond(AttentionScore):
    """Odd heads see even lags only, and near keys score more, by a learned weight."""

    def __init__(self, num_heads):
        super().__init__(num_heads)
        self.weight = nn.Parameter(torch.tensor([0.3, -0.7]))

    def score(self, score, head, query, key):
        return score + self.weight[head].to(score.dtype) / (1 + query - key)

    def mask(self, head, query, key):
        return ((query - key) % 2 == 0) | (head % 2 == 0)


PATTERNS = {
    "window": {},
    "sinks": {"num_sinks": 3},
    "sinks with a bias": {"num_sinks": 2, "sink_bias": 1.5},
    "clip": {"logit_clip": 2.0},
    "clip and sinks": {"logit_clip": 2.0, "num_sinks": 1, "sink_bias": -1.0},
    "alibi": {"score": Alibi(2)},
    "own functions": {"score": EverySecond(2), "num_sinks": 2},
}
BACKENDS = ["auto", "sdpa", "flex", "vanilla"]
CASES = [(b, p) for b in BACKENDS for p, o in PATTERNS.items() if not ATTENTION_LACKS[b] & {k for k in o if o[k]}]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Let short sequences have several blocks."""
    monkeypatch.setattr(blocks, "MIN_BLOCK", 1)


def qkv_of(length, *, heads=2, width=4, seed=0, dtype=torch.float32, rows=3):
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(rows, length, 3, heads, width, generator=generator, dtype=dtype)


def dense(qkv, pattern):
    """Softmax over scores of all pairs, written out in float64 with loops over heads, queries and keys."""
    q, k, v = qkv.double().permute(2, 0, 3, 1, 4)
    scores = torch.einsum("bnqd,bnkd->bnqk", q, k) / math.sqrt(q.shape[-1])
    if pattern.logit_clip:
        scores = pattern.logit_clip * torch.tanh(scores / pattern.logit_clip)
    seen = torch.zeros(*q.shape[1:3], q.shape[2], dtype=torch.bool)
    change = torch.zeros_like(scores[0])
    for head, query, key in np.ndindex(*seen.shape):
        lag = query - key
        seen[head, query, key] = lag >= 0 and (lag < pattern.window or key < pattern.num_sinks)
        change[head, query, key] += pattern.sink_bias * (key < pattern.num_sinks)
        if isinstance(pattern.score, Alibi):
            change[head, query, key] -= 2.0 ** (-8 * (head + 1) / seen.shape[0]) * lag
        if isinstance(pattern.score, EverySecond) and lag >= 0:
            change[head, query, key] += pattern.score.weight[head].double() / (1 + lag)
            seen[head, query, key] &= lag % 2 == 0 or head % 2 == 0
    scores = scores + change
    weights = torch.exp(scores - scores.amax(-1, keepdim=True)) * seen
    return torch.einsum("bnqk,bnkd->bqnd", weights / weights.sum(-1, keepdim=True), v)


@pytest.mark.parametrize(("length", "window"), PAIRS)
def test_sdpa_equals_dense_at_every_length(length, window):
    pattern = Pattern(window)
    got = make_attention("sdpa", pattern, 0.0).sequence(qkv_of(length), 0.0)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), dense(qkv_of(length), pattern), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("length", "window"), [(6, 8), (9, 8), (23, 5), (24, 1), (30, 7)])
@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_outputs_and_gradients_equal_dense(name, pattern, length, window):
    pattern = Pattern(window, **PATTERNS[pattern])
    fast, slow = (qkv_of(length, dtype=torch.float64).requires_grad_() for _ in range(2))
    weight = torch.randn(3, length, 2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    got, expected = make_attention(name, pattern, 0.0).sequence(fast, 0.0), dense(slow, pattern)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)  # the softmax is in float32
    learned = list(pattern.score.parameters()) if pattern.score else []
    grads = [torch.autograd.grad((y * weight).sum(), [x, *learned]) for x, y in ((fast, got), (slow, expected))]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_flex_attention_itself_equals_dense(monkeypatch, pattern):
    """Not compiled and without gradient: what runs on a GPU is the same functions."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    pattern = Pattern(5, **PATTERNS[pattern])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        backend = make_attention("flex", pattern, 0.0)
        for length in (4, 23, 23):
            qkv = qkv_of(length, width=16)
            got = backend.flex(*qkv.permute(2, 0, 3, 1, 4)).transpose(1, 2)
            torch.testing.assert_close(got.double(), dense(qkv, pattern), rtol=1e-4, atol=1e-5)


def slots_of(pattern, length):
    """Return the slots of the inputs at positions 0 to ``length - 1``."""
    slots = [torch.tensor([0])]
    for _ in range(length - 1):
        slots.append(next_slot(pattern, slots[-1]))
    return torch.cat(slots)


def step_through(backend, qkv, dtype=torch.float32, *, is_written_after=False):
    """Return what acting gives, input by input, with each row beginning two inputs after the one before."""
    rows, length, _, heads, width = qkv.shape
    pattern = backend.pattern
    keys, values = (torch.full((rows, heads, num_slots(pattern), width), 1e4, dtype=dtype) for _ in range(2))
    out = torch.zeros(rows, length, heads, width, dtype=dtype)
    at, slots = torch.arange(rows), slots_of(pattern, length)
    for t in range(length + 2 * rows):
        position = (t - 2 * at).clamp(0, length - 1)
        q, k, v = qkv[at, position].unbind(1)
        slot, held = slots[position], ring_slots(pattern, position, q)
        if is_written_after:
            bias = bias_of_past(pattern, heads, held.k_pos, position)
            y = step_unwritten(pattern, qkv[at, position], keys, values, held.k_pos, position, bias)
        keys[at, :, slot], values[at, :, slot] = k, v
        if not is_written_after:
            y = backend.step(q.unsqueeze(2), keys, values, held)
        out[at, position] = y[:, :, 0]
    return out


@pytest.mark.parametrize("window", [1, 3, 7, 40])
@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_stepping_equals_dense(name, pattern, window):
    """Rows stand at different positions, empty slots hold garbage, and the ring goes round several times."""
    pattern = Pattern(window, **PATTERNS[pattern])
    qkv = qkv_of(24)
    with torch.no_grad():
        stepped = step_through(make_attention(name, pattern, 0.0), qkv)
    torch.testing.assert_close(stepped.double(), dense(qkv, pattern).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [1, 3, 40])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_stepping_before_the_key_is_written_equals_dense(pattern, window):
    pattern = Pattern(window, **PATTERNS[pattern])
    qkv = qkv_of(24)
    with torch.no_grad():
        stepped = step_through(make_attention("vanilla", pattern, 0.0), qkv, is_written_after=True)
    torch.testing.assert_close(stepped.double(), dense(qkv, pattern).detach(), rtol=1e-4, atol=1e-5)


def test_sinks_keep_their_slots_and_later_inputs_go_round():
    pattern = Pattern(3, num_sinks=2)
    assert slots_of(pattern, 10).tolist() == [0, 1, 2, 3, 4, 2, 3, 4, 2, 3]
    slots = ring_slots(pattern, torch.tensor([0, 1, 3, 9]), torch.zeros(1))
    filled = [[p for p in row if p <= 9] for row in slots.k_pos.tolist()]
    assert filled == [[0], [0, 1], [0, 1, 2, 3], [0, 1, 8, 9, 7]]


@pytest.mark.parametrize("name", ["sdpa", "vanilla"])
@pytest.mark.parametrize(("length", "window"), [(20, 6), (13, 4), (9, 8)])
def test_only_the_window_is_seen(name, length, window):
    """Changing input t moves outputs t .. t + window - 1, and no other by a single bit."""
    qkv = qkv_of(length)
    qkv[:, :, 0] /= 4
    backend = make_attention(name, Pattern(window), 0.0)
    before = backend.sequence(qkv, 0.0)
    for t in range(length):
        other = qkv.clone()
        other[:, t, 1], other[:, t, 2] = -qkv[:, t, 1], 1e3
        moved = (backend.sequence(other, 0.0) != before).flatten(2).transpose(0, 1).flatten(1)
        inside = range(t, min(t + window, length))
        assert np.flatnonzero(moved.any(-1).numpy()).tolist() == list(inside)
        assert moved[list(inside)].all()


def test_window_of_one_returns_the_values():
    qkv = qkv_of(9)
    torch.testing.assert_close(make_attention("sdpa", Pattern(1), 0.0).sequence(qkv, 0.0), qkv[:, :, 2])


@pytest.mark.parametrize("name", ["auto", "sdpa", "vanilla"])
def test_dropout_is_applied_to_the_weights(name):
    torch.manual_seed(0)
    qkv, backend = qkv_of(12, seed=3), make_attention(name, Pattern(4), 0.9)
    kept, dropped = backend.sequence(qkv, 0.0), backend.sequence(qkv, 0.9)
    assert not torch.allclose(kept[:, :4], dropped[:, :4])
    assert not torch.allclose(kept[:, 4:], dropped[:, 4:])


@pytest.mark.parametrize("options", [{}, {"num_sinks": 4}, {"logit_clip": 5.0}])
def test_cost_is_linear_in_the_length(options):
    """Counted as pairs of a query and a key that are multiplied, since clocks depend on the neighbours."""
    pattern = Pattern(64, **options)
    pairs = []

    def counting(q, k, v, q_pos, k_pos):
        pairs.append(math.prod(q.shape[:-1]) * k.shape[-2])
        return q

    def work(length):
        pairs.clear()
        blocks.by_blocks(*qkv_of(length, heads=1, rows=1).permute(2, 0, 3, 1, 4), pattern, counting)
        return sum(pairs)

    assert 0 < work(4096) <= 4.2 * work(1024)
    assert work(4096) <= 2.2 * 4096 * 64


def test_back_ends_are_those_that_sections_name():
    assert set(ATTENTIONS.names()) == set(ATTENTION_LACKS)
    assert {n: set(ATTENTIONS.get(n).cannot) for n in ATTENTIONS.names()} == ATTENTION_LACKS


@pytest.mark.parametrize(
    ("name", "options", "dropout", "message"),
    [
        ("sdpa", {"logit_clip": 3.0}, 0.0, r"'sdpa' cannot do logit_clip; use auto or flash or flex or vanilla"),
        ("flash", {"num_sinks": 1, "score": Alibi(2)}, 0.0, r"'flash' cannot do num_sinks, score; use auto or flex"),
        ("flex", {}, 0.1, r"'flex' cannot do dropout_attention; use auto or flash or sdpa or vanilla"),
    ],
)
def test_a_back_end_that_lacks_a_feature_is_refused(name, options, dropout, message):
    with pytest.raises(ConfigError, match=message):
        make_attention(name, Pattern(4, **options), dropout)


def test_auto_takes_the_fused_kernel_where_it_can():
    cpu = torch.device("cpu")
    assert type(make_attention("auto", Pattern(4), 0.1).chosen(cpu, is_half=False)) is ATTENTIONS.get("sdpa")
    clipped = Pattern(4, logit_clip=1.0)
    assert type(make_attention("auto", clipped, 0.0).chosen(cpu, is_half=False)) is ATTENTIONS.get("flex")
    assert type(make_attention("auto", clipped, 0.1).chosen(cpu, is_half=False)) is ATTENTIONS.get("vanilla")


def test_a_fused_kernel_is_refused_where_it_cannot_run(monkeypatch):
    backend = make_attention("flash", Pattern(4), 0.0)
    monkeypatch.setattr(flash, "flash_package", lambda: None)
    with pytest.raises(ConfigError, match=r"algo.sequence_encoder.attention: 'flash' .* flash-attn cannot be imported"):
        backend.check(torch.device("cuda"), is_half=True)
    monkeypatch.setattr(flash, "flash_package", lambda: math)
    with pytest.raises(ConfigError, match=r"needs an NVIDIA GPU, and the device is 'cpu'; or use 'auto'"):
        backend.sequence(qkv_of(3).bfloat16(), 0.0)
    for place, name in ((flash, "flash_problem"), (backend, "_problem")):
        monkeypatch.setattr(place, name, lambda device: None)
    with pytest.raises(ConfigError, match=r"half precision only: set train.precision to 'bf16'"):
        backend.sequence(qkv_of(3), 0.0)
    with pytest.raises(ConfigError, match=r"a head is 512 wide, and 256 is the most: raise num_heads"):
        make_attention("flash", Pattern(4, head_width=512), 0.0).check(torch.device("cuda"), is_half=True)
    both = Pattern(4, logit_clip=1.0)
    with pytest.raises(ConfigError, match=r"logit_clip and dropout_attention together; or use 'auto'"):
        make_attention("flash", both, 0.1).check(torch.device("cuda"), is_half=True)
    chosen = make_attention("auto", both, 0.1).chosen(torch.device("cuda"), is_half=True)
    assert type(chosen) is ATTENTIONS.get("vanilla")


class FakeFlash:
    """The two functions of flash-attn that are used, as its documentation describes them, in plain float64."""

    @staticmethod
    def flash_attn_qkvpacked_func(qkv, dropout_p=0.0, causal=False, window_size=(-1, -1), softcap=0.0):
        assert causal
        assert window_size[1] in (-1, 0)
        window = qkv.shape[1] if window_size[0] < 0 else window_size[0] + 1
        return dense(qkv, Pattern(window, logit_clip=softcap or None)).to(qkv.dtype)

    @staticmethod
    def flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=None, softcap=0.0):
        assert cache_seqlens.dtype == torch.int32
        out = torch.empty_like(q)
        for row, num in enumerate(cache_seqlens.tolist()):
            scores = torch.einsum("qnd,knd->nqk", q[row].double(), k_cache[row, :num].double()) / math.sqrt(q.shape[-1])
            scores = softcap * torch.tanh(scores / softcap) if softcap else scores
            out[row] = torch.einsum("nqk,knd->qnd", scores.softmax(-1), v_cache[row, :num].double()).to(q.dtype)
        return out


@pytest.mark.parametrize("pattern", ["window", "clip"])
@pytest.mark.parametrize("window", [1, 3, 7, 40])
def test_flash_is_called_as_it_wants(monkeypatch, pattern, window):
    """Layouts, windows and cache lengths, on a stand-in; the kernels themselves need a GPU."""
    monkeypatch.setattr(flash, "flash_package", lambda: FakeFlash)
    monkeypatch.setattr(flash, "flash_problem", lambda device: None)
    pattern = Pattern(window, **PATTERNS[pattern])
    backend, qkv = make_attention("flash", pattern, 0.0), qkv_of(24).half()
    expected = dense(qkv, pattern)
    torch.testing.assert_close(backend.sequence(qkv, 0.0).double(), expected, rtol=2e-3, atol=2e-3)
    with torch.no_grad():
        stepped = step_through(backend, qkv, torch.float16)
    torch.testing.assert_close(stepped.double(), expected, rtol=2e-3, atol=2e-3)


def test_without_gradients_flash_takes_what_it_cannot_do_to_other_kernels(monkeypatch):
    """Such as the values of a checkpoint on a machine without a GPU, or in full precision."""
    pattern = Pattern(3, **PATTERNS["window"])
    backend, qkv = make_attention("flash", pattern, 0.0), qkv_of(24)
    with torch.no_grad():
        torch.testing.assert_close(backend.sequence(qkv, 0.0).double(), dense(qkv, pattern), rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match="'flash' cannot be used"):
        backend.sequence(qkv, 0.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(("name", "pattern"), [*CASES, ("flash", "window"), ("flash", "clip")])
def test_back_ends_agree_with_dense_on_a_gpu(unchecked_shapes, monkeypatch, name, pattern):
    """Outputs and gradients; in half precision for flash. Checks of shapes cannot be compiled."""
    monkeypatch.setattr(blocks, "MIN_BLOCK", 64)
    if name == "flash" and (problem := flash.flash_problem(torch.device("cuda"))):
        pytest.skip(problem)
    pattern = Pattern(70, **PATTERNS[pattern])
    dtype, tolerance = (torch.bfloat16, 5e-2) if name == "flash" else (torch.float32, 2e-3)
    expected_in = qkv_of(200, width=32).to(dtype).float().requires_grad_()
    expected = dense(expected_in, pattern)
    expected.square().sum().backward()
    if pattern.score is not None:
        pattern = replace(pattern, score=copy.deepcopy(pattern.score).cuda())
    given = expected_in.detach().to("cuda", dtype).requires_grad_()
    backend = make_attention(name, pattern, 0.0)
    got = backend.sequence(given, 0.0)
    got.float().square().sum().backward()
    torch.testing.assert_close(got.cpu().double(), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(given.grad.cpu().float(), expected_in.grad, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize(("settings", "message"), [
    ({"attention": "flsh"}, r"unknown attention back-end 'flsh'; did you mean 'flash'\?"),
    ({"attention": "sdpa", "logit_clip": 3.0}, r"attention 'sdpa' cannot do logit_clip; use auto or"),
    ({"window_steps": 0}, r"algo.sequence_encoder.window_steps  must be > 0, got 0"),
    ({"num_heads": 3}, r"num_heads 3 does not divide d_model 256; legal: \[1, 2, 4, 8"),
    ({"positions": "rotary", "d_model": 24, "num_heads": 8}, r"'rotary' needs an even width per head, got d_model 24"),
    ({"attention": "flash", "num_sinks": 2, "num_heads": 3}, r"cannot do num_sinks; use .*; num_heads 3 does not div"),
    ({"sink_bias": 1.0}, r"sink_bias 1.0 needs num_sinks of 1 or more"),
    ({"norm": "simnorm", "d_model": 12, "num_heads": 2, "d_ff": 20}, r"widths that 8 divides, got d_model 12, d_ff 20"),
    ({"logit_clip": 0.0}, r"algo.sequence_encoder.logit_clip  must be > 0"),
    ({"score": {"type": "alibis"}}, r"algo.sequence_encoder.score.type .*unknown attention score 'alibis'.*'alibi'"),
])  # fmt: skip
def test_bad_settings_name_key_value_and_way_out(settings, message):
    from seqrl.configs import config_factory

    with pytest.raises(ConfigError, match=message):
        config_factory("bc", {"algo": {"sequence_encoder": {"type": "transformer", **settings}}})
