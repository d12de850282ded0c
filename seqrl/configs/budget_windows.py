"""What a budget knows of episodes, and how much of one a window holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqrl.configs.base_config import CONFIGS
from seqrl.configs.derived import Budget
from seqrl.configs.dotted import has_value, value_at
from seqrl.configs.sections.agent import AgentSection
from seqrl.core.registry import SEQUENCE_ENCODERS

CHOICES = ("discrete", "multi_discrete")
TOKENS = 1536
"""Steps of a batch."""
N_STEP = 5
MIN_WINDOW, MAX_WINDOW, PART_WINDOW = 16, 128, 32
REACTIVE_WINDOW, REACTIVE_BATCH = 8, 32
"""Of a policy without a memory: windows just longer than ``N_STEP``, so that gradient steps are small and many."""
WINDOWED = ("transformer", "hybrid", "feedforward", "identity")
"""Built-in memories that see no more than a window; what came before is of no use to them."""


def fits(budget: Budget) -> bool:
    """Tell whether whole episodes fit into a window."""
    return budget.horizon is not None and budget.horizon <= MAX_WINDOW


def is_short(budget: Budget) -> bool:
    """Tell whether whole episodes fit into a window whatever the policy does; those of CartPole grow as it learns."""
    return fits(budget) and budget.lasts_as_long


def window_of(values: Mapping[str, Any], budget: Budget) -> int:
    """Return the steps of a window: an episode, or a short part of a long one.

    In windows that begin anywhere a policy cannot tell how late it is, nor blame that for what its actions did.
    """
    window = max(budget.horizon or 0, MIN_WINDOW) if fits(budget) else PART_WINDOW
    return int(value_at(values, "train.window_steps", REACTIVE_WINDOW if is_reactive(values, budget) else window))


def is_hard_to_explore(values: Mapping[str, Any], budget: Budget) -> bool:
    """Tell whether an agent with choices of actions finds nothing by single random ones in its long episodes.

    A window holds a part of such an episode.
    """
    if budget.env_steps is None or not is_agent(values):
        return False
    if not budget.finds_nothing or budget.action_kind not in CHOICES:
        return False
    return not fits(budget) and (budget.horizon is None or budget.horizon > window_of(values, budget))


def batch_size_of(values: Mapping[str, Any], budget: Budget) -> int:
    """Return the windows of a batch that is not given."""
    return REACTIVE_BATCH if is_reactive(values, budget) else max(8, min(64, TOKENS // window_of(values, budget)))


def is_agent(values: Mapping[str, Any]) -> bool:
    """Tell whether the algorithm is ``actor_critic``, ``multitask``, or one with the settings of either."""
    section = CONFIGS.get(str(values["algo_name"])).model_fields["algo"].annotation
    return isinstance(section, type) and issubclass(section, AgentSection)


def remembers(values: Mapping[str, Any]) -> bool:
    """Tell whether there is a memory."""
    return value_at(values, "algo.sequence_encoder.type", "transformer") not in ("feedforward", "identity")


def is_reactive(values: Mapping[str, Any], budget: Budget) -> bool:
    """Tell whether a policy without a memory learns continuous actions from parts of long episodes."""
    if budget.env_steps is None or budget.action_kind != "continuous" or remembers(values) or fits(budget):
        return False
    if not is_agent(values):  # chunks and subgoals need longer windows
        return False
    return not any(has_value(values, key) for key in ("train.window_steps", "train.batch_size", "algo.n_step"))


def is_longer_than_a_window(values: Mapping[str, Any], budget: Budget) -> bool:
    """Tell whether there is a recurrent memory, whose state spans more of an episode than a window does."""
    memory = value_at(values, "algo.sequence_encoder.type", "transformer")
    is_recurrent = memory not in WINDOWED
    if memory in SEQUENCE_ENCODERS:  # a plug-in tells it; the built-in ones may not be imported yet
        is_recurrent = SEQUENCE_ENCODERS.get(memory).is_recurrent
    return is_recurrent and (budget.horizon is None or budget.horizon > window_of(values, budget))


def needs_whole_returns(values: Mapping[str, Any]) -> bool:
    """Tell whether losses read the returns of whole episodes: by one discount in Cal-QL."""
    return values["algo_name"] == "decision_transformer" or bool(value_at(values, "algo.calibrate", False))
