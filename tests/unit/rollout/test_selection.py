"""Fitted Q evaluation: a chain whose values are known, a policy's own history, and ranks."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from seqrl.algo import algo_factory
from seqrl.algo.fqe import FQE, PROPOSED
from seqrl.configs import config_factory
from seqrl.configs.building import build_section
from seqrl.configs.fqe_config import FQEConfig
from seqrl.conformance.cases import OBS, SMALL_ENCODER, SMALL_MEMORY
from seqrl.core.errors import DataError
from seqrl.core.spaces import ActionCodec, ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.core.types import Trajectory
from seqrl.data.mixture import Source
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.data.store import Store, StoreWriter
from seqrl.data.store_info import StoreInfo
from seqrl.rollout import selection
from seqrl.scripts import select_
from tests.helpers import ACTION_SPACES, random_batch

STATES, ACTIONS = 5, spaces.Discrete(2)
OBS_SPACE = spaces.Box(0.0, 1.0, (STATES,))


def episode(places, actions, rewards, *, is_over):
    num = len(actions)
    end = np.arange(num) == num - 1
    return Trajectory(
        obs={"obs": np.eye(STATES, dtype=np.float32)[list(places)]},
        actions=np.asarray(actions, np.int64),
        rewards=np.asarray(rewards, np.float32),
        terminated=end & is_over,
        truncated=end & (not is_over),
    )


def store_of(folder, trajectories):
    with StoreWriter(folder, StoreInfo(OBS_SPACE, ACTIONS)) as writer:
        for trajectory in trajectories:
            writer.append(trajectory)
    return Store(folder)


def chain(rng, num):
    """Return episodes of random actions: 1 goes right, past the last place with a reward of 1, 0 stays for 0.1."""
    found = []
    for _ in range(num):
        places, actions, rewards = [int(rng.integers(STATES))], [], []
        while len(actions) < 12:
            action = int(rng.random() < 0.5)
            actions.append(action)
            is_over = places[-1] == STATES - 1 and action == 1
            rewards.append(1.0 if is_over else 0.1 * (action == 0))
            places.append(min(places[-1] + action, STATES - 1))
            if is_over:
                break
        found.append(episode(places, actions, rewards, is_over=is_over))
    return found


def true_values(share_right, gamma):
    """Return ``(I - gamma P)^-1 r`` of a policy that goes right with some probability."""
    move = (1 - share_right) * np.eye(STATES)
    move[np.arange(STATES - 1), np.arange(1, STATES)] += share_right
    reward = np.full(STATES, 0.1 * (1 - share_right))
    reward[-1] += share_right
    return np.linalg.solve(np.eye(STATES) - gamma * move, reward)


def value_of_each_place(fit, share_right):
    """Return the value of each place at an episode's first step, for a policy that goes right with some probability."""
    inputs = SeqInputs(
        obs={"obs": torch.eye(STATES)[:, None]},
        prev_action=torch.zeros(STATES, 1, 2),
        prev_reward=torch.zeros(STATES, 1),
        step=torch.zeros(STATES, 1, dtype=torch.int64),
    )
    stay, right = (fit.values(inputs, one.expand(STATES, 1, 1, 2))[:, 0].numpy() for one in torch.eye(2))
    return (1 - share_right) * stay + share_right * right


LIKE = config_factory(
    "bc",
    {
        "observation": {
            "use_prev_action": False,
            "use_prev_reward": False,
            "timestep_encoder": {"type": "mlp", "d_hidden": 32, "d_output": 32},
        }
    },
)


@pytest.mark.slow
@pytest.mark.parametrize("share_right", [0.9, 0.2])
def test_values_of_a_chain(tmp_path, share_right):
    store = store_of(tmp_path / "store", chain(np.random.default_rng(0), 300))
    right = np.arange(10) < 10 * share_right
    drawn = np.stack([~right, right], -1).astype(np.float32)
    proposed = np.broadcast_to(drawn, (len(store) + store.num_transitions, 10, 2))
    config = selection.fit_config(store, like=LIKE, num_steps=1200, gamma=0.9)
    fit = selection.fitted(config, store, ActionCodec(ACTIONS), proposed)
    np.testing.assert_allclose(value_of_each_place(fit, share_right), true_values(share_right, 0.9), rtol=0.01)


