"""Diffusion and flow policies: losses, which positions count, which weights act, and how rarely plans are made."""

import numpy as np
import pytest
import torch

from seqrl.algo.acting import VectorPolicy
from seqrl.algo.objectives import action_chunks, draw_positions, held_actions, take_positions
from seqrl.conformance.algorithms import AlgoCase, train
from seqrl.core.errors import ConfigError
from seqrl.models.denoisers import Denoiser
from seqrl.models.noise_schedules import denoise, levels_asked, signal_shares

BOTH = ("diffusion_policy", "flow_matching")


def case(name, **values):
    return AlgoCase(name, memory="gru", actions="box", values={"denoiser": {"type": "mlp", "d_hidden": 32}, **values})


def built(name, **values):
    return case(name, **values).build()


class Recorder(Denoiser):
    """Stands in for a network: predicts 0, and keeps what it saw."""

    def __init__(self):
        super().__init__(4, 4, 3)
        self.seen = []

    def forward(self, x, time, condition):
        self.seen.append((x, time))
        return 0.0 * x


def test_a_diffusion_policy_learns_the_noise_of_its_level():
    algo, recorder = built("diffusion_policy"), Recorder()
    actions = torch.full((5000, 4, 4), 0.5, dtype=torch.float64)
    torch.manual_seed(0)
    errors = algo._errors(recorder, actions, torch.zeros(5000, 3, dtype=torch.float64))
    noisy, time = recorder.seen[0]
    share = torch.tensor(signal_shares(100)).double()[(100 * time).round().long()][:, None, None]
    noise = (noisy - share.sqrt() * 0.5) / (1 - share).sqrt()
    torch.testing.assert_close(errors, noise.square().mean(-1), rtol=1e-4, atol=1e-4)
    assert noise.std().item() == pytest.approx(1.0, abs=0.02)
    assert set((100 * time).round().long().tolist()) == set(range(100))


def test_a_flow_learns_the_way_from_noise_to_actions():
    algo, recorder = built("flow_matching"), Recorder()
    actions = torch.full((5000, 4, 4), 0.5, dtype=torch.float64)
    torch.manual_seed(0)
    errors = algo._errors(recorder, actions, torch.zeros(5000, 3, dtype=torch.float64))
    point, time = recorder.seen[0]
    noise = (point - time[:, None, None] * 0.5) / (1 - time[:, None, None])
    torch.testing.assert_close(errors, (0.5 - noise).square().mean(-1), rtol=1e-9, atol=1e-9)
    assert noise.std().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", BOTH)
def test_as_many_positions_as_asked_are_learned_and_no_padding(name):
    algo, batch = built(name, samples_per_window=2), case(name).batch()
    seen = []
    errors = algo._errors
    algo._errors = lambda net, actions, hidden: seen.append(actions) or errors(net, actions, hidden)
    losses = algo.compute_losses(algo.process_batch_for_training(batch))
    assert len(seen[0]) == 2 * len(batch.mask)
    assert losses.total.item() == pytest.approx(losses.metrics["loss/denoising"].item())


def test_positions_are_distinct_real_and_all_alike():
    torch.manual_seed(0)
    mask = torch.arange(8) < torch.tensor([[8], [5], [1]])
    counts = torch.zeros(3, 8)
    for _ in range(2000):
        index = draw_positions(mask, 4)
        assert all(len(set(row.tolist())) == 4 for row in index)
        counts.scatter_add_(1, index, torch.ones_like(index, dtype=torch.float32))
    assert (counts[0] / 2000 - 0.5).abs().max() < 0.05
    assert (counts[1, :5] / 2000 - 0.8).abs().max() < 0.05
    assert (counts[1, 5:] == 0).all()
    assert counts[2, 0] == 2000
    values = torch.rand(3, 8, 2)
    taken = take_positions(values, index)
    assert all(torch.equal(taken[b, s], values[b, index[b, s]]) for b in range(3) for s in range(4))


