"""The actions of a robomimic file by their parts: positions, rotations, gripper."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.rotations import six_numbers
from seqrl.data.hdf5_file import foreign_file
from seqrl.data.in_place import changed_in_place
from seqrl.data.readers.robomimic import ACTION_DICT, naming, natural_order, own_names, own_values

PREFIXES = {"actions": "rel_", "actions_abs": "abs_"}
"""Dataset of an episode -> how the names of its parts begin."""
_ARM_WIDTH = 7


def extract_action_dict(path: Path, *, overwrite: bool = False) -> list[str]:
    """Add ``action_dict`` to every episode of a robomimic file, and return the names in it.

    Actions of 7 numbers are a position, a rotation (axis-angle) and a gripper: ``rel_pos`` ``(T, 3)``,
    ``rel_rot_axis_angle`` ``(T, 3)``, ``rel_rot_6d`` ``(T, 6)`` and ``gripper`` ``(T, 1)``. Those of ``actions_abs``,
    where the file has it, begin with ``abs_``. Of actions of 14 numbers, of two arms, the names begin with ``robot0_``
    and ``robot1_``.

    Args:
        path: The file, which is changed in place.
        overwrite: Replace what is in ``action_dict`` under these names.

    Raises:
        DataError: If the file is damaged, its actions are of another width, or a name is taken.
    """
    path = path.expanduser().resolve()
    if not path.is_file():
        raise DataError(f"{path} is not a file; only robomimic files have an action_dict")
    with naming(path), foreign_file(path) as file:
        names = sorted(own_names(file["data"]), key=natural_order)
        parts = {name: _parts(file["data"][name], overwrite=overwrite) for name in names}
    if not parts:
        raise DataError(f"{path}: the group 'data' holds no episodes")
    more_bytes = sum(values.nbytes for demo in parts.values() for values in demo.values())
    with changed_in_place(path, ACTION_DICT, more_bytes=more_bytes) as file:
        for name, demo in parts.items():
            group = file["data"][name].require_group(ACTION_DICT)
            for key, values in demo.items():
                if key in group:
                    del group[key]
                group[key] = values
    return list(parts[names[0]])


def _parts(demo: h5py.Group, *, overwrite: bool) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for dataset, prefix in PREFIXES.items():
        if dataset == "actions" or dataset in own_names(demo):
            parts = _split(own_values(demo, dataset), prefix, f"{demo.name}/{dataset}")
            found |= {key: values for key, values in parts.items() if key not in found}  # one gripper for both
    taken = found.keys() & set(own_names(demo[ACTION_DICT]) if ACTION_DICT in own_names(demo) else ())
    if taken and not overwrite:
        raise DataError(f"{demo.name}: {ACTION_DICT} has {min(taken)} already; pass --overwrite to replace it")
    return found


def _split(actions: np.ndarray, prefix: str, where: str) -> dict[str, np.ndarray]:
    if actions.ndim != 2 or actions.shape[1] not in (_ARM_WIDTH, 2 * _ARM_WIDTH) or actions.dtype.kind != "f":
        raise DataError(
            f"{where} is {actions.dtype} {actions.shape}; floats of 7 numbers, or 14 of two arms, can be split"
        )
    arms = np.split(actions, actions.shape[1] // _ARM_WIDTH, axis=1)
    found: dict[str, np.ndarray] = {}
    for number, arm in enumerate(arms):
        robot = f"robot{number}_" if len(arms) > 1 else ""
        position, rotation, gripper = np.split(arm, [3, 6], axis=1)
        found |= {
            f"{robot}{prefix}pos": position,
            f"{robot}{prefix}rot_axis_angle": rotation,
            f"{robot}{prefix}rot_6d": six_numbers(rotation).astype(actions.dtype),
            f"{robot}gripper": gripper,
        }
    return found
