"""Ray actors that collect for a run, as the process sees them that commands them and writes what they bring."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save

from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError, TrainingError
from seqrl.core.types import Trajectory
from seqrl.data.store_info import StoreInfo
from seqrl.training.collector import CollectStats, merged
from seqrl.training.ray_actor import ActorBody, Batch
from seqrl.training.weights import RANKS_PER_SLOT, PublishedWeights

logger = logging.getLogger(__name__)

POLL_S, SILENT_S, START_S = 0.2, 20.0, 120.0
OBJECT_STORE_BYTES = 500_000_000
"""Of a cluster on this machine: weights, and batches on their way."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}


class _Remote:
    """What Ray runs in a process of its own: an :class:`ActorBody` that takes weights where they changed."""

    def __init__(self, *arguments: Any) -> None:
        self._body = ActorBody(*arguments)

    def collect(self, epoch: int, steps_per_env: int, version: int, weights: list[Any]) -> Batch:
        """Return a batch that the weights of a version collected; they are fetched if they are new here."""
        import ray

        if self._body.version != version:
            self._body.take_weights(ray.get(weights[0]), version)
        return self._body.collect(epoch, steps_per_env)


@dataclass(eq=False)
class _Actor:
    """What is known of an actor here.

    Attributes:
        number: Among the actors, from 0.
        handle: Ray's.
        num_batches: Batches that were asked for.
        num_taken: Batches that were taken.
        env_steps: Transitions that were taken from it.
        steps_per_env: Steps of each of its environments.
        life: Of the last batch; differs after a restart.
        restarts: How often it was begun anew.
        lag: Versions by which the weights of the last batch were behind.
        epsilon: Of the last batch.
        num_lost: Batches in a row that were lost.
        heard_s: When it brought the last batch, or was made.
        patience_s: How long it may take for the next.
        is_silent: Whether that was so long ago that it was said.
    """

    number: int
    handle: Any
    num_batches: int = 0
    num_taken: int = 0
    env_steps: int = 0
    steps_per_env: int = 0
    life: str = ""
    restarts: int = 0
    lag: int = 0
    epsilon: float = 0.0
    num_lost: int = 0
    heard_s: float = field(default_factory=time.monotonic)
    patience_s: float = START_S
    is_silent: bool = False


