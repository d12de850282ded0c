from pathlib import Path

import pytest

from seqrl.core.errors import CheckpointError
from seqrl.training.saved_values import check_values, restoring

GOOD = {"epoch": 3, "best": {"success": 0.5}, "explorations": [None], "replay": {"a": 1}, "num_threads": 2, "new": "x"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": "3"}, "epoch: Input should be a valid integer"),
        ({"epoch": -1}, "epoch: .*greater than or equal to 0"),
        ({"num_threads": 2**40}, "num_threads"),
        ({"best": {"../../x": 1.0}}, "best"),
        ({"improved": ["../x"]}, "improved.0"),
        ({"replay": {"shard": None}}, "replay.shard"),
        ({"env_steps": [1]}, "env_steps"),
        ({"reported": {"env_steps": {"a": "b"}}}, "reported.env_steps.a"),
        ({"reported": {"slots": 5}}, "reported.slots"),
        ({"reported": {"slots": {"0000": {"a": -1}}}}, "reported.slots.0000.a"),
        ({"generators": "x"}, "generators"),
        ({"warnings": ["odd", 3]}, "warnings.1"),
        ({"data": None}, "data"),
    ],
)
def test_a_training_state_of_wrong_types_is_an_error(changes, message):
    check_values(GOOD, Path("there"))
    with pytest.raises(CheckpointError, match=f"there: its training state is damaged: {message}"):
        check_values(GOOD | changes, Path("there"))


@pytest.mark.parametrize("error", [KeyError("a"), TypeError("b"), IndexError("c")])
def test_what_cannot_be_restored_is_an_error(error):
    with (
        pytest.raises(CheckpointError, match=r"there: its training state (lacks 'a'|is damaged)"),
        restoring(Path("there")),
    ):
        raise error
