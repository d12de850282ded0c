"""Whether the training data fits the algorithm and the environments, told before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.algo.algo import Algo
from seqrl.configs import BaseConfig
from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import ConfigError, DataError
from seqrl.core.rotations import RotationBox
from seqrl.core.seeding import generator
from seqrl.data.extras import RETURNS
from seqrl.data.mixture import Source
from seqrl.data.relabel import relabelled
from seqrl.data.statistics import column_stats
from seqrl.data.store_info import codec_for
from seqrl.models.distributions.continuous import TanhGaussianHead
from seqrl.training.sources import Data
from seqrl.training.world import World, training_makers

OFTEN = 0.2
"""Share of the steps in which an action may be at a bound without a warning."""
MOST_ACTIONS = 1 << 18
"""So many of each store are compared with the bounds, those of trajectories in equal distances."""


def action_range(sources: Sequence[Source]) -> str:
    """Return from where to where the actions of the data go, also of held-out episodes, in words."""
    stats = column_stats([Source(source.store) for source in sources], "prev_action")
    return f"from {stats.min.min():.7g} to {stats.max.max():.7g}"


def check_bounds(config: BaseConfig, world: World, data: Data) -> None:
    """Refuse to scale actions by bounds that nobody has said: neither the data nor an environment.

    Raises:
        ConfigError: If so.
    """
    is_asked = config.train.normalize_actions == "none" and not action_codec(world.info.action_space).is_bounded
    if not is_asked or world.env_obs or not data.sources:
        return
    store = data.sources[0].store
    how = "write the space as JSON to the attribute 'action_space' of the group 'data'"
    raise ConfigError(
        f"{store.label} does not say the bounds of its actions (they go {action_range(data.sources)}): "
        f"{how if store.info.actions_are_scaled else 'give --env ID'}, or set "
        "train.normalize_actions=min_max"
    )


def check_next_obs(config: BaseConfig, algo: Algo, data: Data) -> None:
    """Refuse data without last observations where they are needed.

    Raises:
        DataError: If so.
    """
    infos = [s.store.info for s in data.sources]
    if data.dataset is not None and data.dataset.info is not None:
        infos.append(data.dataset.info)
    without = [info for info in infos if not info.has_next_obs]
    if "next_obs" in algo.needs and without:
        raise DataError(
            f"{config.algo_name} needs the observation after the last action (next_obs), which {without[0].source} "
            "does not have; use bc, or write next_obs"
        )


def check_relabelers(data: Data) -> None:
    """Try each relabeler of whole trajectories on the first one of its data.

    Raises:
        DataError: If it does not fit.
    """
    for source in data.sources:
        if source.relabeler is not None and source.relabeler.needs == "trajectory" and len(source.store):
            relabelled(source.relabeler, source.store.trajectory(0), generator(0, "relabel"))


def check_rewards(config: BaseConfig, algo: Algo, data: Data, warn: Callable[[str], None]) -> None:
    """Refuse, or warn of, data without rewards where all that is learned from is that data.

    Raises:
        DataError: If an algorithm reads rewards, and the data says that it has none.
    """
    reads = algo.scales_rewards or bool(RETURNS & algo.needs)
    if not reads or not data.sources:
        return
    without = [s.store.label for s in data.sources if not (s.store.info.has_rewards or s.relabeler)]
    others = data.dataset is not None or config.collect.steps_per_epoch or any(s.relabeler for s in data.sources)
    if others or any(map(_has_reward, data.sources)):
        if without:
            warn(f"{', '.join(without)}: has no rewards, so {config.algo_name} takes them for 0")
        return
    names = ", ".join(dict.fromkeys(source.store.label for source in data.sources))
    if not any(source.store.info.has_rewards for source in data.sources):
        raise DataError(
            f'{names} has no rewards, and {config.algo_name} learns from them: name them (of arrays as "rewards" in '
            "columns), make them with relabel, or use bc"
        )
    warn(f"{names}: all rewards are 0, and {config.algo_name} learns from nothing else")


def _has_reward(source: Source) -> bool:
    """Tell whether a reward is not 0; sums tell it at once, but for those that cancel."""
    if source.store.total_reward[source.numbers].any():
        return True
    if not source.num_transitions:
        return False
    stats = column_stats([source], "prev_reward")
    return bool(stats.min.any() or stats.max.any())


def warn_of_clipped(world: World, data: Data, warn: Callable[[str], None]) -> None:
    """Tell which share of the actions is outside the bounds, and will be clipped to them."""
    for source in data.sources:
        space = codec_for(source.store.info, world.info.action_space).space
        if not isinstance(space, spaces.Box) or isinstance(space, RotationBox) or not source.num_transitions:
            continue
        if share := _share_outside(source, space):
            low, high = (np.unique(limit) for limit in (space.low, space.high))
            limits = f"[{low[0]:.4g}, {high[0]:.4g}]" if len(low) == len(high) == 1 else "the bounds"
            is_own = source.store.info.spaces_are_known or not world.env_obs
            whose = "of their space" if is_own else "of the environment"
            told = f"{100 * share:.3g} % of the actions lie outside {limits} {whose}, and are clipped"
            warn(f"{source.store.label}: {told}")


def warn_of_units(world: World, data: Data, warn: Callable[[str], None]) -> None:
    """Tell of actions that lie in [-1, 1] and are read in the units of an environment with wider bounds."""
    space = world.info.action_space
    if not (world.env_obs and isinstance(space, spaces.Box) and action_codec(space).is_bounded):
        return
    if not ((space.low < -1) & (space.high > 1)).any():
        return
    for source in data.sources:
        info = source.store.info
        has_units = not (info.spaces_are_known or info.actions_are_scaled)
        if has_units and info.action_space == spaces.Box(-1, 1, space.shape, np.float32):
            warn(
                f"{source.store.label}: all actions are in [-1, 1], and are read in the units of the environment, "
                f"which takes {space}. If they are scaled to [-1, 1], write them in its units"
            )


def warn_of_density(algo: Algo, data: Data, warn: Callable[[str], None]) -> None:
    """Tell of actions that are often at a bound, where a density that is learned from them has no limit."""
    if not isinstance(getattr(getattr(algo, "actor", None), "head", None), TanhGaussianHead):
        return
    sources = [source for source in data.sources if source.num_transitions]
    bounds: tuple[Any, Any] = (-1.0, 1.0)
    if sources and algo.config.train.normalize_actions == "min_max":
        encode = codec_for(sources[0].store.info, algo.codec.space).encode  # by which batches are encoded
        reached = column_stats([_some(source) for source in sources], "prev_action", convert=encode)
        bounds = reached.min, reached.max
    for source in sources:
        encode = codec_for(source.store.info, algo.codec.space).encode
        at_bound = _shares_at_bounds(source, *bounds, encode)
        if (share := at_bound.max()) > OFTEN:
            warn(
                f"{source.store.label}: action {at_bound.argmax()} is at a bound in {share:.0%} of the steps, where "
                "the density of tanh_gaussian has no limit: losses may rise while the policy improves. If you choose "
                "checkpoints by them, set algo.distribution.type=gmm"
            )


def _shares_at_bounds(source: Source, low: Any, high: Any, encode: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the share of steps at which each number of an encoded action is at a bound."""
    slack = 0.5e-5 * (np.float64(high) - low)

    def is_at_bound(actions: np.ndarray) -> np.ndarray:
        encoded = encode(actions)
        return np.asarray((encoded < low + slack) | (encoded > high - slack))

    return column_stats([_some(source)], "prev_action", convert=is_at_bound).mean


