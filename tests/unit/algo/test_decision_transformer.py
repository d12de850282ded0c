"""The return to go: in acting it is the data's, row by row; target and unit come from the data."""

import numpy as np
import pytest
import torch

from seqrl.algo.acting import VectorPolicy
from seqrl.algo.decision_transformer import RETURN_TO_GO
from seqrl.conformance.algorithms import AlgoCase, train
from seqrl.core.errors import DataError


def case(**values):
    return AlgoCase("decision_transformer", "gru", "box", values={"target_return": 3.0, "return_scale": 2.0, **values})


def test_acting_asks_for_what_the_batch_holds_with_rows_out_of_phase():
    """Two rows replay recorded episodes, the second two steps later: what the memory reads is the batch's."""
    algo, seen = case().build(), []
    algo.set_eval()
    forward = algo.trunk.forward
    algo.trunk.forward = lambda inputs, state=None, **_: seen.append(inputs.obs[RETURN_TO_GO]) or forward(inputs, state)
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(2, 6)).astype(np.float32)
    algo.returns.target.fill_(1.5)
    policy, given = VectorPolicy(algo, 2, deterministic=True), np.zeros(2, np.float32)
    for t in range(8):
        policy.reset(np.array([False, t == 2]))
        policy.act(case().obs(rng, 2), given)
        given = np.array([rewards[0, min(t, 5)], rewards[1, t - 2] if t >= 2 else 7.0], np.float32)
    acted = torch.stack([s[:, 0, 0] for s in seen], dim=1)
    for row, begin in ((0, 0), (1, 2)):
        expected = [(1.5 - rewards[row, :k].sum()) / 2.0 for k in range(6)]
        assert acted[row, begin : begin + 6].tolist() == pytest.approx(expected, abs=1e-5)


def test_training_reads_the_return_to_go_of_the_data():
    algo, batch, seen = case().build(), case().batch(), []
    forward = algo.trunk.forward
    algo.trunk.forward = lambda inputs, state=None, **_: seen.append(inputs.obs[RETURN_TO_GO]) or forward(inputs, state)
    algo.compute_losses(algo.process_batch_for_training(batch))
    assert torch.equal(seen[0][..., 0], batch.extras["return_to_go"][:, : batch.num_transitions] / 2.0)


def test_draws_over_a_window_are_those_of_acting():
    algo, batch = case().build(), case().batch()
    train(algo, batch, 3)
    algo.set_eval()
    inputs = algo.process_batch_for_training(batch).inputs
    state, stepped = algo.init_state(len(batch.mask)), []
    with torch.no_grad():
        for t in range(inputs.step.shape[1]):
            one = inputs.map(lambda x, t=t: x[:, t : t + 1])
            seen = algo._told(one, (state[f"{RETURN_TO_GO}/left"] - one.prev_reward[:, 0]).unsqueeze(-1))
            stepped.append(seen.obs[RETURN_TO_GO][:, 0, 0])
            _, state = algo.act(one, state, deterministic=True)
    asked = (algo.returns.target - inputs.prev_reward.cumsum(1)) / 2.0
    torch.testing.assert_close(torch.stack(stepped, 1), asked.float())
    assert algo.policy_over(inputs, 3).shape == (3, *inputs.step.shape, 4)


def test_target_and_unit_are_the_datas():
    algo = case(target_return=None, return_scale=None).build()
    assert algo.needs_returns
    returns = torch.linspace(-10.0, 2.0, 101)
    algo.use_returns(returns)
    assert algo.returns.target.item() == pytest.approx(np.quantile(returns, 0.9))
    assert algo.returns.scale.item() == 10.0
    given = case().build()
    assert not given.needs_returns
    other = case(target_return=None, return_scale=None).build()
    other.deserialize(algo.serialize())
    assert other.init_state(2)[f"{RETURN_TO_GO}/left"].tolist() == pytest.approx([algo.returns.target.item()] * 2)


def test_without_a_target_it_does_not_act():
    algo = case(target_return=None).build()
    with pytest.raises(DataError, match="no target return is known"):
        algo.init_state(1)
    with pytest.raises(DataError, match="have the return 0"):
        case(return_scale=None).build().use_returns(torch.zeros(4))


def test_a_missing_reward_is_refused():
    algo = case().build()
    algo.set_eval()
    policy, rng = VectorPolicy(algo, 1, deterministic=True), np.random.default_rng(0)
    policy.act(case().obs(rng, 1))
    with pytest.raises(DataError, match="counts its rewards"):
        policy.act(case().obs(rng, 1))


def test_a_cleared_memory_goes_on_asking_for_what_is_left():
    algo = case().build()
    algo.set_eval()
    policy, rng = VectorPolicy(algo, 2, deterministic=True), np.random.default_rng(0)
    for _ in range(3):
        policy.act(case().obs(rng, 2), np.full(2, 0.5, np.float32))
    policy.clear_memory(np.array([True, False]))
    policy.act(case().obs(rng, 2), np.full(2, 0.5, np.float32))
    assert policy._state[f"{RETURN_TO_GO}/left"].tolist() == pytest.approx([1.5, 1.5])  # 3 - 3 rewards of a half


def test_a_target_of_the_run_file_stays_when_weights_come():
    weights = case(target_return=9.0).build().serialize()
    algo = case(target_return=1.0).build()
    algo.deserialize(weights)
    assert algo.returns.asked().item() == 1.0


def test_target_and_unit_of_the_data_come_with_the_weights():
    unknown = {"target_return": None, "return_scale": None}
    given, algo = case(**unknown).build(), case(**unknown).build()
    given.returns.use(torch.tensor([-4.0, 1.0, 3.0]))
    algo.deserialize(given.serialize())
    assert algo.returns.scale.item() == 4.0
    assert algo.returns.asked().item() == given.returns.asked().item()


def test_draws_over_a_window_read_what_is_left_of_the_target():
    algo, seen = case().build(), []
    algo.set_eval()
    inputs = algo.process_batch_for_training(case().batch()).inputs
    forward = algo.trunk.forward
    algo.trunk.forward = lambda given, state=None: seen.append(given.obs[RETURN_TO_GO]) or forward(given, state)
    algo.policy_over(inputs, 1)
    told = 3.0 - inputs.prev_reward.double().numpy().cumsum(1)
    np.testing.assert_allclose(seen[0][..., 0], told / 2.0, rtol=1e-5, atol=1e-5)
