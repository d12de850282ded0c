"""Every fault that is planted is found, by its kind and place, and sound data has none."""

import json
import os

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.spaces import space_to_json
from seqrl.data import StoreInfo, StoreWriter
from seqrl.data.ingest import open_store
from seqrl.data.validation import validate
from tests.unit.data.test_hdf5 import BROKEN, INFO, STEPS, fill_demo, replace, trajectory


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def report_of(tmp_path):
    """Write a robomimic file of six sound episodes, change it, and return the report of it."""

    def build(change=None, num=6):
        path = tmp_path / "data.hdf5"
        with h5py.File(path, "w") as file:
            for i in range(num):
                fill_demo(file.create_group(f"data/demo_{i}"), i)
            replace(file, "data/demo_0/dones", np.zeros(STEPS))
            if change is not None:
                change(file)
        return validate(path)

    return build


def found(report, level=None):
    """Kind -> text and examples of the findings."""
    return {f.kind: (f.text, f.examples) for f in report.findings if level in (None, f.level)}


def test_sound_data_is_fine(report_of):
    report = report_of()
    assert report.is_fine
    assert report.findings == []
    assert (report.episodes, report.transitions) == (6, 6 * STEPS)
    assert report.length == {"min": STEPS, "mean": STEPS, "max": STEPS}
    assert all(-1 <= low < high <= 1 for low, high in zip(report.actions["min"], report.actions["max"], strict=True))
    assert json.loads(json.dumps(report.to_json()))["is_fine"] is True


def test_text_and_columns_of_one_number_are_read_as_training_reads_them(report_of):
    def change(file):
        for demo in file["data"].values():
            for key in ("rewards", "dones"):
                replace(demo, key, np.asarray(demo[key])[:, None])
            for group in ("obs", "next_obs"):
                demo[group].create_dataset("task", data=["open the drawer"] * STEPS, dtype=h5py.string_dtype())

    assert report_of(change).findings == []


def every(path, value):
    """Return a change that sets the same dataset in every episode."""

    def change(file):
        for name in file["data"]:
            full = f"data/{name}/{path}"
            if full in file:
                del file[full]
            if value is not None:
                file[full] = value(int(name[5:])) if callable(value) else value

    return change


def put(path, index, value):
    def change(file):
        data = file[path][()]
        data[index] = value
        del file[path]
        file[path] = data

    return change


def images(dtype, low, high, whole=True):
    def change(file):
        for i, name in enumerate(file["data"]):
            rng = np.random.default_rng(i)
            pixels = rng.uniform(low, high, (STEPS + 1, 4, 4, 3))
            pixels = (np.floor(pixels) if whole else pixels).astype(dtype)
            for group, seen in (("obs", pixels[:-1]), ("next_obs", pixels[1:])):
                file[f"data/{name}/{group}/camera"] = seen

    return change


def rng(i):
    return np.random.default_rng(100 + i)


def with_space(space, actions):
    def change(file):
        file["data"].attrs["action_space"] = json.dumps(space_to_json(space))
        every("actions", actions)(file)

    return change


BOX = spaces.Box(-2.0, 2.0, (2,), np.float32)
ONE_STEP = {"obs/x": np.ones((1, 3), np.float32), "next_obs/x": np.ones((1, 3), np.float32), "actions": np.ones((1, 2))}


def cut_to_one_step(file):
    for key, value in {**ONE_STEP, "rewards": np.ones(1), "dones": np.ones(1)}.items():
        replace(file, f"data/demo_3/{key}", value)


def masked(file):
    every("actions", lambda i: rng(i).integers(0, 3, STEPS))(file)
    every("action_mask", np.ones((STEPS + 1, 3), bool))(file)
    mask = np.ones((STEPS + 1, 3), bool)
    mask[2, file["data/demo_4/actions"][2]] = False
    replace(file, "data/demo_4/action_mask", mask)


