"""T-Maze by imitation, corridor of 50 steps: only the first observation tells the goal.

Chance is 0.5 over 200 episodes with both goals equally often. Seed 0, CPU, one thread, under 90 s each.
"""

import json

import pytest

from seqrl.scripts import train

pytestmark = [pytest.mark.learning, pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = {
    "transformer": ["train.num_epochs=4"],
    "gru": ["train.num_epochs=3", "algo.sequence_encoder.d_hidden=128", "algo.sequence_encoder.d_output=64"],
    "feedforward": ["train.num_epochs=3", "algo.sequence_encoder.d_model=64", "algo.sequence_encoder.d_ff=128"],
}


def final_success(memory, folder, *settings):
    """Train by the packaged template, and return the success of the last evaluation."""
    chosen = [f"algo.sequence_encoder.type={memory}"] if memory != "transformer" else []
    chosen += [*SMALL[memory], *settings, "experiment.report.enabled=false", "experiment.evaluation.every_n_epochs=100"]
    arguments = [a for s in [*chosen, f"experiment.output_dir={folder}"] for a in ("--set", s)]
    assert train.main(["--config", "bc.json", "--name", memory, *arguments]) == 0
    rows = [json.loads(line) for line in (folder / memory / "metrics.jsonl").read_text().splitlines()]
    evaluations = [row for row in rows if "eval/success_mean" in row]
    assert evaluations[-1]["eval/episodes"] == 200
    return evaluations[-1]["eval/success_mean"]


@pytest.mark.parametrize("memory", ["transformer", "gru"])
def test_memory_solves_it(memory, tmp_path):
    assert final_success(memory, tmp_path) >= 0.98


def test_without_memory_it_stays_at_chance(tmp_path):
    assert 0.35 <= final_success("feedforward", tmp_path) <= 0.65


def test_a_context_shorter_than_the_corridor_stays_at_chance(tmp_path):
    """Two layers that look back on 20 inputs each reach 39 steps: not far enough to see the hint."""
    settings = ["algo.sequence_encoder.window_steps=20", "train.num_epochs=3"]
    assert 0.35 <= final_success("transformer", tmp_path, *settings) <= 0.65


@pytest.mark.parametrize("algo", ["actor_critic", "multitask"])
def test_the_agents_learn_it_offline(algo, tmp_path):
    """Their packaged templates, corridor of 20 steps, GRU, five epochs."""
    settings = [f"experiment.output_dir={tmp_path}", "experiment.report.enabled=false"]
    arguments = [a for s in settings for a in ("--set", s)]
    assert train.main(["--config", f"{algo}.json", "--name", algo, *arguments]) == 0
    rows = [json.loads(line) for line in (tmp_path / algo / "metrics.jsonl").read_text().splitlines()]
    assert [row for row in rows if "eval/success_mean" in row][-1]["eval/success_mean"] >= 0.98
