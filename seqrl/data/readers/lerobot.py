"""LeRobot's datasets, versions 2 and 3: tables in Parquet, images in them or in videos. Its package is not needed."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError, did_you_mean
from seqrl.core.spaces import extremes, infer_action_space
from seqrl.core.text import TEXT_BYTES, encode_text
from seqrl.core.types import Trajectory
from seqrl.data.cache_folder import cache_folder
from seqrl.data.disk_space import LOG_LINE_BYTES, StoreSize
from seqrl.data.readers.arrow import images_of, numbers_of, pyarrow_for
from seqrl.data.readers.base import NamedTrajectories, Opened, Reader, narrowed
from seqrl.data.readers.robomimic import naming
from seqrl.data.store_info import StoreInfo

INFO = "meta/info.json"
_PREFIX, _TASK = "observation", "task"
_BATCH_ROWS = 512
_MOST_IN_MEMORY = 2**26
_REST_BYTES = 4 + 1 + 1


class LeRobot(Reader):
    """The folder of a dataset."""

    takes: ClassVar[frozenset[str]] = frozenset({"dones_mean", "columns", "image_size"})

    def can_read(self, path: Path) -> bool:
        """Tell by the names of the files."""
        return (path / INFO).is_file() and (path / "data").is_dir()

    def open(self, path: Path, options: dict[str, Any]) -> Opened:
        """Open a dataset."""
        return read_lerobot(path, options)

    def store_size(self, path: Path, options: dict[str, Any]) -> StoreSize | None:
        """Return the size of the store, which is much larger than videos; None where the folder is damaged."""
        try:
            dataset = _Dataset(path, options)
            num, frames = (int(dataset.info[k]) for k in ("total_episodes", "total_frames"))
        except (DataError, LookupError, TypeError, ValueError):
            return None
        row = sum(np.dtype(f.dtype).itemsize * int(np.prod(f.shape)) for f in (*dataset.obs.values(), dataset.action))
        return StoreSize(num, frames, (frames + num) * (row + _REST_BYTES) + LOG_LINE_BYTES * num)


@dataclass(frozen=True)
class _Feature:
    """One entry of the table.

    Attributes:
        name: In the dataset.
        kind: ``number``, ``image`` or ``video``.
        dtype: Of its values.
        shape: Of one value, as it is stored by seqrl.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]