PROBLEMS = {
    "nan in obs": (put("data/demo_3/obs/x", (2, 1), np.nan), "not finite", "obs/x holds NaN", "demo_3 step 2"),
    "inf in actions": (
        put("data/demo_2/actions", (1, 0), np.inf), "not finite", "actions holds infinity", "demo_2 step 1"),
    "nan in rewards": (put("data/demo_5/rewards", 3, np.nan), "not finite", "rewards holds NaN", "demo_5 step 3"),
    "another shape": (
        lambda f: [replace(f, f"data/demo_1/{g}/x", np.zeros((STEPS, 5), np.float32)) for g in ("obs", "next_obs")],
        "mixed", "obs/x is float32 [5], elsewhere float32 [3]", "demo_1"),
    "the first has another dtype": (
        lambda f: [replace(f, f"data/demo_0/{g}/x", np.ones((STEPS, 3))) for g in ("obs", "next_obs")],
        "mixed", "obs/x is float64 [3], elsewhere float32 [3]", "demo_0"),
    "too short": (
        lambda f: replace(f, "data/demo_1/rewards", np.zeros(2)),
        "layout", "rewards does not have one row per action", "demo_1"),
    "columns as rewards": (every("rewards", np.zeros((STEPS, 2))), "layout", "rewards has rows of shape [2]", "demo_0"),
    "no step": (every("actions", np.zeros((0, 2))), "layout", "has no step", "demo_0"),
    "steps after the end": (
        lambda f: (replace(f, "data/demo_2/dones", [0, 1, 0, 0]), every("truncated", np.zeros(STEPS))(f)),
        "after the end", "continues after its end", "demo_2 step 1, then 2 steps with a reward of"),
    "outside the space": (
        with_space(BOX, lambda i: rng(i).uniform(-2, 2 + (i == 4), (STEPS, 2)) + 5 * (i == 4)),
        "action outside", "an action is outside Box(-2.0, 2.0, (2,), float32)", "demo_4 step 0: ["),
    "not in the discrete space": (
        with_space(spaces.Discrete(3, start=1), lambda i: np.array([1, 2, 3, 0 if i == 2 else 1 + i % 3])),
        "action outside", "an action is outside Discrete(3, start=1)", "demo_2 step 3: 0"),
    "not whole": (
        with_space(spaces.Discrete(3), lambda i: np.array([1, 2, 0.5 * (i == 2), i % 3])),
        "action outside", "an action is outside Discrete(3)", "demo_2 step 2: 0.5"),
    "another action space": (with_space(spaces.Box(-1, 1, (3,)), lambda i: rng(i).uniform(-1, 1, (STEPS, 2))),
        "action space", "actions are [2], not of Box(-1.0, 1.0, (3,), float32)", "demo_0"),
    "illegal by the mask": (masked, "action mask", "an action is forbidden by its mask", "demo_4 step 2"),
    "filter of unknown episodes": (
        lambda f: f.create_dataset("mask/train", data=[b"demo_1", b"demo_9"]),
        "filter", "filter 'train' names episodes that do not exist", "demo_9"),
    "observation space": (
        lambda f: f["data"].attrs.__setitem__("observation_space", json.dumps(space_to_json(spaces.Dict({"y": BOX})))),
        "space", "obs/x is [3] in the data and absent in the observation space", None),
}  # fmt: skip

