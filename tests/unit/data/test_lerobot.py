"""Datasets of LeRobot, written here by its documented layout: what was written is read, or a clear error."""

import io
import json
import os
import sys

import numpy as np
import pytest
from PIL import Image

from seqrl.core.errors import ConfigError, DataError
from seqrl.core.text import decode_text
from seqrl.data.ingest import open_store
from seqrl.data.readers import lerobot
from seqrl.scripts import train

av = pytest.importorskip("av")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

FPS, SIZE = 10, (32, 48)
LENGTHS = (7, 5, 9)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


def grey(episode, step):
    """The brightness of a frame."""
    return 20 + 60 * episode + 5 * step


def write_video(file, levels):
    file.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = SIZE[1], SIZE[0], "yuv420p"
        for level in levels:
            frame = av.VideoFrame.from_ndarray(np.full((*SIZE, 3), level, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def png(level):
    data = io.BytesIO()
    Image.fromarray(np.full((4, 6, 3), level, np.uint8)).save(data, "PNG")
    return {"bytes": data.getvalue(), "path": None}


def table(episodes, begin=0):
    rng = np.random.default_rng(1)
    states = rng.random((sum(LENGTHS), 4)).astype(np.float32)
    actions = (rng.random((sum(LENGTHS), 2)) * 90).astype(np.float32)
    first = np.cumsum([0, *LENGTHS])
    rows = np.concatenate([np.arange(first[e], first[e + 1]) for e in episodes])
    number = np.concatenate([np.full(LENGTHS[e], e) for e in episodes])
    step = np.concatenate([np.arange(LENGTHS[e]) for e in episodes])
    return pa.table(
        {
            "observation.state": pa.FixedSizeListArray.from_arrays(pa.array(states[rows].ravel()), 4),
            "observation.images.wrist": pa.array([png(grey(e, t)) for e, t in zip(number, step, strict=True)]),
            "action": pa.array(actions[rows].tolist(), pa.list_(pa.float32())),
            "timestamp": pa.array((step / FPS).astype(np.float32)),
            "frame_index": pa.array(step),
            "episode_index": pa.array(number),
            "index": pa.array(rows),
            "task_index": pa.array(number % 2),
            "next.reward": pa.array(number.astype(np.float32)),
            "next.done": pa.array(
                np.array([t == LENGTHS[e] - 1 and e != 1 for e, t in zip(number, step, strict=True)])
            ),
        }
    )


def feature(dtype, *shape):
    return {"dtype": dtype, "shape": list(shape), "names": None}


def write(folder, version="v3.0"):
    """Write three episodes: of v3 in two files of data and one video, of v2 a file and a video each."""
    info = {
        "codebase_version": version,
        "total_episodes": 3,
        "total_frames": sum(LENGTHS),
        "fps": FPS,
        "chunks_size": 1000,
        "features": {
            "observation.state": feature("float32", 4),
            "observation.images.wrist": feature("image", 4, 6, 3),
            "observation.images.front": feature("video", 3, *SIZE),
            "action": feature("float32", 2),
            **{k: feature("float32", 1) for k in ("timestamp", "next.reward")},
            **{k: feature("int64", 1) for k in ("frame_index", "episode_index", "index", "task_index")},
            "next.done": feature("bool", 1),
        },
    }
    (folder / "data/chunk-000").mkdir(parents=True)
    (folder / "meta/episodes/chunk-000").mkdir(parents=True)
    tasks = ["push the block", "open the drawer"]
    if version == "v3.0":
        info |= {
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        }
        parquet.write_table(table([0, 1]), folder / "data/chunk-000/file-000.parquet", row_group_size=8)
        parquet.write_table(table([2]), folder / "data/chunk-000/file-001.parquet")
        key = "videos/observation.images.front"
        begin = np.cumsum([0, *LENGTHS])[:3] / FPS
        columns = {"chunk_index": [0] * 3, "file_index": [0] * 3, "from_timestamp": begin.tolist()}
        meta = {"episode_index": [0, 1, 2], "length": LENGTHS, **{f"{key}/{k}": v for k, v in columns.items()}}
        parquet.write_table(pa.table(meta), folder / "meta/episodes/chunk-000/file-000.parquet")
        parquet.write_table(pa.table({"task_index": [0, 1], "__index_level_0__": tasks}), folder / "meta/tasks.parquet")
        levels = [grey(e, t) for e in range(3) for t in range(LENGTHS[e])]
        write_video(folder / key / "chunk-000/file-000.mp4", levels)
    else:
        info |= {
            "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
            "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        }
        lines = [json.dumps({"task_index": i, "task": task}) for i, task in enumerate(tasks)]
        (folder / "meta/tasks.jsonl").write_text("\n".join(lines))
        for e in range(3):
            parquet.write_table(table([e]), folder / f"data/chunk-000/episode_{e:06d}.parquet")
            levels = [grey(e, t) for t in range(LENGTHS[e])]
            write_video(folder / f"videos/chunk-000/observation.images.front/episode_{e:06d}.mp4", levels)
    (folder / "meta/info.json").write_text(json.dumps(info))
    return folder


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_every_value_is_the_one_that_was_written(tmp_path, version):
    store = open_store(str(write(tmp_path / "data", version)))
    assert store.names == ["episode_0", "episode_1", "episode_2"]
    assert store.length.tolist() == list(LENGTHS)
    assert not store.info.has_next_obs
    assert not np.isfinite(store.info.action_space.high).any(), "degrees are no actions between -1 and 1"
    for e, trajectory in enumerate(store.trajectories()):
        rows = table([e])
        steps = LENGTHS[e]
        assert set(trajectory.obs) == {"state", "images/wrist", "images/front", "task"}
        assert np.array_equal(trajectory.obs["state"][:-1], np.stack(rows["observation.state"].to_pylist()))
        assert np.array_equal(trajectory.obs["state"][-1], trajectory.obs["state"][-2])
        assert np.array_equal(trajectory.actions, np.array(rows["action"].to_pylist(), np.float32))
        assert trajectory.obs["images/wrist"].shape == (steps + 1, 4, 6, 3)
        assert trajectory.obs["images/front"].shape == (steps + 1, *SIZE, 3)
        levels = [grey(e, t) for t in range(steps)]
        assert np.array_equal(trajectory.obs["images/wrist"][:-1, 0, 0, 0], levels)
        shown = trajectory.obs["images/front"][:-1].mean((1, 2, 3))
        assert np.abs(shown - levels).max() < 2.4, "each frame is that of its own step"
        assert decode_text(trajectory.obs["task"][0]) == ("open the drawer" if e == 1 else "push the block")
        assert trajectory.rewards.tolist() == [float(e)] * steps
        assert trajectory.terminated[-1] == (e != 1)
        assert trajectory.truncated[-1] == (e == 1)


def test_entries_are_chosen_and_images_reduced(tmp_path):
    path = str(write(tmp_path / "data"))
    columns = {"obs/front": "observation.images.front", "actions": "action"}
    store = open_store(path, {"columns": columns, "image_size": [8, 12], "dones_mean": "truncated"})
    trajectory = store.trajectory(2)
    assert {k: v.shape for k, v in trajectory.obs.items()} == {"front": (10, 8, 12, 3)}
    told = open_store(path, {"columns": {**columns, "obs/task": "task"}, "image_size": [8, 12]}).trajectory(2)
    assert {k: v.shape for k, v in told.obs.items()} == {"front": (10, 8, 12, 3), "task": (10, 256)}
    assert not trajectory.rewards.any()
    assert trajectory.truncated[-1]


def test_a_policy_learns_from_it_on_the_command_line(tmp_path, monkeypatch):
    write(tmp_path / "robot")
    monkeypatch.chdir(tmp_path)
    settings = ["train.num_epochs=1", "train.steps_per_epoch=2", "train.window_steps=4", "train.batch_size=2",
                "observation.keys=[\"state\"]", "train.normalize_actions=min_max"]  # fmt: skip
    words = [w for s in settings for w in ("--set", s)]
    assert train.main(["--algo", "bc", "--dataset", "robot", "--image-size", "8", "12", "--name", "x", *words]) == 0


def test_the_space_that_videos_will_take_is_told(tmp_path, monkeypatch):
    path = write(tmp_path / "data")
    info = json.loads((path / "meta/info.json").read_text())
    info["total_frames"] = 10**10
    (path / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match=r"its store \(3 episodes, 10000000000 transitions, 4\.\d+e\+04 GB\)"):
        open_store(str(path))


def change_info(path, **changes):
    info = json.loads((path / "meta/info.json").read_text())
    (path / "meta/info.json").write_text(json.dumps(info | changes))


def test_what_is_wrong_is_told(tmp_path):
    def wrong(match, change=None, **options):
        path = tmp_path / f"d{len(list(tmp_path.iterdir()))}"
        write(path)
        if change is not None:
            change(path)
        with pytest.raises(DataError, match=match):
            open_store(str(path), options)

    wrong("'v1.6'; only v2 and v3 can be read", lambda p: change_info(p, codebase_version="v1.6"))
    wrong("3 episodes are there, but meta/info.json says 4", lambda p: change_info(p, total_episodes=4))
    wrong("no feature 'observation.stat'; did you mean", columns={"obs/x": "observation.stat", "actions": "action"})
    wrong("columns may have", columns={"obs/x": "observation.state", "actions": "action", "gaol": "action"})
    wrong("give its name in columns", columns={"obs/x": "observation.state"})
    wrong("has no frame at", lambda p: change_info(p, fps=10) or shorten(p))
    wrong("is outside", lambda p: change_info(p, video_path="../../{video_key}.mp4"))


def shorten(path):
    write_video(path / "videos/observation.images.front/chunk-000/file-000.mp4", [0] * 9)


@pytest.mark.parametrize("part", ["data/chunk-000/file-000.parquet", "meta/info.json", "meta/tasks.parquet",
                                  "meta/episodes/chunk-000/file-000.parquet",
                                  "videos/observation.images.front/chunk-000/file-000.mp4"])  # fmt: skip
def test_a_file_that_is_cut_is_an_error(tmp_path, part):
    path = write(tmp_path / "data")
    whole = (path / part).read_bytes()
    good = [t.obs["images/front"] for t in open_store(str(path)).trajectories()]
    told = 0
    for size in np.linspace(0, len(whole) - 1, 12).astype(int):
        (path / part).write_bytes(whole[:size])
        try:
            found = [t.obs["images/front"] for t in open_store(str(path)).trajectories()]
        except DataError as error:
            told += str(tmp_path) in str(error)
        else:  # a video's last bytes are about the program that wrote it
            assert part.endswith(".mp4")
            assert all(np.array_equal(a, b) for a, b in zip(found, good, strict=True))
    assert told >= 11


@pytest.mark.parametrize("package", ["pyarrow", "av"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, package):
    path = write(tmp_path / "data")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DataError, match=r"pip install 'seqrl\[lerobot\]'"):
        open_store(str(path))


def test_other_formats_take_no_image_size(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros((3, 1)), b=np.zeros((3, 1)))
    with pytest.raises(DataError, match="format arrays takes no image_size"):
        open_store(str(tmp_path / "x.npz"), {"image_size": [1, 2]})


def test_reader_options_need_a_dataset():
    with pytest.raises(ConfigError, match="--image-size describes --dataset"):
        train._data(train.parser().parse_args(["--algo", "bc", "--image-size", "8", "8"]))


def test_frames_that_wait_on_disk_are_the_same(tmp_path, monkeypatch):
    path = write(tmp_path / "a")
    expected = [t.obs["images/front"] for t in open_store(str(path), {"image_size": SIZE}).trajectories()]
    monkeypatch.setattr(lerobot, "_MOST_IN_MEMORY", 1)
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "other"))
    found = [t.obs["images/front"] for t in open_store(str(path), {"image_size": SIZE}).trajectories()]
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert all(f.is_dir() for f in (tmp_path / "other").iterdir()), "the temporary files are gone"


def test_no_room_for_frames_is_an_error(tmp_path, monkeypatch):
    path = write(tmp_path / "a")
    monkeypatch.setattr(lerobot, "_MOST_IN_MEMORY", 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(DataError, match=r"no room for the 0 MB of an episode's frames .*No space left"):
        open_store(str(path))


def test_a_video_that_is_a_list_of_other_files_is_refused(tmp_path):
    path = write(tmp_path / "data")
    secret = tmp_path / "secret.ts"
    write_video(secret, [9] * 30)
    (path / "list.m3u8").write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:3,\n{secret}\n#EXT-X-ENDLIST\n")
    change_info(path, video_path="list.m3u8")
    with pytest.raises(DataError, match="not a readable video"):
        open_store(str(path))


def test_videos_may_be_links_as_in_the_cache_of_the_hub(tmp_path):
    path = write(tmp_path / "data")
    video = path / "videos/observation.images.front/chunk-000/file-000.mp4"
    video.rename(tmp_path / "blob")
    video.symlink_to(tmp_path / "blob")
    assert len(open_store(str(path))) == 3