class _Dataset:
    """What the folder says of itself.

    Attributes:
        info: ``meta/info.json``.
        obs: Our name -> feature.
        action: What is done.
        reward: Name of the rewards; None where there are none.
        done: Name of the flag of ends; likewise.
        tasks: Texts by their index; empty where there is one task or none.
    """

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        with naming(path, "LeRobot dataset"):
            self.path = path
            self.info: dict[str, Any] = json.loads((path / INFO).read_text(encoding="utf-8"))
            if str(self.info.get("codebase_version", "")).split(".")[0] not in ("v2", "v3"):
                raise DataError(
                    f"{path} is in LeRobot format {self.info.get('codebase_version')!r}; only v2 and v3 can be read"
                )
            self._size = options.get("image_size")
            names = dict(options.get("columns") or {})
            wants_task = not names or names.get(f"obs/{_TASK}") == _TASK
            if names and wants_task:
                del names[f"obs/{_TASK}"]
            names = names or self._default_columns()
            if "actions" not in names:
                raise DataError(f"{path}: no feature is named action; give its name in columns, as 'actions'")
            self.obs = {k.removeprefix("obs/"): self._feature(v) for k, v in names.items() if k.startswith("obs/")}
            self.action = self._feature(names["actions"])
            if self.action.kind != "number" or not self.obs:
                raise DataError(f"{path}: needs numeric actions and an observation; it has {names}")
            others = {k: v for k, v in names.items() if not k.startswith("obs/") and k != "actions"}
            if unknown := sorted(others.keys() - {"rewards", "terminated"}):
                raise DataError(f"{path}: columns may have obs/NAME, actions, rewards, terminated; got {unknown[0]!r}")
            self.reward, self.done = (
                self._feature(others[k]).name if k in others else None for k in ("rewards", "terminated")
            )
            self.tasks = self._tasks() if wants_task else []

    @property
    def is_v3(self) -> bool:
        """Whether several episodes share a file."""
        return str(self.info["codebase_version"]).startswith("v3")

    def _default_columns(self) -> dict[str, str]:
        """Return our name -> theirs; dots become slashes."""
        features = self.info["features"]
        names = {"actions": "action", "rewards": "next.reward", "terminated": "next.done"}
        found = {ours: theirs for ours, theirs in names.items() if theirs in features}
        for name, feature in features.items():
            if name.split(".")[0] == _PREFIX and feature["dtype"] != "string":
                found["obs/" + (name[len(_PREFIX) + 1 :] or "obs").replace(".", "/")] = name
        return found

    def _feature(self, name: str) -> _Feature:
        features = self.info["features"]
        if name not in features:
            raise DataError(
                f"{self.path} has no feature {name!r}{did_you_mean(name, features)}; it has {', '.join(features)}"
            )
        dtype, shape = str(features[name]["dtype"]), tuple(int(n) for n in features[name]["shape"])
        if dtype not in ("image", "video"):
            np.dtype(dtype)
            return _Feature(name, "number", dtype, shape)
        height, width = shape[1:] if shape[0] in (1, 3, 4) and shape[-1] > 4 else shape[:2]
        return _Feature(name, dtype, "uint8", (*(self._size or (height, width)), 3))

    def _tasks(self) -> list[str]:
        """Return what is to be done, by its index."""
        file = self.path / "meta/tasks.parquet"
        rows: list[tuple[int, str]] = []
        if file.is_file():
            table = pyarrow_for(self.path, "lerobot").parquet.read_table(file)
            texts = next((c for c in table.column_names if "string" in str(table.schema.field(c).type)), None)
            if texts is not None:
                rows = list(zip(table["task_index"].to_pylist(), table[texts].to_pylist(), strict=True))
        elif (file := self.path / "meta/tasks.jsonl").is_file():
            lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
            rows = [(int(line["task_index"]), str(line["task"])) for line in lines]
        by_index = dict(rows)
        if len(by_index) > 1 and sorted(by_index) != list(range(len(by_index))):
            raise DataError(f"{self.path}: the tasks are not numbered from 0")
        return [by_index[i] for i in range(len(by_index))] if len(by_index) > 1 else []


@contextmanager
def read_lerobot(path: Path, options: dict[str, Any]) -> Iterator[tuple[StoreInfo, NamedTrajectories]]:
    """Open a dataset of LeRobot; one episode is read at a time, and the actions once before for their range.

    There are as many observations as actions, so the last is repeated, and the data has no ``next_obs``. Where there
    are several tasks, the text of each is the observation ``task``.

    Args:
        path: The folder.
        options: ``columns``: our name (``obs/<name>``, ``actions``, ``rewards``, ``terminated``) -> name of a feature;
            by default all of ``observation``, ``action``, ``next.reward``, ``next.done``. ``image_size``: (height,
            width) to which images are reduced. ``dones_mean``: what a 1 in ``next.done`` says.

    Raises:
        DataError: If it is damaged, or needs a package that is not installed.
    """
    dataset = _Dataset(path, options)
    dones_mean = options.get("dones_mean", "terminated")
    with naming(path, "LeRobot dataset"):
        files = sorted((path / "data").glob("chunk-*/*.parquet"))
        if not files:
            raise DataError(f"{path} holds no data/chunk-*/*.parquet")
        reading = _Reading(dataset, files)
        space: dict[str, spaces.Space[Any]] = {
            k: spaces.Box(*_limits(f.dtype), f.shape, np.dtype(f.dtype).type) for k, f in dataset.obs.items()
        }
        if dataset.tasks:
            space[_TASK] = spaces.Box(0, 255, (TEXT_BYTES,), np.uint8)
        info = StoreInfo(
            spaces.Dict(space),
            infer_action_space(extremes(reading.actions())),
            has_next_obs=False,
            has_rewards=dataset.reward is not None,
            spaces_are_known=False,
            actions_are_scaled=False,
            source=str(path),
        )
    yield info, reading.trajectories(dones_mean)


def _limits(dtype: str) -> tuple[float, float]:
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        return np.iinfo(kind).min, np.iinfo(kind).max
    return (0, 1) if kind.kind == "b" else (-np.inf, np.inf)


