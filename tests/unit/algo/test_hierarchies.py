"""Subgoals: which input they are, how long they are held, and that they and their values count."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from seqrl.algo.acting import VectorPolicy
from seqrl.algo.hbc import IS_KNOWN, SUBGOAL
from seqrl.algo.objectives import inputs_ahead
from seqrl.conformance.algorithms import AlgoCase, train
from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ObsSpec
from seqrl.models.data_normalizer import DataNormalizer

STEPS = 3


def case(name, **values):
    planner = {"subgoal_keys": ["state"], "subgoal_steps": STEPS}
    return AlgoCase(name, "gru", "box", values={"planner": planner, **values})


def batch_of(name="hbc"):
    """Four windows of six: whole without an end, ended at its last step, ended early, and cut by a time limit."""
    batch = case(name).batch()
    length = torch.tensor([6, 6, 4, 2])
    batch.mask.copy_(torch.arange(6) < length.unsqueeze(1))
    batch.terminated.zero_()
    batch.truncated.zero_()
    batch.terminated[1, 5] = batch.terminated[2, 3] = batch.truncated[3, 1] = True
    batch.inputs.step.copy_(torch.tensor([[5], [0], [7], [2]]) + torch.arange(7))
    return batch, length.tolist()


@pytest.mark.parametrize("steps", [1, 3, 6, 9])
def test_an_input_ahead_is_found_by_brute_force(steps):
    batch, lengths = batch_of()
    index, is_known = inputs_ahead(batch, steps)
    for row, (length, has_ended) in enumerate(zip(lengths, (False, True, True, True), strict=True)):
        for t in range(6):
            expected = t < length and (has_ended or t + steps <= length)
            assert is_known[row, t].item() is expected
            if expected:
                assert index[row, t].item() == min(t + steps, length)


def test_the_policy_reads_what_is_observed_when_the_subgoal_changes_next():
    algo = case("hbc").build()
    batch, lengths = batch_of()
    followed = algo.with_realised_subgoals(algo.process_batch_for_training(batch))
    for row, (length, has_ended) in enumerate(zip(lengths, (False, True, True, True), strict=True)):
        for t in range(length):
            step = int(batch.inputs.step[row, t])
            change = t + (step // STEPS + 1) * STEPS - step
            is_known = has_ended or change <= length
            assert bool(followed.extras[IS_KNOWN][row, t]) is is_known
            if is_known:
                goal = batch.inputs.obs["state"][row, min(change, length)]
                assert torch.equal(followed.inputs.obs[SUBGOAL][row, t], goal)


@pytest.mark.parametrize("name", ["hbc", "iris"])
def test_subgoals_are_held_by_the_steps_of_each_row(name):
    algo = case(name).build()
    train(algo, case(name).batch(), 3)
    algo.set_eval()
    policy, rng, held = VectorPolicy(algo, 2, deterministic=True), np.random.default_rng(0), []
    for t in range(8):
        policy.reset(np.array([False, t == 4]))
        policy.act(case(name).obs(rng, 2), np.zeros(2, np.float32))
        held.append(algo.subgoals(policy._state)["state"].clone())
    changes = [[not torch.equal(a[row], b[row]) for a, b in itertools.pairwise(held)] for row in (0, 1)]
    assert changes[0] == [False, False, True, False, False, True, False]  # at its steps 3 and 6
    assert changes[1] == [False, False, True, True, False, False, True]  # at 3; anew at 4, then 3 steps later


def test_what_is_followed_is_what_is_worth_most():
    algo = case("iris", num_subgoals=50).build()
    algo.set_eval()
    inputs = algo.process_batch_for_training(case("iris").batch()).inputs.first(1)
    torch.manual_seed(0)
    with torch.no_grad():
        hidden, _ = algo.planner.trunk(inputs)
        drawn = algo.planner.plan(hidden, 50, is_greedy=False)[:, :, 0]
        judged, _ = algo.value.trunk(inputs)
        worth = algo._worth(judged[:, 0].expand(50, -1, -1), drawn)
        torch.manual_seed(0)
        chosen = algo._proposed([hidden, judged], deterministic=False)
    assert torch.allclose(chosen, drawn[worth.argmax(0), torch.arange(4)])


@pytest.mark.parametrize("time_limits", ["bootstrap", "end"])
def test_the_worth_of_a_subgoal_is_what_was_earned_on_the_way_and_the_value_there(time_limits):
    algo = case("iris", value={"time_limits": time_limits}).build()
    batch = algo.process_batch_for_training(batch_of("iris")[0])
    losses = algo.losses_of_parts(batch)
    with torch.no_grad():
        p = algo.value.look(batch)
        index, is_known = inputs_ahead(batch, STEPS)
        errors = []
        for row, t in is_known.nonzero().tolist():
            goal = batch.inputs.obs["state"][row, index[row, t]]
            worth = algo.worth(torch.cat([p.state[row, t], goal]))[0]
            end, gamma = int(index[row, t]), algo.value.discount
            earned = sum(gamma ** (k - t) * batch.rewards[row, k] for k in range(t, end))
            is_cut = bool(batch.truncated[row, end - 1]) and time_limits == "end"
            goes_on = not (batch.terminated[row, end - 1] or is_cut)
            later = gamma ** (end - t) * p.extras["v"][row, end, -1] if goes_on else 0.0
            errors.append((worth - earned - later) ** 2)
    assert losses["worth"].total.item() == pytest.approx(float(torch.stack(errors).mean()), rel=1e-4)
    assert losses["worth"].total.requires_grad


def test_a_planner_alone_refuses_to_act_and_images_are_no_subgoals():
    algo = case("gl").build()
    with pytest.raises(ConfigError, match="gives no actions; 'hbc' and 'iris' follow them"):
        VectorPolicy(algo, 1, deterministic=True).act(case("gl").obs(np.random.default_rng(0), 1))
    with pytest.raises(ConfigError, match="subgoal_keys: place not among"):
        case("gl", planner={"subgoal_keys": ["place"]}).build()
    with pytest.raises(ConfigError, match="image is an image"):
        AlgoCase("gl", encoder="cnn", values={"planner": {"subgoal_keys": ["image"]}}).build()


def test_the_planner_without_a_latent_learns_the_mean():
    algo = case("gl", planner={"subgoal_keys": ["state"], "subgoal_steps": STEPS, "latent": None}).build()
    batch = algo.process_batch_for_training(batch_of("gl")[0])
    losses = algo.compute_losses(batch)
    with torch.no_grad():
        hidden, _ = algo.trunk(batch.inputs.first(6))
        predicted = algo.plan(hidden, 1, is_greedy=True)[0]
        index, is_known = inputs_ahead(batch, STEPS)
        errors = [
            0.5 * (predicted[row, t] - batch.inputs.obs["state"][row, index[row, t]]).square().sum()
            for row, t in is_known.nonzero().tolist()
        ]
    assert losses.total.item() == pytest.approx(float(torch.stack(errors).mean()), rel=1e-5)


def test_subgoals_are_told_in_the_units_of_the_environment():
    algo = case("hbc").build()
    plain = {"obs": torch.tensor([[[5.0, -3.0]]])}
    normalizer = DataNormalizer({"obs": ObsSpec((2,))}, 0, "gaussian", "none")
    normalizer.entries[0].set(np.array([4.0, -1.0]), np.array([0.5, 2.0]))
    scaled = normalizer.scaled_obs(plain)
    assert not torch.equal(scaled["obs"], plain["obs"])
    assert torch.equal(normalizer.own_obs(scaled)["obs"], plain["obs"])
    assert set(algo.subgoals(algo.init_state(2))) == {"state"}


@pytest.mark.parametrize("name", ["hbc", "iris"])
def test_the_follower_reads_the_subgoal_of_now_and_a_cleared_row_gets_a_new_one(name):
    algo, seen = case(name).build(), []
    train(algo, case(name).batch(), 3)
    algo.set_eval()
    forward = algo.follower.trunk.forward
    algo.follower.trunk.forward = lambda given, state=None: (
        seen.append(given.obs[SUBGOAL][:, 0]) or forward(given, state)
    )
    policy, rng, held = VectorPolicy(algo, 2, deterministic=True), np.random.default_rng(0), []
    for t in range(5):
        if t == 2:
            policy.clear_memory(np.array([True, False]))
        policy.act(case(name).obs(rng, 2), np.zeros(2, np.float32))
        held.append(policy._state[f"{SUBGOAL}/now"].clone())
    for read, now in zip(seen, held, strict=True):
        assert torch.equal(read, now)
    assert not torch.equal(held[1][0], held[2][0])
    assert torch.equal(held[1][1], held[2][1])


def test_nothing_is_imitated_where_the_subgoal_is_not_known():
    algo = case("hbc").build()
    batch = algo.process_batch_for_training(batch_of()[0])
    losses = algo.losses_of_parts(batch)
    with torch.no_grad():
        followed = algo.with_realised_subgoals(batch)
        inputs = followed.inputs.first(6)
        hidden, _ = algo.follower.trunk(inputs)
        log_prob = algo.follower.actor(hidden, inputs).log_prob(batch.actions)
        known = followed.extras[IS_KNOWN][:, :6] > 0
    assert 0 < known.sum() < batch.mask.sum()
    assert losses["actor"].total.item() == pytest.approx(-log_prob[known].mean().item(), rel=1e-4)


def test_the_worth_of_subgoals_moves_its_own_network_alone():
    algo = case("iris", value={"reward_multiplier": 10.0}).build()
    batch = algo.process_batch_for_training(batch_of("iris")[0])
    algo.losses_of_parts(batch)["worth"].total.backward()
    nets = algo.nets.items()
    assert {n for n, net in nets if any(w.grad is not None and w.grad.any() for w in net.parameters())} == {"worth"}


def test_the_worth_of_subgoals_is_in_multiplied_rewards():
    one, ten = (case("iris", value={"reward_multiplier": k}).build() for k in (1.0, 10.0))
    batch = batch_of("iris")[0]
    ten_batch = one.process_batch_for_training(replace(batch, rewards=10.0 * batch.rewards))
    expected = one.losses_of_parts(ten_batch)["worth"].total.item()
    got = ten.losses_of_parts(ten.process_batch_for_training(batch))["worth"].total.item()
    assert got == pytest.approx(expected, rel=1e-5)


def test_greedy_subgoals_are_chosen_among_the_same_latents_for_all_rows():
    algo = case("iris", num_subgoals=20).build()
    algo.set_eval()
    plan, seen = algo.planner.plan, []
    algo.planner.plan = lambda *a, **k: seen.append(plan(*a, **k)) or seen[-1]
    hidden = torch.randn(1, 1, algo.planner.trunk.d_output).expand(3, -1, -1)
    with torch.no_grad():
        first, second = (algo._proposed([hidden, hidden], deterministic=True) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(first[0], first[1])
    assert len(seen[0].flatten(1).unique(dim=0)) == 20
    with torch.no_grad():
        drawn = [algo._proposed([hidden, hidden], deterministic=False) for _ in range(2)]
    assert not torch.equal(*drawn)


def test_the_planners_loss_is_its_error_and_its_weighed_divergence():
    planner = {"subgoal_keys": ["state"], "subgoal_steps": STEPS, "latent": {"kl_weight": 0.3}}
    algo = case("gl", planner=planner).build()
    batch = algo.process_batch_for_training(batch_of("gl")[0])
    losses = algo.compute_losses(batch)
    expected = losses.metrics["loss/subgoal"] + 0.3 * losses.metrics["loss/divergence"]
    assert losses.total.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_posterior_reads_the_subgoal_that_was_reached():
    algo = case("gl").build()
    batch, seen = algo.process_batch_for_training(batch_of("gl")[0]), []
    algo.nets["posterior"].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    algo.compute_losses(batch)
    index, is_known = inputs_ahead(batch, STEPS)
    for row, t in is_known.nonzero().tolist():
        assert torch.equal(seen[0][row, t, -3:], batch.inputs.obs["state"][row, index[row, t]])
    assert not seen[0][..., -3:][~is_known].any()


@pytest.mark.parametrize("name", ["hbc", "iris"])
def test_actions_towards_a_subgoal_are_drawn_unless_acting_is_greedy(name):
    algo = case(name).build()
    algo.set_eval()
    batch = algo.process_batch_for_training(case(name).batch())
    first, second = (batch.inputs.map(lambda x, t=t: x[:, t : t + 1]) for t in (0, 1))
    first.step.zero_()
    second.step.fill_(1)  # so that the subgoal is held
    with torch.no_grad():
        _, state = algo.act(first, algo.init_state(len(batch.mask)), True)
        drawn = [algo.act(second, {k: v.clone() for k, v in state.items()}, False)[0] for _ in range(2)]
        greedy = [algo.act(second, {k: v.clone() for k, v in state.items()}, True)[0] for _ in range(2)]
    assert not torch.allclose(*drawn)
    assert torch.equal(*greedy)


@pytest.mark.parametrize("is_conditioned", [True, False])
def test_a_plan_decodes_the_prior_of_each_input(is_conditioned):
    planner = {
        "subgoal_keys": ["state"],
        "subgoal_steps": STEPS,
        "latent": {"prior": "gaussian", "is_conditioned": is_conditioned},
    }
    algo = case("gl", planner=planner).build()
    algo.set_eval()
    hidden = torch.randn(2, 3, algo.trunk.d_output)
    with torch.no_grad():
        plan = algo.plan(hidden, 1, is_greedy=True)[0]
        for row, t in np.ndindex(2, 3):
            given = hidden[row, t] if is_conditioned else torch.ones(1)
            mean = algo.nets["prior"](given).chunk(2)[0]
            torch.testing.assert_close(plan[row, t], algo.nets["subgoal"](torch.cat([hidden[row, t], mean])))
