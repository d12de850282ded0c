"""The check of the actions: in their space, legal by their mask, not stuck at one value or at the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import SeqrlError
from seqrl.core.nested_spaces import choice_columns, leaves
from seqrl.core.spaces import MASK_KEY, ActionCodec, infer_action_space
from seqrl.data.validation.findings import Findings
from seqrl.data.validation.raw import RawEpisode

_TOLERANCE = 1e-6
_MOST_AT_BOUNDS = 0.5


class ActionCheck:
    """Looks at the actions of episodes whose layout is sound.

    Args:
        space: None infers it from the actions, as the reader does.
    """

    def __init__(self, space: spaces.Space[Any] | None) -> None:
        self._space = space
        self._is_box = False
        self._total = 0
        self._low = self._high = self._at_bounds = np.zeros(0)

    def episode(self, episode: RawEpisode, found: Findings) -> None:
        """Compare with the space and the mask, and take in the range."""
        actions = episode.arrays["actions"]
        try:
            space = self._space or _inferred(episode)
            low, high = _bounds(space)
        except SeqrlError as error:
            found.problem("action space", "its actions fit no space", f"{episode.name} ({error})")
            return
        if actions.shape[1:] != ActionCodec(space).shape:
            found.problem("action space", f"actions are {list(actions.shape[1:])}, not of {space}", episode.name)
            return
        values = actions.reshape(len(actions), -1).astype(np.float64)
        if self._space is None and isinstance(space, spaces.Box) and not space.is_bounded():
            found.warning("action range", "actions are outside [-1, 1]; the file names no action space", episode.name)
        self._is_box = isinstance(space, spaces.Box)
        slack = _TOLERANCE * np.where(np.isfinite(high - low), np.maximum(high - low, 1.0), 1.0)
        outside = ((values < low - slack) | (values > high + slack)).any(1)
        outside |= (values != np.floor(values))[:, choice_columns(space)].any(1)
        if outside.any():
            what = f"an action is outside {space if self._space else type(space).__name__}"
            step = int(np.argmax(outside))
            found.problem("action outside", what, f"{episode.name} step {step}: {actions[step].tolist()}")
        else:
            _check_mask(episode, space, found)
        at_bounds = (values <= low + slack) | (values >= high - slack)
        self._take_in(values, at_bounds, np.asarray(np.isfinite(values).all(1)))

    def _take_in(self, values: np.ndarray, at_bounds: np.ndarray, finite: np.ndarray) -> None:
        if not finite.any():
            return
        values, at_bounds = values[finite], at_bounds[finite]
        low, high, held = values.min(0), values.max(0), at_bounds.sum(0)
        if self._total and self._low.shape != low.shape:
            return  # episodes of different widths, which the layout check tells
        if self._total:
            low, high, held = np.minimum(low, self._low), np.maximum(high, self._high), held + self._at_bounds
        self._low, self._high, self._at_bounds = low, high, held
        self._total += len(values)

    def finish(self, found: Findings) -> None:
        """Tell which dimensions never change, or are mostly at a bound."""
        for i in np.flatnonzero(self._low == self._high) if self._total > 1 else ():
            found.warning("constant action", f"action {i} is always {self._low[i]:g}")
        for i in np.flatnonzero(self._shares() > _MOST_AT_BOUNDS):
            if self._low[i] < self._high[i] and self._at_bounds[i] < self._total:  # a switch is always at one
                found.warning("saturated action", f"action {i} is at a bound in {self._shares()[i]:.0%} of the steps")

    def _shares(self) -> np.ndarray:
        return self._at_bounds / max(self._total, 1) if self._is_box else np.zeros(len(self._low))

    def facts(self) -> dict[str, list[float]]:
        """Return the range of each dimension, and for a Box how often it is at a bound."""
        facts = {"min": self._low.tolist(), "max": self._high.tolist()}
        return facts | ({"share at bounds": self._shares().tolist()} if self._is_box else {})


def _inferred(episode: RawEpisode) -> spaces.Space[Any]:
    """Return the space that the actions of one episode imply; a mask tells of actions that nobody took."""
    space = infer_action_space(episode.arrays["actions"])
    mask = episode.arrays.get("action_mask", episode.arrays.get(f"obs/{MASK_KEY}"))
    if isinstance(space, spaces.Discrete) and mask is not None and mask.ndim > 1:
        return spaces.Discrete(max(int(space.n), mask.shape[-1]))
    return space


def _bounds(space: spaces.Space[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest legal value of every dimension."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        bounds = [_bounds(leaf) for _, leaf in leaves(space, "action")]
        return np.concatenate([b[0] for b in bounds]), np.concatenate([b[1] for b in bounds])
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.Discrete):
        low, high = np.asarray(space.start), np.asarray(space.start + space.n - 1)
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    else:
        ActionCodec(space)  # refuses what no policy can give
        low, high = np.zeros(space.shape or ()), np.ones(space.shape or ())
    return low.ravel().astype(np.float64), high.ravel().astype(np.float64)


def _check_mask(episode: RawEpisode, space: spaces.Space[Any], found: Findings) -> None:
    """Compare the actions with their mask, if there is one."""
    own, steps = episode.arrays.get("action_mask"), len(episode.arrays["actions"])
    mask = episode.arrays.get(f"obs/{MASK_KEY}") if own is None else own
    if mask is None:
        return
    try:
        codec = ActionCodec(space)
        if own is None and codec.kind == "continuous":
            return
        legal = codec.legal(mask[:steps], steps)
        taken = codec.encode(episode.arrays["actions"]) > 0.5
    except SeqrlError as error:
        found.problem("action mask", "the mask does not fit the actions", f"{episode.name} ({error})")
        return
    for what, where in (
        ("an action is forbidden by its mask", (taken & ~legal).any(-1)),
        ("no action is legal", codec.stuck(legal)),
    ):
        if where.any():
            found.problem("action mask", what, f"{episode.name} step {int(np.argmax(where))}")
