"""What a budget sets of learning: the optimiser, the values, the actor, and what keeps a memory from overfitting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqrl.configs.budget_windows import (
    MAX_WINDOW,
    N_STEP,
    batch_size_of,
    fits,
    is_hard_to_explore,
    is_longer_than_a_window,
    is_short,
    needs_whole_returns,
    remembers,
    window_of,
)
from seqrl.configs.derived import Budget, Derived
from seqrl.configs.dotted import has_value, value_at

GAMMA, LONG_GAMMA = 0.98, 0.99
RATE, HARD_RATE = 5e-4, 2e-4
HARD_REASON = f"random episodes of more than {MAX_WINDOW} steps all returned the same"
BOLTZMANN = {"share": 0.2, "temperature": 0.1}
NOISE = {"type": "tanh_gaussian", "min_log_std": -1.5, "max_log_std": 0.5}
"""Of a policy without a memory: its standard deviation, before squashing, stays between 0.22 and 1.65."""
MANY_PASSES = 100
"""Passes over fixed data after which a memory is expected to know it by heart."""


def optimizer_keys(values: Mapping[str, Any], budget: Budget, updates: int) -> list[Derived]:
    """Return the rate of learning in a run of so many gradient steps, and how it falls."""
    updates = max(updates, 1)
    of_run = f"of {updates} gradient steps"
    tau = min(max(100 / updates, 0.005), 0.02)
    rate, why = (HARD_RATE, HARD_REASON) if is_hard_to_explore(values, budget) else (RATE, "for small networks")
    return [
        Derived("algo.optimizer.learning_rate", rate, why),
        Derived("algo.optimizer.warmup_steps", max(1, min(500, updates // 20)), f"5 % {of_run}, at most 500"),
        Derived("algo.optimizer.schedule", "cosine", "so that training ends with small steps"),
        Derived("algo.optimizer.final_factor", 0.1, "so that a longer run can still learn"),
        Derived("algo.tau", round(tau, 4), f"target networks follow within a hundredth {of_run}"),
    ]


def value_keys(values: Mapping[str, Any], budget: Budget) -> list[Derived]:
    """Return what learning from few environment steps asks of critics."""
    gamma = value_at(values, "algo.gamma", GAMMA if fits(budget) else LONG_GAMMA)
    return [
        Derived("algo.critic.num_critics", 2, "two keep values from growing too high"),
        Derived("algo.critic.norm", "layer", "values stay in bounds"),
        Derived("algo.gamma", gamma, "episodes are short" if fits(budget) else "episodes may be long"),
        Derived(
            "algo.boltzmann", BOLTZMANN, "tries what the critics prefer and the policy avoids; one discrete action only"
        ),
        *_novelty(values, budget),
        Derived("algo.n_step", N_STEP, "a late reward reaches the actions that led to it sooner"),
        *(_of_small_differences() if is_hard_to_explore(values, budget) else []),  # the first value of a key counts
        Derived(
            "algo.extra_gammas",
            [0.1, 0.9] if gamma > 0.9 and not needs_whole_returns(values) else [],
            "shorter horizons, with one-step targets, are learned sooner and train the memory",
        ),
    ]


def _of_small_differences() -> list[Derived]:
    """Return what lets critics see how little each action of a long episode is worth."""
    sooner = f"{HARD_REASON}: critics learn sooner how little each action is worth"
    found = {"extra_gammas": [], "num_critics_td": 1, "online_value": "mean", "optimizer.grad_clip": None}
    return [Derived(f"algo.{key}", value, sooner) for key, value in found.items()]


def _novelty(values: Mapping[str, Any], budget: Budget) -> list[Derived]:
    """Return how many random actions are taken where observations are unusual: one per episode, if that is short."""
    if budget.action_kind != "discrete" or not budget.horizon or not is_short(budget):
        return []
    per_window = float(f"{window_of(values, budget) / budget.horizon:.3g}")
    why = "one random action per episode where observations are unusual; no images"
    return [Derived("algo.novelty", per_window, why)]


def reactive_keys(values: Mapping[str, Any]) -> list[Derived]:
    """Return what a policy without a memory sees, and how random its continuous actions are."""
    observed = "no memory and continuous actions: the observation is enough"
    out = [Derived(f"observation.use_prev_{what}", False, observed) for what in ("action", "reward")]
    if value_at(values, "algo.entropy", None) is None and not has_value(values, "algo.distribution"):
        noise = "bounds of the noise; learns sooner without a memory"
        out += [Derived(f"algo.distribution.{key}", value, noise) for key, value in NOISE.items()]
    return out


def memory_keys(values: Mapping[str, Any], budget: Budget) -> list[Derived]:
    """Return what a memory of few episodes asks for, and what it can know: how many steps have gone by."""
    by_heart = "so that the memory does not overfit a few episodes"
    out = [Derived("observation.prev_dropout", 0.25, by_heart)]
    if budget.action_kind not in ("continuous", "hybrid"):  # it would hide what small changes of an action are worth
        if not is_hard_to_explore(values, budget):
            out.append(Derived("algo.memory_dropout", 0.3, f"{by_heart}; actions are discrete"))
        steps = window_of(values, budget) // 4
        if steps and is_longer_than_a_window(values, budget) and not _relabels(values):
            why = "the memory acts for longer than the windows it trains on; actions are discrete"
            out.append(Derived("train.burn_in_steps", steps, why))
    if remembers(values) and budget.horizon is not None and budget.horizon <= window_of(values, budget):
        out.append(Derived("algo.time_limits", "end", "a policy that remembers a whole episode can count its steps"))
    return out


def _relabels(values: Mapping[str, Any]) -> bool:
    """Tell whether training changes what is stored; the steps before a window would stay as they were."""
    data = value_at(values, "train.data", None) or ()
    sources = [value_at(values, "collect.replay", None), *(data if isinstance(data, list | tuple) else ())]
    return any(value_at(source, "relabel", None) for source in sources)


def few_data_keys(values: Mapping[str, Any], budget: Budget, total: int) -> list[Derived]:
    """Return what keeps a memory from learning little data by heart, in a run that sees it many times."""
    if budget.transitions is None or not remembers(values):
        return []
    window, batch = window_of(values, budget), value_at(values, "train.batch_size", batch_size_of(values, budget))
    passes = round(total * batch * window / max(budget.transitions, 1))
    if passes <= MANY_PASSES:
        return []
    why = f"{passes:,} passes over the data: so that the memory does not learn it by heart"
    return [Derived("algo.memory_dropout", 0.3, why), Derived("observation.prev_dropout", 0.25, why)]
