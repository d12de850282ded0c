"""Kernels of other packages against their twins in PyTorch; skipped without a GPU and the package."""

import pytest
import torch

from seqrl.models.sequence_encoders import gated_deltanet, kernels, make_sequence_encoder, mamba2

CASES = {
    "mamba2": (mamba2, "mamba2_kernel", kernels.MAMBA2, torch.float32, 5e-3),
    "gated_deltanet": (gated_deltanet, "delta_kernel", kernels.DELTA, torch.bfloat16, 5e-2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_agrees_on_a_gpu(name, monkeypatch):
    module, chooser, kernel, dtype, tolerance = CASES[name]
    if not torch.cuda.is_available() or kernels.imported_kernel(*kernel) is None:
        pytest.skip(f"needs an NVIDIA GPU and {kernel[0]}")
    if name == "gated_deltanet" and kernels.delta_kernel(torch.zeros((), dtype=dtype, device="cuda")) is None:
        pytest.skip("flash-linear-attention refuses to train here")
    torch.manual_seed(0)
    encoder = make_sequence_encoder(name, 5, 8, {"d_model": 64, "num_heads": 4, "num_layers": 2}).cuda()
    x, step = torch.randn(2, 200, 5, device="cuda"), torch.arange(200, device="cuda").expand(2, -1)
    results = []
    for _ in range(2):
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            y, _ = encoder(x, step)
        results.append([y.float(), *torch.autograd.grad(y.float().square().sum(), list(encoder.parameters()))])
        monkeypatch.setattr(module, chooser, lambda tensor: None)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max()))


def test_where_flash_linear_attention_refuses_to_train():
    assert [kernels.refuses_hopper(9, v) for v in ((3, 3, 1), (3, 4, 0), (3, 7, 0), (3, 7, 1))] == [0, 1, 1, 0]
    assert not kernels.refuses_hopper(8, (3, 6, 0))
    assert not kernels.refuses_hopper(9, ())
