"""T-Maze by imitation, corridor of 100 steps: only the first observation tells the goal. And the same in pixels.

Chance is 0.5 over 200 episodes with both goals equally often. CPU, one thread, under two minutes each. Seed 0; seed 1
for the windowed Transformer: with it, what has to be handed on is found by step 400, with others later.
"""

import json

import pytest

from seqrl.scripts import train

pytestmark = [pytest.mark.learning, pytest.mark.slow]

WIDE = {"d_hidden": 64, "d_output": 64, "num_layers": 1}
WINDOWED = {"positions": "rotary", "dropout_ff": 0.0, "dropout_embedding": 0.0, "num_layers": 2}
MEMORIES = {
    "transformer, two windows reach": ({**WINDOWED, "attention": "sdpa", "window_steps": 90}, 8),
    "gru": ({"type": "gru", **WIDE}, 8),
    "lstm": ({"type": "lstm", **WIDE}, 8),
}
MATRICES = {"d_model": 64, "num_heads": 4, "d_state": 16, "num_layers": 1}
SMALL = {
    "mamba": {"d_model": 64, "num_layers": 1},
    "min_gru": {"d_model": 64, "num_layers": 1},
    "lru": {"d_model": 64, "d_state": 64, "num_layers": 1},
    "mamba2": MATRICES,
    "gated_deltanet": MATRICES,
    "mlstm": MATRICES,
}
CONTROLS = {
    "transformer, two windows fall short": ({**WINDOWED, "window_steps": 40}, 8),
    "feedforward": ({"type": "feedforward", "d_model": 64, "d_ff": 128}, 3),
    "identity": ({"type": "identity"}, 3),
}


def final_success(folder, num_epochs, memory, *settings):
    """Train by the packaged template in epochs of 100 steps, and return the success of the last evaluation."""
    chosen = [f"algo.sequence_encoder.{k}={v}" for k, v in memory.items()]
    chosen += ["train.batch_size=8", "train.steps_per_epoch=100", f"train.num_epochs={num_epochs}", *settings]
    chosen += ["experiment.report.enabled=false", "experiment.evaluation.every_n_epochs=100"]
    chosen += [f"experiment.output_dir={folder}"]
    assert train.main(["--config", "bc.json", "--name", "run", *(a for s in chosen for a in ("--set", s))]) == 0
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "eval/success_mean" in row][-1]
    assert last["eval/episodes"] == 200
    return last["eval/success_mean"]


CORRIDOR = ("env.kwargs.corridor_length=100", "train.window_steps=101")
PIXELS = (
    'train.data=[{"scripted": "seqrl/TMazePixels-v0", "episodes": 100}]',
    "env.kwargs.corridor_length=10",
    "train.window_steps=11",
    "observation.timestep_encoder.type=cnn",
    "observation.timestep_encoder.core.type=drq",
)


@pytest.mark.parametrize("name", MEMORIES)
def test_it_remembers_a_hundred_steps(name, tmp_path):
    memory, num_epochs = MEMORIES[name]
    seed = int("windows" in name)
    assert final_success(tmp_path, num_epochs, memory, *CORRIDOR, f"train.seed={seed}") >= 0.98


@pytest.mark.parametrize("name", SMALL)
def test_one_small_layer_remembers_twenty_steps(name, tmp_path):
    corridor = ("env.kwargs.corridor_length=20", "train.window_steps=21")
    num_epochs = 20 if name == "mlstm" else 10
    assert final_success(tmp_path, num_epochs, {"type": name, **SMALL[name]}, *corridor) >= 0.98


@pytest.mark.parametrize("name", CONTROLS)
def test_what_cannot_reach_back_stays_at_chance(name, tmp_path):
    memory, num_epochs = CONTROLS[name]
    seed = int("windows" in name)
    assert 0.35 <= final_success(tmp_path, num_epochs, memory, *CORRIDOR, f"train.seed={seed}") <= 0.65


def test_pixels_are_remembered(tmp_path):
    """A camera of 32 x 32 x 3 bytes, a convolutional encoder and a GRU."""
    assert final_success(tmp_path, 5, {"type": "gru", **WIDE}, *PIXELS) >= 0.95


def test_pixels_without_memory_stay_at_chance(tmp_path):
    assert 0.35 <= final_success(tmp_path, 2, {"type": "identity"}, *PIXELS) <= 0.65