class _Reading:
    """Goes through the tables, and the videos beside them."""

    def __init__(self, dataset: _Dataset, files: list[Path]) -> None:
        self._dataset, self._files = dataset, files
        self._pyarrow = pyarrow_for(dataset.path, "lerobot")
        self._places = self._video_places() if dataset.is_v3 else {}

    def actions(self) -> Iterator[np.ndarray]:
        """Yield the actions of all episodes, some rows at a time, in float32 where they are floats."""
        action = self._dataset.action
        for file in self._files:
            for batch in self._pyarrow.parquet.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=[action.name]):
                yield narrowed(numbers_of(batch.column(0), action.shape).astype(action.dtype))

    def trajectories(self, dones_mean: str) -> NamedTrajectories:
        """Yield one episode after the other."""
        seen: set[int] = set()
        episodes = self._episodes()
        while True:
            with naming(self._dataset.path, "LeRobot dataset"):
                found = next(episodes, None)
                if found is None:
                    break
                number, table = found
                if number in seen:
                    raise DataError(f"{self._dataset.path}: the rows of episode {number} are not contiguous")
                seen.add(number)
            with naming(self._dataset.path, "LeRobot dataset", where=f"episode {number}"):
                trajectory = self._trajectory(number, table, dones_mean).check()
            yield f"episode_{number}", trajectory
        expected = int(self._dataset.info.get("total_episodes", len(seen)))
        if len(seen) != expected:
            raise DataError(f"{self._dataset.path}: {len(seen)} episodes are there, but {INFO} says {expected}")

    def _episodes(self) -> Iterator[tuple[int, Any]]:
        """Yield (index, table) of each episode."""
        dataset, current = self._dataset, -1
        rows: list[Any] = []
        numbers = [f.name for f in (*dataset.obs.values(), dataset.action) if f.kind != "video"]
        wanted = {*numbers, "episode_index", "timestamp"} | {n for n in (dataset.reward, dataset.done) if n}
        wanted |= {"task_index"} if dataset.tasks else set()
        for file in self._files:
            opened = self._pyarrow.parquet.ParquetFile(file)
            there = set(opened.schema_arrow.names)
            if missing := sorted(wanted - there - {"timestamp"}):
                raise DataError(f"{file} lacks {', '.join(missing)}")
            for batch in opened.iter_batches(_BATCH_ROWS, columns=sorted(wanted & there)):
                indices = numbers_of(batch.column("episode_index"), ())
                cuts = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(indices)]
                for begin, end in itertools.pairwise(cuts):
                    if rows and indices[begin] != current:
                        yield current, self._pyarrow.Table.from_batches(rows)
                        rows = []
                    current = int(indices[begin])
                    rows.append(batch.slice(begin, end - begin))
        if rows:
            yield current, self._pyarrow.Table.from_batches(rows)

    def _trajectory(self, number: int, table: Any, dones_mean: str) -> Trajectory:
        dataset, steps = self._dataset, table.num_rows
        obs = {name: self._observed(number, table, feature) for name, feature in dataset.obs.items()}
        if dataset.tasks:
            indices = numbers_of(table["task_index"].combine_chunks(), ())
            obs[_TASK] = encode_text([dataset.tasks[i] for i in (*indices, indices[-1])])
        last = np.arange(steps) == steps - 1
        is_done = bool(dataset.done) and bool(_flat(table, dataset.done)[-1])
        terminated = last & (is_done and dones_mean == "terminated")
        rewards = _flat(table, dataset.reward).astype(np.float32) if dataset.reward else np.zeros(steps, np.float32)
        return Trajectory(
            obs=obs,
            actions=narrowed(self._values(table, dataset.action)),
            rewards=rewards,
            terminated=terminated,
            truncated=last & ~terminated,
        )

    def _observed(self, number: int, table: Any, feature: _Feature) -> np.ndarray:
        """Return the values ``(T + 1, ...)`` of a feature over an episode; the last is there twice."""
        if feature.kind == "video":
            return self._frames(number, table, feature)
        values = self._values(table, feature)
        return np.concatenate([values, values[-1:]])

    def _values(self, table: Any, feature: _Feature) -> np.ndarray:
        """Return the values ``(T, ...)`` of a feature over an episode."""
        column = table[feature.name].combine_chunks()
        if feature.kind == "number":
            return numbers_of(column, feature.shape).astype(feature.dtype)
        files = column.field("bytes") if hasattr(column, "field") else column
        return images_of(files.to_pylist(), feature.shape, is_reduced=True)

    # ----------------------------------------------------------------------------------------------- videos
    def _video_places(self) -> dict[tuple[int, str], tuple[int, int, float]]:
        """Return (episode, feature) -> (chunk, file, seconds at which it begins there)."""
        names = [f.name for f in self._dataset.obs.values() if f.kind == "video"]
        places: dict[tuple[int, str], tuple[int, int, float]] = {}
        for file in sorted((self._dataset.path / "meta/episodes").glob("**/*.parquet")) if names else ():
            columns = ["episode_index"] + [f"videos/{n}/{k}" for n in names for k in _PLACE]
            for row in self._pyarrow.parquet.read_table(file, columns=columns).to_pylist():
                for name in names:
                    chunk, number, begin = (row[f"videos/{name}/{k}"] for k in _PLACE)
                    places[int(row["episode_index"]), name] = (int(chunk), int(number), float(begin))
        return places

    def _frames(self, number: int, table: Any, feature: _Feature) -> np.ndarray:
        dataset, info = self._dataset, self._dataset.info
        begin, names = 0.0, {"video_key": feature.name, "episode_index": number}
        if dataset.is_v3:
            names["chunk_index"], names["file_index"], begin = self._places[number, feature.name]
        else:
            names["episode_chunk"] = number // int(info.get("chunks_size", 1000))
        place = Path(str(info["video_path"]).format(**names))
        if place.is_absolute() or ".." in place.parts:
            raise DataError(f"{place} is outside {dataset.path}")
        file = dataset.path / place
        times = begin + np.arange(table.num_rows) / float(info["fps"])
        if "timestamp" in table.column_names:
            times = begin + _flat(table, "timestamp").astype(np.float64)
        times = np.append(times, times[-1])
        return frames_at(file, times, 0.5 / float(info["fps"]), (feature.shape[0], feature.shape[1]))


