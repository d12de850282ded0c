"""Action chunking: the loss against a reference, what the posterior may see, and averaged chunks."""

import math

import numpy as np
import pytest
import torch

from seqrl.algo.acting import VectorPolicy
from seqrl.conformance.algorithms import AlgoCase, train
from seqrl.models.chunk_transformers import ChunkReader


def case(**values):
    small = {"chunk_steps": 4, "execute_steps": 2, "d_model": 16, "num_encoder_layers": 1, "d_latent": 4}
    return AlgoCase("act", "gru", "box", values={**small, "dropout": 0.0, **values})


def test_the_loss_is_the_absolute_error_and_the_divergence_of_the_latent():
    algo, batch = case(samples_per_window=6, kl_weight=3.0).build(), case().batch()
    batch = algo.process_batch_for_training(batch)
    noise = {}

    def draw(posterior, prior):
        mean, std = posterior.chunk(2, -1)[0], torch.nn.functional.softplus(posterior.chunk(2, -1)[1]) + 1e-3
        noise["divergence"] = 0.5 * (std**2 + mean**2 - 1 - 2 * std.log()).sum(-1)
        return mean, noise["divergence"]

    algo.latent.draw = draw
    torch.manual_seed(0)
    losses = algo.compute_losses(batch)
    errors, divergences = [], []
    hidden, _ = algo.trunk(batch.inputs.first(6))
    for row in range(4):
        length = int(batch.mask[row].sum())
        for t in range(length):
            num = min(4, length - t)
            shown, mask = torch.zeros(1, 4, 4), torch.arange(4)[None] < num
            shown[0, :num] = batch.actions[row, t : t + num]
            posterior = algo.posterior(hidden[row, t][None], shown, mask)
            z, divergence = draw(posterior, None)
            made = algo.decoder(hidden[row, t][None], z)
            errors += (made - shown).abs().mean(-1)[mask].tolist()
            divergences.append(divergence.item())
    assert losses.metrics["loss/l1"].item() == pytest.approx(np.mean(errors), rel=1e-4)
    assert losses.metrics["loss/divergence"].item() == pytest.approx(np.mean(divergences), rel=1e-4)
    assert losses.total.item() == pytest.approx(np.mean(errors) + 3.0 * np.mean(divergences), rel=1e-4)


def test_actions_that_are_not_there_are_not_read():
    torch.manual_seed(0)
    reader = ChunkReader(4, 2, 3, 5, d_model=16, num_heads=4, num_layers=2, dropout=0.0).eval()
    condition, actions, mask = torch.randn(3, 3), torch.randn(3, 4, 2), torch.arange(4) < torch.tensor([[4], [2], [1]])
    other = torch.where(mask.unsqueeze(-1), actions, torch.randn(3, 4, 2))
    torch.testing.assert_close(reader(condition, other, mask), reader(condition, actions, mask))
    assert not torch.allclose(reader(condition, actions + 1.0, mask), reader(condition, actions, mask), atol=1e-3)


def test_averaged_chunks_are_the_weighted_mean_of_all_that_speak_of_a_step():
    """Streamed, per row, across a reset, against a loop over every chunk made so far."""
    values = {"execute_steps": 1, "ensemble_decay": 0.3}
    algo = case(**values).build()
    train(algo, case(**values).batch(), 5)
    algo.set_eval()
    made, choose = [], algo._choose
    algo._choose = lambda *given: made.append(choose(*given)) or made[-1]
    policy, rng, acted = VectorPolicy(algo, 2, deterministic=True), np.random.default_rng(0), []
    for t in range(9):
        policy.reset(np.array([False, t == 5]))
        acted.append(policy.act(case().obs(rng, 2), np.zeros(2, np.float32)))
    for row in (0, 1):
        for t in range(9):
            begin = 5 if row == 1 and t >= 5 else 0
            first = max(begin, t - 3)
            weights = [math.exp(-0.3 * i) for i in range(t - first + 1)]  # i = 0: the oldest
            chunks = [made[s][row, 0, t - s] for s in range(first, t + 1)]
            mean = sum(w * c for w, c in zip(weights, chunks, strict=True)) / sum(weights)
            assert acted[t][row].ravel().tolist() == pytest.approx(mean.tolist(), abs=1e-5)


def test_greedy_chunks_are_those_of_latent_zero():
    algo = case().build()
    algo.set_eval()
    inputs = algo.process_batch_for_training(case().batch()).inputs.first(1)
    hidden = torch.randn(4, 1, algo.trunk.d_output)
    with torch.no_grad():
        greedy = algo._choose(hidden, inputs, True)[:, 0]
        expected = algo.decoder(hidden[:, 0], torch.zeros(4, 4)).clamp(-1.0, 1.0)
        first, second = (algo._choose(hidden, inputs, False) for _ in range(2))
    torch.testing.assert_close(greedy, expected)
    assert not torch.equal(first, second)


def test_the_divergence_is_a_mean_over_the_chunks_drawn():
    algo = case(samples_per_window=2, kl_weight=3.0).build()
    batch = algo.process_batch_for_training(case().batch())
    algo.latent.draw = lambda posterior, prior: (posterior.chunk(2, -1)[0], torch.full(posterior.shape[:-1], 2.0))
    found = algo.compute_losses(batch)
    assert found.metrics["loss/divergence"].item() == pytest.approx(2.0)
