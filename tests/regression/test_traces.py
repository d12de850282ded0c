"""No number of a run changes unless the change says so; see ``benchmarks/traces.py``, which compares all traces.

Here each agent meets one memory, and each memory two agents.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import traces  # noqa: E402

SAME_NUMBERS_SINCE = "be5fcf5"
DIAGONAL = [n for i, n in enumerate(traces.names()) if (i + i // len(traces.MEMORIES)) % len(traces.MEMORIES) == 0]
NAMES = sorted({"actor_critic-gru", *DIAGONAL})


def git_knows(commit):
    return subprocess.run(["git", "cat-file", "-e", commit], cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_trace_is_what_was_recorded(name):
    """Bit for bit; on another machine than the one that recorded, the version that recorded it is run beside it."""
    kept = traces.recorded(name)
    expected = kept["trace"]
    if kept["machine"] != traces.machine():
        if not git_knows(SAME_NUMBERS_SINCE):
            pytest.skip(f"recorded on another machine, and the history does not reach back to {SAME_NUMBERS_SINCE}")
        expected = traces.side_by_side(SAME_NUMBERS_SINCE, [name])[name]
    assert traces.differences(expected, traces.trace(kept["config"])) == []


@pytest.mark.slow
def test_another_commit_can_be_run_beside_this_one():
    if not git_knows(SAME_NUMBERS_SINCE):
        pytest.skip("this is no clone with history")
    other = traces.side_by_side(SAME_NUMBERS_SINCE, ["bc-gru"])["bc-gru"]
    assert traces.differences(other, traces.trace(traces.recorded("bc-gru")["config"])) == []


def test_a_change_is_seen():
    kept = traces.recorded("bc-gru")["trace"]
    other = json.loads(json.dumps(kept))
    other["rows"][3]["loss/total"] += 1e-12
    assert traces.differences(kept, kept) == []
    assert traces.differences(kept, other) != []
    assert traces.differences(kept, {**kept, "weights": ""}) == ["the weights differ"]
