"""Damages files in a thousand ways and reads them: run as a script, because a reader's crash must not end the tests.

``python -m tests.regression.damaging FOLDER FIRST END`` prints, as lines of JSON, the number of each case before it and
its outcome after it. A case is a pure function of its number. Good files are made in FOLDER on first use.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import pickle
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from gymnasium import spaces

from seqrl.core.errors import SeqrlError
from seqrl.core.types import Trajectory
from seqrl.data import Store, StoreInfo, StoreWriter
from seqrl.data.ingest import open_store
from seqrl.data.writers.robomimic import write_robomimic

SECONDS_PER_CASE = 30
KINDS = ("store", "own hdf5", "foreign hdf5", "edited hdf5", "checkpoint", "forged checkpoint", "config", "edited json")
CHECKED = ("store", "own hdf5", "checkpoint")
"""Formats with checksums: what is loaded from them has to be what was written."""
INFO = StoreInfo(
    spaces.Dict({"image": spaces.Box(0, 255, (3, 3, 1), np.uint8), "state": spaces.Box(-9, 9, (3,), np.float32)}),
    spaces.Discrete(4),
    env_id="Maze-v0",
    env_kwargs={"size": 3, "scale": 0.5},
    filters={"train": ["demo_0", "demo_1"], "valid": ["demo_2"]},
    source="a test",
)
RUN_FILE = {
    "algo_name": "bc",
    "plugins": [],
    "env": {"id": "CartPole-v1", "kwargs": {"a": [1, {"b": 2.5}]}},
    "train": {"window_steps": 8, "data": [{"path": "x.hdf5", "weight": 2.0}, {"scripted": "seqrl/TMazePassive-v0"}]},
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
    "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 8}, "optimizer": {"learning_rate": 1e-3}},
}


# ------------------------------------------------------------------------------------------- good files
def trajectory(seed: int) -> Trajectory:
    """Return a trajectory with every kind of column."""
    rng = np.random.default_rng(seed)
    steps = 3 + 4 * seed
    last = np.arange(steps) == steps - 1
    return Trajectory(
        obs={
            "image": rng.integers(0, 256, (steps + 1, 3, 3, 1), dtype=np.uint8),
            "state": rng.normal(size=(steps + 1, 3)).astype(np.float32),
        },
        actions=rng.integers(0, 4, steps),
        rewards=rng.normal(size=steps).astype(np.float32),
        terminated=last & (seed % 2 == 0),
        truncated=last & (seed % 2 == 1),
        env_name=f"Task{seed}",
        action_mask=np.ones((steps + 1, 4), bool),
    )


def make_good_files(folder: Path) -> None:
    """Write one good file, or folder, of each kind."""
    for area, seeds in (("protected", (0, 1)), ("protected", (2,)), ("fifo", (3, 4))):
        with StoreWriter(folder / "store", INFO, area) as writer:  # type: ignore[arg-type]
            for seed in seeds:
                writer.append(trajectory(seed), f"demo_{seed}")
    write_robomimic(folder / "own.hdf5", INFO, [trajectory(i) for i in range(3)])
    with h5py.File(folder / "foreign.hdf5", "w") as file:
        for i in range(3):
            demo, good = file.create_group(f"data/demo_{i}"), trajectory(i)
            for key, values in good.obs.items():
                demo.create_dataset(f"obs/{key}", data=values[:-1], compression="gzip")
                demo[f"next_obs/{key}"] = values[1:]
            demo["actions"], demo["rewards"] = good.actions, good.rewards
            demo["dones"] = good.terminated.astype(np.int64)
            demo.attrs["num_samples"] = len(good)
        file["data"].attrs["env_args"] = json.dumps({"env_name": "Maze-v0", "type": 2, "env_kwargs": {"a": 1}})
        file["mask/train"] = [b"demo_0", b"demo_2"]
    _make_checkpoint(folder / "run")
    (folder / "config.json").write_text(json.dumps(RUN_FILE, indent=1))


def _make_checkpoint(run: Path) -> None:
    import torch

    from seqrl.algo.checkpoint import TrainingState, save_checkpoint
    from seqrl.algo.updater import Updater
    from seqrl.core.checkpoint_card import write_pointer
    from tests.helpers import small_algo

    space = spaces.Box(-1, 1, (2,), np.float32)
    algo = small_algo("bc", "gru", space)
    algo.updater = Updater(algo)
    state = TrainingState({"0.step": torch.arange(3.0)}, {"epoch": 3, "rng": [1, 2**63, "text"]})
    observations = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2), np.uint8),
            "room": spaces.Discrete(3),
            "state": spaces.Box(-9, 9, (3,), np.float32),
        }
    )
    path = run / "checkpoints" / "epoch_000003"
    save_checkpoint(path, algo, observations, space, env={"id": "X-v0"}, metrics={"a": 0.5}, training_state=state)
    write_pointer(run / "checkpoints" / "last", path.name)


# --------------------------------------------------------------------------------------------- readers
def digest(*values: Any) -> int:
    """Return a number that stands for arrays and JSON values."""
    crc = 0
    for value in values:
        if isinstance(value, np.ndarray):
            crc = zlib.crc32(f"{value.dtype}{value.shape}".encode(), crc)
            crc = zlib.crc32(np.ascontiguousarray(value).tobytes(), crc)
        else:
            crc = zlib.crc32(json.dumps(value, sort_keys=True).encode(), crc)
    return crc


def read_store(path: Path) -> list[int]:
    """Return a number per trajectory, and one for what holds for all."""
    return _content(Store(path), ignore=())


def read_hdf5(path: Path) -> list[int]:
    """Return the same for a robomimic file."""
    return _content(open_store(str(path)), ignore=("source",))


def _content(store: Store, ignore: tuple[str, ...]) -> list[int]:
    info = {k: v for k, v in store.info.to_json().items() if k not in ignore}
    found = [digest(info)]
    for n, t in enumerate(store.trajectories()):
        columns = {**t.obs, **t.goal, "mask": t.action_mask if t.action_mask is not None else np.zeros(0)}
        numbers = [
            np.asarray(t.prev_action),
            t.prev_reward,
            t.start_step,
            store.total_reward[n],
            t.env_name,
            store.names[n],
        ]
        arrays = [t.actions, t.rewards, t.terminated, t.truncated]
        found.append(digest(*arrays, *numbers, *(x for k in sorted(columns) for x in (k, columns[k]))))
    for n in range(len(store)):
        store.gather(np.array([n, n]), np.array([[0, 1], [0, int(store.length[n])]]))
    return found


def read_run(path: Path) -> list[int]:
    """Return a number for the policy of a run, one for its card, one for its training state."""
    from seqrl.algo.checkpoint import policy_from_checkpoint

    policy, checkpoint = policy_from_checkpoint(path, device="cpu")
    obs = {"image": np.ones((2, 2), np.uint8), "room": np.int64(1), "state": np.ones(3, np.float32)}
    action = policy(obs)
    state = checkpoint.training_state()
    tensors = {k: v.numpy() for k, v in sorted(state.optimizer.items())}
    return [digest(action), digest(checkpoint.card), digest(state.values, *tensors, *tensors.values())]


def read_config(path: Path) -> list[int]:
    """Return a number for a run file; what was read can be written and read again."""
    from seqrl.configs import config_factory, read_config_values

    values = read_config_values(str(path))
    config = config_factory(str(values.get("algo_name", "bc")), values, str(path))
    again = config_factory(config.algo_name, json.loads(json.dumps(config.to_json(), allow_nan=False)))
    assert again == config
    return [digest(config.to_json())]


# -------------------------------------------------------------------------------------------- damages
class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a call of ``open``."""
        return open, (self.marker, "w")