def warn_of_former_range(algo: Algo, data: Data, warn: Callable[[str], None]) -> None:
    """Tell which share of the actions is outside the range that the weights of ``train.init_from`` know."""
    normalizer = algo.normalizer
    if normalizer is None or normalizer.action is None or normalizer.action_scaling != "min_max":
        return
    offset, scale = (x.cpu().numpy() for x in (normalizer.action.offset, normalizer.action.scale))
    former = spaces.Box(offset - np.abs(scale), offset + np.abs(scale), dtype=np.float32)
    for source in data.sources:
        encode = codec_for(source.store.info, algo.codec.space).encode
        if source.num_transitions and (share := _share_outside(source, former, encode)):
            told = f"{100 * share:.3g} % of the actions lie outside the range of the data that the weights come from"
            warn(f"{source.store.label}: {told} (train.init_from), and are clipped to it (train.normalize_actions)")


def _share_outside(source: Source, space: spaces.Box, encode: Callable[[np.ndarray], np.ndarray] = np.asarray) -> float:
    """Return the share of actions of which a number is outside the bounds, by more than the rounding of floats."""
    slack = 1e-5 * (np.float64(space.high) - space.low)  # infinite where a bound is: there nothing is clipped
    low, high = space.low - slack, space.high + slack

    def is_outside(actions: np.ndarray) -> np.ndarray:
        actions = encode(actions)
        outside = np.asarray((actions < low) | (actions > high))
        return np.asarray(outside.reshape(len(actions), -1).any(-1))

    return float(column_stats([_some(source)], "prev_action", convert=is_outside).mean)


def _some(source: Source) -> Source:
    """Return the source with trajectories in equal distances, of about ``MOST_ACTIONS`` steps together."""
    return replace(source, indices=source.numbers[:: -(-source.num_transitions // MOST_ACTIONS)])


def check_collection(config: BaseConfig, algo: Algo, world: World) -> None:
    """Refuse environments and pieces of episodes that do not fit what would be learned from.

    Raises:
        ConfigError: If so.
        EnvError: If actions have no bounds.
    """
    algo.codec.check_bounded()
    if not world.gives_goals(algo):
        raise ConfigError("observation.goal_keys: the environment gives no goals, so nothing can be collected in it")
    if config.collect.trajectory_steps is not None and RETURNS & algo.needs:
        raise ConfigError(
            f"collect.trajectory_steps is {config.collect.trajectory_steps}, and {config.algo_name} learns from the "
            "returns of whole episodes: set it to null"
        )
    makers, num_envs = training_makers(config, world), config.collect.num_envs
    if not callable(makers) and num_envs < len(makers):
        raise ConfigError(f"collect.num_envs is {num_envs}, fewer than the {len(makers)} environments that share them")
