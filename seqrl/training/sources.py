"""Where training data comes from: files and scripted experts, both made into stores once, and the run's replay."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator

import seqrl.envs as seqrl_envs
from seqrl.configs import BaseConfig
from seqrl.configs.sections.run import DataSection, ReplaySection, SourceSection
from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import ConfigError
from seqrl.core.files import code_crc
from seqrl.core.registry import RELABELERS, SAMPLERS, SEQUENCE_ENCODERS
from seqrl.core.seeding import integer_seed
from seqrl.core.spaces import obs_specs
from seqrl.core.types import Trajectory
from seqrl.data.dataset import TrainingDataset
from seqrl.data.episodes import split_by_episode
from seqrl.data.ingest import cached_store, open_store
from seqrl.data.mixture import Source
from seqrl.data.relabel import Relabeler
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.data.shard import trajectory_columns
from seqrl.data.store import Budget, Store, StoreWriter
from seqrl.data.store_info import StoreInfo
from seqrl.envs.make import env_maker
from seqrl.rollout.rollouts import ScriptedPolicy, collect_episodes
from seqrl.version import __version__

logger = logging.getLogger(__name__)

NUM_SCRIPTED_ENVS = 20


@dataclass(frozen=True)
class Data:
    """What a run learns from, besides the replay.

    Attributes:
        sources: Trajectories to draw training windows from.
        valid: Held-out windows, if there are any.
        dataset: Training windows that were given, beside ``sources`` and the replay.
        summary: Size of the stores, from :func:`summarize`.
    """

    sources: Sequence[Source] = ()
    valid: TrainingDataset | None = None
    dataset: TrainingDataset | None = None
    summary: Mapping[str, float] = field(default_factory=dict)

    @property
    def info(self) -> StoreInfo | None:
        """Spaces and environment of the data, where it knows them."""
        known = (*(s.store for s in self.sources), self.dataset, self.valid)
        return next((d.info for d in known if d and d.info), None)


def find_data(config: BaseConfig, dataset: TrainingDataset | None = None, valid: TrainingDataset | None = None) -> Data:
    """Return what ``train.data`` names, and a dataset and held-out windows that were given.

    Raises:
        ConfigError: If something is missing that the run file asks for.
    """
    if dataset is not None and dataset.weight is None:
        unused = ["train.data"] if any(entry.path for entry in config.train.data) else []
        unused += ["collect.steps_per_epoch"] if config.collect.steps_per_epoch else []
        if unused:
            logger.warning(
                "the dataset given has weight None, so it is trained on without %s: give it a weight to use both",
                " and ".join(unused),
            )
    if dataset is not None and (dataset.weight is None or not config.train.data):
        return Data((), valid, dataset)
    stores = open_data(config)
    if not stores:
        return Data()
    chosen, held_out = split_sources(config, stores)
    check_goals(config, chosen)
    if valid is None and held_out:
        valid = sequence_dataset(config, held_out)
    return Data(chosen, valid, dataset, summarize(stores, chosen))


def sequence_dataset(config: BaseConfig, sources: Sequence[Source]) -> SequenceDataset:
    """Return windows of the sources, as the run file cuts and weighs them.

    Raises:
        ConfigError: If no sampler has the name in ``train.sample_by``.
    """
    train = config.train
    if train.sample_by not in SAMPLERS:
        raise ConfigError(f"train.sample_by: {SAMPLERS.unknown(train.sample_by)}")
    return SequenceDataset(
        list(sources),
        train.window_steps,
        padding=train.window_padding,
        sample_by=train.sample_by,
        weigh_by=train.weigh_data_by,
        keys=keys_to_read(config, list(sources)),
        goal_keys=config.observation.goal_keys if train.goal_mode == "last" else (),
        burn_in=burn_in_steps(config),
    )


def burn_in_steps(config: BaseConfig) -> int:
    """Return the inputs before each window that the memory reads first: none if it is not recurrent.

    They are as many as the frames that are read beside an input: else these would be those of another window.
    """
    name, options = config.algo.sequence_encoder.choice()
    if not config.train.burn_in_steps or not SEQUENCE_ENCODERS.get(name).is_recurrent:
        return 0
    return max(config.train.burn_in_steps, int(options.get("num_frames", 1)) - 1)


def open_data(config: BaseConfig) -> list[tuple[DataSection, Store]]:
    """Return the store of every entry of ``train.data``.

    Raises:
        ConfigError: If there is no entry, nothing is collected, and there is something to learn.
    """
    if not config.train.data and not config.collect.steps_per_epoch and config.train.steps_per_epoch:
        raise ConfigError(
            "train.data: is required: a list of {'path': FILE} or {'scripted': ENV_ID}, or --dataset FILE on the "
            "command line; to learn online give a budget (--env-steps 50k, or env_steps=50_000 in Python) or set "
            "collect.steps_per_epoch; to evaluate only, set train.steps_per_epoch=0"
        )
    return [(section, _open(section, config)) for section in config.train.data]


def _open(section: DataSection, config: BaseConfig) -> Store:
    if section.path is not None:
        return open_store(section.path, section.reader_options(), format=section.format)
    assert section.scripted is not None
    kwargs = section.env_kwargs
    if kwargs is None:
        kwargs = config.env.kwargs if config.env.id in (None, section.scripted) else {}
    return scripted_store(section.scripted, kwargs, section.episodes, section.seed, section.noise)


def _expert_of(env_id: str) -> Any:
    name = env_id.split(":")[-1]
    return seqrl_envs.EXPERTS.get(name) if name in seqrl_envs.EXPERTS else None


def _entry_of(env_id: str) -> Any:
    """Return what makes an environment, without making it; None if that is not known."""
    try:
        entry = gym.spec(env_id).entry_point
        return load_env_creator(entry) if isinstance(entry, str) else entry
    except (gym.error.Error, ImportError, AttributeError):
        return None


def scripted_store(env_id: str, kwargs: dict[str, Any], episodes: int, seed: int, noise: float = 0.0) -> Store:
    """Return the store of ``episodes`` episodes of an environment's scripted expert, made when first used.

    It is made anew when a file that defines the classes of the expert or the environment has changed.
    """
    key = {"scripted": env_id, "kwargs": kwargs, "episodes": episodes, "seed": seed, "seqrl": __version__}
    key["code"] = [code_crc(_expert_of(env_id)), code_crc(_entry_of(env_id))]
    if noise:
        key["noise"] = noise

    def build(folder: Path) -> None:
        logger.info("collecting %d episodes of the scripted expert of %s", episodes, env_id)
        env = seqrl_envs.make_batched_env(env_maker(env_id, kwargs), min(NUM_SCRIPTED_ENVS, episodes))
        info = StoreInfo(
            env.observation_space,
            env.codec.space,
            env_id=env_id,
            env_kwargs=kwargs,
            source=f"scripted expert of {env_id}" + (f" with noise {noise:g}" if noise else ""),
        )
        try:
            policy = ScriptedPolicy(env_id, env, noise=noise, seed=seed)
            with StoreWriter(folder, info) as writer:
                for trajectory in collect_episodes(env, policy, episodes, seed=integer_seed(seed, "scripted")):
                    writer.append(trajectory)
        finally:
            env.close()

    store = cached_store(key, build)
    store.label = store.info.source
    return store


def split_sources(config: BaseConfig, stores: list[tuple[DataSection, Store]]) -> tuple[list[Source], list[Source]]:
    """Return the training and validation sources, split by episode."""
    train, valid = [], []
    for label, (section, store) in zip(_labels(config, stores), stores, strict=True):
        options: dict[str, Any] = {
            "weight": section.weight,
            "initial_weight": section.initial_weight,
            "anneal_epochs": section.anneal_epochs,
            "relabeler": build_relabeler(section),
            "name": label,
        }
        if not (section.filter_key or section.valid_filter_key) and {"train", "valid"} <= store.info.filters.keys():
            logger.warning(
                "%s: its filter keys train and valid are not used. To train on the one and validate on the other, add "
                '"filter_key": "train" and "valid_filter_key": "valid" to its entry in train.data or --dataset',
                store.label,
            )
        chosen, held_out = split_by_episode(
            store,
            config.train.valid_fraction,
            config.train.seed,
            train_key=section.filter_key,
            valid_key=section.valid_filter_key,
            max_episodes=section.max_episodes,
        )
        train.append(Source(store, chosen, **options))
        if len(held_out):
            valid.append(Source(store, held_out, **{**options, "initial_weight": None, "anneal_epochs": 0}))
    return train, valid


def _labels(config: BaseConfig, stores: list[tuple[DataSection, Store]]) -> list[str]:
    """Return a name for each source: its own, else that of its file or environment, numbered where it is taken."""
    taken = {section.name for section, _ in stores}
    if config.collect.steps_per_epoch:
        taken.add("replay")
    labels = []
    for number, (section, _) in enumerate(stores):
        label = section.name or (section.scripted or Path(section.path or "data").stem).split("/")[-1]
        if section.name is None and label in taken:
            label = f"{label}_{number}"
        taken.add(label)
        labels.append(label)
    return labels


def summarize(stores: list[tuple[DataSection, Store]], chosen: list[Source]) -> dict[str, float]:
    """Return the size of the data: trajectories, transitions, megabytes; and the mean return that is trained on."""
    returns = np.concatenate([source.store.total_reward[source.numbers] for source in chosen])
    return {
        "trajectories": sum(len(store) for _, store in stores),
        "transitions": sum(store.num_transitions for _, store in stores),
        "megabytes": sum(store.num_bytes for _, store in stores) / 1e6,
        "mean_return": float(returns.mean()) if len(returns) else float("nan"),
    }


def check_goals(config: BaseConfig, sources: list[Source]) -> None:
    """Check that the data has the goals that the policy shall read.

    Raises:
        ConfigError: If it has not, or goals are made that no policy reads.
    """
    keys, mode = config.observation.goal_keys, config.train.goal_mode
    if mode is not None and not keys:
        raise ConfigError(f"train.goal_mode {mode!r} needs observation.goal_keys: the entries whose goals are read")
    if mode is not None:
        return
    for source in sources:
        if missing := [k for k in keys if not {f"goal/{k}", f"obs/goal/{k}", _desired(k)} & set(source.store.schema)]:
            raise ConfigError(
                f"observation.goal_keys: {source.name} has no goals of {', '.join(missing)}; set train.goal_mode to "
                "'last', which takes each episode's end, or leave the key out"
            )


def keys_to_read(config: BaseConfig, sources: list[Source]) -> list[str] | None:
    """Return the observation entries to read; None for all. ``desired_goal`` is one where it is read as a goal."""
    seen = config.observation
    wanted = config.train.goal_mode is None and {_desired(k) for k in seen.goal_keys} & {"obs/desired_goal"}
    if (
        seen.keys is None
        or not wanted
        or not all("obs/desired_goal" in s.store.schema for s in sources if s.store.schema)
    ):
        return seen.keys
    return sorted({*seen.keys, "desired_goal"})


def _desired(key: str) -> str:
    """Return the column that gymnasium's goal environments give the goal of ``achieved_goal`` in; others have none."""
    return "obs/desired_goal" if key == "achieved_goal" else ""


