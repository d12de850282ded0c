"""Every value of a batch is the one that plain Python finds in the trajectories."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils.data import DataLoader, default_collate

from seqrl.core.errors import DataError
from seqrl.core.tensors import SeqBatch
from seqrl.core.types import Trajectory
from seqrl.data import Budget, SequenceDataset, Source, Store, StoreInfo, StoreWriter
from seqrl.data.episodes import split_by_episode
from seqrl.data.relabel import ScaleRewards

NUM_ACTIONS = 4
ACTION_SPACES = {
    "discrete": spaces.Discrete(NUM_ACTIONS),
    "discrete_from_1": spaces.Discrete(NUM_ACTIONS, start=1),
    "multi_discrete_from_2": spaces.MultiDiscrete([3, 2], start=[2, 5]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)),
    "box_above_zero": spaces.Box(3.0, 5.0, (2,), np.float32),
}


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    """Durability is not tested here, and syncing hundreds of files is slow."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def reference_encoding(space, action):
    """One environment action as the policy sees it, computed without the codec."""
    if isinstance(space, spaces.Discrete):
        return [float(int(action) - int(space.start) == i) for i in range(int(space.n))]
    if isinstance(space, spaces.MultiDiscrete):
        blocks = zip(action.tolist(), space.nvec.tolist(), space.start.tolist(), strict=True)
        return [float(a - s == i) for a, n, s in blocks for i in range(n)]
    if isinstance(space, spaces.MultiBinary):
        return [float(a) for a in action]
    low, high = space.low.astype(float), space.high.astype(float)
    return (2 * (np.asarray(action, float) - low) / (high - low) - 1).tolist()


def make_trajectory(number, steps, space, *, start_step=0, **changes):
    """A trajectory whose observation tells which one it is and which row."""
    rng = np.random.default_rng(number)
    space.seed(number)
    actions = np.array([space.sample() for _ in range(steps)])
    rows = np.arange(steps + 1)
    last = np.arange(steps) == steps - 1
    fields = {
        "obs": {
            "id": np.stack([np.full(steps + 1, number), rows], axis=1).astype(np.float32),
            "image": rng.integers(0, 256, (steps + 1, 2, 2, 1), dtype=np.uint8),
            "double": rng.random((steps + 1, 1)),
        },
        "actions": actions,
        "rewards": rng.random(steps).astype(np.float32),
        "terminated": last & (number % 2 == 0),
        "truncated": last & (number % 2 == 1),
        "start_step": start_step,
        "prev_action": np.asarray(space.sample()) if start_step else None,
        "prev_reward": 0.25 + number if start_step else 0.0,
    }
    return Trajectory(**{**fields, **changes})


def write(path, trajectories, space, names=None, **info):
    with StoreWriter(path, StoreInfo(spaces.Dict({}), space, **info), budget=Budget(num_bytes=16)) as writer:
        for i, trajectory in enumerate(trajectories):
            writer.append(trajectory, names[i] if names else f"demo_{i}")
    return Store(path)


def whole(store, weight=1.0):
    return Source(store, np.arange(len(store)), weight)


def make_store(path, space, **changes):
    lengths = [(1, 0), (3, 0), (7, 0), (12, 0), (9, 20), (2, 5)]
    written = [make_trajectory(i, n, space, start_step=s, **changes) for i, (n, s) in enumerate(lengths)]
    return write(path, written, space), written


def tensors(batch):
    inputs = batch.inputs
    flat = [*inputs.obs.values(), *inputs.goal.values(), inputs.prev_action, inputs.prev_reward, inputs.step]
    return [*flat, batch.actions, batch.rewards, batch.terminated, batch.truncated, batch.mask]


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(tensors(a), tensors(b), strict=True))


