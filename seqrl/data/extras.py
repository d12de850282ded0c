"""What algorithms ask of the data beside its columns: the next action, and returns from here on."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from seqrl.core.errors import DataError
from seqrl.data.mixture import Source
from seqrl.data.shard import ShardGoneError

RETURNS = frozenset({"return_to_go", "mc_return", "mc_bound"})
EXTRAS = RETURNS | {"next_action"}
"""Names that :class:`~seqrl.data.sequence_dataset.SequenceDataset` knows how to make."""


def returns_to_go(rewards: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return ``(B, T + 1)`` sums of the rewards from each input on, in float64; 0 from the end on.

    Args:
        rewards: ``(B, T)``; what lies beyond a trajectory's length has no influence.
        length: ``(B,)`` transitions of each trajectory.
    """
    real = np.arange(rewards.shape[1]) < length[:, None]
    prefix = np.cumsum(np.where(real, rewards, 0.0), axis=1, dtype=np.float64)
    out: np.ndarray = prefix[:, -1:] - np.concatenate([np.zeros((len(rewards), 1)), prefix], axis=1)
    return out


def discounted_returns(rewards: np.ndarray, length: np.ndarray, discount: float) -> np.ndarray:
    r"""Return ``(B, T + 1)`` discounted returns from each input on, in float64; 0 from the end on.

    .. math:: G_t = r_t + \gamma G_{t+1}

    Args:
        rewards: ``(B, T)``; what lies beyond a trajectory's length has no influence.
        length: ``(B,)`` transitions of each trajectory.
        discount: Per step, in ``[0, 1]``.
    """
    real = np.where(np.arange(rewards.shape[1]) < length[:, None], rewards, 0.0).astype(np.float64)
    out = np.zeros((len(rewards), rewards.shape[1] + 1))
    for t in range(rewards.shape[1] - 1, -1, -1):
        out[:, t] = real[:, t] + discount * out[:, t + 1]
    return out


def window_returns(
    names: Collection[str],
    rewards: np.ndarray,
    length: np.ndarray,
    offsets: np.ndarray,
    discount: float,
    terminated: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the returns ``(B, L)`` float32 of the inputs of windows.

    Args:
        names: Of :data:`RETURNS`; others are left out.
        rewards: ``(B, T)`` of whole trajectories, padded.
        length: ``(B,)`` transitions of each.
        offsets: ``(B, L)`` the windows' inputs.
        discount: Of ``mc_return`` and ``mc_bound``.
        terminated: ``(B,)`` whether nothing follows the last transition; if not, a time limit cut the episode.
    """
    found = {}
    if "return_to_go" in names:
        found["return_to_go"] = returns_to_go(rewards, length)
    if RETURNS - {"return_to_go"} & set(names):
        found["mc_return"] = discounted_returns(rewards, length, discount)
    if "mc_bound" in names:
        found["mc_bound"] = lower_bounds(found["mc_return"], rewards, length, discount, terminated)
    return {k: np.take_along_axis(found[k], offsets, axis=1).astype(np.float32) for k in found.keys() & set(names)}


def lower_bounds(
    returns: np.ndarray, rewards: np.ndarray, length: np.ndarray, discount: float, terminated: np.ndarray
) -> np.ndarray:
    """Return what the value of each input is at least, if the data's policy goes on; minus infinity if not known.

    Where a time limit cut an episode, what would have followed is missing in its returns. That lifts them above the
    value only if rewards may be negative, and by less than a part in a hundred of all that may follow, except in the
    last ``5 / (1 - discount)`` steps.

    Args:
        returns: ``(B, T + 1)`` from :func:`discounted_returns`.
        rewards: ``(B, T)``.
        length: ``(B,)`` transitions of each trajectory.
        discount: Per step, below 1.
        terminated: ``(B,)`` whether nothing follows the last transition.

    Source: Nakamoto et al. (2023), Cal-QL, arXiv 2303.05479, which takes episodes that end.
    """
    real = np.arange(rewards.shape[1]) < length[:, None]
    may_fall = ~terminated & (real & (rewards < 0)).any(1)
    left = length[:, None] - np.arange(returns.shape[1])
    return np.where(may_fall[:, None] & (left * (1.0 - discount) <= 5.0), -np.inf, returns)


def check_whole(start_step: np.ndarray, has_ended: np.ndarray, source: str) -> None:
    """Refuse trajectories that are pieces of an episode: what came before or after them is not known here.

    Args:
        start_step: ``(B,)`` steps of the episode before the trajectory.
        has_ended: ``(B,)`` whether its last transition was terminal, or cut by a time limit.
        source: Of the data, for the message.

    Raises:
        DataError: If one begins late, or was cut off by storage.
    """
    bad = (start_step > 0) | ~has_ended
    if bad.any():
        first = int(np.argmax(bad))
        what = f"begins at step {start_step[first]}" if start_step[first] else "was cut off before its episode ended"
        raise DataError(
            f"{source}: a trajectory {what}, so the return of its steps is not known; store whole episodes (set "
            "collect.trajectory_steps and collect.reset_every_n_epochs to null), or use an algorithm without returns"
        )


def usable(source: Source, extras: Collection[str]) -> np.ndarray:
    """Return the trajectories of a source that may be drawn.

    Where returns are asked for, those that were collected and are cut short at their end, as by an environment that
    failed, are left out; pieces of episodes are not, as :func:`check_whole` refuses them.
    """
    while source.is_live and RETURNS & set(extras) and len(numbers := source.numbers):
        try:
            last = source.store.gather(numbers, source.store.length[numbers][:, None], ["terminated", "truncated"])
        except ShardGoneError:  # another process made room
            source.store.refresh()
            continue
        ended = (last["terminated"] | last["truncated"])[:, 0]
        kept: np.ndarray = numbers[ended | (source.store.start_step[numbers] > 0)]
        return kept
    return source.numbers
