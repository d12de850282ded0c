"""Run files from a budget: whatever depends on how long a run may be is worked out, and told with its reason.

Keys that are given win. What comes out is an ordinary run file. A run that goes on keeps what was worked out when it
began.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from seqrl.configs.base_config import CONFIGS, config_factory
from seqrl.configs.budget_learning import (
    HARD_REASON,
    few_data_keys,
    memory_keys,
    optimizer_keys,
    reactive_keys,
    value_keys,
)
from seqrl.configs.budget_windows import (
    CHOICES,
    N_STEP,
    REACTIVE_BATCH,
    REACTIVE_WINDOW,
    TOKENS,
    batch_size_of,
    fits,
    is_agent,
    is_hard_to_explore,
    is_reactive,
    is_short,
    needs_whole_returns,
    window_of,
)
from seqrl.configs.derived import Budget, Derived
from seqrl.configs.dotted import copied, has_value, set_missing, value_at
from seqrl.core.errors import ConfigError
from seqrl.core.registry import TIMESTEP_ENCODERS

logger = logging.getLogger(__name__)

EPOCHS = 40
EVALUATIONS = 10
MIN_EPISODES, MAX_EPISODES = 10, 100
ACTING_STEPS, STEPS_PER_UPDATE = 5, 20
"""Steps of evaluation that cost less than a step of collecting with its share of learning, and than a gradient step."""
NUM_ENVS = 12
EPSILON, FEW_RANDOM = (0.2, 0.05), (4, 1)
"""Shares of random actions in the beginning and in the end, and how many there may be in an episode that is short."""
REPLAY_RATIO, FULL_RATIO_STEPS = 0.5, 10_000
OF_EPISODES, LONGEST_HELD, MIN_DRAWS = (0.8, 0.2), 32, 3
"""Shares of the episodes that are random from their first step to the last, most steps that an action is held, and
episodes of each environment below which the share cannot fall."""
MEMORY_SIZES: dict[str, dict[str, int]] = {
    "gru": {"d_hidden": 128, "num_layers": 1, "d_output": 128},
    "lstm": {"d_hidden": 128, "num_layers": 1, "d_output": 128},
    "transformer": {"d_model": 128, "num_heads": 4, "d_ff": 256, "num_layers": 2},
    "mamba": {"d_model": 128, "num_layers": 2},
    "mamba2": {"d_model": 128, "num_heads": 4, "d_state": 32, "num_layers": 2},
    "gated_deltanet": {"d_model": 128, "num_heads": 4, "d_state": 32, "num_layers": 2},
    "mlstm": {"d_model": 128, "num_heads": 4, "d_state": 32, "num_layers": 2},
    "hybrid": {"d_model": 128, "num_heads": 4, "d_state": 32, "d_ff": 256},
    "min_gru": {"d_model": 128, "num_layers": 1},
    "lru": {"d_model": 128, "d_state": 128, "num_layers": 2},
    "feedforward": {"d_model": 128, "d_ff": 256, "num_layers": 1},
}
"""Sizes that a CPU trains in minutes; the classes' own defaults are for a GPU and long runs."""


def with_budget(values: Mapping[str, Any], budget: Budget) -> tuple[dict[str, Any], list[Derived]]:
    """Return a run file in which everything that depends on a budget is set, and what was set.

    Args:
        values: Nested dict; its keys stay as they are. ``algo_name`` has to be there.
        budget: Of the run.

    Raises:
        ConfigError: If the budget is too small to plan with, or is not one of the two.
        RegistryError: If the algorithm is unknown.
    """
    if (budget.env_steps is None) == (budget.gradient_steps is None):
        raise ConfigError("a budget is in environment steps (a run that collects) or in gradient steps (fixed data)")
    out = copied(values)
    section = CONFIGS.get(str(out["algo_name"])).model_fields["algo"].annotation
    known = set(getattr(section, "model_fields", {}))
    encoder = TIMESTEP_ENCODERS.sections.get(str(value_at(out, "observation.timestep_encoder.type", "auto")))
    known_of_encoder = set(getattr(encoder, "model_fields", {}))
    try:
        proposals = _shared(out, budget) + (_online(out, budget) if budget.env_steps else _offline(out, budget))
    except (TypeError, ValueError, ZeroDivisionError) as error:
        if not isinstance(error, ConfigError):
            config_factory(str(out["algo_name"]), out)  # it says which key is wrong
        raise
    done = []
    for proposal in proposals:
        path = proposal.key.split(".")
        if path[0] == "algo" and path[1] not in known:
            continue
        if path[:2] == ["observation", "timestep_encoder"] and path[2] not in known_of_encoder:
            continue
        if set_missing(out, path, proposal.value):
            done.append(proposal)
    return out, done