_PLACE = ("chunk_index", "file_index", "from_timestamp")


def _flat(table: Any, name: str | None) -> np.ndarray:
    return numbers_of(table[name].combine_chunks(), ())


def _room_for(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of bytes; a large one, such as some seconds of video, lies in a temporary file.

    Raises:
        DataError: If there is no room for it.
    """
    size = int(np.prod(shape))
    if size < _MOST_IN_MEMORY:
        return np.empty(shape, np.uint8)
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # else a full disk ends the process when it is written to
            return np.memmap(file, np.uint8, "r+" if hasattr(os, "posix_fallocate") else "w+", shape=shape)
    except OSError as error:
        raise DataError(
            f"{folder} has no room for the {size / 1e6:,.0f} MB of an episode's frames ({error}); SEQRL_CACHE_DIR "
            "moves it to another disk"
        ) from error


def frames_at(file: Path, times: np.ndarray, tolerance: float, size: tuple[int, int]) -> np.ndarray:
    """Return the frames ``(T, H, W, 3)`` of a video at rising times in seconds, decoded by PyAV.

    Args:
        file: Any format that FFmpeg reads.
        times: ``(T,)``.
        tolerance: Largest difference between a time and that of its frame, in seconds.
        size: H and W; frames of another size are reduced.

    Raises:
        DataError: If the package is missing, the file is damaged, or has no frame at one of the times.
    """
    try:
        import av
    except ImportError as error:
        raise DataError(f"{file}: to read videos, pip install 'seqrl[lerobot]' (av)") from error
    out = _room_for((len(times), *size, 3))
    done = 0
    try:
        # A file object and a fixed format: names that are URLs, and playlists that name other files, are not followed.
        with file.open("rb") as opened, av.open(opened, "r", format="mp4") as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            container.seek(max(0, int((times[0] - tolerance) / stream.time_base)), stream=stream)
            for frame in container.decode(stream):
                while done < len(times) and abs(frame.time - times[done]) <= tolerance:
                    picture = frame.reformat(width=size[1], height=size[0], format="rgb24", interpolation="AREA")
                    out[done] = picture.to_ndarray()
                    done += 1
                if done == len(times) or frame.time > times[done] + tolerance:
                    break
    except (av.FFmpegError, OSError, IndexError) as error:
        raise DataError(f"{file}: not a readable video ({error})") from error
    if done < len(times):
        raise DataError(f"{file} has no frame at {times[done]:.3f} s")
    return out
