"""Whether the actions of two stores mean the same."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.data.mixture import Source
from seqrl.data.store_info import codec_for


def disagreement(source: Source, first: Source, acting: spaces.Space[Any] | None) -> DataError | None:
    """Return what is wrong with the actions of a source beside those of the first one; None if they are alike.

    Args:
        source: To compare.
        first: With which.
        acting: Space of the policy that will act; None if it is not known yet.
    """
    info, other = source.store.info, first.store.info
    alike = info.action_space == other.action_space
    read = info.action_space, other.action_space
    if acting is not None:  # choices are those of the environment; numbers are in its units, or scaled already
        read = codec_for(info, acting).space, codec_for(other, acting).space
        alike = read[0] == read[1]
    if alike:
        return None
    names = [f"{s.name} ({s.store.info.source or s.store.path})" for s in (source, first)]
    hint = ""
    if acting is not None:
        hint = f", in the environment's space {acting}: one is in its units, and one is scaled already"
    elif not (info.spaces_are_known and other.spaces_are_known):
        hint = "; one that is not said is guessed from the actions (attribute 'action_space' of the group 'data')"
    return DataError(f"{names[0]} and {names[1]} have different action spaces: {read[0]} and {read[1]}{hint}")
