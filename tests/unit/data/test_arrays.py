"""Arrays of one's own, declared by ``columns``: what was saved is read, or a clear error."""

import json
import re

import numpy as np
import pytest

from seqrl.core.errors import DataError
from seqrl.data.ingest import open_store
from seqrl.scripts import get_dataset_info, train

LENGTHS = (4, 6, 3)
ENDS = np.cumsum(LENGTHS)
COLUMNS = {"obs/state": "states", "obs/image": "pictures", "actions": "acts", "rewards": "rews"}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


def next_of(rng, rows):
    """Return what is observed after each row; of the last row of an episode it is new."""
    after = np.concatenate([rows[1:], rows[:1]])
    after[ENDS - 1] = rng.permutation(rows)[: len(ENDS)]
    return after


def steps(*, discrete=True):
    """Return arrays with a row for each step of three episodes."""
    rng, num = np.random.default_rng(0), ENDS[-1]
    states, pictures = rng.random((num, 3)), rng.integers(0, 256, (num, 2, 2, 1), dtype=np.uint8)
    return {
        "states": states,
        "pictures": pictures,
        "acts": rng.integers(0, 5, num) if discrete else rng.random((num, 2)) * 7,
        "rews": rng.random((num, 1)),
        "dones": np.isin(np.arange(num), ENDS[[0, 2]] - 1),
        "timeouts": np.isin(np.arange(num), ENDS[[1]] - 1).astype(np.float32),
        "next_states": next_of(rng, states),
        "next_pictures": next_of(rng, pictures),
        "ids": np.repeat([7, 3, 5], LENGTHS),
        "ends": ENDS,
    }


def episodes(arrays, name):
    return np.split(arrays[name], ENDS[:-1])


BORDERS = {
    "flags": {"terminated": "dones", "truncated": "timeouts"},
    "ids": {"episode": "ids"},
    "ends": {"episode_ends": "ends"},
}


@pytest.mark.parametrize("borders", BORDERS)
@pytest.mark.parametrize("kind", ["npz", "compressed", "npy"])
def test_one_file_of_all_steps(tmp_path, kind, borders):
    arrays, path = steps(), tmp_path / "flat.npz"
    if kind == "npy":
        path = tmp_path / "flat"
        path.mkdir()
        for name, values in arrays.items():
            np.save(path / f"{name}.npy", values)
    else:
        (np.savez_compressed if kind == "compressed" else np.savez)(path, **arrays)
    store = open_store(str(path), {"columns": COLUMNS | BORDERS[borders]})
    assert store.length.tolist() == list(LENGTHS)
    assert store.info.action_space.n == arrays["acts"].max() + 1
    assert not store.info.has_next_obs
    for k, trajectory in enumerate(store.trajectories()):
        for ours, theirs in (("state", "states"), ("image", "pictures")):
            rows = episodes(arrays, theirs)[k]
            assert np.array_equal(trajectory.obs[ours], np.concatenate([rows, rows[-1:]]))
            assert trajectory.obs[ours].dtype == rows.dtype
        assert np.array_equal(trajectory.actions, episodes(arrays, "acts")[k])
        assert np.array_equal(trajectory.rewards, episodes(arrays, "rews")[k][:, 0].astype(np.float32))
        if borders == "flags":
            assert trajectory.terminated[-1] == (k != 1)
            assert trajectory.truncated[-1] == (k == 1)


def test_next_observations_and_time_limits(tmp_path):
    arrays = steps(discrete=False)
    np.savez(tmp_path / "x.npz", **arrays)
    columns = COLUMNS | {"next_obs/state": "next_states", "next_obs/image": "next_pictures", "terminated": "dones"}
    columns |= {"episode": "ids"}
    store = open_store(str(tmp_path / "x.npz"), {"columns": columns, "dones_mean": "truncated"})
    assert store.info.has_next_obs
    for k, trajectory in enumerate(store.trajectories()):
        assert np.array_equal(trajectory.obs["state"][-1], episodes(arrays, "next_states")[k][-1])
        assert trajectory.actions.dtype == np.float32
        assert not trajectory.terminated.any()
        assert trajectory.truncated[-1]  # the second ends without a flag, and so for a reason that is not told


def save_each(folder, *, last):
    folder.mkdir()
    arrays = steps()
    for k in range(3):
        own = {name: episodes(arrays, name)[k] for name in ("states", "pictures", "acts", "rews")}
        if last:
            own |= {n: np.concatenate([own[n], own[n][:1]]) for n in ("states", "pictures")}
        np.savez(folder / f"run_{10 - k if k else 2}.npz", **own)
    return arrays