def without_epochs(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run file that leaves the number of epochs to the budget."""
    out: dict[str, Any] = copied(values)
    if isinstance(train := out.get("train"), dict):
        train.pop("num_epochs", None)
    return out


def continued(
    values: Mapping[str, Any], budget: Budget, saved: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Derived]]:
    """Return the run file of a run that goes on, and what of it a budget would set otherwise now.

    What was derived when the run began stays, however long episodes turn out to be now. A larger budget means more
    epochs, unless their number is given.

    Args:
        values: What is given now; its keys stay as they are.
        budget: Of the run, from its beginning.
        saved: The run's ``config.json``.

    Raises:
        ConfigError: As :func:`with_budget`.
    """
    out, free = copied(values), without_epochs(values)

    def planned(of: Mapping[str, Any], **known: Any) -> dict[str, Any]:
        return {entry.key: entry.value for entry in with_budget(of, replace(budget, **known, is_a_trial=True))[1]}

    ways = [planned(free, horizon=n, lasts_as_long=True, finds_nothing=True) for n in (1, budget.horizon, None)]
    now = planned(free)
    with suppress(ConfigError):
        now = planned(values)
    for key in {key for way in (now, *ways) for key in way} - {"train.num_epochs"}:
        if has_value(saved, key):
            set_missing(out, key.split("."), value_at(saved, key))
    kept = [
        Derived(key, value_at(out, key), f"as the run began; now it would be {json.dumps(value)}")
        for key, value in now.items()
        if key != "train.num_epochs" and value_at(out, key, value) not in (value, ways[1].get(key, value_at(out, key)))
    ]
    of_budget = "collect" if budget.env_steps else "train"
    steps = value_at(out, f"{of_budget}.steps_per_epoch")
    num = value_at(out, "collect.num_envs") if budget.env_steps else 1
    total, epochs = budget.env_steps or budget.gradient_steps or 0, value_at(saved, "train.num_epochs")
    is_same = has_value(values, "train.num_epochs") and total // (max(1, epochs) * num) == steps
    set_missing(out, ["train", "num_epochs"], epochs if is_same else max(1, total // (max(1, steps) * num)))
    return out, kept


def _shared(values: Mapping[str, Any], budget: Budget) -> list[Derived]:
    """Return what both kinds of run have: the window, the batch, the memory's sizes, and when to look and save."""
    length = "of unknown length" if budget.horizon is None else f"of up to {budget.horizon} steps"
    why = f"episodes {length}{f', {budget.horizon_source}' if budget.horizon_source else ''}"
    window = window_of(values, budget)
    batch, of_batch = batch_size_of(values, budget), f"about {TOKENS} steps in windows of {window}"
    if is_reactive(values, budget):
        why = f"no memory and continuous actions: just longer than the {N_STEP}-step returns"
        of_batch = "no memory and continuous actions: many small gradient steps"
    elif not fits(budget):
        why += ": a window holds part of an episode; it must cover the longest delay to remember"
    memory = value_at(values, "algo.sequence_encoder.type", "transformer")
    sizes = MEMORY_SIZES.get(memory, {})
    small = "sizes that a CPU trains in minutes"
    return [
        Derived("train.window_steps", window, why),
        Derived("train.batch_size", batch, of_batch),
        Derived("train.sample_by", "transition", "every step counts equally"),
        Derived("train.window_padding", "both", "the first and last steps of an episode count equally too"),
        Derived("train.num_epochs", _epochs(values, budget), f"about {EPOCHS}, so that the budget is spent"),
        Derived("experiment.evaluation.every_n_epochs", *_every(values, budget)),
        Derived("experiment.evaluation.episodes", *_episodes(values, budget)),
        Derived("observation.timestep_encoder.d_hidden", 128, small),
        Derived("observation.timestep_encoder.d_output", 128, small),
        Derived("algo.sequence_encoder.type", memory, "the default memory"),
        *(Derived(f"algo.sequence_encoder.{key}", size, small) for key, size in sizes.items()),
        Derived("algo.actor.d_hidden", 128, small),
        Derived("algo.critic.d_hidden", 128, small),
    ]


def _every(values: Mapping[str, Any], budget: Budget) -> tuple[int, str]:
    """Return the epochs between evaluations: ten of them, or fewer where even the shortest cost more than learning."""
    fitting = _steps_of_evaluations(budget) // (MIN_EPISODES * (budget.horizon or 1))
    if fitting >= EVALUATIONS:
        return max(1, _epochs(values, budget) // EVALUATIONS), "about ten evaluations"
    number = max(2, fitting)
    why = f"{number} evaluations, as episodes of up to {budget.horizon} steps are long"
    return max(1, _epochs(values, budget) // number), why


def _steps_of_evaluations(budget: Budget) -> int:
    """Return how many steps of evaluation cost less than learning."""
    return ACTING_STEPS * budget.env_steps if budget.env_steps else STEPS_PER_UPDATE * (budget.gradient_steps or 0)


def _episodes(values: Mapping[str, Any], budget: Budget) -> tuple[int, str]:
    """Return the episodes of an evaluation, so that all evaluations cost less than learning; and why."""
    num_tasks = len(value_at(values, "env.tasks", None) or ())
    least = max(MIN_EPISODES, num_tasks)
    if budget.horizon is None:
        return least, "episodes may be long"
    fitting = _steps_of_evaluations(budget) // (EVALUATIONS * budget.horizon)
    if fitting >= max(MAX_EPISODES, least):
        return max(MAX_EPISODES, least), "all evaluations together cost less than learning"
    if fitting < least:
        why = "one for each task" if least == num_tasks else "the smallest useful number"
        return least, f"of up to {budget.horizon} steps; {why}"
    return fitting, f"of up to {budget.horizon} steps, so that evaluation costs less than learning"


def _online(values: Mapping[str, Any], budget: Budget) -> list[Derived]:
    total = budget.env_steps or 0
    epochs, num_envs = _epochs(values, budget), num_envs_of(values, budget)
    per_epoch = value_at(values, "collect.steps_per_epoch", total // (epochs * num_envs))
    if has_value(values, "collect.steps_per_epoch") and not per_epoch:
        raise ConfigError(f"collect.steps_per_epoch is 0, so none of {total} environment steps would be taken")
    if not 0 < epochs * num_envs * per_epoch <= total:
        places = f"{num_envs} environment{'s' * (num_envs > 1)}"
        raise ConfigError(
            f"{total} environment steps are too few for {places}, each with {epochs} epochs of at least "
            f"{max(1, per_epoch)}; take more steps, or set train.num_epochs, collect.num_envs or "
            "collect.steps_per_epoch"
        )
    collecting, learning = (epochs - value_at(values, f"{what}.start_epoch", 0) for what in ("collect", "train"))
    if collecting < 1 and not budget.is_a_trial:
        raise ConfigError(f"collect.start_epoch is not below {epochs} epochs, so no environment step would be taken")
    collecting = max(1, collecting)
    collected = collecting * num_envs * per_epoch
    total = _planned(values, budget, collected)
    ratio = value_at(values, "train.replay_ratio", None)
    updates = value_at(values, "train.steps_per_epoch", None)
    is_by_ratio = updates is None and not has_value(values, "train.replay_ratio")
    if updates is None or ratio is not None:
        ratio = ratio or _replay_ratio(values, budget, total)
        updates = max(1, round(ratio * per_epoch * num_envs))
    anneal = max(1, round(0.5 * (total if collecting == epochs else collected) / num_envs))
    rollouts = f"{total} steps in {num_envs} environments"
    most = value_at(values, "collect.replay.max_transitions", None)
    begin = max(1, total // 50 if most is None else min(total // 50, most // 2))
    out = [
        Derived(
            "collect.num_envs", num_envs, f"{NUM_ENVS}, or fewer with a thousand steps each; at least one per task"
        ),
        Derived("collect.steps_per_epoch", per_epoch, f"{total} steps / {epochs} epochs / {num_envs} environments"),
        Derived("collect.replay.min_transitions", begin, "2 % of the steps, before learning begins"),
    ]
    if ratio is not None and not is_by_ratio:  # the ratio is given, or is turned off
        out.append(Derived("train.steps_per_epoch", updates, f"{ratio} gradient steps per environment step"))
    elif ratio is not None:
        small = "; more of them, as they are small" if is_reactive(values, budget) else ""
        of_ratio = f"{REPLAY_RATIO}, and less beyond {FULL_RATIO_STEPS} steps{small}"
        out.append(Derived("train.replay_ratio", ratio, of_ratio))
    kind = value_at(values, "collect.exploration.type", "epsilon_greedy")
    out += _epsilon(values, budget, collected) if kind == "epsilon_greedy" else []
    if kind in ("epsilon_greedy", "bilevel"):
        out.append(Derived("collect.exploration.anneal_steps", anneal, f"half of {rollouts}"))
    out += _sampled(values) if budget.action_kind in CHOICES and is_agent(values) else []
    window = window_of(values, budget)
    pieces = max(2 * window, per_epoch)
    if (budget.horizon is None or budget.horizon > pieces) and not needs_whole_returns(values):
        out.append(Derived("collect.trajectory_steps", pieces, "longer episodes are stored in pieces, as they come"))
    out += reactive_keys(values) if is_reactive(values, budget) else []
    optimizer = optimizer_keys(values, budget, updates * max(1, learning))
    return [*out, *optimizer, *value_keys(values, budget), *memory_keys(values, budget)]


def _epsilon(values: Mapping[str, Any], budget: Budget, collected: int) -> list[Derived]:
    """Return how often actions are random: rarely where a few can spoil an episode, and by whole ones if it is long."""
    (start, end), own = EPSILON, "an untrained policy already acts randomly"
    why = "a few to the end"
    out = [Derived("collect.exploration.randomize", False, own)]
    is_found = _by_episode(values, budget, collected)
    if is_found or value_at(values, "collect.exploration.by_episode", False):
        own = "whole random episodes: some goals are out of reach as long as the policy acts in between"
        own = why = f"{HARD_REASON}; {own}" if is_found else own
        (start, end), held = OF_EPISODES, {"by_episode": True, "max_repeat": LONGEST_HELD}
        out += [Derived(f"collect.exploration.{key}", value, own) for key, value in held.items()]
    elif budget.action_kind in CHOICES and budget.horizon is not None and is_short(budget):
        why = f"{FEW_RANDOM[0]} random steps in an episode of {budget.horizon}, and {FEW_RANDOM[1]} in the end"
        start, end = (float(f"{min(e, n / budget.horizon):.3g}") for e, n in zip(EPSILON, FEW_RANDOM, strict=True))
    out.append(Derived("collect.exploration.end", min(end, value_at(values, "collect.exploration.start", end)), why))
    start = max(start, value_at(values, "collect.exploration.end", start))
    return [Derived("collect.exploration.start", start, own), *out]


def _by_episode(values: Mapping[str, Any], budget: Budget, collected: int) -> bool:
    """Tell whether an agent without a policy or data explores by whole episodes: enough for their share to fall."""
    given = [f"collect.exploration.{key}" for key in ("by_episode", "start", "end", "max_repeat")]
    if any(has_value(values, key) for key in given) or not is_hard_to_explore(values, budget):
        return False
    if value_at(values, "train.init_from", None) or value_at(values, "train.data", None):
        return False
    return MIN_DRAWS * (budget.horizon or 0) * num_envs_of(values, budget) <= collected


def _sampled(values: Mapping[str, Any]) -> list[Derived]:
    """Return what lets a policy over choices be evaluated as it was trained: by sampling."""
    stuck = "a greedy policy that is unsure may get stuck"
    out = [Derived("experiment.evaluation.deterministic", False, stuck)]
    if value_at(values, "algo.distribution.type", "categorical") == "categorical":
        keys = {"type": "categorical", "min_probability_mass": 1e-4}
        sure = "a policy that is sure takes hardly any other action"
        out += [Derived(f"algo.distribution.{key}", value, sure) for key, value in keys.items()]
    return out


def _replay_ratio(values: Mapping[str, Any], budget: Budget, total: int) -> float:
    """Return gradient steps per environment step; of small ones as many as see the same number of steps, at most 1."""
    ratio = REPLAY_RATIO * min(1.0, FULL_RATIO_STEPS / total) ** 0.75
    if is_reactive(values, budget):
        ratio = min(1.0, ratio * TOKENS / (REACTIVE_WINDOW * REACTIVE_BATCH))
    return float(f"{ratio:.3g}")


def _offline(values: Mapping[str, Any], budget: Budget) -> list[Derived]:
    total = budget.gradient_steps or 0
    epochs = _epochs(values, budget)
    per_epoch = value_at(values, "train.steps_per_epoch", total // epochs)
    if not 0 < epochs * per_epoch <= total:
        raise ConfigError(
            f"{total} gradient steps are too few for {epochs} epochs of at least {max(1, per_epoch)}; take more, or "
            "set train.num_epochs or train.steps_per_epoch"
        )
    total = _planned(values, budget, epochs * per_epoch)
    steps = Derived("train.steps_per_epoch", per_epoch, f"{total} gradient steps / {epochs} epochs")
    return [steps, *optimizer_keys(values, budget, total), *few_data_keys(values, budget, total)]


def _planned(values: Mapping[str, Any], budget: Budget, planned: int) -> int:
    """Return the steps to derive the rest from: those of the budget, or those that keys of the run file leave of it."""
    total = budget.env_steps or budget.gradient_steps or 0
    if 2 * planned >= total:
        return total
    if not budget.is_a_trial:
        what, of = ("environment", "collect") if budget.env_steps else ("gradient", "train")
        given = [key for key in ("train.num_epochs", f"{of}.steps_per_epoch") if has_value(values, key)]
        given += ["collect.start_epoch"] if of == "collect" and has_value(values, "collect.start_epoch") else []
        logger.warning(
            "the run takes %d of the %d %s steps of its budget, because its run file or command sets %s",
            planned,
            total,
            what,
            ", ".join(given),
        )
    return planned


def num_envs_of(values: Mapping[str, Any], budget: Budget) -> int:
    """Return the training environments: as given, or planned."""
    num_tasks = len(value_at(values, "env.tasks", None) or ())
    most = (budget.env_steps or 0) // 1000
    return int(value_at(values, "collect.num_envs", max(1, num_tasks, min(NUM_ENVS, most))))


def _epochs(values: Mapping[str, Any], budget: Budget) -> int:
    """Return the epochs that are given, or about 40: as many as spend the budget with whole steps in each."""
    given = value_at(values, "train.num_epochs", None)
    if given is None:
        is_online = budget.env_steps is not None
        total, rows = budget.env_steps or budget.gradient_steps or 0, num_envs_of(values, budget) if is_online else 1
        per_epoch = value_at(values, f"{'collect' if is_online else 'train'}.steps_per_epoch", None)
        return int(max(1, total // (rows * (per_epoch or max(1, total // (EPOCHS * rows))))))
    if given < 1:
        raise ConfigError(f"train.num_epochs is {given}: a budget needs at least one epoch to spend it in")
    return int(given)
