"""Batches that several datasets share: one of your own, files, and the replay."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.seeding import generator
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.data.dataset import TrainingDataset


class MixedDataset(TrainingDataset):
    """Draws each window of a batch from one of several datasets, by their weights.

    A dataset that is not ready has no share. Windows of all parts need the same length, entries and extras.

    Args:
        parts: At least one; all with a ``weight``.

    Raises:
        DataError: If there is no part, or one has the weight None, which mixes with nothing.
    """

    def __init__(self, parts: Sequence[TrainingDataset]) -> None:
        if not parts or any(part.weight is None for part in parts):
            raise DataError("a mixed dataset needs parts that have a weight")
        self.parts = list(parts)
        self.info = next((part.info for part in parts if part.info is not None), None)
        self._share()

    def _share(self) -> None:
        weights = np.array([(part.weight or 0.0) * part.is_ready for part in self.parts], float)
        if (weights < 0).any():
            raise DataError(f"weights of datasets must be at least 0, got {[part.weight for part in self.parts]}")
        self._shares = weights / max(weights.sum(), 1e-300)
        self.weight = float(weights.sum())

    def refresh(self, epoch: int) -> None:
        """Refresh every part, and set their shares for this epoch."""
        for part in self.parts:
            part.refresh(epoch)
        self._share()

    @property
    def is_ready(self) -> bool:
        """Whether some part is."""
        return bool(self._shares.any())

    @property
    def num_trajectories(self) -> int:
        """Trajectories of all parts."""
        return sum(part.num_trajectories for part in self.parts)

    @property
    def num_transitions(self) -> int:
        """Transitions of all parts."""
        return sum(part.num_transitions for part in self.parts)

    def batch(self, batch_size: int, *, seed: int, path: tuple[int | str, ...]) -> SeqBatch:
        """Return the batch that belongs to a seed and a path; each part gets a path of its own.

        Raises:
            DataError: If the windows of two parts do not fit together.
        """
        counts = generator(seed, *path, "parts").multinomial(batch_size, self._shares)
        drawn = [
            (part, part.batch(int(num), seed=seed, path=(*path, i)))
            for i, (part, num) in enumerate(zip(self.parts, counts, strict=True))
            if num
        ]
        lengths = [b.before.step.shape[1] for _, b in drawn if b.before is not None]
        drawn = [(part, _with_before(b, max(lengths, default=0))) for part, b in drawn]
        (first, batch), others = drawn[0], drawn[1:]
        for part, other in others:
            if problem := _difference(batch, other):
                raise DataError(f"windows of {_name(first)} and {_name(part)} cannot share a batch: {problem}")
        return _joined([b for _, b in drawn]) if others else batch

    def metrics(self) -> dict[str, float]:
        """Return the metrics of all parts, and the share of each that has none of its own."""
        out: dict[str, float] = {}
        for part, share, name in zip(self.parts, self._shares, self._names(), strict=True):
            own = part.metrics()
            shares = [k for k in own if k.startswith("data/") and k.endswith("/share")]
            out |= {**own, **{k: own[k] * float(share) for k in shares}}
            if not shares:
                out[f"data/{name}/share"] = float(share)
        return out

    def describe(self) -> dict[str, str]:
        """Return the size of each part."""
        facts = zip(self.parts, self._names(), strict=True)
        return {
            name: f"{part.num_trajectories} trajectories, {part.num_transitions} transitions" for part, name in facts
        }

    def state(self) -> dict[str, Any]:
        """Return the state of each part."""
        return {"parts": [part.state() for part in self.parts]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the state of each part.

        Raises:
            DataError: If the parts or their data are not what they were.
        """
        if len(state.get("parts", ())) != len(self.parts):
            raise DataError(f"the run mixed {len(state.get('parts', ()))} datasets, and now has {len(self.parts)}")
        for part, own in zip(self.parts, state["parts"], strict=True):
            part.load_state(own)

    def provide(self, needs: Collection[str], discount: float = 1.0) -> None:
        """Ask every part for it."""
        for part in self.parts:
            part.provide(needs, discount)

    def use_categories(self, action_space: spaces.Space[Any]) -> None:
        """Tell every part."""
        for part in self.parts:
            part.use_categories(action_space)

    def _names(self) -> list[str]:
        names = [_name(part) for part in self.parts]
        return [f"{name}_{i}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _name(part: TrainingDataset) -> str:
    return type(part).__name__


def _leaves(value: Any, name: str = "") -> dict[str, torch.Tensor]:
    """Return every tensor of a batch by its name."""
    if isinstance(value, torch.Tensor):
        return {name: value}
    if isinstance(value, dict):
        return {k: v for key, x in value.items() for k, v in _leaves(x, f"{name}/{key}").items()}
    if isinstance(value, SeqBatch | SeqInputs):
        lead = "before/" if name == "before" else ""
        return {f"{lead}{k}": v for f in fields(value) for k, v in _leaves(getattr(value, f.name), f.name).items()}
    return {}


def _difference(a: SeqBatch, b: SeqBatch) -> str:
    """Say what keeps two batches from being joined; nothing if they can be."""
    left, right = _leaves(a), _leaves(b)
    if alone := sorted(left.keys() ^ right.keys()):
        return f"only one of them has {', '.join(alone)}"
    for name, value in left.items():
        other = right[name]
        if (value.shape[1:], value.dtype) != (other.shape[1:], other.dtype):
            kinds = " and ".join(f"{tuple(v.shape[1:])} of {v.dtype}" for v in (value, other))
            return f"{name} is {kinds} in a window"
    return ""


def _with_before(batch: SeqBatch, num: int) -> SeqBatch:
    """Return a batch that has inputs before its windows; without its own, such as do not lead up to them."""
    if not num or batch.before is not None:
        return batch
    first = replace(batch.inputs, action_mask=None).map(lambda x: x[:, :1].expand(-1, num, *x.shape[2:]))
    return replace(batch, before=first)


def _join(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {k: torch.cat([v[k] for v in values]) for k in values[0]}
    if isinstance(values[0], SeqInputs):
        return SeqInputs(**{f.name: _join([getattr(v, f.name) for v in values]) for f in fields(SeqInputs)})
    return None if values[0] is None else torch.cat(values)


def _joined(batches: list[SeqBatch]) -> SeqBatch:
    """Return the rows of all batches, one batch after the other."""
    return SeqBatch(**{f.name: _join([getattr(b, f.name) for b in batches]) for f in fields(SeqBatch)})
