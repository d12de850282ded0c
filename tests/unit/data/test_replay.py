"""A store that is added to and evicted from: budgets, living writers, watermarks, full disks, mixtures."""

import itertools
import multiprocessing
import os
import shutil
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.types import Trajectory
from seqrl.data import Budget, NoData, SequenceDataset, Source, Store, StoreInfo, StoreWriter
from seqrl.data.relabel import Relabeler
from seqrl.data.store import SHARDS_PER_BUDGET

INFO = StoreInfo(spaces.Box(-1e9, 1e9, (2,), np.float32), spaces.Discrete(3))


def walk(length=4, value=0.0, **options):
    obs = np.full((length + 1, 2), value, np.float32)
    obs[:, 1] = np.arange(length + 1)
    ends = np.zeros(length, bool)
    return Trajectory(
        obs={"obs": obs},
        actions=np.zeros(length, np.int64),
        rewards=np.full(length, value, np.float32),
        terminated=ends,
        truncated=np.arange(length) == length - 1,
        **options,
    )


def filled(path, values, budget=None, length=4):
    with StoreWriter(path, INFO, "fifo", budget) as writer:
        for value in values:
            writer.append(walk(length, value))
    return Store(path)


def values_in(store):
    return [float(t.obs["obs"][0, 0]) for t in store.trajectories()]


# -------------------------------------------------------------------------------------------- eviction
@pytest.mark.parametrize(
    "budget", [Budget(trajectories=32), Budget(transitions=32 * 4), Budget(trajectories=999, transitions=128)]
)
def test_the_oldest_go_first_and_what_is_left_fits_the_budget(tmp_path, budget):
    store = filled(tmp_path, range(100), budget)
    assert store.evict(budget) > 0
    store.refresh()
    left = values_in(store)
    assert left == list(map(float, range(100)))[-len(left) :]
    assert 32 - 32 // SHARDS_PER_BUDGET <= len(left) <= 32
    assert store.num_evicted == 4 * (100 - len(left))
    assert store.evict(budget) == 0


@pytest.mark.parametrize(
    "budget", [Budget(num_bytes=16 * 400), Budget(transitions=16 * 7), Budget(trajectories=16 * 2)]
)
def test_shards_roll_at_a_sixteenth_of_the_budget(tmp_path, budget):
    """One trajectory of 4 transitions takes 110 bytes and a log line of about 110."""
    filled(tmp_path, range(5), budget)
    logs = sorted((tmp_path / "fifo").glob("shard_*/commits.jsonl"))
    assert [len(log.read_text().splitlines()) for log in logs] == [2, 2, 1]