def test_the_last_action_is_held_where_an_episode_ended():
    """Against a loop over windows, positions and steps."""
    batch = case("flow_matching").batch()
    lengths, ends = (6, 6, 4, 4), (False, True, True, False)
    batch.mask.copy_(torch.arange(6) < torch.tensor(lengths).unsqueeze(1))
    batch.terminated.zero_()
    batch.truncated.zero_()
    batch.terminated[1, 5] = batch.truncated[2, 3] = True
    actions = batch.actions
    chunks, given = (x[:, :6] for x in action_chunks(*held_actions(batch, 3), 3))
    for row, length in enumerate(lengths):
        for t in range(length):
            for k in range(3):
                is_known = t + k < length or ends[row]
                assert given[row, t, k].item() is is_known
                if is_known:
                    assert torch.equal(chunks[row, t, k], actions[row, min(t + k, length - 1)])


@pytest.mark.parametrize("name", BOTH)
def test_averages_act_and_weights_learn(name):
    algo, batch = built(name), case(name).batch()
    first = {k: v.clone() for k, v in algo.denoiser.named_parameters()}
    train(algo, batch, 1)
    share = 2**-0.75  # 1 - (1 - (1 + 1)^-0.75): what the first step moves the average by
    averages = dict(algo.nets["averages"].averages["denoiser"].named_parameters())
    for name_, weight in algo.denoiser.named_parameters():
        torch.testing.assert_close(averages[name_], first[name_] + share * (weight - first[name_]))
    algo.set_eval()
    obs = {k: v[:, 0].numpy() for k, v in batch.inputs.obs.items()}

    def acted():
        with algo.averaged():
            return VectorPolicy(algo, 4, deterministic=True).act(obs)

    with torch.no_grad():
        before = acted()
        for weight in (*algo.denoiser.parameters(), *algo.trunk.parameters()):
            weight.zero_()
        assert np.array_equal(acted(), before)
        for weight in algo.nets["averages"].parameters():
            weight.copy_(torch.randn_like(weight))
    assert not np.array_equal(acted(), before)


@pytest.mark.parametrize("name", BOTH)
def test_a_plan_is_made_once_and_only_by_the_rows_that_need_one(name):
    algo = built(name)
    algo.set_eval()
    asked, choose = [], algo._choose
    algo._choose = lambda hidden, *rest: asked.append(len(hidden)) or choose(hidden, *rest)
    policy, rng = VectorPolicy(algo, 3, deterministic=False), np.random.default_rng(0)
    for t in range(5):
        policy.reset(np.array([False, t == 1, False]))
        policy.act(case(name).obs(rng, 3))
    assert asked == [3, 1, 2, 1, 2]  # two of four are executed: rows 0 and 2 plan at 0, 2, 4; row 1 anew at 1 and 3


@pytest.mark.parametrize("name", BOTH)
def test_actions_are_within_their_range_and_greedy_ones_repeat(name):
    algo = built(name)
    algo.set_eval()
    with torch.no_grad():
        for parameter in algo.nets.parameters():
            parameter.mul_(5.0)
    obs = case(name).obs(np.random.default_rng(0), 64)
    for deterministic in (True, False):
        first, second = (VectorPolicy(algo, 64, deterministic=deterministic).act(obs) for _ in range(2))
        assert np.abs(first).max() <= 1.0
        assert np.array_equal(first, second) is deterministic


def test_more_levels_than_there_are_are_refused():
    with pytest.raises(ConfigError, match="inference_steps 20 exceeds noise_steps 10"):
        built("diffusion_policy", noise_steps=10, inference_steps=20)


@pytest.mark.parametrize("name", BOTH)
def test_single_actions_work_too(name):
    algo = built(name, chunk_steps=1, execute_steps=1)
    train(algo, case(name).batch(), 2)
    assert algo.init_state(2).keys() == algo.trunk.sequence_encoder.init_state(2, device="cpu").keys()


def test_greedy_ddpm_draws_nothing():
    algo = built("diffusion_policy", sampler="ddpm", inference_steps=20)
    algo.set_eval()
    obs = case("diffusion_policy").obs(np.random.default_rng(0), 3)
    first, second = (VectorPolicy(algo, 3, deterministic=True).act(obs) for _ in range(2))
    assert np.array_equal(first, second)
    first, second = (VectorPolicy(algo, 3, deterministic=False).act(obs) for _ in range(2))
    assert not np.array_equal(first, second)


