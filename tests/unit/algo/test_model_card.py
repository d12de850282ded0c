"""The README of a checkpoint tells what the policy is, and its lines run."""

import re

import numpy as np
import pytest
import yaml
from gymnasium import spaces

import seqrl
from seqrl.algo.checkpoint import read_checkpoint, save_checkpoint
from tests.helpers import small_algo

SPACE = spaces.Dict(
    image=spaces.Box(0, 255, (2, 2), np.uint8),
    room=spaces.Discrete(3),
    state=spaces.Box(-1.0, 1.0, (3,), np.float32),
)
METRICS = {
    "eval/return_mean": 12.345,
    "eval/return_mean_low": 11.0,
    "eval/return_mean_high": 13.5,
    "eval/success_mean": 0.5,
    "eval/episodes": 40.0,
}


def page_of(folder, **options):
    algo = small_algo("bc", "gru")
    save_checkpoint(folder, algo, SPACE, algo.codec.space, **options)
    return (folder / "README.md").read_text()


def test_it_tells_task_score_and_seed(tmp_path):
    page = page_of(tmp_path / "c", env={"id": "seqrl/TMazePassive-v0", "kwargs": {"x": 1}}, metrics=METRICS)
    head = yaml.safe_load(page.split("---")[1])
    assert head["library_name"] == "seqrl"
    assert {"bc", "gru", "seqrl/TMazePassive-v0"} <= set(head["tags"])
    assert "| return | 12.35 [11, 13.5] |" in page
    assert "| success | 0.5 |" in page
    assert "mean of 40 episodes" in page
    assert '`{"x": 1}`' in page
    assert "| seed | 0 (one run" in page


def test_its_lines_load_the_policy(tmp_path):
    page = page_of(tmp_path / "c")
    assert "not evaluated in an environment" in page
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1].replace("path/to/this/folder", str(tmp_path / "c"))
    exec(compile(code, "README.md", "exec"), {"observation": SPACE.sample()})


@pytest.mark.parametrize("change", ["edit", "remove"])
def test_the_page_may_be_changed(tmp_path, change):
    page_of(tmp_path / "c")
    file = tmp_path / "c" / "README.md"
    file.write_text("mine") if change == "edit" else file.unlink()
    assert read_checkpoint(tmp_path / "c").card["algo_name"] == "bc"
    assert seqrl.policy_from_checkpoint(tmp_path / "c")
