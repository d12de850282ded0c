"""Checks of all but the actions. Each sees every episode once, and says at the end what holds for all."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import SeqrlError
from seqrl.core.obs_entry import UNIT_LIMIT
from seqrl.core.spaces import obs_specs
from seqrl.data.validation.findings import Findings
from seqrl.data.validation.raw import FLAT, RawDataset, RawEpisode

_SAME_IN_ALL = ("obs/", "next_obs/", "goal/", "actions", "action_mask")
_MIN_EPISODES = 5


def _describe(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape[1:])}"


class LayoutCheck:
    """Every episode has the same entries, of the same dtype and shape, with one row per step."""

    def __init__(self, observation_space: spaces.Space[Any] | None) -> None:
        self._space = observation_space
        self._names: list[str] = []
        self._forms: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._shapes: dict[str, Counter[tuple[int, ...]]] = defaultdict(Counter)

    def episode(self, episode: RawEpisode, found: Findings) -> bool:
        """Return whether the episode's arrays can be looked into."""
        self._names.append(episode.name)
        for key, why in episode.faults.items():
            found.problem("unreadable", f"{key} cannot be read", f"{episode.name} ({why})")
            self._forms[key]["unreadable"].append(episode.name)
        problems = self._missing(episode)
        for key, array in episode.arrays.items():
            if array.dtype.kind not in "biuf":
                problems.append(f"{key} is {array.dtype}, not numbers")
            elif array.ndim == 0 and key != "prev_action":
                problems.append(f"{key} has no rows")
            elif key in FLAT and array.ndim != 1:
                problems.append(f"{key} has rows of shape {list(array.shape[1:])}, not one number each")
                self._forms[key]["there"].append(episode.name)
            else:
                problems += self._rows(episode, key, array)
                self._note(episode, key, array)
        problems += _next_obs_problems(episode)
        for text in problems:
            found.problem("layout", text, episode.name)
        return not problems and not episode.faults

    def _missing(self, episode: RawEpisode) -> list[str]:
        if "it" in episode.faults:
            return []
        there = [*episode.arrays, *episode.faults]
        problems = [] if "actions" in there else ["has no actions"]
        if episode.steps == 0:
            problems.append("has no steps")
        return problems + ([] if any(key.split("/")[0] == "obs" for key in there) else ["has no obs"])

    def _rows(self, episode: RawEpisode, key: str, array: np.ndarray) -> list[str]:
        if not episode.steps or key in ("actions", "prev_action"):
            return []
        extra = 1 if key.startswith("goal/") or key == "action_mask" else 0
        if len(array) == episode.steps + extra:
            return []
        return [f"{key} does not have one row per {'input' if extra else 'action'}"]

    def _note(self, episode: RawEpisode, key: str, array: np.ndarray) -> None:
        self._forms[key][_describe(array) if key.startswith(_SAME_IN_ALL) else "there"].append(episode.name)
        self._shapes[key][array.shape[1:]] += 1

    def finish(self, found: Findings) -> None:
        """Compare the episodes with each other, and with the observation space."""
        for key, forms in sorted(self._forms.items()):
            if key == "it":
                continue
            usual = max(forms, key=lambda form: len(forms[form]))
            for form in forms.keys() - {usual, "unreadable"}:
                for name in forms[form]:
                    found.problem("mixed", f"{key} is {form}, elsewhere {usual}", name)
            self._absent(key, {name for names in forms.values() for name in names}, found)
        if self._names and not any(key.startswith("next_obs/") for key in self._forms):
            found.warning(
                "next_obs",
                "no episode has next_obs: the last observation is repeated, and only imitation without subgoals can "
                "use it",
            )
        for key, meaning in (("rewards", "rewards are read as 0"), ("dones", "ends are read as time limits")):
            if self._names and key not in self._forms:
                found.warning("missing", f"no episode has {key}: {meaning}")
        self._compare_space(found)

    def _absent(self, key: str, there: set[str], found: Findings) -> None:
        for name in self._names:
            if name in there or name in self._forms["it"].get("unreadable", ()):
                continue
            if key.startswith(("obs/", "goal/")) or key == "action_mask":
                found.problem("mixed", f"{key} is missing, but other episodes have it", name)
            elif key.startswith("next_obs/") or key in ("rewards", "dones"):
                found.warning("mixed", f"{key} is missing, but other episodes have it", name)

    def _compare_space(self, found: Findings) -> None:
        if self._space is None or not self._names:
            return
        try:
            expected = {f"obs/{name}": spec.shape for name, spec in obs_specs(self._space).items()}
        except SeqrlError as error:
            found.problem("space", str(error))
            return
        got = {key: count.most_common(1)[0][0] for key, count in self._shapes.items() if key.startswith("obs/")}
        for key in sorted(expected.keys() | got.keys()):
            if expected.get(key) != got.get(key):
                texts = ["absent" if e.get(key) is None else str(list(e[key])) for e in (got, expected)]
                found.problem("space", f"{key} is {texts[0]} in the data and {texts[1]} in the observation space")


