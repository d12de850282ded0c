"""What a Ray actor does: it acts in environments of its own, and returns what happened. Nothing here imports Ray."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from seqrl.configs import config_factory
from seqrl.core.generators import seed_everything
from seqrl.core.plugins import load_plugins
from seqrl.core.types import Trajectory
from seqrl.data.store_info import StoreInfo
from seqrl.models.image_cores import skip_local_weights
from seqrl.rollout.environments import build_env
from seqrl.training import setup
from seqrl.training.collector import Collector, CollectStats, build_exploration
from seqrl.training.world import GivenMakers, find_world, training_makers


@dataclass(frozen=True)
class Batch:
    """What an actor collected in one call.

    Attributes:
        trajectories: Those that were finished.
        stats: Steps, episodes, failures, seconds.
        version: Of the weights that acted.
        life: Differs after a restart of the actor.
        epsilon: Mean of the exploration.
        steps_per_env: Steps of each environment in the run so far.
    """

    trajectories: list[Trajectory]
    stats: CollectStats
    version: int
    life: str
    epsilon: float
    steps_per_env: int


class ActorBody:
    """Holds the environments, the policy and the exploration of an actor.

    Args:
        rank: Differs from that of every other collector of the run; with the seed it decides what is sampled.
        algo_name: The algorithm.
        config: The run file, as JSON values.
        plugins: Name -> source of the plug-ins that are files, as they need not lie on this machine.
        info: Spaces of the run.
    """

    def __init__(
        self, rank: int, algo_name: str, config: Mapping[str, Any], plugins: Mapping[str, str], info: StoreInfo
    ) -> None:
        torch.set_num_threads(1)
        self._life, self._version = uuid.uuid4().hex, -1
        self._folder = tempfile.TemporaryDirectory()  # processes of environments import the plug-ins as well
        names = [_written(Path(self._folder.name), name, plugins.get(name)) for name in config.get("plugins", [])]
        load_plugins(names)
        self._config = config_factory(algo_name, {**config, "plugins": names})
        self._config.experiment.evaluation.enabled = False
        world = find_world(self._config, info, GivenMakers(), is_collecting=True, warn=lambda text: None)
        seed_everything(self._config.train.seed)
        with skip_local_weights(True):  # those that are published come first
            self._algo = setup.build_algo(self._config, world.info, torch.device("cpu"))
        env = build_env(training_makers(self._config, world), self._config.collect.num_envs, self._config.env)
        env.codec = self._algo.codec
        exploration = build_exploration(self._config.collect, env, self._config.train.seed, rank)
        self._trajectories: list[Trajectory] = []
        self._collector = Collector(
            self._algo, env, exploration, self._config.collect, self._trajectories.append,
            seed=self._config.train.seed, rank=rank,
        )  # fmt: skip

    @property
    def version(self) -> int:
        """Of the weights that it has; -1 before the first."""
        return self._version

    def take_weights(self, weights: bytes, version: int) -> None:
        """Act by these weights from now on.

        Args:
            weights: In the format of safetensors.
            version: Of the weights.
        """
        self._algo.deserialize(load(weights))
        self._version = version

    def collect(self, epoch: int, steps_per_env: int) -> Batch:
        """Take ``collect.steps_per_epoch`` steps of each environment.

        Args:
            epoch: Number of the batch, among those of this actor.
            steps_per_env: Steps of each environment before; what the exploration goes by after a restart.
        """
        exploration = self._collector.exploration
        if exploration.num_steps.max(initial=0) < steps_per_env:
            exploration.num_steps[:] = steps_per_env
        self._trajectories.clear()
        stats = self._collector.collect(epoch)
        epsilon, done = float(exploration.epsilon.mean()), int(exploration.num_steps.mean())
        return Batch(list(self._trajectories), stats, self._version, self._life, epsilon, done)


def _written(folder: Path, name: str, source: str | None) -> str:
    """Return what to import of a plug-in: a file with its source, or its name."""
    if source is None:
        return name
    own = folder / str(len(list(folder.iterdir())))  # two plug-ins may have one name
    own.mkdir()
    file = own / Path(name).name
    file.write_text(source, encoding="utf-8")
    return str(file)