def check_row(batch, b, trajectory, space, window, padding):
    inputs = batch.inputs
    start = int(inputs.obs["id"][b, 0, 1])
    real = int(batch.mask[b].sum())
    steps = len(trajectory)
    assert batch.mask[b].tolist() == [True] * real + [False] * (window - real)
    assert 0 < real <= min(window, steps - start)
    if padding == "none":
        assert real == min(window, steps)
    for t in range(real + 1):
        row = start + t
        for key, values in trajectory.obs.items():
            np.testing.assert_array_equal(
                inputs.obs[key][b, t].numpy(), values[row].astype(inputs.obs[key].numpy().dtype)
            )
        step = trajectory.start_step + row
        assert int(inputs.step[b, t]) == step
        if row:
            action, reward = reference_encoding(space, trajectory.actions[row - 1]), trajectory.rewards[row - 1]
        elif step:
            action, reward = reference_encoding(space, trajectory.prev_action), trajectory.prev_reward
        else:
            action, reward = [0.0] * inputs.prev_action.shape[-1], 0.0
        np.testing.assert_allclose(inputs.prev_action[b, t], action, atol=1e-6)
        assert float(inputs.prev_reward[b, t]) == float(np.float32(reward))
    for t in range(real):
        row = start + t
        np.testing.assert_allclose(batch.actions[b, t], reference_encoding(space, trajectory.actions[row]), atol=1e-6)
        assert float(batch.rewards[b, t]) == float(trajectory.rewards[row])
        assert bool(batch.terminated[b, t]) == bool(trajectory.terminated[row])
        assert bool(batch.truncated[b, t]) == bool(trajectory.truncated[row])
    return start, real


# -------------------------------------------------------------------------------------------- values
@pytest.mark.parametrize("space", ACTION_SPACES.values(), ids=ACTION_SPACES)
def test_every_value_is_that_of_the_trajectory(tmp_path, space):
    store, written = make_store(tmp_path / "s", space)
    dataset = SequenceDataset([whole(store)], 4, padding="both")
    batch = dataset.batch(64, seed=0, path=("train", 0))
    seen = {
        (n, *check_row(batch, b, written[n], space, 4, "both"))
        for b, n in enumerate(batch.inputs.obs["id"][:, 0, 0].int().tolist())
    }
    assert len(seen) > 15
    assert {n for n, _, _ in seen} == set(range(6))
    assert any(start > 0 for _, start, _ in seen)
    assert any(n == 4 and start == 0 for n, start, _ in seen)


@pytest.mark.parametrize("padding", ["none", "left", "right", "both"])
@pytest.mark.parametrize("window", [1, 5, 30])
def test_every_padding_and_window(tmp_path, padding, window):
    space = ACTION_SPACES["discrete"]
    store, written = make_store(tmp_path / "s", space)
    batch = SequenceDataset([whole(store)], window, padding=padding).batch(24, seed=1, path=("train", 1))
    assert batch.num_transitions == window
    assert all(len(t) == 24 for t in tensors(batch))
    for b, n in enumerate(batch.inputs.obs["id"][:, 0, 0].int().tolist()):
        check_row(batch, b, written[n], space, window, padding)


@pytest.mark.parametrize("space", ACTION_SPACES.values(), ids=ACTION_SPACES)
@pytest.mark.parametrize("num", [1, 3])
def test_burn_in_is_what_comes_just_before_each_window(tmp_path, space, num):
    store, written = make_store(tmp_path / "s", space)
    plain = SequenceDataset([whole(store)], 4, padding="both").batch(64, seed=0, path=("train", 0))
    batch = SequenceDataset([whole(store)], 4, padding="both", burn_in=num).batch(64, seed=0, path=("train", 0))
    assert equal(batch, plain)
    before, leads = batch.before, batch.before.step[:, 0] + num == batch.inputs.step[:, 0]
    assert before.step.shape == (64, num)
    assert before.action_mask is None
    starts = batch.inputs.obs["id"][:, 0, 1].int()
    assert torch.equal(leads, starts >= num)
    assert 0 < leads.sum() < 64
    for b in leads.nonzero().flatten().tolist():
        trajectory = written[int(before.obs["id"][b, 0, 0])]
        assert int(before.obs["id"][b, 0, 0]) == int(batch.inputs.obs["id"][b, 0, 0])
        for t, row in enumerate(range(int(starts[b]) - num, int(starts[b]))):
            assert int(before.step[b, t]) == trajectory.start_step + row
            for key, values in trajectory.obs.items():
                np.testing.assert_array_equal(before.obs[key][b, t], values[row].astype(before.obs[key].numpy().dtype))
            if row:
                expected = reference_encoding(space, trajectory.actions[row - 1])
                np.testing.assert_allclose(before.prev_action[b, t], expected, atol=1e-6)
                assert float(before.prev_reward[b, t]) == float(trajectory.rewards[row - 1])


