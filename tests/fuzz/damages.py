"""A thousand ways in which files are damaged."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from safetensors.torch import load_file, save_file


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


def damage_tensors(file: Path, rng: np.random.Generator) -> str:
    """Change the tensors of a safetensors file, which stays one, and return how."""
    tensors = load_file(file)
    name = sorted(tensors)[int(rng.integers(0, len(tensors)))]
    old = tensors[name]
    changes: dict[str, Callable[[], Any]] = {
        "gone": lambda: tensors.pop(name),
        "renamed": lambda: tensors.__setitem__(f"{name}x", tensors.pop(name)),
        "number": lambda: tensors.__setitem__("9999.exp_avg", old.clone()),
        "no number": lambda: tensors.__setitem__("exp_avg", old.clone()),
        "integers": lambda: tensors.__setitem__(name, old.to(torch.int64)),
        "doubles": lambda: tensors.__setitem__(name, old.to(torch.float64)),
        "flat": lambda: tensors.__setitem__(name, old.reshape(-1).clone()),
        "scalar": lambda: tensors.__setitem__(name, torch.tensor(1.0)),
        "longer": lambda: tensors.__setitem__(name, torch.cat([old.reshape(-1), torch.ones(1, dtype=old.dtype)])),
        "empty": lambda: tensors.__setitem__(name, old.reshape(-1)[:0].clone()),
        "none": tensors.clear,
    }
    how = str(rng.choice(sorted(changes)))
    changes[how]()
    save_file(tensors, file)
    return f"{how} at {name}"


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
