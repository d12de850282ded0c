"""Fixtures of the tests of checkpoints."""

import shutil

import pytest

from seqrl.algo.checkpoint import (
    save_checkpoint,
)
from tests.unit.algo.checkpoints import ACTIONS, OBSERVATIONS, small_algo, training_state


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "checkpoints" / "epoch_000003"
    save_checkpoint(
        path, small_algo(), OBSERVATIONS, ACTIONS, env={"id": "x"}, metrics={"a": 0.5}, training_state=training_state()
    )
    return path


@pytest.fixture
def path(template, tmp_path):
    """A fresh copy of a good checkpoint, to be spoiled."""
    copy = tmp_path / "run" / "checkpoints" / "epoch_000003"
    shutil.copytree(template, copy)
    return copy


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "executed"
