"""Every test of this folder trains for long."""

import pytest


@pytest.fixture(autouse=True)
def _unchecked(unchecked_shapes):
    """Runs that learn take thousands of steps; what the shapes are is checked everywhere else."""
