"""ToolRecall: a choice and a value, both shown once; an action is a dict. Chance 0.05. Seed 0, CPU, half a minute."""

import json

import pytest

from seqrl.scripts import train

pytestmark = pytest.mark.learning


def success(folder, memory):
    """Return the success of the last evaluation of behaviour cloning from 300 scripted episodes."""
    settings = [
        'train.data=[{"scripted": "seqrl/ToolRecall-v0", "episodes": 300}]',
        "train.window_steps=5",
        "train.num_epochs=1",
        "train.steps_per_epoch=300",
        f"algo.sequence_encoder.type={memory}",
        "algo.optimizer.learning_rate=0.001",
        "algo.optimizer.warmup_steps=20",
        "experiment.report.enabled=false",
        "experiment.evaluation.every_n_epochs=100",
        f"experiment.output_dir={folder}",
    ]
    assert train.main(["--algo", "bc", "--name", "run", *(a for s in settings for a in ("--set", s))]) == 0
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "eval/success_mean" in row][-1]["eval/success_mean"]


@pytest.mark.slow
def test_a_memory_learns_both_parts(tmp_path):
    assert success(tmp_path, "gru") >= 0.8


@pytest.mark.slow
def test_without_a_memory_it_stays_at_chance(tmp_path):
    assert success(tmp_path, "feedforward") <= 0.2