def foreign_contents(marker: Path) -> dict[str, bytes]:
    """Return files of other kinds."""
    bomb = pickle.dumps(Bomb(str(marker)))
    zipped, array = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as file:  # as torch.save lays it out
        file.writestr("archive/data.pkl", bomb)
        file.writestr("archive/version", "3\n")
    np.save(array, np.array([Bomb(str(marker))], object), allow_pickle=True)
    return {
        "empty": b"",
        "pickle": bomb,
        "zip": zipped.getvalue(),
        "npy": array.getvalue(),
        "text": b"Dear reader,\nthis is no data.\n",
        "python": f"open({str(marker)!r}, 'w')\n".encode(),
        "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(40),
        "hdf5 signature": b"\x89HDF\r\n\x1a\n" + bytes(range(256)),
        "zeros": bytes(5000),
        "deep list": b"[" * 200_000,
        "deep object": b'{"a":' * 5000 + b"1" + b"}" * 5000,
        "NaN": b"NaN",
        "null": b"null",
        "list": b"[1, 2]",
        "surrogate": b'{"\\ud800": "\\udfff"}',
        "long number": b'{"a": ' + b"9" * 5000 + b"}",
    }


WAYS = (
    "flip",
    "flip",
    "flip",
    "truncate",
    "overwrite",
    "zero",
    "insert",
    "cut",
    "foreign",
    "foreign",
    "gone",
    "folder",
)