@pytest.mark.slow
def test_values_that_are_large_beside_their_spread(tmp_path):
    """Every step earns 10, and one of the two actions 0.3 more: returns of the data are all about 75."""
    rng, gamma, num = np.random.default_rng(0), 0.98, 8
    episodes = [(rng.integers(2, size=num), rng.integers(STATES, size=num + 1)) for _ in range(60)]
    found = [episode(places, actions, 10.0 + 0.3 * actions, is_over=True) for actions, places in episodes]
    store = store_of(tmp_path / "store", found)
    config = selection.fit_config(store, like=LIKE, num_steps=400, gamma=gamma)
    steps = (1 - gamma**num) / (1 - gamma)
    means = []
    for action in range(2):
        always = np.eye(2, dtype=np.float32)[[action]]
        proposed = np.broadcast_to(always, (len(store) + store.num_transitions, 1, 2))
        fit = selection.fitted(config, store, ActionCodec(ACTIONS), proposed)
        means.append(value_of_each_place(fit, float(action)).mean())
    assert means == pytest.approx([10.0 * steps, 10.3 * steps], rel=0.02)
    assert means[1] - means[0] == pytest.approx(0.3 * steps, rel=0.5)


def remembering_policy(memory="gru"):
    """Return an untrained policy with a memory, for the chain."""
    sizes = {"d_hidden": 8, "num_layers": 1, "d_output": 8}
    config = config_factory(
        "bc",
        {
            "train": {"window_steps": 12},
            "observation": {"use_prev_action": True, "timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
            "algo": {"sequence_encoder": {"type": memory, **sizes}, "actor": {"d_hidden": 8}},
        },
    )
    torch.manual_seed(0)
    algo = algo_factory("bc", config, {"obs": ObsSpec((STATES,))}, 2, "cpu", ACTIONS)
    algo.set_eval()
    return algo


def test_actions_are_those_of_the_policy_with_the_datas_history(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "ROWS_AT_ONCE", 7)
    trajectories = chain(np.random.default_rng(1), 20)
    store, algo = store_of(tmp_path / "store", trajectories), remembering_policy()
    with torch.no_grad():
        for weight in algo.nets.parameters():
            weight.mul_(4.0)  # so that what it does depends on what was done
    got = selection.actions_along(algo, store)
    assert got.shape == (len(store) + store.num_transitions, 1, 2)
    assert 0.1 < got[:, 0, 0].mean() < 0.9
    first = 0
    for trajectory in trajectories:
        num = len(trajectory)
        prev_action = np.zeros((num + 1, 2), np.float32)
        prev_action[1:] = np.eye(2)[trajectory.actions]
        prev_reward = np.concatenate([[0.0], trajectory.rewards]).astype(np.float32)
        inputs = SeqInputs(
            obs={"obs": torch.from_numpy(trajectory.obs["obs"])[None]},
            prev_action=torch.from_numpy(prev_action)[None],
            prev_reward=torch.from_numpy(prev_reward)[None],
            step=torch.arange(num + 1)[None],
        )
        with torch.no_grad():
            hidden, _ = algo.trunk(inputs)
            expected = algo.actor(hidden, inputs).mode()[0]
        np.testing.assert_array_equal(got[first : first + num + 1, 0], expected.reshape(num + 1, 2).numpy())
        first += num + 1


def test_samples_differ_and_one_seed_repeats_them(tmp_path):
    store, algo = store_of(tmp_path / "store", chain(np.random.default_rng(1), 10)), remembering_policy()
    one, same, other = (
        selection.actions_along(algo, store, num_draws=3, deterministic=False, seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    assert (one[:, 0] != one[:, 1]).any()


def test_a_piece_of_an_episode_is_refused(tmp_path):
    late = episode([1, 2], [1], [0.0], is_over=True)
    store = store_of(tmp_path / "store", [type(late)(**{**vars(late), "start_step": 3, "prev_action": np.int64(1)})])
    with pytest.raises(DataError, match="begins at step 3"):
        selection.actions_along(remembering_policy(), store)


def test_attached_rows_come_with_every_window(tmp_path):
    trajectories = chain(np.random.default_rng(1), 20)
    store = store_of(tmp_path / "store", trajectories)
    rows = np.concatenate(
        [np.stack([np.full(len(t) + 1, i), np.arange(len(t) + 1)], 1) for i, t in enumerate(trajectories)]
    )
    dataset = SequenceDataset([Source(store, indices=np.arange(3, 20))], 4, padding="both")
    dataset.attach("place", [rows])
    for k in range(20):
        batch = dataset.batch(16, seed=0, path=("x", k))
        number, offset = batch.extras["place"].unbind(-1)
        assert (number == number[:, :1]).all()
        real = batch.input_mask
        assert torch.equal(offset[real], batch.inputs.step[real])
        for b in range(16):
            whole = trajectories[int(number[b, 0])]
            seen = torch.from_numpy(whole.obs["obs"])[offset[b]]
            assert torch.equal(batch.inputs.obs["obs"][b], seen)
    with pytest.raises(DataError, match=r"needs \d+ rows for data that is fixed"):
        dataset.attach("place", [rows[1:]])


def test_a_value_has_an_interval_over_episodes_and_a_distance_to_the_data(tmp_path):
    store, algo = store_of(tmp_path / "store", chain(np.random.default_rng(1), 60)), remembering_policy()
    config = selection.fit_config(store, like=LIKE, num_steps=20)
    found = selection.policy_value(algo, store, ACTIONS, config=config)
    assert found.value.low < found.value.value < found.value.high
    assert found.value.value == pytest.approx(found.starts.mean())
    assert len(found.starts) == 60
    own = selection.actions_along(algo, store)[:, 0]
    first, differs = 0, []
    for t in store.trajectories():
        differs += list(own[first : first + len(t)].argmax(-1) != t.actions)
        first += len(t) + 1
    assert found.disagreement == pytest.approx(np.mean(differs))


def test_rank_correlation():
    assert selection.rank_correlation([1, 2, 3, 4], [10, 20, 25, 90]) == pytest.approx(1.0)
    assert selection.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert selection.rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert selection.rank_correlation([1, 1, 2], [5, 5, 9]) == pytest.approx(1.0)
    assert math.isnan(selection.rank_correlation([1, 1], [1, 2]))
    with pytest.raises(DataError, match="two or more pairs"):
        selection.rank_correlation([1], [1])


def test_masks_and_actions_that_begin_elsewhere_are_taken(tmp_path):
    """Nothing is legal at an end, and action 0 does not exist."""
    actions = spaces.Discrete(2, start=5)
    one = episode([0, 1, 2], [5, 6], [0.0, 1.0], is_over=True)
    masks = np.array([[True, True], [False, True], [False, False]])
    with StoreWriter(tmp_path / "store", StoreInfo(OBS_SPACE, actions)) as writer:
        for _ in range(6):
            writer.append(type(one)(**{**vars(one), "action_mask": masks}))
    config = remembering_policy().config
    algo = algo_factory("bc", config, {"obs": ObsSpec((STATES,))}, 2, "cpu", actions)
    algo.set_eval()
    got = selection.actions_along(algo, Store(tmp_path / "store"))
    assert got.shape == (18, 1, 2)
    assert (got[1::3, 0, 1] == 1).all()  # the only legal one


def test_data_that_cannot_tell_is_refused(tmp_path):
    trajectories = chain(np.random.default_rng(0), 6)
    worthless = [type(t)(**{**vars(t), "rewards": np.zeros_like(t.rewards)}) for t in trajectories]
    with pytest.raises(DataError, match="all rewards are 0"):
        selection.policy_value(remembering_policy(), store_of(tmp_path / "zero", worthless), ACTIONS)
    with StoreWriter(tmp_path / "blind", StoreInfo(OBS_SPACE, ACTIONS, has_next_obs=False)) as writer:
        for trajectory in trajectories:
            writer.append(trajectory)
    with pytest.raises(DataError, match="needs the observation after the last action"):
        selection.policy_value(remembering_policy(), Store(tmp_path / "blind"), ACTIONS)


@pytest.mark.parametrize(("gamma", "length", "steps"), [(0.99, 12, 1200), (0.99, 5_000, 10_000), (0.5, 12, 1000)])
def test_a_fit_takes_as_many_steps_as_values_need_to_travel(tmp_path, gamma, length, steps):
    long = episode(np.zeros(length + 1, int), np.zeros(length, int), np.ones(length), is_over=False)
    config = selection.fit_config(store_of(tmp_path / "store", [long]), gamma=gamma)
    assert config.train.steps_per_epoch == steps
    assert config.train.window_steps == min(length, 64)


def test_a_fit_scales_and_reads_what_the_policy_does(tmp_path):
    store = store_of(tmp_path / "store", chain(np.random.default_rng(0), 20))
    like = LIKE.model_copy(update={"train": LIKE.train.model_copy(update={"normalize_obs": "gaussian"})})
    config = selection.fit_config(store, like=like, num_steps=2)
    proposed = np.zeros((len(store) + store.num_transitions, 1, 2), np.float32)
    fit = selection.fitted(config, store, ActionCodec(ACTIONS), proposed, keys=["obs"])
    assert fit.normalizer is not None
    assert list(fit.obs) == ["obs"]


def test_actions_without_bounds_are_scaled_by_the_data(tmp_path):
    """A fit on actions that reach -3 and 3, scaled by the data, is that on actions whose space says so."""
    rng, found = np.random.default_rng(0), []
    actions = rng.uniform(-3, 3, (8, 5, 1)).astype(np.float32)
    actions[0, :2, 0] = -3, 3
    states, rewards = rng.random((8, 6, STATES), dtype=np.float32), rng.random((8, 5), dtype=np.float32)
    proposed = rng.uniform(-1, 1, (8 * 6, 1, 1)).astype(np.float32)
    for name, high, scaling in (("known", 3.0, "none"), ("free", np.inf, "min_max")):
        space = spaces.Box(-high, high, (1,))
        with StoreWriter(tmp_path / name, StoreInfo(OBS_SPACE, space)) as writer:
            for k in range(8):
                ends = np.arange(5) == 4
                writer.append(Trajectory({"obs": states[k]}, actions[k], rewards[k], ends & False, ends))
        store, unit = Store(tmp_path / name), 1 if name == "known" else 3
        train = LIKE.train.model_copy(update={"normalize_actions": scaling})
        config = selection.fit_config(store, like=LIKE.model_copy(update={"train": train}), num_steps=4)
        fit = selection.fitted(config, store, ActionCodec(space), unit * proposed, keys=["obs"])
        inputs = SeqInputs(
            obs={"obs": torch.from_numpy(states[:, :1])},
            prev_action=torch.zeros(8, 1, 1),
            prev_reward=torch.zeros(8, 1),
            step=torch.zeros(8, 1, dtype=torch.int64),
        )
        found.append(fit.values(fit.inputs.scaled(inputs), torch.from_numpy(unit * proposed[:8, None])))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_a_run_without_a_checkpoint_is_an_error(tmp_path, capsys):
    store_of(tmp_path / "data", chain(np.random.default_rng(0), 3))
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    assert select_.main([str(tmp_path / "run"), "--every", "--dataset", str(tmp_path / "data")]) == 2
    assert "run" in capsys.readouterr().err


@pytest.mark.parametrize("space", ["box", "discrete"])
def test_the_loss_is_that_of_a_loop(space):
    space = ACTION_SPACES[space]
    values = {
        "train": {"window_steps": 6, "batch_size": 4},
        "observation": {"timestep_encoder": {"type": "mlp", **SMALL_ENCODER["mlp"]}},
        "algo": {
            "sequence_encoder": {"type": "gru", **SMALL_MEMORY["gru"]},
            "gamma": 0.9,
            "reward_multiplier": 2.0,
            "value_offset": 3.0,
        },
    }
    torch.manual_seed(0)
    codec = ActionCodec(space)
    fit = FQE(build_section(FQEConfig, values, "test"), OBS, codec, "cpu")
    fit.set_eval()
    with torch.no_grad():
        for w in fit.target_critic.parameters():
            w.add_(0.1 * torch.randn_like(w))
    batch = random_batch(space)
    proposed = torch.rand(4, 7, 3, codec.dim) * 2 - 1
    if codec.kind != "continuous":
        proposed = torch.nn.functional.one_hot(proposed.argmax(-1), codec.dim).float()
    batch = fit.process_batch_for_training(replace(batch, extras={PROPOSED: proposed}))
    state, _ = fit.trunk(batch.inputs)

    def q(critic, b, t, action):
        share = critic.share(state[b : b + 1, t : t + 1])
        return 6.0 + critic(share, action[None, None, None, None])[0, 0, 0, 0, :, 0].double()

    errors = []
    for b in range(4):
        for t in range(int(batch.mask[b].sum())):
            later = torch.stack([q(fit.target_critic, b, t + 1, a) for a in proposed[b, t + 1]]).mean()
            y = 2.0 * batch.rewards[b, t] + 0.9 * (0.0 if batch.terminated[b, t] else 1.0) * later
            errors.append((q(fit.critic, b, t, batch.actions[b, t]) - y).square().mean().item())
    assert fit.compute_losses(batch).total.item() == pytest.approx(sum(errors) / len(errors), rel=1e-4)
    one = torch.stack([q(fit.critic, 0, 1, a) for a in proposed[0, 1]]).mean().item() / 2.0  # in the data's units
    assert fit.values(batch.inputs, proposed)[0, 1].item() == pytest.approx(one, rel=1e-4)


def test_actions_that_a_policy_standardises_are_told_apart_in_a_fit(tmp_path):
    """Critics read [-1, 1] only, where a third of standardised actions does not fit."""
    store = store_of(tmp_path / "store", chain(np.random.default_rng(0), 3))
    for own, of_fit in (("gaussian", "min_max"), ("min_max", "min_max"), ("none", "none")):
        train = LIKE.train.model_copy(update={"normalize_actions": own})
        config = selection.fit_config(store, like=LIKE.model_copy(update={"train": train}), num_steps=2)
        assert config.train.normalize_actions == of_fit
