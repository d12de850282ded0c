"""What algorithms need beside the columns, against whole trajectories read by brute force."""

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.algo.objectives import inputs_ahead
from seqrl.core.errors import DataError
from seqrl.core.types import Trajectory
from seqrl.data import Store
from seqrl.data.extras import returns_to_go
from seqrl.data.mixture import Source
from seqrl.data.relabel import Relabeler, ScaleRewards
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.data.store import StoreWriter
from seqrl.data.store_info import StoreInfo

NEEDS = ("next_action", "return_to_go", "mc_return", "mc_bound")
WINDOW, DISCOUNT = 4, 0.5


def trajectory(rng, length, **other):
    ends = np.zeros(length, bool)
    ends[-1] = True
    values = {
        "obs": {"obs": rng.normal(size=(length + 1, 2)).astype(np.float32)},
        "actions": rng.integers(0, 3, length),
        "rewards": rng.normal(size=length).astype(np.float32),
        "terminated": ends & bool(length % 2),
        "truncated": ends & (length % 2 == 0),
    }
    return Trajectory(**{**values, **other})


def store_of(path, trajectories):
    info = StoreInfo(spaces.Box(-9, 9, (2,)), spaces.Discrete(3))
    with StoreWriter(path, info) as writer:
        for t in trajectories:
            writer.append(t)
    return Store(path)


def brute_force(t, offset):
    """Return the next action, return to go, discounted return and lower bound of the value of input ``offset``."""
    one_hot = np.zeros(3)
    if offset < len(t):
        one_hot[t.actions[offset]] = 1.0
    rewards = t.rewards.astype(np.float64)[offset:]
    discounted = float((DISCOUNT ** np.arange(len(rewards)) * rewards).sum())
    is_unknown = not t.terminated[-1] and t.rewards.min() < 0 and len(t) - offset <= 5 / (1 - DISCOUNT)
    return one_hot, rewards.sum(), discounted, -np.inf if is_unknown else discounted


class Halved(Relabeler):
    """Drops every trajectory's second half, and doubles the rewards of the first."""

    needs = "trajectory"

    def relabel_trajectory(self, trajectory, rng):
        half = -(-len(trajectory) // 2)
        flags = {k: getattr(trajectory, k)[:half].copy() for k in ("terminated", "truncated")}
        flags["truncated"][-1] = True
        return Trajectory(
            obs={k: v[: half + 1] for k, v in trajectory.obs.items()},
            actions=trajectory.actions[:half],
            rewards=2 * trajectory.rewards[:half],
            **flags,
        )


@pytest.mark.parametrize("relabeler", [None, Halved()], ids=["plain", "relabelled"])
@pytest.mark.parametrize("padding", ["none", "left", "right", "both"])
def test_equal_to_brute_force_at_every_offset(tmp_path, rng, padding, relabeler):
    whole = [trajectory(rng, n) for n in (1, 3, 4, 9, 16, 17)]
    dataset = SequenceDataset(
        [Source(store_of(tmp_path / "store", whole), relabeler=relabeler)], WINDOW, padding=padding
    )
    dataset.provide(NEEDS, DISCOUNT)
    seen = [t if relabeler is None else relabeler.relabel_trajectory(t, rng) for t in whole]
    found = set()
    for k in range(15):
        batch = dataset.batch(16, seed=0, path=("train", k))
        for b in range(16):
            (number,) = (
                i for i, t in enumerate(seen)
                if any((t.obs["obs"] == batch.inputs.obs["obs"][b, 0].numpy()).all(-1))
            )  # fmt: skip
            start = int(batch.inputs.step[b, 0])
            found.add((number, start))
            for position in range(1 + int(batch.mask[b].sum())):
                action, to_go, discounted, bound = brute_force(seen[number], start + position)
                got = {name: batch.extras[name][b, position].numpy() for name in NEEDS}
                np.testing.assert_array_equal(got["next_action"], action)
                assert batch.extras["has_next_action"][b, position] == action.sum()
                np.testing.assert_allclose(got["return_to_go"], to_go, rtol=1e-5, atol=1e-5)
                np.testing.assert_allclose(got["mc_return"], discounted, rtol=1e-5, atol=1e-5)
                np.testing.assert_allclose(got["mc_bound"], bound, rtol=1e-5, atol=1e-5)
    assert len(found) > (5 if relabeler else 9)


def test_nothing_is_made_unasked_and_batches_are_the_same(tmp_path, rng):
    store = store_of(tmp_path / "store", [trajectory(rng, n) for n in (5, 9)])
    plain, asked = (SequenceDataset([Source(store)], WINDOW) for _ in range(2))
    asked.provide(NEEDS)
    one, other = (d.batch(6, seed=0, path=("train", 0)) for d in (plain, asked))
    assert one.extras == {}
    assert set(other.extras) == {*NEEDS, "has_next_action"}
    np.testing.assert_array_equal(one.inputs.obs["obs"], other.inputs.obs["obs"])
    np.testing.assert_array_equal(one.actions, other.extras["next_action"][:, :-1])


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"start_step": 7}, "begins at step 7"),
        ({"terminated": np.zeros(5, bool), "truncated": np.zeros(5, bool)}, "was cut off before its episode ended"),
    ],
)
def test_the_return_of_a_piece_is_not_known(tmp_path, rng, broken, message):
    store = store_of(tmp_path / "store", [trajectory(rng, 5, **broken)])
    dataset = SequenceDataset([Source(store)], WINDOW)
    dataset.provide(["return_to_go"])
    with pytest.raises(DataError, match=rf"{message}, so the return of its steps is not known; store whole episodes"):
        dataset.batch(2, seed=0, path=("train", 0))
    dataset.provide(["next_action"])
    assert dataset.batch(2, seed=0, path=("train", 0)).extras["next_action"].shape == (2, WINDOW + 1, 3)


