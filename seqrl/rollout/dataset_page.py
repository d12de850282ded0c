"""What ``seqrl get-dataset-info`` says of a dataset, as values and as a page."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from PIL import Image

from seqrl.core.nested_spaces import action_names
from seqrl.core.types import Trajectory
from seqrl.data.mixture import Source
from seqrl.data.statistics import column_stats
from seqrl.data.store import Store
from seqrl.reports.console import format_count, format_megabytes
from seqrl.reports.dataset_page import DatasetPage, Histogram, write_dataset_page
from seqrl.rollout.playback import image_keys, image_limits
from seqrl.rollout.video import as_picture

MOST_ACTIONS = 200_000
"""Steps whose actions are drawn."""
MOST_CHARTS = 32
MOST_ROWS = 1000
NUM_STRIPS, NUM_TILES = 6, 11
_TILE = 96


def spread(values: np.ndarray) -> dict[str, float]:
    """Return least, mean and greatest of an array."""
    return {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}


def describe_dataset(dataset: str, store: Store, numbers: np.ndarray) -> dict[str, Any]:
    """Return name -> value of what a dataset holds.

    Args:
        dataset: As it was given.
        store: Of it.
        numbers: Episodes to describe.
    """
    info, lengths = store.info, store.length[numbers]
    is_whole = len(numbers) == len(store)
    return {
        "dataset": dataset,
        "environment": info.env_id,
        "environment arguments": info.env_kwargs,
        "trajectories": len(numbers),
        "transitions": int(lengths.sum()),
        "size (MB)": store.num_bytes / 1e6 * (1 if is_whole else float(lengths.sum() / store.num_transitions)),
        "length": spread(lengths),
        "return": spread(store.total_reward[numbers]),
        "observations": {k: f"{d} {list(s)}" for k, (d, s) in store.schema.items() if k.startswith("obs/")},
        "actions": str(info.action_space),
        "true next observations": info.has_next_obs,
        "filter keys": {k: len(v) for k, v in info.filters.items()},
    }


def write_page_of(file: Path, dataset: str, store: Store, numbers: np.ndarray) -> None:
    """Write a page about some episodes of a dataset; at most one of them is in memory at a time.

    Args:
        file: To write.
        dataset: As it was given.
        store: Of it.
        numbers: Episodes to describe.
    """
    info = store.info
    lengths, returns = store.length[numbers], store.total_reward[numbers]
    actions, note = _actions(store, numbers)
    charts = _action_charts(actions, info.action_space)
    if len(charts) > MOST_CHARTS:
        note += f"; the first {MOST_CHARTS} of {len(charts)} components"
    columns, rows = _episodes(store, numbers)
    page = DatasetPage(
        title=Path(dataset).name,
        subtitle=f"{info.env_id or 'no environment named'}; actions: {info.action_space}",
        facts={
            "episodes": format_count(len(numbers)),
            "steps": format_count(int(lengths.sum())),
            "on disk": format_megabytes(describe_dataset(dataset, store, numbers)["size (MB)"]),
            "mean return": f"{returns.mean():.4g}",
            "best return": f"{returns.max():.4g}",
            "mean length": f"{lengths.mean():.4g}",
        },
        episodes=[Histogram("returns", returns, "return"), Histogram("lengths", lengths, "steps")],
        actions=charts[:MOST_CHARTS],
        actions_note=note,
        columns=("entry", "dtype and shape", "least", "mean", "greatest"),
        observations=_observations(store, numbers),
        strips=_strips(store, numbers),
        episode_columns=columns,
        episode_rows=rows,
        episode_note="" if len(numbers) <= MOST_ROWS else f"The first {MOST_ROWS} of {len(numbers)} episodes.",
    )
    write_dataset_page(file, page)


def _actions(store: Store, numbers: np.ndarray) -> tuple[np.ndarray, str]:
    """Return actions of whole episodes, evenly spaced where there are too many, and a sentence about them."""
    total = int(store.length[numbers].sum())
    chosen = numbers[:: math.ceil(total / MOST_ACTIONS)]
    rows = np.concatenate([store.trajectory(int(n)).actions for n in chosen])
    note = f"All {total} steps" if len(chosen) == len(numbers) else f"{len(rows)} steps of {len(chosen)} episodes"
    return rows, note


def _action_charts(actions: np.ndarray, space: spaces.Space[Any]) -> list[Histogram]:
    if isinstance(space, spaces.Discrete):
        return [Histogram("action", actions - int(space.start), "number of the action", int(space.n))]
    columns = actions.reshape(len(actions), -1).T
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return [Histogram(name, c, "value", 0) for name, c in zip(action_names(space), columns, strict=True)]
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = np.ravel(space.nvec), np.ravel(space.start)
        parts = zip(columns, sizes, starts, strict=True)
        return [Histogram(f"component {i}", c - s, "number", int(n)) for i, (c, n, s) in enumerate(parts)]
    is_binary = isinstance(space, spaces.MultiBinary)
    return [Histogram(f"component {i}", c, "value", 2 if is_binary else 0) for i, c in enumerate(columns)]


def _observations(store: Store, numbers: np.ndarray) -> list[list[str]]:
    rows = []
    for name, (dtype, shape) in store.schema.items():
        if not name.startswith("obs/"):
            continue
        stats = column_stats([Source(store, numbers)], name)
        values = (stats.min.min(), stats.mean.mean(), stats.max.max())
        rows.append([name[4:], f"{dtype} {list(shape)}", *(f"{float(v):.4g}" for v in values)])
    return rows


def _episodes(store: Store, numbers: np.ndarray) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of the table of episodes."""
    filters = {key: set(names) for key, names in store.info.filters.items()}
    rows = []
    for number in numbers[:MOST_ROWS]:
        name, trajectory = store.names[number], store.trajectory(int(number))
        keys = ", ".join(key for key, names in filters.items() if name in names)
        shown = (store.name_of(int(number)), str(len(trajectory)), f"{store.total_reward[number]:.4g}")
        rows.append([*shown, _ending(trajectory), *([keys] if filters else [])])
    return ["episode", "steps", "return", "ended by", *(["filter keys"] if filters else [])], rows


