"""What a trained policy remembers: where it fails when the task, its memory or its window changes.

All intervals are over episodes: they hold for this checkpoint, not for the method.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.algo.algo import Algo
from seqrl.algo.checkpoint import algo_for
from seqrl.algo.decision_transformer import DecisionTransformer
from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError
from seqrl.core.seeding import integer_seed
from seqrl.envs.make import MakeEnv
from seqrl.envs.metrics import Episode, told_successes
from seqrl.models.image_cores import skip_local_weights
from seqrl.reports.comparison_figures import format_estimate, markdown_table
from seqrl.reports.intervals import Estimate, mean_interval, share_interval
from seqrl.reports.plots import COLOURS, TITLE_SIZE, make_figure, save_figure
from seqrl.rollout.evaluator import evaluation_mode, warn_of_faults
from seqrl.rollout.from_checkpoint import env_for_policy
from seqrl.rollout.rollouts import AlgoPolicy, evaluate_episodes

logger = logging.getLogger(__name__)

WIDE = 20
TARGET_RETURN = "algo.target_return"
_ATTEMPT = re.compile(r"(.*attempt)_?(\d+)(.*)")


@dataclass(frozen=True)
class Point:
    """What was measured under one condition.

    Attributes:
        value: The condition: an argument's value, a step, a window or the number of an attempt.
        measures: Name -> estimate.
        num_episodes: Behind the estimates.
    """

    value: Any
    measures: Mapping[str, Estimate]
    num_episodes: int


@dataclass(frozen=True)
class Probe:
    """One question to a policy, and the answers.

    Attributes:
        name: What was varied.
        points: In the order asked.
        reference: The condition of training among the values, if it is known.
        untouched: What was measured with nothing changed, where that is no value of the others.
    """

    name: str
    points: Sequence[Point]
    reference: Any = None
    untouched: Point | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the probe as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Player:
    """Plays the same seeded episodes under different conditions.

    Attributes:
        algo: The policy.
        make_maker: Arguments over those of training -> what makes one environment.
        env_id: For messages.
        num_episodes: Per condition.
        num_envs: Stepped at once.
        seed: Of environments and policy.
        deterministic: Act greedily; False samples, None does what the run's evaluations did.
    """

    algo: Algo
    make_maker: Callable[[Mapping[str, Any]], MakeEnv]
    env_id: str
    num_episodes: int = 200
    num_envs: int = 20
    seed: int = 0
    deterministic: bool | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def play(
        self, *, algo: Algo | None = None, kwargs: Mapping[str, Any] | None = None, clear_at: int | None = None
    ) -> list[Episode]:
        """Return the episodes.

        Args:
            algo: Another policy for the same environment.
            kwargs: Arguments of the environment over ``self.kwargs``.
            clear_at: See :class:`seqrl.rollout.rollouts.AlgoPolicy`.
        """
        algo = algo or self.algo
        make = self.make_maker({**self.kwargs, **(kwargs or {})})
        with (
            env_for_policy(algo, make, min(self.num_envs, self.num_episodes), self.env_id) as env,
            evaluation_mode(algo, integer_seed(self.seed, "policy")),
        ):
            policy = AlgoPolicy(algo, env.num_envs, deterministic=self.deterministic, clear_at=clear_at)
            episodes = evaluate_episodes(env, policy, self.num_episodes, seed=integer_seed(self.seed, "env"))
            warn_of_faults(env, 0)
        return episodes


def point_of(value: Any, episodes: Sequence[Episode]) -> Point:
    """Return success, where it was reported, and return of episodes, with their intervals."""
    measures = {}
    if known := told_successes(episodes):
        measures["success"] = share_interval(sum(known), len(known))
    measures["return"] = mean_interval(np.array([e.total_reward for e in episodes]))
    return Point(value, measures, len(episodes))


# --------------------------------------------------------------------------------------------- probes
def sweep_argument(player: Player, name: str, values: Iterable[Any], reference: Any = None) -> Probe:
    """Return how the policy does against an argument of its environment."""
    points = [point_of(value, player.play(kwargs={name: value})) for value in values]
    return Probe(name, points, reference)


def sweep_target_return(player: Player, values: Sequence[Any]) -> Probe:
    """Return what a return-conditioned policy reaches when it is asked for other returns.

    Raises:
        ConfigError: If the policy is asked for none, or a value is no number.
    """
    algo = player.algo
    if not isinstance(algo, DecisionTransformer):
        raise ConfigError(
            f"--sweep {TARGET_RETURN}: {algo.config.algo_name} is not conditioned on a return; decision_transformer is"
        )
    if wrong := [value for value in values if isinstance(value, bool) or not isinstance(value, int | float)]:
        raise ConfigError(f"--sweep {TARGET_RETURN}: {wrong[0]!r} is not a number")
    trained, points = float(algo.returns.target), []
    try:
        for value in values:
            algo.returns.target.fill_(value)
            points.append(point_of(value, player.play()))
    finally:
        algo.returns.target.fill_(trained)
    return Probe(TARGET_RETURN, points, trained)


def clear_memory(player: Player, steps: Iterable[int], untouched: Sequence[Episode]) -> Probe:
    """Return how the policy does when it forgets everything at a step of each episode."""
    points = []
    for step in steps:
        episodes = player.play(clear_at=step)
        if all(e.length <= step for e in episodes):
            logger.warning("no episode went beyond step %d, so nothing was cleared there", step)
        points.append(point_of(step, episodes))
    return Probe("memory cleared at step", points, untouched=point_of("never", untouched))


def sweep_window(
    player: Player, windows: Iterable[int], observation_space: spaces.Space[Any], untouched: Sequence[Episode]
) -> Probe:
    """Return how the policy does with other windows than that of training, which is among the values.

    Raises:
        ConfigError: If the memory has no window.
    """
    own = window_of(player.algo)
    points = []
    for window in sorted({own, *windows}):
        episodes = untouched if window == own else player.play(algo=with_window(player.algo, window, observation_space))
        points.append(point_of(window, episodes))
    return Probe("window_steps", points, own)


def window_of(algo: Algo) -> int:
    """Return how many inputs the memory looks back on.

    Raises:
        ConfigError: If it has no window that could be changed.
    """
    name, options = algo.config.algo.sequence_encoder.choice()
    if (key := _window_key(options)) is None:
        raise ConfigError(
            f"--window: the memory {name!r} has no window; it needs one that attends to a "
            "window of inputs, such as 'transformer' (--clear-at works with any memory)"
        )
    return int(options[key] or algo.config.train.window_steps)


def _window_key(options: Mapping[str, Any]) -> str | None:
    """Return the option of a memory that is its window of attention, if it has one."""
    if "attention" not in options.get("layers", ["attention"]):
        return None
    return next((key for key in ("window_steps", "attention_window") if key in options), None)


def with_window(algo: Algo, window_steps: int, observation_space: spaces.Space[Any]) -> Algo:
    """Return the same policy with another window of its memory."""
    values = algo.config.to_json()
    memory = values["algo"]["sequence_encoder"]
    memory[_window_key(memory)] = window_steps
    with skip_local_weights():
        config = config_factory(algo.config.algo_name, values)
        other = algo_for(config, observation_space, algo.codec.space, algo.device)
    other.deserialize(algo.serialize())
    other.on_checkpoint_loaded(is_resume=False)
    other.set_eval()
    return other


def by_attempt(episodes: Sequence[Episode]) -> Probe | None:
    """Return what the environment logged for each attempt within an episode (``log/attempt_1``, ...), if it did."""
    found: dict[int, dict[str, np.ndarray]] = {}
    for key in sorted({key for e in episodes for key in e.log}):
        if match := _ATTEMPT.fullmatch(key):
            values = np.array([e.log[key] for e in episodes if key in e.log])
            found.setdefault(int(match[2]), {})[match[1] + match[3]] = values
    if not found:
        return None
    points = [
        Point(k, {name: mean_interval(values) for name, values in found[k].items()}, max(map(len, found[k].values())))
        for k in sorted(found)
    ]
    return Probe("attempt", points)


# -------------------------------------------------------------------------------------------- outputs
def probe_table(probe: Probe) -> str:
    """Return the answers as a Markdown table; the condition of training is marked."""
    points = [*([probe.untouched] if probe.untouched else []), *probe.points]
    measures = measures_of(probe)
    rows = [
        [
            f"{point.value}{' (training)' if is_reference(probe, point) else ''}",
            *(format_estimate(point.measures[m]) if m in point.measures else "-" for m in measures),
            str(point.num_episodes),
        ]
        for point in points
    ]
    return markdown_table([probe.name, *measures, "episodes"], rows)


def measures_of(probe: Probe) -> list[str]:
    """Return the names of everything that was measured."""
    return list(dict.fromkeys(m for point in probe.points for m in point.measures))


def is_reference(probe: Probe, point: Point) -> bool:
    """Tell whether a point has the condition of training."""
    known = probe.reference
    if isinstance(known, float) and isinstance(point.value, int | float):
        return math.isclose(point.value, known, rel_tol=1e-6)
    return known is not None and point.value == known


def draw_probes(file: Path, probes: Sequence[Probe]) -> None:
    """Write a PNG with a panel for every probe and measure."""
    pairs = [(probe, measure) for probe in probes for measure in measures_of(probe)]
    figure, panels = make_figure(len(pairs), columns=2)
    for axes, (probe, measure) in zip(panels, pairs, strict=True):
        _draw(axes, probe, measure)
    save_figure(figure, file)


def _draw(axes: Any, probe: Probe, measure: str) -> None:
    """Draw estimates with their intervals; training is a dashed line, what was untouched a dashed line with a band."""
    points = [p for p in probe.points if measure in p.measures]
    estimates = np.array([[p.measures[measure].value, *p.measures[measure].ends] for p in points])
    is_numeric = all(isinstance(p.value, int | float) and not isinstance(p.value, bool) for p in points)
    places = np.array([p.value for p in points], float) if is_numeric else np.arange(len(points))
    order = np.argsort(places)
    places, estimates = places[order], estimates[order]
    reach = np.abs(estimates[:, 1:] - estimates[:, :1]).T
    style = {"color": COLOURS[0], "ls": "-" if is_numeric else "", "marker": "o", "ms": 4}
    axes.errorbar(places, estimates[:, 0], reach, elinewidth=1.4, capsize=3, **style)
    if probe.untouched and measure in probe.untouched.measures:
        whole = probe.untouched.measures[measure]
        ends = [places[0], places[-1]] if len(places) > 1 else [places[0] - 0.5, places[0] + 0.5]
        axes.fill_between(ends, *whole.ends, color=COLOURS[2], alpha=0.15, lw=0)
        axes.plot(ends, [whole.value] * 2, color=COLOURS[2], lw=1.4, ls="--", label="untouched")
    if probe.name == TARGET_RETURN and measure == "return":
        axes.plot(places, places, color="#6b7280", lw=1, ls=":", label="as asked")
    for place in (places[i] for i, p in enumerate([points[i] for i in order]) if is_reference(probe, p)):
        axes.axvline(place, color="#6b7280", lw=1, ls="--", label="training")
    if measure == "success":
        axes.set_ylim(-0.04, 1.04)
    if is_numeric and places[0] > 0 and places[-1] > WIDE * places[0]:
        axes.set_xscale("log")
        axes.minorticks_off()
    if not is_numeric:
        axes.margins(x=0.3)
    axes.set_xticks(places, [str(points[i].value) for i in order])
    axes.set_xlabel(probe.name)
    axes.set_title(measure, fontsize=TITLE_SIZE)
    if any(
        not str(line.get_label()).startswith("_") for line in axes.lines
    ):  # beside the title, where nothing is drawn
        axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)
