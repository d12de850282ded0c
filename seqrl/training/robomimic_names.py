"""Metrics under robomimic's names too, for dashboards that were made for it."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = {
    "loss/total": "Train/Loss",
    "optim/grad_norm": "Train/Policy_Grad_Norms",
    "valid/total": "Valid/Loss",
}
_NEGATED = {"loss/nll": "Train/Log_Likelihood", "valid/nll": "Valid/Log_Likelihood"}
_EPISODES = {"return_mean": "Return", "success_mean": "Success_Rate", "length_mean": "Horizon"}


def robomimic_names(values: Mapping[str, float], task: str) -> dict[str, float]:
    """Return those of the values that robomimic logs as well, under its names.

    Args:
        values: ``group/name`` -> number.
        task: Name of the environment, for evaluations of a single task.
    """
    found = {theirs: values[ours] for ours, theirs in _NAMES.items() if ours in values}
    found |= {theirs: -values[ours] for ours, theirs in _NEGATED.items() if ours in values}
    for name, value in values.items():
        group, _, rest = name.partition("/")
        env, _, measure = rest.rpartition("/")
        if group == "eval" and measure in _EPISODES:
            found[f"Rollout/{_EPISODES[measure]}/{env or task}"] = value
    if "system/memory_gb" in values:
        found["System/RAM Usage (MB)"] = 1000.0 * values["system/memory_gb"]
    return found