WARNINGS = {
    "beyond one": (
        put("data/demo_4/actions", (0, 0), 7.0), "action range", "actions are outside [-1, 1]", "demo_4"),
    "no next_obs": (every("next_obs", None), "next_obs", "no episode has next_obs", None),
    "next_obs in some": (
        lambda f: replace(f, "data/demo_1/next_obs", None), "mixed", "next_obs/x is missing", "demo_1"),
    "another next_obs": (
        put("data/demo_2/next_obs/x", (1, 0), 7.0), "next_obs", "next_obs is not the obs of the next step",
        "demo_2 step 1 (1 of 3 differ)"),
    "no dones": (every("dones", None), "missing", "no episode has dones: ends are read as time limits", None),
    "one step": (cut_to_one_step, "short", "has only one step", "demo_3"),
    "success that goes on": (
        put("data/demo_2/dones", 1, 1), "after the end", "continues after 'dones'", "demo_2 step 1, then 2 steps"),
    "time limit": (
        every("dones", np.arange(STEPS) == STEPS - 1), "time limit",
        f"all 6 episodes are terminated after exactly {STEPS} steps; if that is a time limit, set 'dones_mean'", None),
    "twice the same": (
        lambda f: (replace(f, "data/demo_4", None), f.copy("data/demo_1", f["data"], "demo_4")),
        "duplicate", "holds the same bytes", "demo_4 = demo_1"),
    "constant": (
        every("actions", lambda i: np.stack([np.full(STEPS, 0.5), rng(i).uniform(-1, 1, STEPS)], 1)),
        "constant action", "action 0 is always 0.5", None),
    "saturated": (
        every("actions", lambda i: np.clip(rng(i).normal(0, 20, (STEPS, 2)), -1, 1) * [1, 0.5]),
        "saturated action", "action 0 is at a bound in ", None),
    "pixels as floats": (
        images(np.float32, 0, 256), "image", "obs/camera is float32 with numbers up to 255", None),
    "cut floats": (images(np.uint8, 0, 2), "image", "obs/camera is uint8 and holds nothing above 1", None),
    "empty filter": (
        lambda f: f.create_dataset("mask/none", data=np.zeros(0)), "filter", "filter 'none' selects no episodes", None),
    "leak": (
        lambda f: [f.create_dataset(f"mask/{k}", data=[b"demo_1"]) for k in ("20_train", "20_valid")],
        "filter", "filters '20_train' and '20_valid' share episodes", "demo_1"),
}  # fmt: skip


def check(report, level, kind, text, place):
    fitting = [f for f in report.findings if (f.level, f.kind) == (level, kind) and f.text.startswith(text)]
    assert len(fitting) == 1, report.findings
    assert (fitting[0].examples == []) if place is None else any(place in e for e in fitting[0].examples)


@pytest.mark.parametrize("fault", PROBLEMS)
def test_a_problem_is_found_with_its_place(report_of, fault):
    change, *expected = PROBLEMS[fault]
    report = report_of(change)
    assert not report.is_fine
    check(report, "problem", *expected)
    if fault != "no step":
        assert report.transitions >= 5 * STEPS, "the other episodes are looked at all the same"


@pytest.mark.parametrize("oddity", WARNINGS)
def test_what_may_be_meant_is_a_warning(report_of, tmp_path, oddity):
    change, *expected = WARNINGS[oddity]
    report = report_of(change)
    check(report, "warning", *expected)
    assert report.is_fine, report.findings
    assert len(open_store(str(tmp_path / "data.hdf5"))) == 6


def test_a_switch_is_not_called_saturated(report_of):
    report = report_of(every("actions", lambda i: rng(i).choice([-1.0, 1.0], (STEPS, 2))))
    assert report.findings == []
    assert report.actions["share at bounds"] == [1.0, 1.0]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_sound_images_are_fine(report_of, dtype):
    change = images(np.uint8, 0, 256) if dtype == np.uint8 else images(np.float32, 0, 3.5, whole=False)
    assert report_of(change).findings == []


@pytest.mark.parametrize("fault", BROKEN)
def test_whatever_reading_refuses_is_a_problem(report_of, tmp_path, fault):
    report = report_of(BROKEN[fault], num=3)
    assert not report.is_fine
    with pytest.raises(DataError):
        open_store(str(tmp_path / "data.hdf5"))


@pytest.mark.parametrize("content", [b"", b"hello", "half"], ids=str)
def test_what_is_not_hdf5_is_a_problem(report_of, tmp_path, content):
    report_of()
    path = tmp_path / "data.hdf5"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    assert found(validate(path))["damaged"][0].startswith("not an HDF5 file, or damaged")


