"""What is committed is read back bit for bit; what is torn is not seen; what is damaged is named."""

import json
import os
import zlib
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.types import Trajectory
from seqrl.data import Budget, Store, StoreInfo, StoreWriter

INFO = StoreInfo(
    spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (2,), np.float32)}),
    spaces.Box(-1.0, 1.0, (2,), np.float32),
    env_id="Maze-v0",
    env_kwargs={"size": 3, "name": "é"},
    has_next_obs=False,
    filters={"train": ["a", "b"], "empty": []},
    source="a test",
)


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    """Durability is not tested here, and syncing hundreds of files is slow."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


RICH_INFO = replace(INFO, action_space=spaces.Discrete(4))


def plain(steps=3, value=0.0, **changes):
    fields = {
        "obs": {"x": np.full((steps + 1, 2), value, np.float32)},
        "actions": np.full((steps, 2), value, np.float32),
        "rewards": np.full(steps, value, np.float32),
        "terminated": np.zeros(steps, bool),
        "truncated": np.zeros(steps, bool),
    }
    return Trajectory(**{**fields, **changes})


def rich(steps=4, seed=0, **changes):
    rng = np.random.default_rng(seed)
    last = np.arange(steps) == steps - 1
    fields = {
        "obs": {
            "image": rng.integers(0, 256, (steps + 1, 3, 2, 1), dtype=np.uint8),
            "sub/x": rng.random((steps + 1, 2)).astype(np.float32),
            "double": rng.random(steps + 1),
            "bits": rng.integers(0, 2, (steps + 1, 5), dtype=np.int8),
        },
        "goal": {"g": rng.random((steps + 1, 2)).astype(np.float32)},
        "action_mask": np.ones((steps + 1, 4), bool),
        "actions": rng.integers(0, 4, steps),
        "rewards": rng.random(steps).astype(np.float32),
        "terminated": last & (seed % 2 == 0),
        "truncated": last & (seed % 2 == 1),
        "env_name": f"Task{seed}",
    }
    return Trajectory(**{**fields, **changes})


def write(path, *trajectories, info=INFO, **options):
    with StoreWriter(path, info, **options) as writer:
        for i, trajectory in enumerate(trajectories):
            writer.append(trajectory, f"demo_{i}")
    return path


def shards(path):
    return sorted(path.glob("*/shard_*"))


def only_log(path):
    (shard,) = shards(path)
    return shard / "commits.jsonl"


def column_bytes(path, key):
    (shard,) = shards(path)
    (file,) = [f for f in shard.iterdir() if f.name.endswith(".bin") and key in f.name]
    return file


def assert_same(got, wanted):
    for group in ("obs", "goal"):
        assert getattr(got, group).keys() == getattr(wanted, group).keys()
        for key, value in getattr(wanted, group).items():
            assert getattr(got, group)[key].dtype == value.dtype
            np.testing.assert_array_equal(getattr(got, group)[key], value)
    for key in ("actions", "rewards", "terminated", "truncated"):
        assert getattr(got, key).dtype == getattr(wanted, key).dtype
        np.testing.assert_array_equal(getattr(got, key), getattr(wanted, key))
    assert (got.env_name, got.start_step, got.prev_reward) == (wanted.env_name, wanted.start_step, wanted.prev_reward)
    first = np.zeros_like(wanted.actions[0]) if wanted.prev_action is None else wanted.prev_action
    np.testing.assert_array_equal(got.prev_action, first)
    assert (got.action_mask is None) == (wanted.action_mask is None)
    if wanted.action_mask is not None:
        np.testing.assert_array_equal(got.action_mask, wanted.action_mask)


# ---------------------------------------------------------------------------------------- round trip
def test_every_column_survives_a_reopen(tmp_path):
    written = [
        rich(4, 0),
        rich(1, 1),
        rich(6, 2, start_step=10, prev_action=np.int64(3), prev_reward=0.5),
    ]
    store = Store(write(tmp_path / "s", *written, info=RICH_INFO))
    assert len(store) == 3
    for got, wanted in zip(store.trajectories(), written, strict=True):
        assert_same(got, wanted)
    assert store.names == ["demo_0", "demo_1", "demo_2"]
    assert store.env_names == ["Task0", "Task1", "Task2"]
    assert store.length.tolist() == [4, 1, 6]
    assert store.start_step.tolist() == [0, 0, 10]
    assert store.num_transitions == 11
    np.testing.assert_allclose(store.total_reward, [t.rewards.astype(float).sum() for t in written])
    assert store.verify() == []


def test_minimal_trajectory_has_no_optional_columns(tmp_path):
    store = Store(write(tmp_path / "s", plain(2, 1.0)))
    assert set(store.schema) == {"obs/x", "prev_action", "prev_reward", "terminated", "truncated"}
    assert_same(store.trajectory(0), plain(2, 1.0))


def test_num_bytes_counts_committed_rows(tmp_path):
    store = Store(write(tmp_path / "s", plain(3), plain(1)))
    per_row = 2 * 4 + 2 * 4 + 4 + 1 + 1
    assert store.num_bytes == (4 + 2) * per_row + only_log(tmp_path / "s").stat().st_size


@pytest.mark.parametrize("key", ["a/b", "..", "with space", "é", "a%2Fb", ".hidden"])
def test_any_observation_name_is_a_legal_column(tmp_path, key):
    wanted = plain(obs={key: np.arange(4, dtype=np.float32)})
    store = Store(write(tmp_path / "s", wanted))
    assert_same(store.trajectory(0), wanted)
    assert {p.parent for p in (tmp_path / "s").rglob("*.bin")} == set(shards(tmp_path / "s"))


@pytest.mark.parametrize("text", ["é", "a\nb", "a\u2028b\x85c", '"\\', "中"])
def test_any_name_survives_the_log(tmp_path, text):
    path = tmp_path / "s"
    with StoreWriter(path, INFO) as writer:
        writer.append(plain(env_name=text), text)
        writer.append(plain(), "next")
    store = Store(path)
    assert store.env_names == [text, ""]
    assert store.names == [text, "next"]


def test_entry_without_values_is_stored(tmp_path):
    wanted = plain(obs={"x": np.zeros((4, 2), np.float32), "nothing": np.zeros((4, 0), np.float32)})
    store = Store(write(tmp_path / "s", wanted))
    assert_same(store.trajectory(0), wanted)


def test_non_contiguous_and_big_endian_arrays_keep_their_values(tmp_path):
    values = np.arange(16, dtype=">f4").reshape(2, 8).T[::2]
    store = Store(write(tmp_path / "s", plain(obs={"x": values})))
    np.testing.assert_array_equal(store.trajectory(0).obs["x"], values)


def test_info_survives_a_reopen(tmp_path):
    assert Store(write(tmp_path / "s", plain())).info == INFO


def test_a_second_writer_adds_and_keeps_the_info(tmp_path):
    path = write(tmp_path / "s", plain(value=1.0))
    with StoreWriter(path, StoreInfo(INFO.observation_space, INFO.action_space)) as writer:
        writer.append(plain(value=2.0))
    store = Store(path)
    assert sorted(t.rewards[0] for t in store.trajectories()) == [1.0, 2.0]
    assert store.info == INFO


def test_data_without_last_observations_is_not_added_to_data_with_them(tmp_path):
    write(tmp_path, plain(), info=replace(INFO, has_next_obs=True))
    with pytest.raises(DataError, match="true last observations, which the new data lacks"):
        StoreWriter(tmp_path, replace(INFO, has_next_obs=False))


def test_both_areas_are_read(tmp_path):
    path = write(tmp_path / "s", plain(2), area="fifo")
    write(path, plain(5), area="protected")
    assert sorted(Store(path).length.tolist()) == [2, 5]
    assert len(list((path / "fifo").iterdir())) == len(list((path / "protected").iterdir())) == 1


def test_store_without_trajectories(tmp_path):
    store = Store(write(tmp_path / "s"))
    assert (len(store), store.num_transitions, store.num_bytes, store.schema) == (0, 0, 0, {})
    assert store.verify() == []
    assert list(store.trajectories()) == []


def test_gather_takes_windows_across_shards(tmp_path):
    written = [rich(steps, seed) for seed, steps in enumerate((5, 3, 7))]
    store = Store(write(tmp_path / "s", *written, info=RICH_INFO, budget=Budget(num_bytes=16)))
    by_name = {t.env_name: t for t in written}
    numbers = np.array([2, 0, 1, 0])
    offsets = np.array([[0, 1, 2], [1, 1, 3], [3, 0, 2], [2, 3, 3]])
    columns = store.gather(numbers, offsets)
    assert len(shards(store.path)) == 3
    for b, number in enumerate(numbers):
        wanted = by_name[store.env_names[number]]
        np.testing.assert_array_equal(columns["obs/image"][b], wanted.obs["image"][offsets[b]])
        rewards = [0.0, *wanted.rewards.tolist()]
        assert columns["prev_reward"][b].tolist() == [rewards[o] for o in offsets[b]]


def test_what_was_read_can_be_written_to(tmp_path):
    store = Store(write(tmp_path / "s", plain(value=1.0)))
    store.trajectory(0).obs["x"][:] = 9.0
    assert store.trajectory(0).obs["x"].max() == 1.0


# ------------------------------------------------------------------------------------------- shards
def test_trajectories_are_numbered_as_they_were_appended(tmp_path):
    """Otherwise the same file, ingested twice, would give two different trainings under one seed."""
    path = write(tmp_path / "s", *[plain(3, i) for i in range(8)], budget=Budget(num_bytes=16))
    assert Store(path).names == [f"demo_{i}" for i in range(8)]


def test_what_is_appended_meanwhile_is_seen_from_the_next_refresh_on(tmp_path):
    """Until then the numbers mean what they meant; after it they count the shards from the oldest on."""
    path = tmp_path / "s"
    writers = [StoreWriter(path, INFO) for _ in range(3)]
    for i, writer in enumerate(writers):
        writer.append(plain(i + 1))
    store = Store(path)
    for i, writer in enumerate(writers):
        writer.append(plain(i + 11))
    assert store.length.tolist() == [1, 2, 3]
    assert [len(t) for t in store.trajectories()] == [1, 2, 3]
    store.refresh()
    assert store.length.tolist() == [1, 11, 2, 12, 3, 13]
    assert [len(t) for t in store.trajectories()] == store.length.tolist()
    for writer in writers:
        writer.close()


def test_a_reader_sees_growth_after_refresh_only(tmp_path):
    path = tmp_path / "s"
    writer = StoreWriter(path, INFO)
    writer.append(plain(2, 1.0))
    store = Store(path)
    assert_same(store.trajectory(0), plain(2, 1.0))
    for steps in range(3, 8):
        writer.append(plain(steps, float(steps)))
        assert len(store) == steps - 2
        store.refresh()
        assert len(store) == steps - 1
        assert_same(store.trajectory(steps - 2), plain(steps, float(steps)))
        assert_same(store.trajectory(0), plain(2, 1.0))
    writer.close()
    assert store.verify() == []


def test_a_reader_sees_new_shards_after_refresh(tmp_path):
    path = tmp_path / "s"
    store = Store(write(path))
    write(path, plain(4, 4.0))
    assert len(store) == 0
    store.refresh()
    assert_same(store.trajectory(0), plain(4, 4.0))


def test_a_writer_can_go_on_after_close(tmp_path):
    writer = StoreWriter(tmp_path / "s", INFO)
    writer.append(plain(1))
    writer.close()
    writer.append(plain(2))
    writer.close()
    assert sorted(Store(tmp_path / "s").length.tolist()) == [1, 2]


# ------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("other", "column"),
    [
        (plain(obs={"y": np.zeros((4, 2), np.float32)}), "obs/y"),
        (plain(obs={"x": np.zeros((4, 3), np.float32)}), "obs/x"),
        (plain(obs={"x": np.zeros((4, 2), np.float64)}), "obs/x"),
        (
            plain(actions=np.zeros(3, np.int64)),
            r"trajectory 'other' .*: actions of shape \(3,\) do not end in the shape",
        ),
        (plain(actions=np.zeros((3, 2), np.float64)), "prev_action"),
        (plain(action_mask=np.ones((4, 2), bool)), "action_mask"),
        (plain(goal={"g": np.zeros((4, 1))}), "goal/g"),
    ],
)
@pytest.mark.parametrize("same_writer", [True, False], ids=["same_writer", "later_writer"])
def test_differing_columns_are_refused_by_name_and_the_store_stays_whole(tmp_path, other, column, same_writer):
    path = tmp_path / "s"
    writer = StoreWriter(path, INFO)
    writer.append(plain(), "good")
    if not same_writer:
        writer.close()
        writer = StoreWriter(path, INFO)
    with pytest.raises(DataError, match=column):
        writer.append(other, "other")
    writer.append(plain(5), "good too")
    writer.close()
    assert sorted(Store(path).names) == ["good", "good too"]


@pytest.mark.parametrize(
    "bad",
    [
        plain(obs={"x": np.zeros((3, 2), np.float32)}),
        plain(rewards=np.array([0, np.nan, 0], np.float32)),
        plain(start_step=-1),
        plain(prev_action=np.zeros(3, np.float32)),
        plain(obs={"x": np.array([[None, "text"]] * 4)}),
    ],
    ids=["length", "nan", "negative_start", "prev_action", "objects"],
)
def test_an_inconsistent_trajectory_is_refused_and_the_store_stays_whole(tmp_path, bad):
    path = tmp_path / "s"
    with StoreWriter(path, INFO) as writer:
        with pytest.raises(DataError):
            writer.append(bad, "bad")
        writer.append(plain(5), "good")
    store = Store(path)
    assert store.names == ["good"]
    assert store.verify() == []


def test_an_append_that_failed_half_way_spoils_nothing_after_it(tmp_path, monkeypatch):
    """A full disk stops one trajectory between two columns; those written later must still be true."""
    path = tmp_path / "s"
    crc32, calls = zlib.crc32, []

    def fail_in_the_second_column(*args):
        calls.append(None)
        if len(calls) == 2:
            raise OSError("disk full")
        return crc32(*args)

    with StoreWriter(path, INFO) as writer:
        writer.append(plain(3, 1.0))
        monkeypatch.setattr(zlib, "crc32", fail_in_the_second_column)
        with pytest.raises(DataError, match=r"cannot take the next trajectory: disk full"):
            writer.append(plain(3, 2.0))
        writer.append(plain(3, 3.0))
    store = Store(path)
    assert store.verify() == []
    assert sorted(t.obs["x"].max() for t in store.trajectories()) == [1.0, 3.0]


# ------------------------------------------------------------------------------- torn and damaged files
@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_truncated_last_line_hides_its_trajectory(tmp_path, cut):
    path = write(tmp_path / "s", plain(2, 1.0), plain(3, 2.0))
    log = only_log(path)
    log.write_bytes(log.read_bytes()[:-cut])
    store = Store(path)
    assert store.names == ["demo_0"]
    assert_same(store.trajectory(0), plain(2, 1.0))
    assert store.verify() == []


@pytest.mark.parametrize("tail", [b"{", b"\xff\x00garbage", b'{"row": 3, "length": 2}', b"\x00" * 100])
def test_a_garbled_tail_without_newline_is_not_seen(tmp_path, tail):
    path = write(tmp_path / "s", plain(2, 1.0))
    with open(only_log(path), "ab") as file:
        file.write(tail)
    assert Store(path).names == ["demo_0"]


def test_a_line_completed_later_is_seen_whole(tmp_path):
    path = write(tmp_path / "s", plain(2, 1.0), plain(3, 2.0))
    log = only_log(path)
    whole = log.read_bytes()
    log.write_bytes(whole[:-30])
    store = Store(path)
    log.write_bytes(whole)
    store.refresh()
    assert store.names == ["demo_0", "demo_1"]


def test_a_log_without_a_whole_line_is_empty(tmp_path):
    path = write(tmp_path / "s", plain())
    only_log(path).write_bytes(b"")
    assert len(Store(path)) == 0


def test_extra_bytes_after_the_committed_rows_are_ignored(tmp_path):
    path = write(tmp_path / "s", plain(2, 1.0), plain(3, 2.0))
    for file in shards(path)[0].glob("*.bin"):
        with open(file, "ab") as handle:
            handle.write(b"\xff" * 13)
    store = Store(path)
    assert_same(store.trajectory(1), plain(3, 2.0))
    assert store.verify() == []


def line(**changes):
    good = {"row": 0, "length": 3, "start_step": 0, "env_name": "", "name": "", "total_reward": 0.0, "crc": 0}
    return json.dumps({k: v for k, v in {**good, **changes}.items() if v != "absent"}).encode() + b"\n"


@pytest.mark.parametrize(
    "damaged",
    [
        b"{bad\n",
        b"\xff\xfe\n",
        b"\n",
        b"null\n",
        b"[1]\n",
        line(crc="absent"),
        line(unknown=1),
        line(length=0),
        line(length=-2),
        line(row=-4),
        line(start_step=-1),
        line(row="0"),
        line(row=0.5),
        line(total_reward="much"),
    ],
)
def test_a_damaged_complete_line_is_a_data_error_that_names_the_file(tmp_path, damaged):
    path = write(tmp_path / "s", plain())
    only_log(path).write_bytes(damaged)
    with pytest.raises(DataError, match=r"commits\.jsonl"):
        Store(path)


def test_a_line_beyond_the_columns_is_a_data_error(tmp_path):
    path = write(tmp_path / "s", plain())
    only_log(path).write_bytes(line(row=1000))
    with pytest.raises(DataError, match=r"\.bin"):
        Store(path).trajectory(0)


def test_a_column_that_is_too_short_or_gone_is_a_data_error(tmp_path):
    path = write(tmp_path / "s", plain())
    column = column_bytes(path, "obs")
    column.write_bytes(column.read_bytes()[:-1])
    with pytest.raises(DataError, match="shorter than its 4 committed rows"):
        Store(path).trajectory(0)
    column.unlink()
    with pytest.raises(DataError, match=column.name):
        Store(path).trajectory(0)


@pytest.mark.parametrize("content", [None, "", "{", "3", "[]", '{"x": 3}', '{"x": ["no such dtype", []]}'])
def test_a_bad_shard_schema_is_a_data_error(tmp_path, content):
    path = write(tmp_path / "s", plain())
    file = shards(path)[0] / "schema.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match=r"schema\.json"):
        Store(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"format_version": 2}', r"store format 2; this seqrl reads 1"),
        (b"{}", "store format None"),
        (b'{"format_version": 1}', "lacks the key 'observation_space'"),
        (b"{", "not a seqrl store"),
        (b"\xff", "not a seqrl store"),
        (b"[]", "s"),
        (b"3", "s"),
    ],
)
def test_a_bad_store_file_is_a_data_error(tmp_path, content, message):
    path = write(tmp_path / "s", plain())
    (path / "store.json").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        Store(path)
    assert str(path) in str(caught.value)


def test_what_is_not_a_store_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="not a seqrl store"):
        Store(tmp_path)
    with pytest.raises(DataError, match="not a seqrl store"):
        Store(tmp_path / "nowhere")


@pytest.mark.parametrize("key", ["obs", "prev_action", "prev_reward", "terminated", "truncated"])
def test_verify_finds_a_flipped_bit_and_names_the_trajectory(tmp_path, key):
    path = write(tmp_path / "s", plain(2, 1.0), plain(3, 2.0))
    column = column_bytes(path, key)
    *data, last = column.read_bytes()
    column.write_bytes(bytes([*data, last ^ 1]))
    (found,) = Store(path).verify()
    assert "demo_1" in found
