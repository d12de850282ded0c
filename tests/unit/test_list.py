"""What `seqrl list` prints: everything that is registered, and runs with their scores."""

import json

import pytest

from seqrl.configs import get_all_registered_configs, template_names
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.envs.suites import SUITES
from seqrl.scripts import list_


def listed(capsys, *words):
    assert list_.main(list(words)) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_everything_that_is_registered_is_listed(capsys):
    assert [row[0] for row in listed(capsys, "algorithms")[1:]] == sorted(get_all_registered_configs())
    assert {row[0] for row in listed(capsys, "memories")[1:]} == set(SEQUENCE_ENCODERS.names())
    templates = {row[0]: row[1:] for row in listed(capsys, "templates")[1:]}
    assert set(templates) == set(template_names())
    assert templates["bc.json"] == ["bc", "seqrl/TMazePassive-v0"]
    suites = {row[0]: row[1] for row in listed(capsys, "envs")[1:]}
    assert set(SUITES.names()) <= set(suites)
    assert suites["seqrl"] == "yes"
    assert set(suites.values()) <= {"yes", "no"}


@pytest.fixture
def folder(tmp_path):
    for name, scores in (("a", [0.2, 0.9, 0.5]), ("b", [0.1])):
        run = tmp_path / "all" / name
        run.mkdir(parents=True)
        values = {"algo_name": "bc", "env": {"id": "CartPole-v1"}, "train": {"data": []}}
        (run / "config.json").write_text(json.dumps(values))
        rows = [{"step": 10 * i, "eval/success_mean": score, "loss/total": None} for i, score in enumerate(scores)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "all"


def test_runs_are_listed_with_their_scores(folder, capsys):
    header, *rows = listed(capsys, "runs", str(folder))
    assert header == ["run", "algorithm", "environment", "last", "best", "steps", "age", "size"]
    found = {row[0]: row[1:6] for row in rows}
    assert found == {"a": ["bc", "CartPole-v1", "0.5", "0.9", "20"], "b": ["bc", "CartPole-v1", "0.1", "0.1", "0"]}


def test_metrics_of_one_run_are_listed(folder, capsys):
    assert ["eval/success_mean", "0.5"] in listed(capsys, "metrics", str(folder / "a"))
    assert list_.main(["metrics", str(folder)]) == 2
    assert "holds 2 runs; name one" in capsys.readouterr().err
    assert list_.main(["runs", str(folder / "c")]) == 2
    assert "does not exist" in capsys.readouterr().err
