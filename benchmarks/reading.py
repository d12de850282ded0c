"""Memory and speed of reading each format: a file of 2 GB, made on the spot, becomes a store in a fresh process.

Reports what the process grows by after its imports: anonymous memory (RssAnon) and all resident memory (VmHWM), the
largest while reading. Random numbers, episodes of 1,000 steps, 128 floats observed and 8 done; ``video`` has one video
of 96 x 96 pixels, whose frames are 2 GB, instead of floats.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from record import record, table

FEATURES, ACTIONS, LENGTH, PIXELS = 128, 8, 1000, 96
COLUMNS = {"obs/state": "observations", "actions": "actions", "rewards": "rewards", "terminated": "terminals"}
CHILD = "--child"


def episodes(num: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the arrays of one episode after the other."""
    rng = np.random.default_rng(0)
    for _ in range(num):
        yield {
            "observations": rng.random((LENGTH + 1, FEATURES), np.float32),
            "actions": rng.random((LENGTH, ACTIONS), np.float32),
            "rewards": rng.random(LENGTH, np.float32),
            "terminals": np.arange(LENGTH) == LENGTH - 1,
        }


def robomimic(folder: Path, num: int) -> Path:
    """Write a robomimic file."""
    with h5py.File(folder / "x.hdf5", "w") as file:
        for k, e in enumerate(episodes(num)):
            demo = file.create_group(f"data/demo_{k}")
            demo["obs/state"], demo["actions"] = e["observations"][:-1], e["actions"]
            demo["rewards"], demo["dones"] = e["rewards"], e["terminals"].astype(np.int64)
    return folder / "x.hdf5"


def minari_metadata(folder: Path, data_format: str) -> None:
    """Write what a dataset of Minari tells of itself."""
    boxes = [
        {"type": "Box", "dtype": "float32", "shape": [n], "low": [0.0] * n, "high": [1.0] * n}
        for n in (FEATURES, ACTIONS)
    ]
    spaces = dict(zip(("observation_space", "action_space"), map(json.dumps, boxes), strict=True))
    (folder / "data").mkdir()
    (folder / "data/metadata.json").write_text(json.dumps({"data_format": data_format, **spaces}))


def minari(folder: Path, num: int) -> Path:
    """Write a dataset of Minari in HDF5."""
    minari_metadata(folder, "hdf5")
    with h5py.File(folder / "data/main_data.hdf5", "w") as file:
        for k, e in enumerate(episodes(num)):
            group = file.create_group(f"episode_{k}")
            group["observations"], group["actions"], group["rewards"] = e["observations"], e["actions"], e["rewards"]
            group["terminations"], group["truncations"] = e["terminals"], np.zeros(LENGTH, bool)
    return folder


def arrow(folder: Path, num: int, data_format: str = "arrow") -> Path:
    """Write a dataset of Minari in Arrow: a table for each episode, with one row more than it has steps."""
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    minari_metadata(folder, data_format)
    lists = pyarrow.FixedSizeListArray.from_arrays
    for k, e in enumerate(episodes(num)):
        longer = {name: np.concatenate([e[name], e[name][-1:]]) for name in ("actions", "rewards", "terminals")}
        columns = {
            "observations": lists(e["observations"].ravel(), FEATURES),
            "actions": lists(longer["actions"].ravel(), ACTIONS),
            "rewards": longer["rewards"],
            "terminations": longer["terminals"],
            "truncations": np.zeros(LENGTH + 1, bool),
        }
        (folder / f"data/{k}").mkdir()
        file, rows = folder / f"data/{k}/part-0.{data_format}", pyarrow.table(columns)
        if data_format == "arrow":
            pyarrow.feather.write_feather(rows, file, compression="uncompressed")
        else:
            pyarrow.parquet.write_table(rows, file)
    return folder


def parquet(folder: Path, num: int) -> Path:
    """Write a dataset of Minari in Parquet."""
    return arrow(folder, num, "parquet")


