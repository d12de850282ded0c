"""From the states of a simulator to what is observed in them: demonstrations become data that policies can read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import numpy as np

from seqrl.core.errors import DataError, EnvError
from seqrl.core.files import new_file, require_space, write_json
from seqrl.core.spaces import flatten_obs
from seqrl.core.strict_json import parse_json
from seqrl.data.hdf5_file import foreign_file, own_file
from seqrl.data.readers.robomimic import ROBOSUITE, as_text, environment_id, naming, natural_order, own_values
from seqrl.data.robosuite_raw import env_args_of
from seqrl.envs.infos import has_succeeded, is_success
from seqrl.envs.make import make_env
from seqrl.rollout.playback import goes_to_states

Said = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Wanted:
    """What is made of every state.

    Attributes:
        env_id: Environment.
        env_kwargs: Its arguments.
        done_mode: As in robomimic: 0 marks success, 1 the last step, 2 both.
        copies_rewards: Take the rewards of the file; else 1 where the task is solved.
        is_shaped: Take the environment's own rewards (``get_reward``).
        copies_dones: Take the ``dones`` of the file.
        has_next_obs: Write ``next_obs`` too.
        is_compressed: Compress the observations.
        plugins: Files or modules to import first, in each process.
    """

    env_id: str
    env_kwargs: dict[str, Any]
    done_mode: int = 0
    copies_rewards: bool = False
    is_shaped: bool = False
    copies_dones: bool = False
    has_next_obs: bool = True
    is_compressed: bool = False
    plugins: tuple[str, ...] = ()


def environment_of(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the id and the arguments of the environment that a robomimic file names.

    Raises:
        DataError: If the file is damaged, or names none.
    """
    with naming(path), foreign_file(path) as file:
        args = env_args_of(file["data"])
    if not isinstance(args, dict) or not isinstance(env_id := environment_id(args), str):
        raise DataError(f"{path} names no environment (env_args); give one with --env")
    return env_id, args.get("env_kwargs") or {}


def demos_of(path: Path, filter_key: str | None = None) -> list[str]:
    """Return the names of the demonstrations that have states and actions, in natural order.

    Raises:
        DataError: If the file is damaged, has no such filter, or one of them lacks states.
    """
    with naming(path), foreign_file(path) as file:
        names = sorted(file["data"], key=natural_order)
        if filter_key is not None:
            masks = file.get("mask", {})
            if filter_key not in masks:
                raise DataError(f"{path}: no filter key {filter_key!r}; it has: {', '.join(masks) or 'none'}")
            chosen = {as_text(name) for name in masks[filter_key][()]}
            names = [name for name in names if name in chosen]
        for name in names:
            if missing := sorted({"states", "actions"} - set(file["data"][name])):
                raise DataError(f"{path}: {name} lacks {', '.join(missing)}")
    return names


def states_to_obs(
    source: Path, target: Path, demos: Sequence[str], wanted: Wanted, *, num_workers: int = 1, said: Said | None = None
) -> int:
    """Write a robomimic file with what is observed in every state, and return its number of episodes.

    Each demonstration that is done is kept beside the target, so that the same call goes on where one was interrupted.
    The target appears when it is whole.

    Args:
        source: Robomimic file with ``states`` and ``actions``.
        target: File to write.
        demos: Names of demonstrations.
        wanted: What to make of them.
        num_workers: Processes; each has an environment of its own.
        said: Called after each with how many are done, of how many, and the name.

    Raises:
        DataError: If the source is damaged.
        EnvError: If the environment cannot be made, or has no ``reset_to``.
    """
    parts = _parts_of(source, target, wanted)
    missing = [name for name in demos if not (parts / f"{name}.hdf5").is_file()]
    num_done = len(demos) - len(missing)
    tasks = [(source, parts, wanted, name) for name in missing]
    with contextlib.ExitStack() as stack:
        if num_workers > 1:
            pool = ProcessPoolExecutor(num_workers, multiprocessing.get_context("spawn"))
            stack.callback(pool.shutdown, cancel_futures=True)
            finished: Iterable[str] = (f.result() for f in as_completed([pool.submit(_one, t) for t in tasks]))
        else:
            stack.callback(_close_environments)
            finished = map(_one, tasks)
        try:
            for name in finished:
                num_done += 1
                if said is not None:
                    said(num_done, len(demos), name)
        except BrokenProcessPool as error:
            raise EnvError(
                f"a process that plays demonstrations died (out of memory?) after {num_done} of {len(demos)}; the same "
                "command goes on from there, with fewer processes if need be"
            ) from error
    _join(source, target, parts, demos, wanted)
    shutil.rmtree(parts)
    return len(demos)


def _parts_of(source: Path, target: Path, wanted: Wanted) -> Path:
    """Return the folder of what is done already; it begins anew where the source or the settings are others."""
    parts, now = target.with_name(f".{target.name}.parts"), source.stat()
    settings = {**dataclasses.asdict(wanted), "source": [str(source.resolve()), now.st_size, now.st_mtime_ns]}
    told = json.loads(json.dumps(settings))
    file = parts / "settings.json"
    if not file.is_file() or parse_json(file.read_text(encoding="utf-8")) != told:
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir(parents=True)
        write_json(file, told)
    return parts


_ENVS: dict[str, gym.Env[Any, Any]] = {}
"""Environment of this process, by what it was made of."""