class Scripted(Denoiser):
    """Stands in for a network: answers by a formula, and keeps the times that it was asked at."""

    def __init__(self, answer):
        super().__init__(4, 4, 3)
        self.answer, self.times = answer, []

    def forward(self, x, time, condition):
        self.times.append(time)
        return self.answer(x, time)


def test_a_flow_that_knows_the_way_has_no_error():
    algo = built("flow_matching")
    actions = torch.full((50, 4, 4), 0.5, dtype=torch.float64)
    way = Scripted(lambda x, time: (0.5 - x) / (1 - time[:, None, None]))
    assert algo._errors(way, actions, torch.zeros(50, 3, dtype=torch.float64)).abs().max() < 1e-9


def test_a_denoiser_that_knows_the_noise_has_no_error():
    algo = built("diffusion_policy")
    shares = torch.tensor(signal_shares(100), dtype=torch.float64)

    def noise(x, time):
        share = shares[(100 * time).round().long()][:, None, None]
        return (x - share.sqrt() * 0.5) / (1 - share).sqrt()

    actions = torch.full((50, 4, 4), 0.5, dtype=torch.float64)
    assert algo._errors(Scripted(noise), actions, torch.zeros(50, 3, dtype=torch.float64)).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("solver", "times"), [("euler", [0, 0.25, 0.5, 0.75]), ("heun", [0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0])]
)
def test_a_flow_is_asked_at_the_times_of_its_solver(solver, times):
    algo = built("flow_matching", solver=solver, inference_steps=4)
    asked = Scripted(lambda x, time: 0.0 * x)
    algo._actions_from(asked, torch.zeros(2, 4, 4), torch.zeros(2, 3), is_greedy=True)
    assert [time.tolist() for time in asked.times] == [[t, t] for t in times]


@pytest.mark.parametrize(("sampler", "is_greedy"), [("ddim", False), ("ddpm", True), ("ddpm", False)])
def test_a_diffusion_policy_removes_noise_as_its_sampler_does(sampler, is_greedy):
    steps = 10 if sampler == "ddim" else 100
    algo = built("diffusion_policy", sampler=sampler, inference_steps=steps)
    noise = 3.0 * torch.randn(5, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    guess = Scripted(lambda x, time: x * (0.2 + time[:, None, None]))
    torch.manual_seed(1)
    got = algo._actions_from(guess, noise, torch.zeros(5, 3, dtype=torch.float64), is_greedy=is_greedy)
    assert [time[0].item() for time in guess.times] == pytest.approx([k / 100 for k in levels_asked(100, steps)])
    torch.manual_seed(1)
    eta = 1.0 if sampler == "ddpm" and not is_greedy else 0.0
    expected = denoise(
        lambda x, level: x * (0.2 + level / 100), noise, signal_shares(100), levels_asked(100, steps), eta=eta
    )
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", BOTH)
def test_each_chunk_is_learned_beside_its_own_state(name):
    algo = built(name, samples_per_window=3)
    batch = algo.process_batch_for_training(case(name).batch())
    seen, errors = [], algo._errors
    algo._errors = lambda net, actions, hidden: seen.append((actions, hidden)) or errors(net, actions, hidden)
    algo.compute_losses(batch)
    hidden, _ = algo.trunk(batch.inputs.first(6))
    for n, (actions, state) in enumerate(zip(*seen[0], strict=True)):
        row = n // 3
        t = int((hidden[row] - state).abs().sum(-1).argmin())
        torch.testing.assert_close(state, hidden[row, t])
        length = int(batch.mask[row].sum())
        num = min(4, length - t)
        assert t < length or length < 3  # no padding while there are chunks
        if num > 0:
            torch.testing.assert_close(actions[:num], batch.actions[row, t : t + num])
        assert not actions[max(num, 0) :].any()
