import json
import shutil

import pytest
from gymnasium import spaces

from seqrl.core.errors import TrainingError
from seqrl.data import Store, StoreInfo, StoreWriter
from seqrl.training.progress import Progress
from seqrl.training.weights import CollectorSlot, collected_progress

GOOD = {"env_steps": {"a": 5}, "env_steps_per_env": 5, "episodes": 1, "faults": 0, "weights": 1, "time": 0.0}
DAMAGED = ["[1]", "{", "null", *(json.dumps(GOOD | c) for c in ({"env_steps": [1]}, {"env_steps": {"a": "x"}}))]


@pytest.mark.parametrize("text", [*DAMAGED, json.dumps(GOOD | {"episodes": None}), json.dumps({"env_steps": {}})])
def test_a_damaged_report_of_a_collector_is_left_out_and_takes_nothing_away(tmp_path, text):
    for name in ("0000", "0001"):
        (tmp_path / "collectors" / name).mkdir(parents=True)
        (tmp_path / "collectors" / name / "progress.json").write_text(json.dumps(GOOD))
    progress = Progress()
    with StoreWriter(tmp_path / "replay", StoreInfo(spaces.Box(0, 1, (1,)), spaces.Discrete(2)), "fifo"):
        replay = Store(tmp_path / "replay")
    for content in (json.dumps(GOOD), text, json.dumps(GOOD | {"env_steps": {"a": 7}, "episodes": 2})):
        (tmp_path / "collectors" / "0001" / "progress.json").write_text(content)
        progress.take_reports(collected_progress(tmp_path, replay))
    assert (dict(progress.env_steps), progress.num_episodes, progress.num_faults) == ({"a": 12}, 3, 0)


@pytest.mark.parametrize("text", ['{"name": ["x"], "steps_before": {}}', '{"name": "x", "steps_before": 5}', "[", "{}"])
def test_a_damaged_note_of_a_collectors_shard_takes_nothing_away(tmp_path, text):
    slot = tmp_path / "collectors" / "0000"
    slot.mkdir(parents=True)
    (slot / "progress.json").write_text(json.dumps(GOOD))
    (slot / "shard.json").write_text(text)
    with StoreWriter(tmp_path / "replay", StoreInfo(spaces.Box(0, 1, (1,)), spaces.Discrete(2)), "fifo"):
        assert collected_progress(tmp_path, Store(tmp_path / "replay"))["0000"]["env_steps"] == {"a": 5}


def test_a_collector_of_a_run_that_was_replaced_says_so_when_it_begins_a_shard(tmp_path):
    slot = CollectorSlot(tmp_path)
    shutil.rmtree(slot.path)
    with pytest.raises(TrainingError, match="the run was replaced; start the collector again"):
        slot.begin_shard(tmp_path / "replay" / "fifo" / "shard_1")