def test_burn_in_needs_data_that_stay_as_they_are(tmp_path):
    store, _ = make_store(tmp_path / "s", ACTION_SPACES["discrete"])
    source = Source(store, np.arange(len(store)), relabeler=ScaleRewards(scale=2.0))
    with pytest.raises(DataError, match="burn_in_steps"):
        SequenceDataset([source], 4, burn_in=2)


def test_dtypes_and_shapes(tmp_path):
    store, _ = make_store(tmp_path / "s", ACTION_SPACES["discrete"])
    batch = SequenceDataset([whole(store)], 5).batch(3, seed=0, path=())
    inputs = batch.inputs
    assert inputs.obs["image"].dtype == torch.uint8
    assert inputs.obs["image"].shape == (3, 6, 2, 2, 1)
    assert inputs.obs["double"].dtype == torch.float32
    assert inputs.prev_action.shape == (3, 6, NUM_ACTIONS)
    assert (inputs.prev_reward.dtype, inputs.step.dtype) == (torch.float32, torch.int64)
    assert batch.actions.shape == (3, 5, NUM_ACTIONS)
    assert all(x.dtype == torch.bool and x.shape == (3, 5) for x in (batch.mask, batch.terminated, batch.truncated))


def test_only_the_keys_asked_for_are_given(tmp_path):
    store, _ = make_store(tmp_path / "s", ACTION_SPACES["discrete"])
    batch = SequenceDataset([whole(store)], 5, keys=["double", "id"]).batch(3, seed=0, path=())
    assert list(batch.inputs.obs) == ["double", "id"]


def test_an_unknown_key_is_a_data_error(tmp_path):
    store, _ = make_store(tmp_path / "s", ACTION_SPACES["discrete"])
    with pytest.raises(DataError, match="imge"):
        SequenceDataset([whole(store)], 5, keys=["imge"]).batch(3, seed=0, path=())


def test_goal_is_taken_from_the_window(tmp_path):
    space = ACTION_SPACES["discrete"]
    goal = np.arange(10, dtype=np.float32)[:, None]
    store = write(tmp_path / "s", [make_trajectory(0, 9, space, goal={"g": goal})], space)
    batch = SequenceDataset([whole(store)], 4).batch(16, seed=0, path=())
    assert torch.equal(batch.inputs.goal["g"][..., 0], batch.inputs.obs["id"][..., 1])


def test_action_mask_is_true_on_padding_and_terminal_inputs_and_as_stored_elsewhere(tmp_path):
    space = ACTION_SPACES["discrete"]
    stored = np.random.default_rng(0).random((7, NUM_ACTIONS)) < 0.5
    trajectory = make_trajectory(0, 6, space)
    stored[np.arange(6), trajectory.actions - space.start] = True
    stored[-1] = False  # nothing is legal once the episode is over
    store = write(tmp_path / "s", [replace(trajectory, action_mask=stored)], space)
    batch = SequenceDataset([whole(store)], 4, padding="both").batch(64, seed=0, path=())
    mask = batch.inputs.action_mask
    assert mask.dtype == torch.bool
    assert mask.any(-1).all()
    for b in range(64):
        start, real = int(batch.inputs.obs["id"][b, 0, 1]), int(batch.mask[b].sum())
        for t in range(5):
            terminal = t == real and bool(batch.terminated[b, real - 1])
            expected = [True] * NUM_ACTIONS if t > real or terminal else stored[start + t].tolist()
            assert mask[b, t].tolist() == expected


# -------------------------------------------------------------------------------------------- seeding
def test_a_batch_depends_on_seed_and_path_alone(tmp_path):
    store, _ = make_store(tmp_path / "s", ACTION_SPACES["discrete"])
    dataset = SequenceDataset([whole(store)], 4, padding="both")
    first = dataset.batch(16, seed=0, path=("train", 0, 3))
    dataset.batch(5, seed=9, path=("other",))
    assert equal(dataset.batch(16, seed=0, path=("train", 0, 3)), first)
    again = SequenceDataset([whole(Store(tmp_path / "s"))], 4, padding="both")
    assert equal(again.batch(16, seed=0, path=("train", 0, 3)), first)
    for seed, path in [(1, ("train", 0, 3)), (0, ("train", 0, 4)), (0, ("train", 1, 3)), (0, ("valid", 0, 3))]:
        assert not equal(dataset.batch(16, seed=seed, path=path), first)


