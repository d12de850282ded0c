"""Which episodes of a store: by a filter key, or at random for validation."""

from __future__ import annotations

import numpy as np

from seqrl.core.errors import DataError
from seqrl.data.sampling import split_numbers
from seqrl.data.store import Store


def split_by_episode(
    store: Store,
    valid_fraction: float,
    seed: int,
    *,
    train_key: str | None = None,
    valid_key: str | None = None,
    max_episodes: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the training and the validation trajectories of a store.

    With a ``valid_key`` the two are those that the filters name, and ``max_episodes`` limits the training ones; else
    ``valid_fraction`` of the first ``max_episodes`` training trajectories is held out at random (at least one, where
    there are two).

    Raises:
        DataError: If a filter key does not exist, selects nothing, or names what is not there.
    """
    train = select_episodes(store, train_key)
    if valid_key is not None:
        valid = select_episodes(store, valid_key)
        return np.setdiff1d(train, valid)[:max_episodes], valid
    return split_numbers(train[:max_episodes], valid_fraction, seed)


def select_episodes(store: Store, key: str | None) -> np.ndarray:
    """Return the numbers of the trajectories that a filter names; all without a filter.

    Raises:
        DataError: If there is no such filter, it names none, or one that is not there.
    """
    if key is None:
        return np.arange(len(store))
    if key not in store.info.filters:
        legal = ", ".join(sorted(store.info.filters)) or "none"
        raise DataError(f"{store.label}: no filter key {key!r}; it has: {legal}")
    names = set(store.info.filters[key])
    chosen = np.array([i for i, name in enumerate(store.names) if name in names], np.int64)
    if missing := sorted(names - set(store.names)):
        rest = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(
            f"{store.info.source or store.path}: filter key {key!r} names {missing[0]!r}{rest}, which the data "
            "does not have; write the key again, for instance by split-train-val with --overwrite"
        )
    if not len(chosen):
        raise DataError(f"{store.info.source or store.path}: filter key {key!r} selects no episodes")
    return chosen