def _next_obs_problems(episode: RawEpisode) -> list[str]:
    obs, after = episode.entries("obs"), episode.entries("next_obs")
    if not after:
        return []
    problems = []
    if obs.keys() != after.keys():
        problems.append(f"obs and next_obs differ in {', '.join(sorted(obs.keys() ^ after.keys()))}")
    problems += [
        f"next_obs/{k} is {_describe(after[k])}, and obs/{k} is {_describe(obs[k])}"
        for k in obs.keys() & after.keys()
        if _describe(obs[k]) != _describe(after[k])
    ]
    return problems


class NextObsCheck:
    """The next observation of a step is the observation of the next step, up to the rounding of floats."""

    def episode(self, episode: RawEpisode, found: Findings) -> None:
        """Compare them, and name the first step where they differ."""
        if (steps := episode.steps or 0) < 2:
            return
        obs, differs = episode.entries("obs"), np.zeros(steps - 1, bool)
        for name, after in episode.entries("next_obs").items():
            told, seen = after[:-1], obs[name][1:]
            rounds = told.dtype.kind == "f"
            same = np.isclose(told, seen, rtol=1e-4, atol=1e-6, equal_nan=True) if rounds else told == seen
            differs |= ~same.reshape(len(differs), -1).all(1)
        if differs.any():
            text = "next_obs is not the obs of the next step; only the last of an episode is read"
            place = f"{episode.name} step {int(differs.argmax())} ({differs.sum()} of {len(differs)} differ)"
            found.warning("next_obs", text, place)


class ValueCheck:
    """Every number is finite."""

    def episode(self, episode: RawEpisode, found: Findings) -> None:
        """Look at every array of floats."""
        for key, array in episode.arrays.items():
            if array.dtype.kind != "f" or np.isfinite(array).all():
                continue
            kinds = [name for name, is_it in (("NaN", np.isnan), ("infinity", np.isinf)) if is_it(array).any()]
            step = int(np.argwhere(~np.isfinite(array))[0][0]) if array.ndim else 0
            found.problem("not finite", f"{key} holds {' and '.join(kinds)}", f"{episode.name} step {step}")