def test_the_same_data_written_twice_gives_the_same_batches(tmp_path):
    one, _ = make_store(tmp_path / "one", ACTION_SPACES["discrete"])
    two, _ = make_store(tmp_path / "two", ACTION_SPACES["discrete"])
    batches = [SequenceDataset([whole(s)], 4).batch(32, seed=0, path=("train", 0)) for s in (one, two)]
    assert equal(*batches)


# ------------------------------------------------------------------------------------------- sampling
@pytest.mark.parametrize("sample_by", ["trajectory", "transition"])
def test_shares_of_trajectories(tmp_path, sample_by):
    store, written = make_store(tmp_path / "s", ACTION_SPACES["discrete"])
    dataset = SequenceDataset([whole(store)], 1, sample_by=sample_by, keys=["id"])
    num = 6000
    numbers = dataset.batch(num, seed=0, path=()).inputs.obs["id"][:, 0, 0].int().numpy()
    lengths = np.array([len(t) for t in written])
    share = np.full(6, 1 / 6) if sample_by == "trajectory" else lengths / lengths.sum()
    observed = np.bincount(numbers, minlength=6) / num
    assert (np.abs(observed - share) < 5 * np.sqrt(share * (1 - share) / num)).all()


def test_weights_of_sources_are_respected(tmp_path):
    space = ACTION_SPACES["discrete"]
    heavy = write(tmp_path / "heavy", [make_trajectory(0, 3, space)], space)
    light = write(tmp_path / "light", [make_trajectory(i, 30, space) for i in range(1, 6)], space)
    dataset = SequenceDataset([whole(heavy, 6.0), whole(light, 2.0)], 2)
    num = 4000
    share = float((dataset.batch(num, seed=0, path=()).inputs.obs["id"][:, 0, 0] == 0).float().mean())
    assert abs(share - 0.75) < 5 * np.sqrt(0.75 * 0.25 / num)
    assert dataset.num_trajectories == 6
    assert dataset.num_transitions == 153


def test_rows_of_several_sources_stay_together(tmp_path):
    space = ACTION_SPACES["box"]
    written = [make_trajectory(i, 5 + i, space) for i in range(4)]
    stores = [write(tmp_path / "a", written[:2], space), write(tmp_path / "b", written[2:], space)]
    batch = SequenceDataset([whole(s) for s in stores], 3, padding="right").batch(32, seed=0, path=())
    numbers = batch.inputs.obs["id"][:, 0, 0].int().tolist()
    assert set(numbers) == {0, 1, 2, 3}
    for b, n in enumerate(numbers):
        check_row(batch, b, written[n], space, 3, "right")


def test_only_the_chosen_trajectories_are_drawn(tmp_path):
    store, _ = make_store(tmp_path / "s", ACTION_SPACES["discrete"])
    wanted = np.array([i for i, name in enumerate(store.names) if name in ("demo_1", "demo_3")])
    batch = SequenceDataset([Source(store, wanted)], 2).batch(64, seed=0, path=())
    assert set(batch.inputs.obs["id"][:, 0, 0].int().tolist()) == {1, 3}


def test_sources_without_trajectories_have_no_share(tmp_path):
    store, _ = make_store(tmp_path / "s", ACTION_SPACES["discrete"])
    dataset = SequenceDataset([Source(store, np.arange(0), 100.0), whole(store)], 2)
    assert dataset.batch(8, seed=0, path=()).mask.shape == (8, 2)
    with pytest.raises(DataError, match=r"no episode is left for training \(.+\): check filter_key"):
        SequenceDataset([Source(store, np.arange(0))], 2)


def test_sources_that_differ_are_refused(tmp_path):
    space = ACTION_SPACES["discrete"]
    one = write(tmp_path / "one", [make_trajectory(0, 3, space)], space)
    other_obs = write(tmp_path / "obs", [make_trajectory(0, 3, space, obs={"id": np.zeros((4, 2))})], space)
    other_space = write(tmp_path / "space", [make_trajectory(0, 3, space)], spaces.Discrete(9))
    for other, what in ((other_obs, r"differs from .*obs/id is .*\(2,\)"), (other_space, r"different .*Discrete\(9\)")):
        with pytest.raises(DataError, match=what):
            SequenceDataset([whole(one), whole(other)], 2)


