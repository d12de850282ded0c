"""What robosuite's data collection writes: states and actions without observations, and its own name of the task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py

from seqrl.core.errors import DataError
from seqrl.core.files import new_file
from seqrl.core.strict_json import parse_json
from seqrl.data.hdf5_file import foreign_file, own_file
from seqrl.data.readers.robomimic import as_text, naming, natural_order, own_names, own_values
from seqrl.data.robomimic_rest import copy_missing

_OF_A_WINDOW = ("env_name", "has_renderer", "has_offscreen_renderer", "renderer", "render_camera")
"""In ``env_info``, but no matter of the environment's."""


def is_raw(path: Path) -> bool:
    """Tell whether a file is what robosuite collected, and no tool of robomimic has changed it."""
    try:
        with foreign_file(path) as file:
            return "data" in list(file) and "env_args" not in file["data"].attrs and "env" in file["data"].attrs
    except (OSError, RuntimeError, ValueError, AttributeError, LookupError):
        return False


def env_args_of(data: h5py.Group) -> Any:
    """Return the environment that the group ``data`` names, as robomimic's ``env_args``; None if it names none.

    Raises:
        DataError: If an attribute is not the JSON of an object.
    """
    name = next((key for key in ("env_args", "env_info") if key in data.attrs), None)
    if name is None or (name == "env_info" and "env" not in data.attrs):
        return None
    try:
        told = parse_json(as_text(data.attrs[name]))
    except ValueError as error:
        raise DataError(f"the attribute {name!r} of 'data' is not JSON ({error})") from error
    if name == "env_args":
        return told
    if not isinstance(told, dict):
        raise DataError("the attribute 'env_info' of 'data' is not a JSON object")
    kwargs = {k: v for k, v in told.items() if k not in _OF_A_WINDOW}
    version = as_text(data.attrs.get("repository_version", "unknown"))
    return {"env_name": as_text(data.attrs["env"]), "type": 1, "env_version": version, "env_kwargs": kwargs}


def write_robomimic_of_raw(source: Path, target: Path) -> int:
    """Write what robosuite collected as a robomimic file without observations, and return its number of episodes.

    All that the source holds is kept; ``env_args``, ``total`` and ``num_samples`` are added.

    Raises:
        DataError: If the source is damaged.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        new_file(target) as temporary,
        naming(source, "file of robosuite's"),
        foreign_file(source) as file,
        own_file(temporary, "w") as out,
    ):
        data, total = out.create_group("data"), 0
        names = sorted(own_names(file["data"]), key=natural_order)
        if not names:
            raise DataError("the group 'data' holds no episodes")
        data.attrs["env_args"] = json.dumps(env_args_of(file["data"]), indent=4)
        for name in names:
            demo = file["data"][name]
            lengths = [len(own_values(demo, key)) for key in ("states", "actions")]
            if lengths[0] != lengths[1]:
                raise DataError(f"{name} has {lengths[0]} states and {lengths[1]} actions")
            data.create_group(name).attrs["num_samples"] = lengths[0]
            copy_missing(demo, data[name], ())
            total += lengths[0]
        data.attrs["total"] = total
        copy_missing(file["data"], data, ())
        copy_missing(file, out, ("data",))
    return len(names)