class EndCheck:
    """An episode ends once, at its last step, and not always because of a time limit."""

    def __init__(self) -> None:
        self._lengths: Counter[int] = Counter()
        self._num_terminated = 0
        self._has_truncated = False

    def episode(self, episode: RawEpisode, found: Findings) -> None:
        """Look at the ends and rewards of an episode whose layout is sound."""
        steps = len(episode.arrays["actions"])
        self._lengths[steps] += 1
        if steps == 1:
            found.warning("short", "has only one step", episode.name)
        dones = episode.arrays.get("dones", np.zeros(steps)).astype(bool)
        truncated = episode.arrays.get("truncated")
        self._num_terminated += bool(dones[-1])
        self._has_truncated |= truncated is not None
        ends = np.flatnonzero(dones if truncated is None else dones | truncated.astype(bool))
        if not len(ends) or ends[0] == steps - 1:
            return
        after = episode.arrays.get("rewards", np.zeros(steps))[ends[0] + 1 :]
        place = f"{episode.name} step {ends[0]}, then {len(after)} steps with a reward of {after.sum():.4g}"
        if truncated is None:
            found.warning("after the end", "continues after 'dones', of which only the last step is read", place)
        else:
            found.problem("after the end", "continues after its end", place)

    def finish(self, found: Findings) -> None:
        """Tell whether a time limit seems to be read as the end of the task."""
        count = self._lengths.total()
        if count < _MIN_EPISODES or len(self._lengths) > 1 or self._num_terminated < count:
            return
        advice = "mark them 'truncated'" if self._has_truncated else "set 'dones_mean' of train.data to 'truncated'"
        found.warning(
            "time limit",
            f"all {count} episodes are terminated after exactly {next(iter(self._lengths))} steps; if that is a time "
            f"limit, {advice}",
        )

    def facts(self) -> dict[str, float]:
        """Return the range of the lengths."""
        if not self._lengths:
            return {}
        mean = sum(n * count for n, count in self._lengths.items()) / self._lengths.total()
        return {"min": min(self._lengths), "mean": mean, "max": max(self._lengths)}


class DuplicateCheck:
    """No episode holds the same bytes as another."""

    def __init__(self) -> None:
        self._first: dict[bytes, str] = {}

    def episode(self, episode: RawEpisode, found: Findings) -> None:
        """Compare with those before."""
        digest = hashlib.blake2b(digest_size=16)
        for key, array in sorted(episode.arrays.items()):
            digest.update(f"{key} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        first = self._first.setdefault(digest.digest(), episode.name)
        if first != episode.name:
            found.warning("duplicate", "holds the same bytes as an earlier episode", f"{episode.name} = {first}")


class ImageCheck:
    """Images of whole numbers are uint8, and uint8 images are not floats of [0, 1] that were cut."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float, bool, np.dtype[Any]]] = {}

    def episode(self, episode: RawEpisode, found: Findings) -> None:
        """Take in the range of every observation that has the shape of an image."""
        for name, array in episode.entries("obs").items():
            if array.ndim != 4 or array.dtype.kind not in "fu" or not array.size:
                continue
            low, high, is_whole, dtype = self._seen.get(name, (np.inf, -np.inf, True, array.dtype))
            is_whole = is_whole and (array.dtype.kind == "u" or bool((array == np.floor(array)).all()))
            self._seen[name] = (min(low, float(array.min())), max(high, float(array.max())), is_whole, dtype)

    def finish(self, found: Findings) -> None:
        """Tell which look like what they are not."""
        for name, (low, high, is_whole, dtype) in self._seen.items():
            if dtype.kind == "f" and low >= 0 and (high > UNIT_LIMIT or (is_whole and high > 1)):
                text = f"obs/{name} is {dtype} with numbers up to {high:g}: pixels belong in uint8, or in [0, 1]"
                found.warning("image", text)
            if dtype == np.uint8 and high <= 1:
                text = f"obs/{name} is uint8 and holds nothing above {high:g}: floats in [0, 1] that were truncated?"
                found.warning("image", text)


def check_filters(raw: RawDataset, found: Findings) -> None:
    """Compare the filters with the episodes, and those for training with those for validation."""
    for key, names in raw.filters.items():
        for name in sorted(set(names) - set(raw.names)):
            found.problem("filter", f"filter {key!r} names episodes that do not exist", name)
        if not set(names) & set(raw.names):
            found.warning("filter", f"filter {key!r} selects no episodes")
        if key.endswith("train"):
            other = key[: -len("train")] + "valid"
            for name in sorted(set(names) & set(raw.filters.get(other, ()))):
                found.warning("filter", f"filters {key!r} and {other!r} share episodes", name)
