"""Random actions where observations are unusual: how often, against a reference in float64, and where not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from seqrl.algo.acting import VectorPolicy
from tests.helpers import random_batch, random_obs
from tests.unit.algo.test_boltzmann import agent, first_inputs, frequencies

MASK = [True, False, True, True, False]


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("variance", [1.0, 0.05, 1e-3])
@pytest.mark.parametrize("name", ["actor_critic", "multitask"])
def test_frequencies_are_those_of_the_mixture(name, variance, mask):
    torch.manual_seed(0)
    algo = agent(algo=name, novelty=0.8)
    algo.trunk.timestep_encoder.normalizer.variance.fill_(variance)
    with torch.no_grad():
        for parameter in algo.actor.parameters():
            parameter.mul_(2.0)
    inputs = first_inputs(algo, mask=mask)
    one = inputs.map(lambda x: x[:1])
    with torch.no_grad():
        hidden, _ = algo.trunk(one, None)
        logits = algo.actor.parameters_of(hidden, one)[0, 0, -1].double()
    assert logits.std() > 0.3, "a policy that is nearly uniform would look random"
    legal = torch.as_tensor(mask or [True] * len(MASK))
    mass = algo.actor.head.min_mass
    policy = (1 - mass) * logits.masked_fill(~legal, -torch.inf).softmax(-1) + mass * legal / legal.sum()
    rarity = float(algo.trunk.timestep_encoder.rarity(one))
    rate = min(0.5, 0.8 / algo.config.train.window_steps * rarity)
    wanted = (1 - rate) * policy + rate * legal / legal.sum()
    torch.testing.assert_close(frequencies(algo, inputs), wanted, rtol=0.0, atol=0.015)


def test_only_training_environments_see_it_and_only_where_numbers_are_standardised():
    plain, algo = agent(), agent(novelty=4.0)
    with torch.no_grad():
        for parameter in plain.actor.parameters():
            parameter.mul_(3.0)
    algo.deserialize(plain.serialize())
    for each in (plain, algo):
        each.trunk.timestep_encoder.normalizer.variance.fill_(0.01)
    obs = {k: v.numpy() for k, v in random_obs(np.random.default_rng(0), plain.obs, 500).items()}

    def drawn(algo, **how):
        torch.manual_seed(0)
        return VectorPolicy(algo, 500, **how).act(obs)

    sampled, greedy = {"deterministic": False}, {"deterministic": True, "explores": True}
    np.testing.assert_array_equal(drawn(algo, **sampled), drawn(plain, **sampled))
    np.testing.assert_array_equal(drawn(algo, **greedy), drawn(plain, **greedy))
    assert (drawn(algo, **sampled, explores=True) != drawn(plain, **sampled)).any(-1).mean() > 0.1
    for each in (plain, algo):
        each.trunk.timestep_encoder.normalizer = None
    np.testing.assert_array_equal(drawn(algo, **sampled, explores=True), drawn(plain, **sampled))


def test_episodes_in_which_values_choose_are_left_alone():
    values, both = (agent(boltzmann={"share": 1.0, "temperature": 0.1}, novelty=n) for n in (0.0, 5.0))
    both.deserialize(values.serialize())
    inputs = first_inputs(values)
    found = []
    for algo in (values, both):
        torch.manual_seed(0)
        found.append(frequencies(algo, inputs))
    torch.testing.assert_close(*found, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("encoder", ["mlp", pytest.param("multimodal", marks=pytest.mark.slow)])
def test_rarity_is_1_on_average_and_large_for_what_was_rarely_seen(encoder):
    algo = agent(encoder=encoder)
    net = algo.trunk.timestep_encoder
    obs = random_obs(np.random.default_rng(0), net.obs, 4_000, 1)
    entry = next(k for k, v in obs.items() if v.is_floating_point() and v.dim() == 3)
    obs[entry][:40] += 20.0
    one = algo.process_batch_for_training(random_batch(algo.codec.space, obs=algo.obs)).inputs.map(lambda x: x[:1, :1])
    inputs = replace(one.map(lambda x: x.expand(4_000, *x.shape[1:]).contiguous()), obs=obs)
    for _ in range(2_000):
        net.update(net.stats(inputs, torch.ones(4_000, 1, dtype=torch.bool)))
    rarity = net.rarity(inputs)[:, 0]
    assert rarity.mean() == pytest.approx(1.0, abs=0.05)
    assert rarity[:40].min() > 5 * rarity[40:].mean()


def test_what_was_never_seen_stays_unusual():
    algo = agent()
    net = algo.trunk.timestep_encoder
    obs = random_obs(np.random.default_rng(0), net.obs, 64, 1)
    entry = next(k for k, v in obs.items() if v.is_floating_point() and v.dim() == 3)
    obs[entry][..., 0] = 0.0
    one = algo.process_batch_for_training(random_batch(algo.codec.space, obs=algo.obs)).inputs.map(lambda x: x[:1, :1])
    inputs = replace(one.map(lambda x: x.expand(64, *x.shape[1:]).contiguous()), obs=obs)
    real = torch.ones(64, 1, dtype=torch.bool)
    for _ in range(10_000):
        net.update(net.stats(inputs, real))
    new = replace(inputs, obs=obs | {entry: obs[entry].clone().index_fill_(-1, torch.tensor(0), 1.0)})
    assert net.rarity(new).min() > 100 * net.rarity(inputs).max()


def test_images_alone_have_none():
    algo = agent(encoder="cnn")
    one = algo.process_batch_for_training(random_batch(algo.codec.space, obs=algo.obs)).inputs
    assert algo.trunk.timestep_encoder.rarity(one) is None
