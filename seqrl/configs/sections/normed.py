"""Sections whose norm has to fit a width."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator

from seqrl.configs.section import Section

SIMPLEX_WIDTH = 8
"""Features per group of ``simnorm``."""


class NormedSection(Section):
    """Checks that ``simnorm`` can divide what it is applied to.

    Attributes:
        normed: Names of the fields that hold the widths of normalised vectors.
    """

    normed: ClassVar[tuple[str, ...]]

    def _widths(self) -> dict[str, int]:
        """Return the widths that the norm is applied to, by field."""
        return {name: width for name in self.normed if (width := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _norm_fits(self) -> NormedSection:
        wrong = [f"{name} {width}" for name, width in self._widths().items() if width % SIMPLEX_WIDTH]
        if getattr(self, "norm", None) == "simnorm" and wrong:
            raise ValueError(f"norm 'simnorm' needs widths that {SIMPLEX_WIDTH} divides, got {', '.join(wrong)}")
        return self