def test_data_that_lacks_the_last_action_is_mixed_with_what_the_environment_gives(tmp_path):
    few, all_of_them = spaces.Discrete(3), spaces.Discrete(4)
    data = write(tmp_path / "data", [make_trajectory(0, 3, few)], few, spaces_are_known=False)
    live = write(tmp_path / "live", [], all_of_them)
    dataset = SequenceDataset([whole(data), Source(live, min_trajectories=0)], 2)
    dataset.use_categories(all_of_them)
    with StoreWriter(tmp_path / "live", live.info) as writer:
        writer.append(make_trajectory(1, 3, all_of_them))
    dataset.refresh(1)
    assert dataset.batch(4, seed=0, path=()).actions.shape[-1] == 4
    assert dataset.get_trajectory_at_index(0)["actions"].shape[-1] == 4


# ---------------------------------------------------------------------------------------------- split
@pytest.fixture
def twenty(tmp_path):
    space = ACTION_SPACES["discrete"]
    written = [make_trajectory(i, 2, space) for i in range(20)]
    filters = {
        "train": [f"demo_{i}" for i in range(12)],
        "valid": [f"demo_{i}" for i in range(10, 15)],
        "none": [],
        "stale": ["demo_3", "demo_99"],
    }
    return write(tmp_path / "s", written, space, filters=filters)


def names(store, indices):
    return {store.names[i] for i in indices}


@pytest.mark.parametrize(("fraction", "num_valid"), [(0.0, 0), (0.1, 2), (0.01, 1), (0.5, 10), (0.999, 19)])
def test_split_is_disjoint_complete_and_of_the_right_size(twenty, fraction, num_valid):
    train, valid = split_by_episode(twenty, fraction, seed=0)
    assert sorted([*train, *valid]) == list(range(20))
    assert len(valid) == num_valid


def test_split_is_deterministic_and_depends_on_the_seed(twenty):
    one, again, other = (split_by_episode(twenty, 0.3, seed=s)[1].tolist() for s in (0, 0, 1))
    assert one == again
    assert one != other


def test_a_single_trajectory_is_for_training(tmp_path):
    space = ACTION_SPACES["discrete"]
    store = write(tmp_path / "one", [make_trajectory(0, 3, space)], space)
    train, valid = split_by_episode(store, 0.1, seed=0)
    assert (train.tolist(), valid.tolist()) == ([0], [])


def test_filter_keys_select_by_name(twenty):
    train, valid = split_by_episode(twenty, 0.5, seed=0, train_key="train", valid_key="valid")
    assert names(twenty, valid) == {f"demo_{i}" for i in range(10, 15)}
    assert names(twenty, train) == {f"demo_{i}" for i in range(10)}


def test_valid_key_alone_leaves_the_rest_for_training(twenty):
    train, valid = split_by_episode(twenty, 0.5, seed=0, valid_key="valid")
    assert len(valid) == 5
    assert sorted([*train, *valid]) == list(range(20))


def test_train_key_alone_holds_out_a_share_of_it(twenty):
    train, valid = split_by_episode(twenty, 0.25, seed=0, train_key="train")
    assert names(twenty, [*train, *valid]) == {f"demo_{i}" for i in range(12)}
    assert len(valid) == 3


def test_unknown_or_empty_filter_key_is_a_data_error(twenty):
    with pytest.raises(DataError, match="no filter key 'trian'; it has: none, stale, train, valid"):
        split_by_episode(twenty, 0.1, seed=0, train_key="trian")
    with pytest.raises(DataError, match="'none' selects no episodes"):
        split_by_episode(twenty, 0.1, seed=0, valid_key="none")
    with pytest.raises(DataError, match="'stale' names 'demo_99', which the data does not have"):
        split_by_episode(twenty, 0.1, seed=0, train_key="stale")