def damage_bytes(file: Path, rng: np.random.Generator, contents: dict[str, bytes]) -> str:
    """Damage a file as disks, transfers and mistaken hands do, and return how."""
    how = str(rng.choice(WAYS))
    if how in ("gone", "folder"):
        file.unlink()
        if how == "folder":
            file.mkdir()
    elif how == "foreign":
        how = str(rng.choice(sorted(contents)))
        file.write_bytes(contents[how])
    else:
        file.write_bytes(_damaged(bytearray(file.read_bytes()), how, rng))
    return how


def _damaged(data: bytearray, how: str, rng: np.random.Generator) -> bytearray:
    n = len(data)
    a = int(rng.integers(0, max(n, 1)))
    b = min(n, a + int(rng.integers(1, int(rng.choice([64, 2000])))))
    if how == "flip" and n:
        for _ in range(int(rng.choice([1, 1, 1, 3, 20]))):
            data[int(rng.integers(0, n))] ^= 1 << int(rng.integers(0, 8))
    elif how == "truncate":
        del data[a:]
    elif how == "overwrite":
        data[a:b] = rng.bytes(b - a)
    elif how == "zero":
        data[a:b] = bytes(b - a)
    elif how == "insert":
        data[a:a] = rng.bytes(int(rng.integers(1, 64)))
    elif how == "cut":
        del data[a:b]
    return data


BAD_VALUES: list[Any] = [None, True, -1, 0, 2**70, 1e308, "", "text", "\ud800", "a\0b", [], [[]], {}, {"a": {"b": []}}]
BAD_TEXTS = ["NaN", "1e999", "-Infinity", "[" * 3000 + "]" * 3000, "[" * 90 + "]" * 90, '{"a": 1, "a": 2}', "1" * 5000]


def damage_json(file: Path, rng: np.random.Generator) -> str:
    """Change the JSON of a file, which stays JSON more often than not, and return how."""
    value = json.loads(file.read_text())
    spots = [(node, key) for node in _nodes(value) for key in (node if isinstance(node, dict) else range(len(node)))]
    node, key = spots[int(rng.integers(0, len(spots)))]
    how = str(rng.choice(["value", "value", "text", "rename", "delete", "twice"]))
    if how == "value":
        node[key] = BAD_VALUES[int(rng.integers(0, len(BAD_VALUES)))]
    elif how == "delete":
        del node[key]
    elif how == "rename" and isinstance(node, dict):
        node[f"{key}x"] = node.pop(key)
    else:
        node[key] = "@@"
    text = json.dumps(value)
    if how == "text":
        text = text.replace('"@@"', BAD_TEXTS[int(rng.integers(0, len(BAD_TEXTS)))])
    elif how == "twice":
        text = text.replace('"@@"', f'1, "{key}": 2')
    file.write_text(text)
    return f"{how} at {key}"


def _nodes(value: Any) -> list[Any]:
    if not isinstance(value, dict | list):
        return []
    children = value.values() if isinstance(value, dict) else value
    return ([value] if value else []) + [n for c in children for n in _nodes(c)]


def damage_hdf5(file: Path, rng: np.random.Generator) -> str:
    """Change a robomimic file through h5py, so that it stays a legal HDF5 file, and return how."""
    with h5py.File(file, "a") as f:
        names: list[str] = []
        f.visit(names.append)
        name = names[int(rng.integers(0, len(names)))]
        edits: dict[str, Callable[[], Any]] = _edits(f, name, rng)
        how = str(rng.choice(sorted(edits)))
        edits[how]()
    return f"{how} at {name}"