def d4rl(folder: Path, num: int) -> Path:
    """Write a flat file of D4RL."""
    with h5py.File(folder / "x.hdf5", "w") as file:
        for k, e in enumerate(episodes(num)):
            for name, values in {**e, "timeouts": np.zeros(LENGTH, bool)}.items():
                rows = values[:LENGTH]
                if not k:
                    file.create_dataset(name, (num * LENGTH, *rows.shape[1:]), rows.dtype)
                file[name][k * LENGTH : (k + 1) * LENGTH] = rows
    return folder / "x.hdf5"


def npy(folder: Path, num: int) -> Path:
    """Write flat arrays in ``.npy`` files."""
    arrays: dict[str, Any] = {}
    for k, e in enumerate(episodes(num)):
        for name, values in e.items():
            rows = values[:LENGTH]
            if not k:
                shape = (num * LENGTH, *rows.shape[1:])
                arrays[name] = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", rows.dtype, shape)
            arrays[name][k * LENGTH : (k + 1) * LENGTH] = rows
    return folder


def npz(folder: Path, num: int) -> Path:
    """Write one ``.npz`` of flat arrays."""
    (folder / "arrays").mkdir()
    npy(folder / "arrays", num)
    np.savez(folder / "x.npz", **{f.stem: np.load(f, mmap_mode="r") for f in (folder / "arrays").iterdir()})
    return folder / "x.npz"


def amago(folder: Path, num: int) -> Path:
    """Write a trajectory of AMAGO for each episode."""
    for k, e in enumerate(episodes(num)):
        rows = {"actions": e["actions"], "rews": e["rewards"][:, None], "dones": e["terminals"][:, None]}
        last = np.zeros((LENGTH + 1, 1 + ACTIONS), np.float32)
        steps = np.arange(LENGTH + 1)[:, None]
        np.savez(folder / f"t_{k}.npz", _OBS_KEY_x=e["observations"], rl2s=last, time_idxs=steps, **rows)
    return folder


def lerobot(folder: Path, num: int) -> Path:
    """Write a dataset of LeRobot, without images."""
    import pyarrow
    import pyarrow.parquet

    features = {"observation.state": FEATURES, "action": ACTIONS}
    info = {
        "codebase_version": "v3.0", "total_episodes": num, "total_frames": num * LENGTH, "fps": 30,
        "features": {k: {"dtype": "float32", "shape": [n]} for k, n in features.items()},
    }  # fmt: skip
    (folder / "meta").mkdir()
    (folder / "data/chunk-000").mkdir(parents=True)
    (folder / "meta/info.json").write_text(json.dumps(info))
    for begin in range(0, num, 100):
        writer = None
        file = folder / f"data/chunk-000/file-{begin // 100:03d}.parquet"
        for k, e in enumerate(episodes(min(100, num - begin)), start=begin):
            columns = {
                "observation.state": pyarrow.FixedSizeListArray.from_arrays(e["observations"][:-1].ravel(), FEATURES),
                "action": pyarrow.FixedSizeListArray.from_arrays(e["actions"].ravel(), ACTIONS),
                "episode_index": np.full(LENGTH, k),
            }
            rows = pyarrow.table(columns)
            writer = writer or pyarrow.parquet.ParquetWriter(file, rows.schema)
            writer.write_table(rows)
        if writer is not None:
            writer.close()
    return folder


