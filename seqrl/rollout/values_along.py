"""What an algorithm's critics think along recorded episodes, beside the rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from seqrl.algo.value_agent import ValueAgent
from seqrl.core.errors import ConfigError, DataError
from seqrl.data.extras import discounted_returns
from seqrl.data.mixture import Source
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.data.store import Store
from seqrl.reports.plots import COLOURS, TITLE_SIZE, make_figure, save_figure
from seqrl.rollout.agreement import check_data
from seqrl.rollout.evaluator import evaluation_mode


@dataclass(frozen=True)
class EpisodeValues:
    """One recorded episode, T steps, in the environment's reward units and under the discount that acts.

    Attributes:
        number: Of the trajectory in its store.
        rewards: ``(T,)``.
        returns: ``(T,)`` discounted, from each step on; after a time limit nothing is added.
        v: ``(T,)`` value of the policy at each input.
        q: ``(T,)`` value of the data's action there, a mean over critics.
        low: ``(T,)`` the same, less one standard deviation of the critics.
        high: ``(T,)`` and more.
    """

    number: int
    rewards: list[float]
    returns: list[float]
    v: list[float]
    q: list[float]
    low: list[float]
    high: list[float]

    def to_json(self) -> dict[str, Any]:
        """Return the episode as JSON values."""
        return asdict(self)


def values_along(
    algo: Any, store: Store, numbers: Sequence[int], action_space: spaces.Space[Any]
) -> list[EpisodeValues]:
    """Return what the critics think along whole episodes, remembering each from its beginning.

    Args:
        algo: With critics.
        store: Where the episodes lie.
        numbers: Of the trajectories.
        action_space: Of the environment.

    Raises:
        ConfigError: If the algorithm learns no values.
        DataError: If there is no such trajectory, or it is of other observations or actions.
    """
    if not isinstance(algo, ValueAgent) or not algo.learns_values:
        raise ConfigError(f"{algo.config.algo_name} learns no values, so there is nothing to show along an episode")
    check_data(store.info, algo.obs, action_space, store.label)
    found = []
    for number in numbers:
        if not 0 <= number < len(store):
            raise DataError(f"there is no episode {number}: the data has {len(store)}, from 0 on")
        dataset = SequenceDataset([Source(store, indices=np.array([number]))], int(store.length[number]))
        dataset.use_categories(action_space)
        dataset.provide(algo.needs, algo.discount)
        with evaluation_mode(algo, 0), torch.no_grad():
            batch = algo.process_batch_for_training(dataset.batch(1, seed=0, path=("values",)))
            seen = {k: v[0, :, -1].double().cpu().numpy() for k, v in algo.get_values(batch).items()}
        rewards = batch.rewards[0].double().cpu().numpy()
        returns = discounted_returns(rewards[None], store.length[[number]], algo.discount)[0, :-1]
        q, spread = seen["q"], seen["ensemble_std"]
        columns = (rewards, returns, seen["v"], q, q - spread, q + spread)
        found.append(EpisodeValues(number, *(column.tolist() for column in columns)))
    return found


def draw_values(file: Path, episodes: Sequence[EpisodeValues]) -> None:
    """Write a PNG with a panel for every episode: rewards, the return to come, V, and Q of the data's action."""
    figure, panels = make_figure(len(episodes), columns=min(2, len(episodes)), size=(6.4, 3.2))
    for axes, one in zip(panels, episodes, strict=True):
        steps = np.arange(len(one.rewards))
        axes.bar(steps, one.rewards, color=COLOURS[7], alpha=0.45, width=0.8, label="reward")
        axes.plot(steps, one.returns, color=COLOURS[2], lw=1.4, ls="--", label="return to come")
        axes.plot(steps, one.v, color=COLOURS[0], lw=1.6, label="V of the policy")
        axes.plot(steps, one.q, color=COLOURS[1], lw=1.2, label="Q of the data's action")
        axes.fill_between(steps, one.low, one.high, color=COLOURS[1], alpha=0.15, lw=0)
        axes.set_xlabel("step")
        axes.set_title(f"episode {one.number}", fontsize=TITLE_SIZE)
    panels[0].legend(frameon=False, fontsize=8)
    save_figure(figure, file)