def _edits(f: h5py.File, name: str, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    values = f[name][()] if isinstance(f[name], h5py.Dataset) else None

    def put(new: Any, **options: Any) -> Callable[[], Any]:
        def edit() -> None:
            del f[name]
            f.create_dataset(name, data=new, **options)

        return edit

    def attribute(key: str, new: Any) -> Callable[[], Any]:
        return lambda: f["data"].attrs.__setitem__(key, new)

    def linked(link: Any) -> Callable[[], Any]:
        def edit() -> None:
            del f[name]
            f[name] = link

        return edit

    edits = {
        "gone": lambda: f.__delitem__(name),
        "renamed": lambda: f.move(name, name + "é"),
        "text": put("text"),
        "texts": put(np.array(["a", "b"] * 3, object), dtype=h5py.string_dtype()),
        "compound": put(np.zeros(4, [("a", "f4"), ("b", "i8")])),
        "complex": put(np.zeros(4, np.complex64)),
        "scalar": put(3.0),
        "no values": put(np.zeros((0, 3))),
        "no space": put(h5py.Empty("f4")),
        "huge": lambda: (f.__delitem__(name), f.create_dataset(name, (2**40,), "f4", chunks=(1024,))),
        "circle": linked(h5py.SoftLink("/")),
        "hard circle": lambda: (f.__delitem__(name), f.__setitem__(name, f["/"])),
        "dangling": linked(h5py.SoftLink("/nowhere")),
        "elsewhere": linked(h5py.ExternalLink("/etc/passwd", "/")),
        "group": lambda: (f.__delitem__(name), f.create_group(name)),
        "deep JSON": attribute("env_args", "[" * 5000),
        "JSON twice": attribute("env_args", '{"env_name": "a", "env_name": "b"}'),
        "JSON of a list": attribute("env_args", "[1]"),
        "wrong kwargs": attribute("env_args", '{"env_name": 3, "env_kwargs": [1]}'),
        "bytes": attribute("env_args", np.bytes_(b"\xff\xfe")),
        "array": attribute("env_args", np.arange(3)),
        "space": attribute("action_space", '{"type": "Discrete", "n": 1e30}'),
        "start": lambda: f[f"data/{next(iter(f['data']))}"].attrs.__setitem__("start_step", np.arange(3)),
    }
    if values is not None and values.dtype.kind in "iuf":
        edits |= {
            "longer": put(np.concatenate([values, values[:1]])),
            "transposed": put(values.T if values.ndim > 1 else values[None]),
            "float16": put(values.astype(np.float16)),
            "int8": put(values.astype(np.int8)),
            "big endian": put(values.astype(">f8")),
            "NaN": put(np.full(values.shape, np.nan)),
            "infinite": put(np.full(values.shape, np.inf, np.float32)),
            "large": put(np.full(values.shape, 2**62)),
        }
    return edits


# ----------------------------------------------------------------------------------------------- cases
def reseal(run: Path) -> None:
    """Do what a forger would: make the card agree with the files that are there."""
    from seqrl.core.files import sha256_of

    folder = run / "checkpoints" / "epoch_000003"
    try:
        card = json.loads((folder / "card.json").read_text())
        card.pop("checksum", None)
        card["files"] = {name: sha256_of(folder / name) for name in card["files"] if (folder / name).is_file()}
        (folder / "card.json").write_text(json.dumps(card))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return


def unseal(folder: Path) -> None:
    """Take the checksums out of a store's JSON, as an earlier version left it."""
    file = folder / "store.json"
    value = json.loads(file.read_text())
    value.pop("checksum", None)
    file.write_text(json.dumps(value))


class Case:
    """One damage of one kind of file, in a folder of its own.

    Attributes:
        kind: One of ``KINDS``.
        damage: What was done, in words.
        is_torn: Whether the end of a log was lost, which is what a crash leaves: what was committed last is gone.
    """

    def __init__(self, number: int, good: Path, folder: Path) -> None:
        self.rng = np.random.default_rng(number)
        self.kind = KINDS[number % len(KINDS)]
        self.is_torn = False
        self._contents = foreign_contents(folder / "executed")
        make = getattr(self, "_" + self.kind.replace(" ", "_"))
        self.read, self.path, self.damage = make(good, folder)

    def _store(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "store", folder / "store")
        return read_store, path, self._damage_one_of(path)

    def _edited_json(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "store", folder / "store")
        unseal(path)
        files = sorted(path.rglob("*.json"))
        file = files[int(self.rng.integers(0, len(files)))]
        return read_store, path, f"{file.name}: {damage_json(file, self.rng)}"

    def _own_hdf5(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = Path(shutil.copy(good / "own.hdf5", folder))
        return read_hdf5, path, damage_bytes(path, self.rng, self._contents)

    def _foreign_hdf5(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = Path(shutil.copy(good / "foreign.hdf5", folder))
        return read_hdf5, path, damage_bytes(path, self.rng, self._contents)

    def _edited_hdf5(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = Path(shutil.copy(good / str(self.rng.choice(["own.hdf5", "foreign.hdf5"])), folder))
        return read_hdf5, path, damage_hdf5(path, self.rng)

    def _checkpoint(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "run", folder / "run")
        return read_run, path, self._damage_one_of(path)

    def _forged_checkpoint(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "run", folder / "run")
        if self.rng.random() < 0.5:
            damage = self._damage_one_of(path)
        else:
            files = sorted(path.rglob("*.json"))
            file = files[int(self.rng.integers(0, len(files)))]
            damage = f"{file.name}: {damage_json(file, self.rng)}"
        reseal(path)
        return read_run, path, damage

    def _config(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = Path(shutil.copy(good / "config.json", folder))
        if self.rng.random() < 0.5:
            return read_config, path, damage_bytes(path, self.rng, self._contents)
        return read_config, path, damage_json(path, self.rng)

    def _damage_one_of(self, path: Path) -> str:
        files = sorted(f for f in path.rglob("*") if f.is_file() and f.name != "lock")
        file = files[int(self.rng.integers(0, len(files)))]
        before = file.read_bytes()
        how = damage_bytes(file, self.rng, self._contents)
        if file.name == "commits.jsonl" and file.is_file():
            after = file.read_bytes()
            whole = after[: after.rfind(b"\n") + 1]
            self.is_torn = len(whole) < len(before) and before.startswith(whole)
        return f"{file.relative_to(path)}: {how}"


def outcome(case: Case, wanted: dict[str, list[int]], marker: Path) -> str:
    """Return ``error``, ``equal``, ``torn`` or ``other``; anything else is a failure, in words."""
    try:
        found = case.read(case.path)
    except SeqrlError:
        result = "error"
    except BaseException as error:
        result = f"raised {type(error).__name__}: {str(error)[:300]}"
    else:
        if found == wanted.get(case.kind):
            result = "equal"
        elif case.kind not in CHECKED:
            result = "other"
        elif case.is_torn and found[0] == wanted[case.kind][0] and set(found) < set(wanted[case.kind]):
            result = "torn"
        else:
            result = "loaded wrong data"
    return "executed code" if marker.exists() else result


def say(line: dict[str, Any]) -> None:
    """Write a line of JSON that is there even if the process ends in the next instant."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(folder: Path, first: int, end: int) -> None:
    """Run the cases from ``first`` to before ``end``."""
    import logging

    logging.disable(logging.WARNING)
    os.fsync = lambda handle: None  # durability is not tested here
    good = folder / "good"
    if not (good / "config.json").exists():
        make_good_files(good)
    os.environ["SEQRL_CACHE_DIR"] = str(folder / "cache")
    wanted = {"store": read_store(good / "store"), "own hdf5": read_hdf5(good / "own.hdf5")}
    wanted |= {"checkpoint": read_run(good / "run"), "config": read_config(good / "config.json")}
    read_hdf5(good / "foreign.hdf5")
    for number in range(first, end):
        place = folder / f"case_{number}"
        place.mkdir()
        os.environ["SEQRL_CACHE_DIR"] = str(place / "cache")
        say({"case": number})
        case = Case(number, good, place)
        faulthandler.dump_traceback_later(SECONDS_PER_CASE, exit=True)  # also where a C library hangs
        result = outcome(case, wanted, place / "executed")
        faulthandler.cancel_dump_traceback_later()
        say({"kind": case.kind, "damage": case.damage, "outcome": result})
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