def _env_of(wanted: Wanted) -> gym.Env[Any, Any]:
    key = repr((wanted.env_id, wanted.env_kwargs))
    if key not in _ENVS:
        env = make_env(wanted.env_id, wanted.env_kwargs, plugins=wanted.plugins)
        if not goes_to_states(env):
            env.close()
            raise EnvError(f"environment {wanted.env_id!r} has no reset_to(state), so it cannot take stored states")
        if wanted.is_shaped and not env.has_wrapper_attr("get_reward"):
            env.close()
            raise EnvError(f"environment {wanted.env_id!r} has no get_reward(), which --shaped asks for")
        _ENVS[key] = env
    return _ENVS[key]


def _close_environments() -> None:
    while _ENVS:
        _ENVS.popitem()[1].close()


def _one(task: tuple[Path, Path, Wanted, str]) -> str:
    """Write what is observed in one demonstration to a file of its own."""
    source, parts, wanted, name = task
    env = _env_of(wanted)
    with naming(source), foreign_file(source) as file:
        demo = file["data"][name]
        states, actions = own_values(demo, "states"), own_values(demo, "actions")
        if not len(states) or len(states) != len(actions):
            raise DataError(f"{source}: {name} has {len(states)} states and {len(actions)} actions")
        model = demo.attrs.get("model_file")
        given = {k: own_values(demo, k) for k in ("rewards", "dones") if k in demo}
    rows, solved, paid = _observed(env, states, actions, None if model is None else as_text(model))
    rewards = given.get("rewards") if wanted.copies_rewards else paid if wanted.is_shaped else solved.astype(np.float64)
    dones = given.get("dones") if wanted.copies_dones else _dones(solved, wanted.done_mode)
    if rewards is None or dones is None:
        raise DataError(f"{source}: {name} has no rewards, or no dones, to copy")
    options = {"compression": "gzip"} if wanted.is_compressed else {}
    with new_file(parts / f"{name}.hdf5") as temporary, own_file(temporary, "w") as out:
        for key in rows[0]:
            values = np.stack([row[key] for row in rows])
            out.create_dataset(f"obs/{key}", data=values[:-1], **options)
            if wanted.has_next_obs:
                out.create_dataset(f"next_obs/{key}", data=values[1:], **options)
        out["rewards"], out["dones"] = rewards, dones
    return name


def _observed(
    env: gym.Env[Any, Any], states: np.ndarray, actions: np.ndarray, model: str | None
) -> tuple[list[dict[str, np.ndarray]], np.ndarray, np.ndarray]:
    """Return T + 1 observations, whether the task was solved after each of T actions, and what each earned.

    The last one is what the last action leads to; all others are those of the stored states. Without ``get_reward``,
    only the last reward is known; the others are NaN.
    """
    reset_to, space = env.get_wrapper_attr("reset_to"), env.observation_space
    is_solved = env.get_wrapper_attr("is_success") if env.has_wrapper_attr("is_success") else None
    get_reward = env.get_wrapper_attr("get_reward") if env.has_wrapper_attr("get_reward") else None
    env.reset()
    rows, solved, paid = [flatten_obs(space, reset_to({"model": model, "states": states[0]}))], [], []
    for state in states[1:]:
        rows.append(flatten_obs(space, reset_to({"states": state})))
        solved.append(is_solved is not None and is_success(is_solved()))
        paid.append(np.nan if get_reward is None else float(get_reward()))
    obs, reward, _, _, info = env.step(actions[-1])
    rows.append(flatten_obs(space, obs))
    told = has_succeeded(info)
    solved.append(told or (is_solved is not None and is_success(is_solved())))
    paid.append(float(reward))
    return [{k: np.array(v) for k, v in row.items()} for row in rows], np.array(solved, bool), np.array(paid)


def _dones(solved: np.ndarray, mode: int) -> np.ndarray:
    last = np.arange(len(solved)) == len(solved) - 1
    chosen: dict[int, np.ndarray] = {0: solved, 1: last, 2: solved | last}
    return chosen[mode].astype(np.int64)


_OUTDATED = ("observation_space", "spaces_are_known", "total", "env_args")
"""Attributes that were about the observations of the source."""


def _env_args(data: h5py.Group, wanted: Wanted) -> str:
    """Return the attribute ``env_args`` for what the observations were made in."""
    old = env_args_of(data)
    if not isinstance(old, dict) or environment_id(old) != wanted.env_id:
        is_robosuite = wanted.env_id.startswith(ROBOSUITE)
        old = {"env_name": wanted.env_id.removeprefix(ROBOSUITE), "type": 1 if is_robosuite else 2}
    return json.dumps({**old, "env_kwargs": wanted.env_kwargs}, indent=4)


def _join(source: Path, target: Path, parts: Path, demos: Sequence[str], wanted: Wanted) -> None:
    """Write the demonstrations as one file, with all that the source holds beside observations, rewards and ends."""
    made = ("obs", "next_obs", "rewards", "dones")
    require_space(target.parent, sum((parts / f"{name}.hdf5").stat().st_size for name in demos))
    with (
        new_file(target) as temporary,
        naming(source),
        foreign_file(source) as file,
        own_file(temporary, "w") as out,
    ):
        data, total = out.create_group("data"), 0
        data.attrs.update({k: v for k, v in file["data"].attrs.items() if k not in _OUTDATED})
        data.attrs["env_args"] = _env_args(file["data"], wanted)
        for name in demos:
            demo, new = file["data"][name], data.create_group(name)
            new.attrs.update(demo.attrs)
            for key in demo:
                if key not in made:
                    demo.copy(key, new)
            with own_file(parts / f"{name}.hdf5", "r") as part:
                for key in part:
                    part.copy(key, new)
            new.attrs["num_samples"] = len(new["actions"])
            total += len(new["actions"])
        data.attrs["total"] = total
        for key, names in file.get("mask", {}).items():
            chosen = [name for name in names[()] if as_text(name) in demos]
            out[f"mask/{key}"] = np.array(chosen, "S")
