"""Training episodes in which values choose: frequencies against a reference in float64, masks, and where it holds."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from seqrl.algo.acting import VectorPolicy
from tests.helpers import ACTION_SPACES, random_batch, random_obs, small_algo

ROWS = 10_000


def agent(space="discrete", algo="actor_critic", **values):
    algo = small_algo(algo, "gru", ACTION_SPACES[space], extra_gammas=[0.5], **values)
    algo.set_eval()
    return algo


def first_inputs(algo, rows=ROWS, mask=None):
    """Return the same first input in many rows."""
    one = algo.process_batch_for_training(random_batch(algo.codec.space)).inputs.map(lambda x: x[:1, :1])
    inputs = one.map(lambda x: x.expand(rows, *x.shape[1:]).contiguous())
    if mask is not None:
        inputs = replace(inputs, action_mask=torch.as_tensor(mask).expand(rows, 1, -1))
    return inputs


def frequencies(algo, inputs):
    """Return how often each action is taken in training environments."""
    with torch.no_grad():
        actions, _ = algo.explore(inputs, algo.init_state(ROWS), torch.rand(ROWS))
    assert actions.shape == (ROWS, algo.codec.dim)
    assert (actions.sum(-1) == 1).all()
    return actions.double().mean(0)


def expected(algo, inputs, share, temperature, mask=None):
    """Return the same by the definition, from what the networks give."""
    with torch.no_grad():
        hidden, _ = algo.trunk(inputs.map(lambda x: x[:1]), None)
        logits = algo.actor.parameters_of(hidden, inputs.map(lambda x: x[:1]))[0, 0, -1].double()
        q = values_of_actions(algo, hidden) / algo.popart.std[-1]
    if mask is not None:
        logits, q = (x.masked_fill(~torch.as_tensor(mask), -torch.inf) for x in (logits, q))
    mass, legal = algo.actor.head.min_mass, torch.isfinite(q)
    policy = (1 - mass) * logits.softmax(-1) + mass * legal / legal.sum()
    return (1 - share) * policy + share * (q / temperature).softmax(-1)


def values_of_actions(algo, hidden):
    """Return Q of each action under the acting discount, in multiplied rewards, a mean over critics."""
    share = algo.critic.share(hidden)
    if algo.config.algo_name == "actor_critic":
        return share[0, 0, -1].double().mean(-1) * algo.popart.scale[-1]
    found = []
    for action in torch.eye(algo.codec.dim):
        logits_CN = algo.critic(share, action[None, None, None, None])[0, 0, 0, -1]
        found.append(algo.coder.decode(logits_CN.double().softmax(-1)).mean())
    return torch.stack(found)


@pytest.mark.parametrize("mask", [None, [True, False, True, True, False]], ids=["all", "masked"])
@pytest.mark.parametrize("name", ["actor_critic", "multitask"])
def test_frequencies_are_those_of_the_mixture(name, mask):
    torch.manual_seed(0)
    values = {"share": 0.7, "temperature": 0.05}
    algo = agent(algo=name, boltzmann=values)
    if name == "multitask":  # fresh critics hold all actions for nearly alike
        with torch.no_grad():
            algo.critic.last.weight.normal_(std=0.3)
    algo.popart.variance.fill_(4.0)
    algo.popart.reward_square.fill_(1.0)
    algo.popart.reward_share.fill_(1.0)
    inputs = first_inputs(algo, mask=mask)
    wanted = expected(algo, inputs, **values, mask=mask)
    assert (wanted - expected(algo, inputs, 0.0, 1.0, mask)).abs().max() > 0.05
    torch.testing.assert_close(frequencies(algo, inputs), wanted, rtol=0.0, atol=0.015)


def test_only_training_environments_see_it():
    plain, algo = agent(), agent(boltzmann={"share": 1.0, "temperature": 1e-4})
    algo.deserialize(plain.serialize())
    obs = {k: v.numpy() for k, v in random_obs(np.random.default_rng(0), plain.obs, 500).items()}
    drawn = {}
    for name, each, how in (
        ("plain", plain, {"deterministic": False}),
        ("evaluated", algo, {"deterministic": False}),
        ("collected", algo, {"deterministic": False, "explores": True}),
        ("greedy", algo, {"deterministic": True, "explores": True}),
        ("plain greedy", plain, {"deterministic": True}),
    ):
        torch.manual_seed(0)
        drawn[name] = VectorPolicy(each, 500, **how).act(obs)
    np.testing.assert_array_equal(drawn["plain"], drawn["evaluated"])
    np.testing.assert_array_equal(drawn["plain greedy"], drawn["greedy"])
    assert (drawn["collected"] != drawn["plain"]).any(-1).mean() > 0.3


def test_a_share_of_the_episodes_is_meant_each_from_its_first_step_to_its_last():
    plain, algo = agent(), agent(boltzmann={"share": 0.3, "temperature": 1e-6})
    algo.deserialize(plain.serialize())
    values = agent(boltzmann={"share": 1.0, "temperature": 1e-6})
    values.deserialize(plain.serialize())
    rng, rows = np.random.default_rng(0), 2_000
    mixed, best = (VectorPolicy(each, rows, deterministic=False, explores=True) for each in (algo, values))
    agrees = []
    for step in range(12):
        if step in (0, 6):
            mixed.reset(np.ones(rows, bool))
            best.reset(np.ones(rows, bool))
        obs = {k: v.numpy() for k, v in random_obs(rng, algo.obs, rows).items()}
        chosen = best.act(obs, np.zeros(rows, np.float32))
        agrees.append((mixed.act(obs, np.zeros(rows, np.float32)) == chosen).all(-1))
        mixed.note_executed(chosen)  # so that both see the same
    episodes = [np.all(agrees[:6], axis=0), np.all(agrees[6:], axis=0)]
    for always in episodes:
        assert always.mean() > 0.27
        assert always.mean() < 0.4
    assert abs((episodes[0] & episodes[1]).mean() - 0.3**2) < 0.05


@pytest.mark.parametrize("algo", ["actor_critic", "multitask"])
@pytest.mark.parametrize("space", ["box", "multi_binary", "multi_discrete"])
def test_elsewhere_the_policy_is_sampled(algo, space):
    assert agent("discrete", algo, boltzmann={}).explores
    assert not agent(space, algo, boltzmann={}).explores
    assert not agent("discrete").explores