@pytest.mark.parametrize("last", [True, False])
def test_an_episode_in_each_file(tmp_path, last):
    arrays = save_each(tmp_path / "runs", last=last)
    store = open_store(str(tmp_path / "runs"), {"columns": COLUMNS})
    assert store.names == ["run_2", "run_8", "run_9"], "in natural order"
    assert store.info.has_next_obs == last
    for k, trajectory in zip((0, 2, 1), store.trajectories(), strict=True):
        rows = episodes(arrays, "states")[k]
        assert np.array_equal(trajectory.obs["state"], np.concatenate([rows, rows[:1] if last else rows[-1:]]))


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", **steps())
    columns = json.dumps({"obs/state": "states", "actions": "acts", "episode": "ids"})
    assert get_dataset_info.main(["x.npz", "--columns", columns, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trajectories"] == 3
    short = ["--set", "train.num_epochs=1", "--set", "train.steps_per_epoch=2", "--set", "train.window_steps=3"]
    assert train.main(["--algo", "bc", "--dataset", "x.npz", "--columns", columns, "--name", "r", *short]) == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "has the arrays acts, dones, .* say in columns what they are, .* for instance"),
        ({"obs/state": "states", "actions": "act"}, "no array 'act'; it has"),
        ({"obs/state": "states", "action": "acts"}, "unknown key 'action'; known: actions"),
        ({"actions": "acts"}, "columns needs actions, and an obs/NAME"),
        ({"obs/state": "states", "actions": "acts"}, "columns needs one of episode, episode_ends"),
        ({"obs/state": "states", "actions": "acts", "episode_ends": "acts"}, "must be increasing row numbers"),
        (
            {"obs/state": "ends", "actions": "acts", "episode": "ids"},
            "ends has 3 rows, but all episodes together have 13",
        ),
        (
            {"obs/state": "states", "next_obs/other": "states", "actions": "acts", "episode": "ids"},
            "every obs/NAME needs a next_obs/NAME; names of obs: state; of next_obs: other",
        ),
    ],
)
def test_what_is_wrong_is_told(tmp_path, columns, message):
    np.savez(tmp_path / "x.npz", **steps())
    with pytest.raises(DataError, match=message):
        open_store(str(tmp_path / "x.npz"), {"columns": columns})


def test_columns_as_d4rl_names_them_are_proposed_and_what_is_left_out_is_told(tmp_path, caplog):
    arrays = {"observations": "states", "actions": "acts", "terminals": "dones", "timeouts": "timeouts"}
    np.savez(tmp_path / "x.npz", **{name: steps()[own] for name, own in arrays.items()})
    columns = {"obs/obs": "observations", "actions": "actions", "terminated": "terminals", "truncated": "timeouts"}
    with pytest.raises(DataError, match=re.escape(f"for instance columns = {json.dumps(columns)}")):
        open_store(str(tmp_path / "x.npz"))
    assert len(open_store(str(tmp_path / "x.npz"), {"columns": columns})) == len(LENGTHS)
    assert "not in columns" not in caplog.text
    del columns["truncated"]
    assert len(open_store(str(tmp_path / "x.npz"), {"columns": columns})) < len(LENGTHS)
    assert "x.npz: not in columns, so not read: timeouts" in caplog.text