def test_a_block_that_cannot_be_read_does_not_hide_the_rest(report_of, tmp_path):
    def compress(file):
        for i in range(6):
            del file[f"data/demo_{i}/rewards"]
            file.create_dataset(
                f"data/demo_{i}/rewards", data=rng(i).random(STEPS), compression="gzip", fletcher32=True
            )
        file["where"] = file["data/demo_2/rewards"].id.get_chunk_info(0).byte_offset
        put("data/demo_4/obs/x", (0, 0), np.nan)(file)

    report_of(compress)
    path = tmp_path / "data.hdf5"
    with h5py.File(path) as file:
        where = int(file["where"][()])
    with open(path, "rb+") as raw:
        raw.seek(where)
        raw.write(b"\xff" * 8)
    problems = found(validate(path), "problem")
    assert problems.keys() == {"unreadable", "not finite"}
    assert problems["unreadable"][0] == "rewards cannot be read"
    assert problems["unreadable"][1][0].startswith("demo_2 (")
    assert problems["not finite"][1] == ["demo_4 step 0"]


@pytest.mark.parametrize(
    "text", ['{"env_name": "a", "env_name": "b"}', '{"env_name": 3}', '{"env_kwargs": [1]}', "NaN"]
)
def test_what_is_said_of_the_environment_is_looked_at_as_the_reader_does(report_of, tmp_path, text):
    report = report_of(lambda f: f["data"].attrs.update(env_args=text))
    assert "'env_args'" in found(report, "problem")["damaged"][0]
    with pytest.raises(DataError):
        open_store(str(tmp_path / "data.hdf5"))


def test_a_group_that_cannot_be_listed_is_a_problem(report_of, tmp_path):
    report_of()
    path = tmp_path / "data.hdf5"
    content = path.read_bytes()
    assert content.count(b"SNOD") > 1
    for n in range(content.count(b"SNOD")):
        parts = content.split(b"SNOD")
        path.write_bytes(b"SNOD".join(parts[: n + 1]) + b"none" + b"SNOD".join(parts[n + 1 :]))
        assert not validate(path).is_fine


def test_a_damaged_size_is_a_problem_and_no_memory_is_asked_for(report_of):
    def huge(file):
        del file["data/demo_1/obs/x"]
        file.create_dataset("data/demo_1/obs/x", (STEPS, 2**30), np.float32, chunks=(1, 2**10))

    assert "more than the file can hold" in str(found(report_of(huge), "problem")["unreadable"])


def test_nothing_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"no\.hdf5 is neither a seqrl store nor a file"):
        validate(tmp_path / "no.hdf5")


def test_other_formats_are_to_be_converted_and_not_damaged(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    for path in (tmp_path / "x.npz", tmp_path):
        with pytest.raises(DataError, match="is neither a seqrl store nor a robomimic file; convert it: seqrl convert"):
            validate(path)


# ----------------------------------------------------------------------------------------------- stores
@pytest.fixture
def store(tmp_path):
    info = StoreInfo(INFO.observation_space, INFO.action_space, filters={"train": ["demo_0"]})
    with StoreWriter(tmp_path / "store", info) as writer:
        for i in range(6):
            writer.append(trajectory(i, 3 + i % 2), f"demo_{i}")
    return tmp_path / "store"


def test_a_sound_store_is_fine(store):
    report = validate(store)
    assert report.findings == []
    assert (report.episodes, report.transitions) == (6, 21)


def test_an_altered_store_is_a_problem(store):
    column = next(store.rglob("prev_reward.bin"))
    column.write_bytes(column.read_bytes()[:-4] + np.float32(np.nan).tobytes())
    problems = found(validate(store), "problem")
    assert "is altered" in problems["damaged"][0]


@pytest.mark.parametrize("fault", ["log", "column", "info"])
def test_a_damaged_store_is_a_problem(store, fault):
    file = {"log": "commits.jsonl", "column": "prev_reward.bin", "info": "store.json"}[fault]
    path = next(store.rglob(file))
    if fault == "column":
        path.unlink()
    else:
        path.write_text("{bad}\n")
    assert "damaged" in found(validate(store), "problem")
