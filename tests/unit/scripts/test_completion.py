"""A shell is offered commands, options and values."""

import os
import subprocess
import sys

import pytest


def offered(line, tmp_path):
    """Return what the command line offers behind what was typed, as argcomplete's shell code asks for it."""
    target = tmp_path / "offered"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    asked |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(target), "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    subprocess.run([sys.executable, "-m", "seqrl"], env={**os.environ, **asked}, check=False, cwd=tmp_path)
    return target.read_text().split("\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("seqrl convert-c", {"convert-checkpoint", "convert-config"}),
        ("seqrl train --mem", {"--memory"}),
        ("seqrl train --memory tr", {"transformer"}),
        ("seqrl train --algo actor", {"actor_critic"}),
        ("seqrl train --config bc_rnn", {"bc_rnn.json", "bc_rnn_gmm.json"}),
    ],
)
def test_what_is_offered(line, expected, tmp_path):
    assert set(offered(line, tmp_path)) == expected