class RayCollectors:
    """Collects in Ray actors; each has some batches in flight, and gets another order when one is taken from it.

    An actor that dies is begun anew by Ray and repeats what it had not delivered; nothing is taken twice.

    Args:
        config: The run file.
        info: Spaces of the run.
        slot: Number of this process's slot.
        write: Takes each trajectory, in this process.
        check: Called while nothing arrives; ends the run by raising.
        steps_per_env: Steps of each environment that the exploration begins with.

    Raises:
        ConfigError: If Ray's cluster cannot be reached.
    """

    def __init__(
        self,
        config: BaseConfig,
        info: StoreInfo,
        slot: int,
        write: Callable[[Trajectory], None],
        check: Callable[[], None],
        steps_per_env: int = 0,
    ) -> None:
        self._section, self._check, self._write = config.collect.ray, check, write
        self._weights: list[Any] = []
        self._version = -1
        self._ray = _connected(config)
        self._errors = self._ray.exceptions
        remote = self._ray.remote(_Remote).options(
            num_cpus=self._section.cpus_per_actor,
            resources=self._section.resources or None,
            max_restarts=self._section.max_restarts,
            max_task_retries=-1,
        )
        plugins = {name: Path(name).read_text(encoding="utf-8") for name in config.plugins if name.endswith(".py")}
        shared = config.algo_name, config.to_json(), plugins, info
        self._actors = [
            _Actor(number, remote.remote((slot + 1) * RANKS_PER_SLOT + number, *shared), steps_per_env=steps_per_env)
            for number in range(self._section.num_actors)
        ]
        self._in_flight: dict[Any, _Actor] = {}
        self._last = time.monotonic()

    @property
    def version(self) -> int:
        """Of the weights that batches are ordered with; -1 before the first."""
        return self._version

    @property
    def steps_per_env(self) -> int:
        """Steps of each environment, on average over the actors."""
        return sum(actor.steps_per_env for actor in self._actors) // max(len(self._actors), 1)

    def take_weights(self, weights: PublishedWeights) -> None:
        """Put new weights into the object store, once for all actors; orders from now on name them."""
        self._weights = [self._ray.put(save(weights.tensors))]
        self._version = weights.version

    def collect(self) -> CollectStats:
        """Wait for a batch, write all that have arrived, and order as many; return what they came to.

        Raises:
            TrainingError: If no actor is left, or one failed by its own error.
        """
        for actor in self._actors:
            for _ in range(self._section.batches_in_flight - list(self._in_flight.values()).count(actor)):
                self._order(actor)
        taken: list[CollectStats] = []
        while not taken:
            self._check()
            ready, _ = self._ray.wait(list(self._in_flight), num_returns=len(self._in_flight), timeout=0)
            if not ready:
                ready, _ = self._ray.wait(list(self._in_flight), timeout=POLL_S)
            taken = [stats for reference in ready if (stats := self._taken(reference)) is not None]
            self._tell_of_silent_ones()
        return merged(taken)

    def metrics(self, stats: CollectStats) -> dict[str, float]:
        """Return what to log: of all, and ``actor_<n>/env_steps``, ``.../weights_behind``, ``.../restarts``."""
        now = time.monotonic()
        out = stats.metrics(sum(a.epsilon for a in self._actors) / max(len(self._actors), 1))
        out["time/env_steps_per_s"] = stats.num_steps / max(now - self._last, 1e-9)
        self._last = now
        for actor in self._actors:
            out[f"actor_{actor.number}/env_steps"] = float(actor.env_steps)
            out[f"actor_{actor.number}/weights_behind"] = float(actor.lag)
            out[f"actor_{actor.number}/restarts"] = float(actor.restarts)
        return out

    def close(self) -> None:
        """End the actors, which belong to this process, and the cluster if it was begun here."""
        self._in_flight.clear()
        self._ray.shutdown()

    def _tell_of_silent_ones(self) -> None:
        for actor in self._actors:
            silent_s = time.monotonic() - actor.heard_s
            is_silent = silent_s > actor.patience_s
            if is_silent and not actor.is_silent:
                free = self._ray.available_resources() if not actor.num_taken else {}
                hint = f"; the cluster has {free.get('CPU', 0):g} cores free" if not actor.num_taken else ""
                logger.warning("actor %d has delivered nothing for %.0f s%s", actor.number, silent_s, hint)
            elif actor.is_silent and not is_silent:
                logger.warning("actor %d is back", actor.number)
            actor.is_silent = is_silent

    def _order(self, actor: _Actor) -> None:
        call = actor.handle.collect.remote
        self._in_flight[call(actor.num_batches, actor.steps_per_env, self._version, self._weights)] = actor
        actor.num_batches += 1

    def _taken(self, reference: Any) -> CollectStats | None:
        """Write what an actor has brought, and order again; None if it is dead for good, or its batch was lost."""
        actor = self._in_flight.pop(reference)
        if actor not in self._actors:
            return None
        try:
            batch: Batch = self._ray.get(reference)
        except self._errors.RayTaskError as error:
            raise TrainingError(f"actor {actor.number} failed: {error.cause or error}") from error
        except (self._errors.UnserializableException, self._errors.RaySystemError) as error:
            raise TrainingError(f"actor {actor.number} sent data that cannot be read: {error}") from error
        except self._errors.ActorDiedError as error:
            self._drop(actor, error)
            return None
        except self._errors.RayError as error:  # it was lost with its node
            actor.num_lost += 1
            if actor.num_lost > self._section.max_restarts:
                self._drop(actor, error)
                return None
            logger.warning("a batch of actor %d was lost: %s", actor.number, _last_line(error))
            self._order(actor)
            return None
        for trajectory in batch.trajectories:
            self._write(trajectory)
        actor.restarts += actor.life not in ("", batch.life)
        actor.life, actor.lag, actor.epsilon = batch.life, self._version - batch.version, batch.epsilon
        actor.env_steps += batch.stats.num_steps
        actor.steps_per_env, actor.num_taken, actor.num_lost = batch.steps_per_env, actor.num_taken + 1, 0
        now = time.monotonic()
        if actor.num_taken > 1:  # the first one took the start as well
            actor.patience_s = max(SILENT_S, 5.0 * (now - actor.heard_s))
        actor.heard_s = now
        self._order(actor)
        return batch.stats

    def _drop(self, actor: _Actor, error: Exception) -> None:
        self._actors = [other for other in self._actors if other is not actor]
        if not self._actors:
            raise TrainingError(f"no actor is left; the last died: {_last_line(error)}")
        logger.warning("actor %d is dead for good, %d go on: %s", actor.number, len(self._actors), _last_line(error))


def _last_line(error: Exception) -> str:
    """Return the line of a message that tells the cause, which Ray puts last."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()


def _connected(config: BaseConfig) -> Any:
    """Return the module ``ray``, connected to the cluster that the run file names.

    Raises:
        ConfigError: If the cluster cannot be reached.
    """
    import ray

    section = config.collect.ray
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    options: dict[str, Any] = {}
    if section.address == "local":
        needed = section.num_actors * section.cpus_per_actor
        resources = {name: amount * section.num_actors for name, amount in section.resources.items()}
        options = {
            "num_cpus": math.ceil(needed),
            "resources": resources,
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    paths = [p for p in sys.path if p]
    given = dict(section.runtime_env)
    variables = {**ENVIRONMENT, **given.pop("env_vars", {})}
    if section.address == "local":
        variables.setdefault("PYTHONPATH", os.pathsep.join(paths))
    environment = {**given, "env_vars": variables}
    try:
        ray.init(
            address=section.address, runtime_env=environment, log_to_driver=False, logging_level=logging.WARNING,
            configure_logging=False, **options,
        )  # fmt: skip
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"collect.ray.address {section.address!r}: {error}") from error
    return ray
