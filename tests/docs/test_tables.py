"""Tables of the docs are those of the recorded results."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import agents
import imitation
import memories
import policy_speed
import pong
import sequence_models
import suite_play
import suites
import where_time_goes
from record import RESULTS, table


def test_the_pages_show_what_was_recorded():
    assert table(memories.rows_of_scores()) in memories.PAGE.read_text()
    assert table(memories.rows_of_lengths()) in memories.PAGE.read_text()
    assert table(suites.rows_of_table()) in suites.PAGE.read_text()
    assert table(imitation.rows_of_table()) in imitation.PAGE.read_text()
    play, speed = (json.loads((RESULTS / name).read_text()) for name in ("suite_play.json", "policy_speed.json"))
    assert table(suite_play.lines(play["environments"])) in suite_play.PAGE.read_text()
    assert table(policy_speed.rows_of_table(speed["policies"])) in policy_speed.PAGE.read_text()
    assert table(pong.rows_of_table(json.loads(pong.RESULT.read_text())["runs"])) in pong.PAGE.read_text()
    assert table(agents.rows_of_gpu()) in policy_speed.PAGE.read_text()
    assert table(sequence_models.rows_of_gpu_acting()) in memories.PAGE.read_text()
    assert table(sequence_models.rows_of_gpu_training()) in memories.PAGE.read_text()
    for text in where_time_goes.tables(json.loads(where_time_goes.RESULT.read_text())).values():
        assert text in where_time_goes.PAGE.read_text()


@pytest.mark.parametrize("file", sorted(memories.FOLDER.glob("*.json")), ids=lambda f: f.stem)
def test_a_result_says_where_it_comes_from(file):
    found = json.loads(file.read_text())
    assert {"commit", "hardware", "command", "seed", "score"} <= found.keys()
    assert found["score"] == found["curve"][-1][1]
