"""The example's metric, through the command line: in metrics.jsonl, TensorBoard and the report."""

import json
import re
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqrl.core.registry import METRICS
from seqrl.scripts import train

PLUGIN = str(Path(__file__).parents[2] / "examples" / "offline_metric_plugin.py")
RUN = [
    "--config", "bc.json", "--debug", "--name", "r", "--set", "env.kwargs.corridor_length=3",
    "--set", "train.window_steps=4", "--set", "train.batch_size=4", "--set", "train.data.0.episodes=30",
    "--set", "algo.sequence_encoder.type=feedforward", "--set", "experiment.report.animation_episodes=0",
]  # fmt: skip
NAMES = {"metric/worst_windows_loss", "metric/worst_windows_mean"}


@pytest.fixture(autouse=True)
def _separate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(METRICS, "_entries", {})
    monkeypatch.setattr(METRICS, "sections", {})
    forget()  # a test before this one may have loaded it
    yield
    forget()


def forget():
    for name in [n for n in sys.modules if n.startswith("seqrl_plugin_offline_metric")]:
        del sys.modules[name]


def test_it_is_seen_everywhere():
    metrics = 'train.metrics=[{"type": "worst_windows", "share": 0.5}]'
    often = ["--set", "experiment.evaluation.first_epoch=0"]
    assert train.main([*RUN, "--plugin", PLUGIN, *often, "--set", metrics]) == 0
    rows = [json.loads(line) for line in Path("runs/r/metrics.jsonl").read_text().splitlines()]
    seen = [row for row in rows if row.keys() >= NAMES]
    assert [row["progress/epoch"] for row in seen] == [0, 1, 2]
    for row in seen:
        assert row["metric/worst_windows_mean"] == pytest.approx(row["valid/total"], rel=1e-3)  # windows of one length
        assert row["metric/worst_windows_loss"] >= row["metric/worst_windows_mean"]
    events = EventAccumulator("runs/r/tb").Reload()
    values = [event.value for event in events.Scalars("metric/worst_windows_loss")]
    assert values == pytest.approx([row["metric/worst_windows_loss"] for row in seen])
    page = Path("runs/r/report.html").read_text()
    assert "metrics (held out)" in page
    assert "worst_windows_mean</" in page
    value = f"{seen[-1]['metric/worst_windows_loss']:.4g}"
    assert re.search(rf"<td>metric/worst_windows_loss<td>{re.escape(value)}<td>", page)


def test_without_held_out_data_it_says_what_to_set(capsys):
    metrics = ["--set", 'train.metrics=[{"type": "worst_windows"}]', "--set", "train.valid_fraction=0.0"]
    assert train.main([*RUN, "--plugin", PLUGIN, *metrics]) == 2
    assert "train.metrics: worst_windows need held-out data" in capsys.readouterr().err
    assert not Path("runs").exists()