# ------------------------------------------------------------------------------------ as a torch Dataset
@pytest.mark.parametrize("padding", ["none", "left", "right", "both"])
def test_windows_one_by_one_are_all_windows(tmp_path, padding):
    store, written = make_store(tmp_path / "s", ACTION_SPACES["box"])
    dataset = SequenceDataset([whole(store)], 4, padding=padding)
    starts = []
    for index in range(len(dataset)):
        row = SeqBatch.from_mapping(default_collate([dataset[index]]))
        number = int(row.inputs.obs["id"][0, 0, 0])
        start, real = check_row(row, 0, written[number], ACTION_SPACES["box"], 4, "both")
        assert real == min(4, len(written[number]) - start)
        starts.append((number, start))
    at_every = padding in ("right", "both")
    assert starts == [(n, i) for n, t in enumerate(written) for i in range(len(t) if at_every else max(len(t) - 3, 1))]
    assert torch.equal(dataset[-1]["actions"], dataset[len(dataset) - 1]["actions"])
    for beyond in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError, match=f"index {beyond} is out of range: there are {len(dataset)} items"):
            dataset[beyond]


def test_a_data_loader_makes_batches_that_train(tmp_path):
    space = ACTION_SPACES["discrete"]
    masks = {"action_mask": None}
    written = [make_trajectory(i, 6, space, goal={"g": np.full((7, 2), i, np.float32)}, **masks) for i in range(5)]
    store = write(tmp_path / "s", written, space)
    dataset = SequenceDataset([whole(store)], 3, padding="both")
    dataset.provide({"return_to_go"})
    loader = DataLoader(dataset, batch_size=30, num_workers=1)
    (given,) = loader
    batch = SeqBatch.from_mapping(given)
    assert batch.actions.shape == (30, 3, NUM_ACTIONS)
    assert batch.inputs.goal["g"].shape == (30, 4, 2)
    for b in range(30):
        number, start = divmod(b, 6)
        rewards = written[number].rewards[start:]
        assert float(batch.extras["return_to_go"][b, 0]) == pytest.approx(float(rewards.sum()), abs=1e-5)
    assert batch.truncated.any()
    assert batch.terminated.any()


def test_the_sampler_draws_as_batches_do(tmp_path):
    space = ACTION_SPACES["box"]
    short = write(tmp_path / "short", [make_trajectory(i, 4, space) for i in range(3)], space)
    long = write(tmp_path / "long", [make_trajectory(10 + i, n, space) for i, n in enumerate((4, 12))], space)
    dataset = SequenceDataset([whole(short, 3.0), whole(long, 1.0)], 4)
    sampler = dataset.get_dataset_sampler()
    drawn = [int(dataset[int(i)]["obs"]["id"][0, 0]) for _ in range(250) for i in sampler]
    counts = {n: drawn.count(n) / len(drawn) for n in set(drawn)}
    assert counts == {n: pytest.approx(0.25 if n < 10 else 0.125, abs=0.04) for n in (0, 1, 2, 10, 11)}
    assert SequenceDataset([whole(short)], 4).get_dataset_sampler() is None


def test_a_trajectory_comes_whole(tmp_path):
    store, written = make_store(tmp_path / "s", ACTION_SPACES["box"])
    other = write(tmp_path / "o", [make_trajectory(9, 5, ACTION_SPACES["box"])], ACTION_SPACES["box"], ["last"])
    dataset = SequenceDataset([whole(store), whole(other)], 4, keys=["id"])
    third = dataset.get_trajectory_at_index(3)
    assert third["ep"] == "demo_3"
    assert set(third["obs"]) == {"id"}
    np.testing.assert_array_equal(third["obs"]["id"].numpy(), written[3].obs["id"][:-1])
    np.testing.assert_array_equal(third["next_obs"]["id"].numpy(), written[3].obs["id"][1:])
    np.testing.assert_array_equal(third["rewards"].numpy(), written[3].rewards)
    assert dataset.get_trajectory_at_index(-1)["ep"] == "last"
    with pytest.raises(IndexError, match="index 7 is out of range: there are 7 items"):
        dataset.get_trajectory_at_index(7)


def test_relabelled_data_has_no_windows_one_by_one(tmp_path):
    store, _ = make_store(tmp_path / "s", ACTION_SPACES["box"])
    source = Source(store, np.arange(len(store)), relabeler=ScaleRewards(scale=2.0), name="mine")
    with pytest.raises(DataError, match="mine relabels what is drawn"):
        SequenceDataset([source], 4)[0]
