"""Acting states that hold other acting states, each under a prefix of its own."""

from __future__ import annotations

from seqrl.models.sequence_encoders import State


def nest(prefix: str, state: State) -> State:
    """Return a state with ``prefix/`` before every name, to be merged with others."""
    return {f"{prefix}/{name}": value for name, value in state.items()}


def split_state(state: State, *prefixes: str) -> tuple[State, ...]:
    """Return the states that were nested under each prefix, and at last what has none of them.

    Args:
        state: Of all parts together.
        prefixes: As given to :func:`nest`.
    """
    parts = [{k.removeprefix(f"{p}/"): v for k, v in state.items() if k.startswith(f"{p}/")} for p in prefixes]
    rest = {k: v for k, v in state.items() if not k.startswith(tuple(f"{p}/" for p in prefixes))}
    return (*parts, rest)
