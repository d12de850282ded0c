"""What the learner draws batches from: the contract, and the dataset that never has any."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.tensors import SeqBatch
from seqrl.data.store_info import StoreInfo


class TrainingDataset(ABC):
    """Anything that gives training batches. Subclass it to train on data of your own.

    Attributes:
        info: Spaces and source of the data; None takes the environment's.
        weight: Share of the batches beside the files of ``train.data`` and the replay, whose weights the run file has;
            None trains on this dataset alone.
    """

    info: StoreInfo | None = None
    weight: float | None = 1.0

    @abstractmethod
    def batch(self, batch_size: int, *, seed: int, path: tuple[int | str, ...]) -> SeqBatch:
        """Return the batch that belongs to a seed and a path such as ``("train", rank, epoch, k)``.

        It is called from a thread of its own, ahead of its use.
        """

    @property
    def is_ready(self) -> bool:
        """Whether there is enough to learn from; the experiment goes on collecting until there is."""
        return True

    @property
    def num_trajectories(self) -> int:
        """Trajectories that can be drawn from."""
        return 0

    @property
    def num_transitions(self) -> int:
        """Transitions that can be drawn from."""
        return 0

    def refresh(self, epoch: int) -> None:  # noqa: B027  (nothing to do is a good default)
        """Take in what has come; until the next call, batches are functions of what is there now."""

    def metrics(self) -> dict[str, float]:
        """Return what to log after a refresh, as ``data/...``."""
        return {}

    def describe(self) -> dict[str, str]:
        """Return facts for the start-up summary."""
        return {"trajectories": str(self.num_trajectories), "transitions": str(self.num_transitions)}

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs to know, as JSON values."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Restore what :meth:`state` gave.

        Raises:
            DataError: If the data is not what it was.
        """

    def provide(self, needs: Collection[str], discount: float = 1.0) -> None:  # noqa: B027
        """Bring in every batch what an algorithm needs, in :attr:`SeqBatch.extras`.

        Args:
            needs: See :attr:`seqrl.algo.Algo.needs`; ``next_obs`` is not meant here.
            discount: Of ``mc_return``.
        """

    def use_categories(self, action_space: spaces.Space[Any]) -> None:  # noqa: B027
        """Encode discrete actions by the environment's space, which may have more of them than the data shows."""


class NoData(TrainingDataset):
    """Never ready: an experiment with it evaluates, and collects, but does not learn."""

    weight = None

    @property
    def is_ready(self) -> bool:
        """Never."""
        return False

    def batch(self, batch_size: int, *, seed: int, path: tuple[int | str, ...]) -> SeqBatch:
        """Refuse.

        Raises:
            DataError: Always.
        """
        raise DataError("there is no data to learn from: train.data is empty and nothing is collected")