def video(folder: Path, num: int) -> Path:
    """Write a dataset of LeRobot with one video of all episodes: noise of 6 x 6 squares."""
    import av
    import pyarrow
    import pyarrow.parquet

    camera, rng = "observation.image", np.random.default_rng(0)
    place = {"video_key": camera, "chunk_index": 0, "file_index": 0}
    info = {
        "codebase_version": "v3.0", "total_episodes": num, "total_frames": num * LENGTH, "fps": 30,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {
            camera: {"dtype": "video", "shape": [PIXELS, PIXELS, 3]},
            "action": {"dtype": "float32", "shape": [ACTIONS]},
        },
    }  # fmt: skip
    file = folder / str(info["video_path"]).format(**place)
    for made in (folder / "meta/episodes/chunk-000", folder / "data/chunk-000", file.parent):
        made.mkdir(parents=True)
    (folder / "meta/info.json").write_text(json.dumps(info))
    meta = {"chunk_index": [0] * num, "file_index": [0] * num, "from_timestamp": [k * LENGTH / 30 for k in range(num)]}
    told = {"episode_index": list(range(num)), "length": [LENGTH] * num}
    rows = {**told, **{f"videos/{camera}/{k}": v for k, v in meta.items()}}
    pyarrow.parquet.write_table(pyarrow.table(rows), folder / "meta/episodes/chunk-000/file-000.parquet")
    steps = {
        "action": pyarrow.FixedSizeListArray.from_arrays(rng.random(num * LENGTH * ACTIONS, np.float32), ACTIONS),
        "episode_index": np.arange(num * LENGTH) // LENGTH,
        "frame_index": np.arange(num * LENGTH) % LENGTH,
        "timestamp": (np.arange(num * LENGTH) % LENGTH / 30).astype(np.float32),
    }
    pyarrow.parquet.write_table(pyarrow.table(steps), folder / "data/chunk-000/file-000.parquet")
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = PIXELS, PIXELS, "yuv420p"
        for _ in range(num * LENGTH):
            squares = rng.integers(0, 256, (PIXELS // 6, PIXELS // 6, 3), np.uint8)
            frame = av.VideoFrame.from_ndarray(squares.repeat(6, 0).repeat(6, 1), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return folder


FORMATS: dict[str, Callable[[Path, int], Path]] = {
    f.__name__: f for f in (robomimic, minari, arrow, parquet, d4rl, npy, npz, amago, lerobot, video)
}


def memory_mb(name: str) -> float:
    """Return a line of this process's status in MB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def read(path: str, options: dict[str, Any]) -> dict[str, float]:
    """Read a file in this process, and return what that took."""
    import seqrl.training.sources  # noqa: F401  (the imports of a run)
    from seqrl.data.ingest import open_store

    before, anonymous = memory_mb("VmRSS"), memory_mb("RssAnon")
    most, done = [anonymous], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], memory_mb("RssAnon"))

    threading.Thread(target=watch, daemon=True).start()
    begin = time.perf_counter()
    store = open_store(path, options)
    elapsed = time.perf_counter() - begin
    done.set()
    return {
        "anonymous_mb": most[0] - anonymous,
        "resident_mb": max(0.0, memory_mb("VmHWM") - before),
        "seconds": elapsed,
        "transitions": store.num_transitions,
    }


def measure(name: str, num: int) -> dict[str, Any]:
    """Make a file, and read it in a fresh process."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "data"
        folder.mkdir()
        path = FORMATS[name](folder, num)
        files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
        size = sum(f.stat().st_size for f in files) / 1e6
        options = {"columns": COLUMNS} if name in ("npy", "npz") else {}
        words = [sys.executable, __file__, CHILD, str(path), json.dumps(options)]
        environment = {"SEQRL_CACHE_DIR": f"{temporary}/cache", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        found = json.loads(done.stdout)
    if found["transitions"] != num * LENGTH:
        raise SystemExit(f"{name}: {found['transitions']} transitions were read of {num * LENGTH}")
    return {"format": name, "size_mb": size, **found}


def main() -> None:
    """Measure, print, record."""
    if CHILD in sys.argv:
        print(json.dumps(read(sys.argv[2], json.loads(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=2.0, help="size of each file")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    args = parser.parse_args()
    rows = []
    for name in args.formats:
        step = PIXELS * PIXELS * 3 if name == "video" else 4 * (FEATURES + ACTIONS + 1)
        rows.append(measure(name, round(args.gb * 1e9 / (step * LENGTH))))
        print(rows[-1], flush=True)
    shown = [
        {
            "format": r["format"], "file (GB)": f"{r['size_mb'] / 1e3:.2f}",
            "anonymous memory (MB)": f"{r['anonymous_mb']:.0f}", "resident memory (MB)": f"{r['resident_mb']:.0f}",
            "MB/s": f"{r['size_mb'] / r['seconds']:.0f}",
        }
        for r in rows
    ]  # fmt: skip
    print(table(shown))
    print("recorded in", record("reading", {"rows": rows}))


if __name__ == "__main__":
    main()