def _ending(trajectory: Trajectory) -> str:
    if trajectory.terminated[-1]:
        return "termination"
    return "truncation" if trajectory.truncated[-1] else "being cut"


def _strips(store: Store, numbers: np.ndarray) -> dict[str, bytes]:
    """Return images of a few episodes, evenly spaced in the data and in time."""
    strips: dict[str, bytes] = {}
    keys = image_keys(store)
    places = np.unique(np.linspace(0, len(numbers) - 1, NUM_STRIPS).astype(int))
    for number in numbers[places] if keys else ():
        trajectory = store.trajectory(int(number))
        steps = np.unique(np.linspace(0, len(trajectory), NUM_TILES).astype(int))
        for key in keys:
            limits = image_limits(trajectory.obs[key])
            tiles = [_tile(as_picture(trajectory.obs[key][t], limits)) for t in steps]
            data = io.BytesIO()
            Image.fromarray(np.concatenate(tiles, axis=1)).save(data, "PNG")
            strips[f"{store.name_of(int(number))}, {key}, steps {', '.join(map(str, steps))}"] = data.getvalue()
    return strips


def _tile(picture: np.ndarray) -> np.ndarray:
    """Return a picture of a strip's height, and a line to its right."""
    height, width = picture.shape[:2]
    size = (max(1, round(width * _TILE / height)), _TILE)
    tile = np.asarray(
        Image.fromarray(picture).resize(size, Image.Resampling.BOX if height > _TILE else Image.Resampling.NEAREST)
    )
    return np.pad(tile, ((0, 0), (0, 2), (0, 0)), constant_values=255)