def test_collected_episodes_that_a_failure_cut_short_have_no_returns_and_are_left_out(tmp_path, rng):
    """A run bears failures of its environments (``env.max_restarts``); data from elsewhere is refused."""
    no = np.zeros(6, bool)
    store = store_of(tmp_path / "store", [trajectory(rng, 5), trajectory(rng, 6, terminated=no, truncated=no)])
    drawn = {}
    for name, indices in (("collected", None), ("given", np.arange(2))):
        dataset = SequenceDataset([Source(store, indices)], 6, sample_by="transition")
        dataset.provide(["mc_bound"])
        dataset.refresh(1)
        drawn[name] = dataset
    lengths = {int(n) for k in range(10) for n in drawn["collected"].batch(4, seed=0, path=("train", k)).mask.sum(1)}
    assert lengths == {5}
    with pytest.raises(DataError, match="was cut off before its episode ended"):
        drawn["given"].batch(20, seed=0, path=("train", 0))


def test_data_that_is_all_cut_short_is_waited_for(tmp_path, rng):
    no = np.zeros(6, bool)
    dataset = SequenceDataset([Source(store_of(tmp_path / "s", [trajectory(rng, 6, terminated=no, truncated=no)]))], 6)
    dataset.provide(["mc_bound"])
    dataset.refresh(1)
    assert dataset.weight == 0.0


def test_returns_of_relabelled_windows_are_refused(tmp_path, rng):
    store = store_of(tmp_path / "store", [trajectory(rng, 5)])
    dataset = SequenceDataset([Source(store, relabeler=ScaleRewards(scale=2.0))], WINDOW)
    dataset.provide(["mc_return"])
    with pytest.raises(DataError, match="its relabeler changes windows"):
        dataset.batch(2, seed=0, path=("train", 0))


@pytest.mark.parametrize("padding", ["none", "left", "right", "both"])
@pytest.mark.parametrize("steps", [1, 3, 9])
def test_inputs_ahead_are_those_of_whole_trajectories(tmp_path, rng, padding, steps):
    whole = [trajectory(rng, n) for n in (1, 3, 4, 9, 16, 17)]
    dataset = SequenceDataset([Source(store_of(tmp_path / "store", whole))], WINDOW, padding=padding)
    counts = {True: 0, False: 0}
    for k in range(20):
        batch = dataset.batch(16, seed=0, path=("train", k))
        index, is_known = inputs_ahead(batch, steps)
        for b in range(16):
            obs = batch.inputs.obs["obs"][b].numpy()
            (full,) = (t.obs["obs"] for t in whole if (t.obs["obs"] == obs[0]).all(-1).any())
            start, last, real = int(batch.inputs.step[b, 0]), len(full) - 1, int(batch.mask[b].sum())
            for t in range(WINDOW):
                goal = min(start + t + steps, last)
                seen = t < real and goal <= start + real
                assert bool(is_known[b, t]) is seen
                counts[seen] += 1
                if seen:
                    np.testing.assert_array_equal(obs[index[b, t]], full[goal])
    assert min(counts.values()) > 0 or steps == 1


def test_returns_are_summed_in_float64():
    rewards = np.array([[1e8, 1.0, 2.0]], np.float32)
    assert returns_to_go(rewards, np.array([3]))[0].tolist() == [100_000_003.0, 3.0, 2.0, 0.0]