@pytest.mark.parametrize("bad", ["objects", "fortran", "number"])
def test_arrays_that_cannot_be_read_in_pieces(tmp_path, bad):
    arrays = steps()
    arrays["states"] = {
        "objects": np.array([{}] * ENDS[-1], dtype=object),
        "fortran": np.asfortranarray(arrays["states"]),
        "number": np.float64(3),
    }[bad]
    np.savez(tmp_path / "x.npz", **arrays)
    message = {"objects": "pickled and can execute code", "fortran": "in Fortran order", "number": "a single number"}[
        bad
    ]
    with pytest.raises(DataError, match=message):
        open_store(str(tmp_path / "x.npz"), {"columns": COLUMNS | BORDERS["ids"]})


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_files_are_told_by_their_checksums(tmp_path, compressed):
    """At 200 places: an error that names the file, or the same values."""
    options, file = {"columns": COLUMNS | BORDERS["flags"]}, tmp_path / "x.npz"
    (np.savez_compressed if compressed else np.savez)(file, **steps())
    whole, rng, told = file.read_bytes(), np.random.default_rng(0), 0
    good = [t.obs["state"] for t in open_store(str(file), options).trajectories()]
    for k in range(200):
        broken = bytearray(whole)
        if k % 2:
            broken[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        else:
            del broken[rng.integers(len(whole)) :]
        file.write_bytes(broken)
        try:
            found = [t.obs["state"] for t in open_store(str(file), options).trajectories()]
        except DataError as error:
            told += str(file) in str(error)
        else:  # an array that is not read, or a date
            assert all(np.array_equal(a, b) for a, b in zip(found, good, strict=True))
    assert told > 120


def test_files_that_do_not_agree_on_the_last_observation(tmp_path):
    save_each(tmp_path / "runs", last=True)
    file = tmp_path / "runs/run_9.npz"
    arrays = dict(np.load(file))
    np.savez(file, **{k: v[: len(arrays["acts"])] for k, v in arrays.items()})
    with pytest.raises(DataError, match=r"run_9.npz lacks a last observation, unlike run_2.npz"):
        open_store(str(tmp_path / "runs"), {"columns": COLUMNS})


def test_columns_of_one_number_and_rewards_of_several(tmp_path):
    arrays = steps()
    np.savez(tmp_path / "x.npz", **{**arrays, "acts": arrays["acts"][:, None]})
    store = open_store(str(tmp_path / "x.npz"), {"columns": COLUMNS | BORDERS["ids"]})
    assert np.array_equal(store.trajectory(0).actions, arrays["acts"][: LENGTHS[0]])
    np.savez(tmp_path / "y.npz", **{**arrays, "rews": np.zeros((ENDS[-1], 2))})
    with pytest.raises(DataError, match=r"rewards has rows of shape \(2,\)"):
        open_store(str(tmp_path / "y.npz"), {"columns": COLUMNS | BORDERS["ids"]})
    np.savez(tmp_path / "z.npz", **{**arrays, "states": np.array(["a"] * ENDS[-1])})
    with pytest.raises(DataError, match="states is of dtype <U1, not numbers"):
        open_store(str(tmp_path / "z.npz"), {"columns": COLUMNS | BORDERS["ids"]})


NEXT = COLUMNS | BORDERS["ends"] | {"next_obs/state": "next_states", "next_obs/image": "next_pictures"}


def test_shuffled_transitions_are_refused(tmp_path):
    """Of the third episode (rows 10 to 12) two rows are swapped, in all arrays."""
    arrays = steps()
    order = np.r_[:11, 12, 11]
    np.savez(tmp_path / "x.npz", **{k: v[order] for k, v in arrays.items() if k != "ends"}, ends=ENDS)
    with pytest.raises(DataError, match=r"x.npz: episode_2, row 10: next_states \(next_obs/state\) is not .* row 11"):
        open_store(str(tmp_path / "x.npz"), {"columns": NEXT})
    (tmp_path / "each").mkdir()
    one = {k: arrays[k][10:] for k in ("states", "next_states", "acts")}
    np.savez(tmp_path / "each/run_0.npz", **{**one, "next_states": one["next_states"][::-1]})
    columns = {"obs/state": "states", "next_obs/state": "next_states", "actions": "acts"}
    with pytest.raises(DataError, match=r"run_0.npz: row 0: next_states .* \(so in 1 of 2 rows of the episode\)"):
        open_store(str(tmp_path / "each"), {"columns": columns})


@pytest.mark.parametrize("name", ["states", "next_states"])
def test_next_observations_may_be_rounded(tmp_path, name):
    arrays = steps()
    for kind in (np.float32, np.float64):  # which was float32 before
        np.savez(tmp_path / f"{kind.__name__}.npz", **arrays | {name: arrays[name].astype(np.float32).astype(kind)})
        assert len(open_store(str(tmp_path / f"{kind.__name__}.npz"), {"columns": NEXT})) == len(LENGTHS)
    arrays["next_states"][5, 1] += 1e-3
    np.savez(tmp_path / "y.npz", **arrays | {name: arrays[name].astype(np.float32)})
    with pytest.raises(DataError, match="episode_1, row 5"):
        open_store(str(tmp_path / "y.npz"), {"columns": NEXT})


@pytest.mark.parametrize("name", ["states", "next_states", "rews", "timeouts"])
def test_numbers_that_are_not_finite_are_told_by_episode_and_row(tmp_path, name):
    arrays = steps()
    arrays[name][ENDS[1] - 2] = np.nan
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=rf"x.npz: episode_1, row 8 of {name} \(.*: a value is not finite"):
        open_store(str(tmp_path / "x.npz"), {"columns": NEXT | {"truncated": "timeouts"}})


def test_an_episode_that_goes_on_after_its_end_is_told_by_its_rows(tmp_path):
    arrays = steps()
    arrays["dones"][6] = True
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=r"x.npz: episode_1 \(rows 4 to 9\): it continues after its end at step 2"):
        open_store(str(tmp_path / "x.npz"), {"columns": NEXT | {"terminated": "dones"}})
