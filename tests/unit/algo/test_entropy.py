"""The entropy of policies in targets and losses, against references in float64, and what moves what."""

import math
from dataclasses import replace

import pytest
import torch
from gymnasium import spaces

from seqrl.core.errors import ConfigError
from tests.helpers import ACTION_SPACES, random_batch, small_algo, small_config

THREE = spaces.Discrete(3)
AUTO = {"alpha": "auto", "target": 0.8}
GAUSSIAN = {"distribution": {"type": "gaussian"}}


def agent(space=THREE, entropy=None, **values):
    """Return an agent of two discounts, without dropout or PopArt, and a processed batch."""
    values = {"extra_gammas": [0.5], "use_popart": False, "entropy": entropy, **values}
    algo = small_algo("actor_critic", "gru", space, **values)
    algo.set_eval()
    return algo, algo.process_batch_for_training(random_batch(space))


def entropy_of(actor, state, inputs, space):
    """Return entropies ``(B, L, G)`` in float64, from the parameters that the network gives."""
    parameters = actor.parameters_of(state, inputs).detach().double()
    if isinstance(space, spaces.Box):
        std = torch.nn.functional.softplus(parameters.chunk(2, dim=-1)[1] + actor.head.offset) + actor.head.min_std
        return (std.log() + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
    mass = actor.head.min_mass
    probs = (1 - mass) * parameters.softmax(-1) + mass / parameters.shape[-1]
    return -(probs * probs.log()).sum(-1)


def with_alphas(algo, *alphas):
    algo.temperature.log_alpha.data = torch.tensor(alphas).log()


@pytest.mark.parametrize(("space", "values"), [(THREE, {}), (ACTION_SPACES["box"], GAUSSIAN)], ids=["exact", "drawn"])
def test_targets_and_loss_grow_by_the_worth_of_the_entropy(space, values):
    target = None if isinstance(space, spaces.Box) else 0.8
    plain, batch = agent(space, **values)
    algo, _ = agent(space, {"alpha": "auto", "target": target}, **values)
    with_alphas(algo, 0.3, 0.7)
    alphas = torch.tensor([0.3, 0.7], dtype=torch.float64)
    found = []
    for each in (plain, algo):
        torch.manual_seed(0)
        p = each.look(batch)
        with torch.no_grad():
            values_BTG = each.next_values(p)
        torch.manual_seed(1)
        found.append((values_BTG, each.actor_terms(p).losses["actor_online"][1].detach()))
    (value, loss), (soft_value, soft_loss) = found
    bonus = alphas * entropy_of(algo.target_actor, p.state, batch.inputs, space)[:, 1:]
    torch.testing.assert_close((soft_value - value).double(), bonus, rtol=1e-4, atol=1e-5)
    bonus = alphas * entropy_of(algo.actor, p.state, batch.inputs, space)
    torch.testing.assert_close((loss - soft_loss).double(), bonus.mean(-1)[:, :-1], rtol=1e-4, atol=1e-5)


def test_the_worth_is_in_the_unit_of_values_with_popart():
    plain, batch = agent(use_popart=True)
    algo, _ = agent(entropy={"alpha": 0.4}, use_popart=True)
    for each in (plain, algo):
        each.popart.variance[:] = torch.tensor([400.0, 900.0])
        each.popart.reward_square.fill_(4.0)
        each.popart.reward_share.fill_(1.0)
    unit = torch.tensor([2.0 / (1 - gamma**2) ** 0.5 for gamma in (0.5, algo.algo_config.gamma)]).double()
    p = algo.look(batch)
    bonus = 0.4 * unit * entropy_of(algo.actor, p.state, batch.inputs, THREE)[:, :-1] / torch.tensor([20.0, 30.0])
    losses = [each.actor_terms(each.look(batch)).losses["actor_online"][1] for each in (plain, algo)]
    torch.testing.assert_close((losses[0] - losses[1]).double(), bonus.mean(-1), rtol=1e-4, atol=1e-5)


def test_targets_are_without_entropy_where_it_is_not_backed_up():
    plain, batch = agent(use_popart=True)
    algo, _ = agent(entropy={"alpha": 0.4, "backup": False}, use_popart=True)
    found = []
    for each in (plain, algo):
        torch.manual_seed(0)
        p = each.look(batch)
        found.append((each.next_values(p), each.actor_terms(p).losses["actor_online"][1]))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert (found[0][1] > found[1][1]).any()


def test_the_best_policy_is_the_softmax_of_the_values():
    """Only there, with fixed critics, is there no gradient of the policy-gradient loss: pi = softmax(Q / alpha)."""
    alpha = 0.5
    algo, batch = agent(
        entropy={"alpha": alpha}, online_value="mean", distribution={"type": "categorical", "min_probability_mass": 0.0}
    )
    p = algo.look(batch)
    q_BTGA = p.share.detach().mean(-1)
    norms = {}
    for temperature in (alpha, 2 * alpha):
        parameters = (q_BTGA / temperature).requires_grad_()
        loss = algo.actor_terms(replace(p, parameters=parameters)).losses["actor_online"][1]
        (gradient,) = torch.autograd.grad(loss[batch.mask].sum(), parameters)
        norms[temperature] = gradient.abs().max().item()
    assert norms[alpha] < 1e-6 < 1e-4 < norms[2 * alpha]


def test_a_learned_worth_falls_above_the_target_and_rises_below_it():
    algo, batch = agent(entropy=AUTO)
    p = algo.look(batch)
    entropy = entropy_of(algo.actor, p.state, batch.inputs, THREE)[:, :-1][batch.mask].mean(0)
    for target, sign in ((0.5, 1.0), (1.05 * entropy.max().item(), -1.0)):
        algo.temperature.target = target
        algo.nets.zero_grad()
        algo.actor_terms(p).losses["temperature"][1].backward()
        gradient = algo.temperature.log_alpha.grad
        torch.testing.assert_close(gradient.double(), (entropy - target) / 2, rtol=1e-4, atol=1e-6)
        assert (gradient.sign() == sign).all()


def test_what_each_loss_moves():
    algo, batch = agent(entropy=AUTO, offline_coeff=0.0)
    moved = {}
    for name in ("temperature", "actor_online"):
        algo.nets.zero_grad()
        algo.actor_terms(algo.look(batch)).losses[name][1].sum().backward()
        nets = algo.nets.items()
        moved[name] = {n for n, net in nets if any(q.grad is not None and q.grad.any() for q in net.parameters())}
    assert moved == {"temperature": {"temperature"}, "actor_online": {"trunk", "actor"}}


def test_padding_and_edits_of_the_actor_mask_do_not_move_the_temperature():
    algo, batch = agent(entropy=AUTO)
    expected = algo.compute_losses(batch).metrics["loss/temperature"].item()
    other = replace(batch, inputs=batch.inputs.map(torch.clone))
    other.inputs.obs["state"][~batch.input_mask] += 100.0
    assert algo.compute_losses(other).metrics["loss/temperature"].item() == pytest.approx(expected, rel=1e-5)
    algo.mask_edits.actor = lambda batch, loss, mask: torch.zeros_like(mask)
    metrics = algo.compute_losses(batch).metrics
    assert metrics["loss/temperature"].item() == pytest.approx(expected, rel=1e-5)
    assert metrics["loss/actor_online"] == 0.0


@pytest.mark.slow
def test_entropy_stays_near_its_target():
    entropies = {}
    for target in (0.2, 1.0):
        algo, batch = agent(
            entropy={"alpha": "auto", "target": target}, offline_coeff=0.0,
            optimizer={"learning_rate": 1e-2, "warmup_steps": 1, "rates": {"temperature": 5.0}},
        )  # fmt: skip
        for _ in range(150):
            info = algo.train_on_batch(batch)
        entropies[target] = info["policy/entropy_all_discounts"].item()
        assert {"temperature/alpha_0.5", "loss/temperature"} <= info.keys()
    assert entropies == {target: pytest.approx(target, abs=0.15) for target in entropies}


def test_a_resumed_run_has_the_same_temperature():
    algo, batch = agent(entropy=AUTO)
    for step in range(2):
        torch.manual_seed(step)
        algo.train_on_batch(batch)
    again, _ = agent(entropy=AUTO)
    again.deserialize(algo.serialize())
    again.updater.load_state(algo.updater.state_tensors(), 2)
    for each in (algo, again):
        torch.manual_seed(2)
        each.train_on_batch(batch)
    assert not torch.equal(algo.temperature.log_alpha, torch.zeros(2))
    weights = again.serialize()
    assert all(torch.equal(v, weights[k]) for k, v in algo.serialize().items())
    assert torch.equal(algo.temperature.log_alpha, again.temperature.log_alpha)


def test_a_fixed_worth_is_no_weight():
    algo, _ = agent(entropy={"alpha": 0.2})
    plain, _ = agent()
    assert algo.serialize().keys() == plain.serialize().keys()
    assert algo.temperature.alpha.tolist() == pytest.approx([0.2, 0.2])


def test_the_target_of_continuous_actions_is_minus_their_width():
    algo, _ = agent(ACTION_SPACES["box"], {})
    assert algo.temperature.target == -4


@pytest.mark.parametrize("space", ["discrete", "multi_discrete", "multi_binary"])
@pytest.mark.parametrize("target", [-1.0, 9.0])
def test_other_actions_take_a_target_that_can_be_reached(space, target):
    with pytest.raises(ConfigError, match=rf"algo\.entropy\.target: policies of .* give one between, got {target}"):
        agent(ACTION_SPACES[space], {"target": target})


@pytest.mark.parametrize(("space", "choices"), [("discrete", 5), ("multi_discrete", 6), ("multi_binary", 16)])
def test_the_target_of_other_actions_is_a_tenth_of_random_choice(space, choices):
    algo, _ = agent(ACTION_SPACES[space], {})
    assert algo.temperature.target == pytest.approx(0.1 * math.log(choices))


def test_a_learned_worth_begins_at_a_fifth_of_the_unit_with_popart():
    for use_popart, worth in ((True, 0.2), (False, 1.0)):
        algo, _ = agent(entropy={}, use_popart=use_popart)
        assert algo.temperature.alpha.tolist() == pytest.approx([worth, worth])


def test_what_cannot_be_is_refused():
    box = ACTION_SPACES["box"]
    for distribution in ({"type": "deterministic"}, {"type": "gaussian", "fixed_std": 0.1}):
        with pytest.raises(ConfigError, match="nothing could raise it"):
            agent(box, {}, distribution=distribution)
    for entropy, others, message in (
        ({}, {"online_coeff": 0.0}, "entropy is for the policy-gradient loss, but online_coeff is 0"),
        ({"alpha": 0.1, "target": 1.0}, {}, "target 1.0 is for alpha 'auto'"),
        ({"alpha": -1.0}, {}, "must be > 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            small_config("actor_critic", entropy=entropy, **others)


@pytest.mark.parametrize("space", ["discrete", "multi_discrete", "multi_binary"])
def test_the_default_target_asks_for_nothing_where_one_action_is_legal(space):
    """Or a worth would grow for ever where most choices are forced."""
    algo, batch = agent(ACTION_SPACES[space], {})
    only = torch.cat([batch.actions, batch.actions[:, -1:]], 1) > 0.5  # in bits, those that may be 1
    if space == "multi_binary":
        only = torch.zeros_like(only)
    for mask, target in ((only, 0.0), (torch.ones_like(only), algo.temperature.target)):
        p = algo.look(replace(batch, inputs=replace(batch.inputs, action_mask=mask)))
        given = algo.policy_over_data(p).entropy().detach()
        gap = ((given - target).mean(-1) * batch.mask).sum() / batch.mask.sum()
        algo.temperature.log_alpha.data.fill_(0.7)
        loss = algo.actor_terms(p).losses["temperature"][1]
        assert loss.item() == pytest.approx(0.7 * gap.item(), rel=1e-4, abs=1e-5)


def test_a_target_of_ones_own_counts_forced_choices():
    algo, batch = agent(THREE, AUTO)
    only = torch.cat([batch.actions, batch.actions[:, -1:]], 1) > 0.5
    algo.temperature.log_alpha.data.fill_(1.0)
    p = algo.look(replace(batch, inputs=replace(batch.inputs, action_mask=only)))
    assert algo.actor_terms(p).losses["temperature"][1].item() == pytest.approx(-0.8, abs=1e-5)