def test_a_clock_that_goes_back_does_not_make_new_data_old(tmp_path, monkeypatch):
    clock = itertools.count(1_700_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    monkeypatch.setattr(time, "time_ns", lambda: next(clock) * 10**9)
    budget = Budget(trajectories=16)
    store = filled(tmp_path, range(40), budget)
    store.evict(budget)
    store.refresh()
    assert values_in(store) == list(range(24, 40))


def test_shards_of_an_earlier_version_that_are_named_by_time_are_older_than_new_ones(tmp_path):
    filled(tmp_path, range(3), Budget(trajectories=16))
    for k, folder in enumerate(sorted((tmp_path / "fifo").iterdir())):
        folder.rename(folder.with_name(f"shard_{1_900_000_000_000_000_000 + k:020d}_0123abcd"))  # of the year 2030
    store = filled(tmp_path, range(3, 6), Budget(trajectories=16))
    assert values_in(store) == list(range(6))
    assert store.evict(Budget(trajectories=3)) == 3
    store.refresh()
    assert values_in(store) == [3.0, 4.0, 5.0]
    assert values_in(filled(tmp_path, [6.0])) == [3.0, 4.0, 5.0, 6.0]


def test_shards_of_several_writers_are_in_the_order_in_which_they_were_begun(tmp_path):
    writers = [StoreWriter(tmp_path, INFO, "fifo", Budget(trajectories=16)) for _ in range(3)]
    for value in range(9):
        writers[value % 3].append(walk(4, value))
    assert values_in(Store(tmp_path)) == list(range(9))
    with ThreadPoolExecutor(3) as pool:
        for k in range(3):
            pool.submit(lambda k=k: [writers[k].append(walk(4, 10 * k + v)) for v in range(10)])
    values = values_in(Store(tmp_path))[9:]
    assert sorted(values) == list(range(30))
    for k in range(3):
        assert [v for v in values if v // 10 == k] == list(range(10 * k, 10 * k + 10))
    for writer in writers:
        writer.close()


def test_a_budget_of_bytes_counts_the_files(tmp_path):
    budget = Budget(num_bytes=20_000)
    store = filled(tmp_path, range(500), budget)
    store.evict(budget)
    store.refresh()
    on_disk = sum(f.stat().st_size for f in (tmp_path / "fifo").rglob("*") if f.suffix in (".bin", ".jsonl"))
    assert on_disk == store.num_bytes
    assert 20_000 * (1 - 2 / SHARDS_PER_BUDGET) < on_disk <= 20_000


def test_protected_data_is_sampled_and_never_deleted(tmp_path):
    with StoreWriter(tmp_path, INFO, "protected") as writer:
        writer.append(walk(4, -1.0))
    store = filled(tmp_path, range(50), Budget(trajectories=16))
    store.evict(Budget(trajectories=1))
    store.refresh()
    assert values_in(store)[0] == -1.0
    assert len(store) <= 2


def test_a_shard_that_is_being_written_stays(tmp_path):
    writer = StoreWriter(tmp_path, INFO, "fifo", Budget(trajectories=16))
    for value in range(4):
        writer.append(walk(4, value))
    store = Store(tmp_path)
    assert store.evict(Budget(trajectories=0)) == 3
    store.refresh()
    assert values_in(store) == [3.0]
    writer.close()
    assert store.evict(Budget(trajectories=0)) == 1


def _write_and_die(path):
    writer = StoreWriter(path, INFO, "fifo", Budget(trajectories=16))
    writer.append(walk(4, 7.0))
    os._exit(9)


def test_the_shard_of_a_writer_that_died_can_be_evicted(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=_write_and_die, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    store = Store(tmp_path)
    assert values_in(store) == [7.0]
    assert store.evict(Budget(trajectories=0)) == 1
    assert list((tmp_path / "fifo").iterdir()) == []


def test_what_was_left_by_a_killed_evictor_is_removed(tmp_path):
    store = filled(tmp_path, [1.0])
    (tmp_path / "fifo" / ".evicted_shard_1").mkdir()
    store.evict(Budget())
    assert [p.name for p in (tmp_path / "fifo").iterdir() if p.name.startswith(".")] == []
    assert len(store) == 1


def test_two_evictors_do_no_harm(tmp_path):
    budget = Budget(trajectories=16)
    first = filled(tmp_path, range(40), budget)
    second = Store(tmp_path)
    first.evict(budget)
    second.evict(budget)
    for store in (first, second):
        store.refresh()
        assert len(store) == 16


def test_a_reader_draws_again_what_was_evicted_meanwhile(tmp_path):
    filled(tmp_path, range(10), Budget(trajectories=16))
    dataset = SequenceDataset([Source(Store(tmp_path))], window=3)
    other = Store(tmp_path)
    other.evict(Budget(trajectories=4))
    for k in range(20):
        batch = dataset.batch(8, seed=0, path=("train", k))
        assert set(batch.inputs.obs["obs"][:, 0, 0].tolist()) <= {6.0, 7.0, 8.0, 9.0}
    other.evict(Budget(trajectories=0))
    dataset = SequenceDataset([Source(Store(tmp_path))], window=3)
    assert not dataset.is_ready


def test_everything_evicted_meanwhile_is_an_error_that_says_so(tmp_path):
    filled(tmp_path, range(3), Budget(trajectories=16))
    dataset = SequenceDataset([Source(Store(tmp_path), name="replay")], window=3)
    Store(tmp_path).evict(Budget(trajectories=0))
    with pytest.raises(DataError, match="every trajectory of replay was evicted"):
        dataset.batch(4, seed=0, path=(0,))
    filled(tmp_path, [5.0])
    dataset.refresh(1)
    Store(tmp_path).evict(Budget(trajectories=0))
    filled(tmp_path, [6.0])  # what came meanwhile is taken in
    assert dataset.batch(2, seed=0, path=(0,)).inputs.obs["obs"][:, 0, 0].tolist() == [6.0, 6.0]


def test_two_subsets_of_one_store_have_weights_of_their_own(tmp_path):
    store = filled(tmp_path, [1.0, 2.0])
    sources = [Source(store, np.arange(1), weight=3.0), Source(store, np.arange(1, 2))]
    drawn = SequenceDataset(sources, window=3).batch(2000, seed=0, path=(0,)).inputs.obs["obs"][:, 0, 0]
    assert abs((drawn == 1.0).float().mean() - 0.75) < 0.04


def test_data_of_other_spaces_and_a_deleted_folder_are_refused(tmp_path):
    filled(tmp_path, [1.0])
    with pytest.raises(DataError, match=r"holds an action_space of Discrete\(3\)"):
        StoreWriter(tmp_path, StoreInfo(INFO.observation_space, spaces.Discrete(4)), "fifo")
    with StoreWriter(tmp_path, INFO, "fifo") as writer:
        writer.append(walk(4, 1.0))
        shutil.rmtree(tmp_path / "fifo")
        with pytest.raises(DataError, match="was deleted while it was being written"):
            writer.append(walk(4, 1.0))


def test_a_shard_that_was_never_made_whole_is_removed_in_time(tmp_path):
    store = filled(tmp_path, [1.0])
    young, old = (tmp_path / "fifo" / f"shard_{n}" for n in ("a", "b"))
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (1, 1))
    store.evict(Budget())
    assert young.exists()
    assert not old.exists()
    assert len(store) == 1


# -------------------------------------------------------------------------------------------- watermark
def test_cut_forgets_what_came_after_the_watermark(tmp_path):
    writer = StoreWriter(tmp_path, INFO, "fifo", Budget(trajectories=3 * SHARDS_PER_BUDGET))
    for value in range(4):
        writer.append(walk(4, value))
    store = Store(tmp_path)
    mark = store.watermark()
    for value in range(4, 9):
        writer.append(walk(4, value))
    writer.close()
    store.refresh()
    other = Store(tmp_path)
    assert store.cut(mark) == 5
    assert values_in(store) == [0.0, 1.0, 2.0, 3.0]
    other.reopen()
    assert values_in(other) == [0.0, 1.0, 2.0, 3.0]
    with StoreWriter(tmp_path, INFO, "fifo") as again:
        again.append(walk(4, 99.0))
    store.refresh()
    assert values_in(store) == [0.0, 1.0, 2.0, 3.0, 99.0]
    assert store.verify() == []


# -------------------------------------------------------------------------------------------- full disk
FULL = """
    import resource, signal
    from pathlib import Path
    from seqrl.core.errors import DataError
    from seqrl.data import Budget, Store, StoreWriter
    from tests.unit.data.test_replay import INFO, walk
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    path = Path({path!r})
    writer = StoreWriter(path, INFO, "fifo")
    try:
        for value in range(100):
            writer.append(walk(200, value))
    except DataError as error:
        print(value, error)
    writer.close()
    store = Store(path)
    assert len(store) == value and store.verify() == []
    writer.append(walk(200, -5.0))  # into a new shard
    writer.close()
    store.refresh()
    assert store.verify() == [] and store.total_reward[-1] == -1000
"""


def test_a_full_disk_is_a_clear_error_and_the_store_still_opens(tmp_path):
    """A limit on the size of files stands for it: the write fails half way."""
    code = textwrap.dedent(FULL.format(path=str(tmp_path / "s")))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    number, message = done.stdout.split(" ", 1)
    assert 5 <= int(number) <= 15
    assert "cannot take the next trajectory: File too large" in message
    assert "MB are free there" in message


# ---------------------------------------------------------------------------------------------- mixture
def test_a_source_becomes_ready_and_its_weight_is_annealed(tmp_path):
    demos = filled(tmp_path / "demos", [1.0] * 5)
    writer = StoreWriter(tmp_path / "replay", INFO, "fifo")
    live = Source(
        Store(tmp_path / "replay"), weight=3.0, initial_weight=1.0, anneal_epochs=4, min_trajectories=2, name="replay"
    )
    dataset = SequenceDataset([Source(demos, np.arange(5), name="demos"), live], window=3)
    assert dataset.is_ready

    def share(epoch):
        dataset.refresh(epoch)
        return dataset.metrics()["data/replay/share"]

    assert share(0) == 0.0
    writer.append(walk(4, 2.0))
    assert share(1) == 0.0
    writer.append(walk(4, 2.0))
    assert dataset.num_trajectories == 6
    np.testing.assert_allclose([share(e) for e in (2, 3, 4, 5, 9)], [1.5 / 2.5, 2 / 3, 2.5 / 3.5, 0.75, 0.75])
    drawn = dataset.batch(4000, seed=0, path=(0,)).inputs.obs["obs"][:, 0, 0]
    assert abs((drawn == 2.0).float().mean() - 0.75) < 0.03
    again = SequenceDataset(
        [Source(demos, np.arange(5)), Source(Store(tmp_path / "replay"), weight=3.0, anneal_epochs=4)], window=3
    )
    again.load_state(dataset.state())
    assert again.sources[1].ready_since == 2
    assert dataset.metrics()["data/replay/transitions"] == 8
    writer.close()


def test_a_start_without_initial_weight_begins_small(tmp_path):
    demos = filled(tmp_path / "demos", [1.0])
    source = Source(filled(tmp_path / "replay", [2.0]), anneal_epochs=10)
    dataset = SequenceDataset([Source(demos, np.arange(1)), source], window=3)
    weights = []
    for epoch in range(12):
        dataset.refresh(epoch)
        weights.append(source.weight_at(epoch))
    np.testing.assert_allclose(weights, [*np.arange(1, 11) / 10, 1.0, 1.0])


def test_another_data_set_is_not_resumed_from(tmp_path):
    store = filled(tmp_path, [1.0, 2.0])
    state = SequenceDataset([Source(store, np.arange(2))], window=3).state()
    with pytest.raises(DataError, match=r"was \[2, 8\] in 1 sources, and is \[1, 4\]"):
        SequenceDataset([Source(store, np.arange(1))], window=3).load_state(state)


def test_other_episodes_of_the_same_size_are_not_resumed_from(tmp_path):
    """As after a filter key was written anew."""
    store = filled(tmp_path, [1.0, 2.0, 3.0])
    state = SequenceDataset([Source(store, np.array([0, 1]))], window=3).state()
    SequenceDataset([Source(store, np.array([0, 1]))], window=3).load_state(state)
    other = SequenceDataset([Source(store, np.array([0, 2]))], window=3)
    with pytest.raises(DataError, match="other episodes are trained on"):
        other.load_state(state)
    del state["checksum"], state["content"]  # as in a checkpoint of an earlier version
    other.load_state(state)


def test_episodes_with_other_actions_are_not_resumed_from(tmp_path):
    first, second = StoreWriter(tmp_path / "a", INFO, "fifo"), StoreWriter(tmp_path / "b", INFO, "fifo")
    for writer, shift in ((first, 0), (second, 1)):
        whole = walk(4, 1.0)
        writer.append(replace(whole, actions=(whole.actions + shift) % 2))
        writer.close()
    states = [SequenceDataset([Source(Store(tmp_path / name), np.arange(1))], window=3) for name in "aab"]
    states[1].load_state(states[0].state())
    with pytest.raises(DataError, match="by rewriting a filter key, observations or actions"):
        states[2].load_state(states[0].state())


def test_no_data_is_never_ready():
    assert not NoData().is_ready
    with pytest.raises(DataError, match="no data"):
        NoData().batch(1, seed=0, path=(0,))


# --------------------------------------------------------------------------------------------- relabel
class OnlyTheLosses(Relabeler):
    needs = "window"

    def relabel_window(self, columns, rng):
        return {**columns, "rewards": columns["prev_reward"][:, 1:] * 10}


class Backwards(Relabeler):
    """Keeps the first half, with the rewards negated."""

    needs = "trajectory"

    def relabel_trajectory(self, trajectory, rng):
        half = len(trajectory) // 2
        return Trajectory(
            obs={k: v[: half + 1] for k, v in trajectory.obs.items()},
            actions=trajectory.actions[:half],
            rewards=-trajectory.rewards[:half],
            terminated=np.arange(half) == half - 1,
            truncated=np.zeros(half, bool),
        )


def test_a_window_relabeler_can_change_what_the_losses_see_alone(tmp_path):
    plain, changed = (filled(tmp_path / n, [2.0] * 3) for n in "ab")
    sources = [Source(plain, np.arange(3)), Source(changed, np.arange(3), relabeler=OnlyTheLosses())]
    batch = SequenceDataset(sources, window=4).batch(64, seed=0, path=(0,))
    assert set(batch.rewards.unique().tolist()) == {2.0, 20.0}
    assert set(batch.inputs.prev_reward[:, 1:].unique().tolist()) == {2.0}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda columns: None, "Wrong.relabel_window returned NoneType, not the dict of columns"),
        (lambda columns: {**columns, "reward": columns["mask"]}, "the column 'reward'; did you mean 'rewards'?"),
        (lambda columns: {**columns, "rewards": columns["prev_reward"]}, r"'rewards' has shape \(8, 5\), not \(8, 4\)"),
        (lambda columns: {**columns, "prev_reward": np.zeros(3)}, r"'prev_reward' has shape \(3,\), not \(8, 5\)"),
    ],
)
def test_a_window_relabeler_that_returns_something_else_is_named(made, message, tmp_path):
    class Wrong(Relabeler):
        needs = "window"

        def relabel_window(self, columns, rng):
            return made(columns)

    dataset = SequenceDataset([Source(filled(tmp_path, [2.0] * 3), np.arange(3), relabeler=Wrong())], window=4)
    with pytest.raises(DataError, match=message):
        dataset.batch(8, seed=0, path=(0,))


def test_a_trajectory_relabeler_is_followed_by_the_window(tmp_path):
    store = filled(tmp_path, [2.0], length=8)
    dataset = SequenceDataset([Source(store, np.arange(1), relabeler=Backwards())], window=6)
    batch = dataset.batch(3, seed=0, path=(0,))
    assert batch.mask.sum(1).tolist() == [4, 4, 4]
    assert batch.rewards[batch.mask].tolist() == [-2.0] * 12
    assert batch.terminated[:, 3].all()
    assert batch.inputs.prev_reward[0, :5].tolist() == [0.0, -2.0, -2.0, -2.0, -2.0]