# ---------------------------------------------------------------------------------------------- the replay
def budget_of(section: ReplaySection) -> Budget:
    """Return the limits of a replay."""
    num_bytes = None if section.max_gb is None else int(section.max_gb * 1e9)
    return Budget(section.max_trajectories, section.max_transitions, num_bytes)


def build_relabeler(section: SourceSection) -> Relabeler | None:
    """Return what changes the trajectories of a source when they are drawn.

    Raises:
        ConfigError: If it does not say what it needs.
    """
    if section.relabel is None:
        return None
    name, options = section.relabel.choice()
    relabeler: Relabeler = RELABELERS.get(name)(**options)
    if (needs := getattr(relabeler, "needs", None)) not in ("window", "trajectory"):
        raise ConfigError(
            f"relabeler {name!r}: {type(relabeler).__name__}.needs is {needs!r}, not 'window' or 'trajectory'"
        )
    return relabeler


def replay_source(store: Store, section: ReplaySection) -> Source:
    """Return the source that follows a replay."""
    return Source(
        store,
        weight=section.weight,
        initial_weight=section.initial_weight,
        anneal_epochs=section.anneal_epochs,
        min_trajectories=section.min_trajectories,
        min_transitions=section.min_transitions,
        relabeler=build_relabeler(section),
        name="replay",
    )


def transition_bytes(info: StoreInfo) -> int:
    """Return the bytes that one transition takes on disk, without the log and without action masks in ``info``."""
    specs, codec = obs_specs(info.observation_space), action_codec(info.action_space)
    blank = Trajectory(
        obs={k: np.zeros((2, *s.shape), s.dtype) for k, s in specs.items()},
        actions=np.zeros((1, *codec.shape), codec.dtype),
        rewards=np.zeros(1, np.float32),
        terminated=np.zeros(1, bool),
        truncated=np.zeros(1, bool),
    )
    return sum(column[0].nbytes for column in trajectory_columns(blank).values())


def predicted_replay_bytes(info: StoreInfo, budget: Budget, num_transitions: int) -> int:
    """Return the bytes that the replay will take, of ``num_transitions`` that will be collected."""
    kept = min(num_transitions, budget.transitions or num_transitions)
    size = kept * transition_bytes(info)
    return size if budget.num_bytes is None else min(size, budget.num_bytes)
