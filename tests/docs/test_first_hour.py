"""What a newcomer types in the first hour, in the order of the pages, each line as it stands but for its budget."""

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

import seqrl
from seqrl.__main__ import main, module_of

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
QUICK = [
    "train.num_epochs=1", "train.steps_per_epoch=5", "experiment.evaluation.episodes=4",
    "experiment.evaluation.num_envs=2", "experiment.logging.every_n_steps=1", "experiment.report.enabled=false",
]  # fmt: skip
BLOCK = re.compile(r"```(bash|python)\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text())


def typed(line):
    """Run a line of a page; training gets a small budget."""
    words = shlex.split(line, comments=True)
    extra = [word for setting in QUICK for word in ("--set", setting)] if words[1] == "train" else []
    import_module(module_of(words[1]))
    assert main([*words[1:], *extra]) == 0, line


def follow(page, skip=()):
    """Type everything on a page from top to bottom."""
    for language, code in blocks(page):
        if language == "python":
            exec(compile(code, page, "exec"), {})
            continue
        for line in code.replace("\\\n", " ").splitlines():
            if line.startswith("seqrl ") and not any(word in line for word in skip):
                typed(line)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
def test_from_a_robomimic_file_to_a_robot_loop(capsys):
    follow("docs/tutorials/robot_loop.md")
    out = capsys.readouterr().out
    assert len(re.findall(r"^\[\s*-?\d", out, re.MULTILINE)) == 3  # three moves of the robot
    assert Path("policy.onnx").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes", "registries_as_before")
def test_an_algorithm_of_ones_own(capsys):
    page = "docs/tutorials/own_algorithm.md"
    code = next(code for language, code in blocks(page) if language == "python" and "my_iql" in code)
    Path("my_iql.py").write_text(code)
    typed("seqrl check-plugin my_iql.py")
    typed("seqrl train --config iql.json --plugin my_iql.py --set algo_name=my_iql --name mine")
    typed("seqrl train --config iql.json --name built_in")
    assert seqrl.Run("runs/mine").last("loss/value") >= 0
    typed('seqrl compare "mine=runs/mine*" "built-in=runs/built_in*" --output compared')
    assert "mine" in capsys.readouterr().out


@pytest.mark.usefixtures("unchecked_shapes", "registries_as_before")
def test_a_memory_of_ones_own():
    page = "docs/tutorials/own_memory.md"
    code = next(code for language, code in blocks(page) if language == "python" and "moving_average" in code)
    Path("my_memory.py").write_text(code)
    for line in (
        line for language, code in blocks(page) if language == "bash" for line in code.splitlines() if " train " in line
    ):
        typed(f"{line} --overwrite --set 'train.data.0.episodes=20'")
    assert seqrl.Run(next(Path("runs").iterdir())).config["algo"]["sequence_encoder"]["type"] == "moving_average"


@pytest.mark.usefixtures("unchecked_shapes")
def test_coming_from_robomimic(capsys):
    given = json.loads((DATA / "robomimic_bc.json").read_text())
    given["train"]["data"] = str(DATA / "robomimic_written.hdf5")
    given["experiment"]["rollout"]["enabled"] = given["experiment"]["render_video"] = False
    given["observation"]["modalities"]["obs"]["low_dim"] = ["flat"]
    Path("their.json").write_text(json.dumps(given))
    typed("seqrl convert-config their.json mine.json")
    typed("seqrl train --config mine.json --set experiment.output_dir=runs --name mine")
    policy, _ = seqrl.policy_from_checkpoint(ckpt_path="runs/mine", device=None, verbose=False)
    assert policy.algo.config.train.batch_size == 100
    typed(f"seqrl convert-checkpoint {DATA / 'robomimic_mlp.pth'} theirs")
    config, _ = seqrl.config_from_checkpoint("theirs")
    assert config.algo_name == "bc"
    typed("seqrl list runs")
    assert "mine" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["algorithms", "memories", "envs", "templates"])
def test_what_there_is(what, capsys):
    typed(f"seqrl list {what}")
    assert len(capsys.readouterr().out.splitlines()) > 4
