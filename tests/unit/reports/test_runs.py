"""Runs are found, and grouped into methods that differ in more than seed and task."""

import json
import logging

import pytest

from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError, DataError
from seqrl.reports.runs import find_runs, group_runs, method_names, read_run, task_names
from seqrl.reports.series import AXES, GRADIENT_STEPS
from seqrl.scripts import compare, list_

ROWS = [{"step": 4, "progress/env_steps": 4, "eval/x": -400.0}]


def make_run(folder, *, seed=0, memory="gru", env="CartPole-v1", kwargs=None, rows=(), **settings):
    values = {"train": {"seed": seed}, "env": {"id": env, "kwargs": kwargs or {}}}
    values["algo"] = {"sequence_encoder": {"type": memory}, **settings}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config_factory("bc", values).to_json()))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_runs_below_a_folder_are_found_but_not_their_insides(tmp_path):
    made = [make_run(tmp_path / "a" / f"s{i}") for i in range(2)]
    (made[0] / "collectors" / "0").mkdir(parents=True)
    (made[0] / "collectors" / "0" / "metrics.jsonl").write_text("")
    assert find_runs(tmp_path) == made
    assert find_runs(made[1]) == made[1:]
    with pytest.raises(ConfigError, match=r"ss0 does not exist; did you mean 's0'\?"):
        find_runs(tmp_path / "a" / "ss0")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds none"):
        find_runs(tmp_path / "empty")


def test_seeds_and_tasks_are_one_method_and_settings_are_another(tmp_path):
    for seed in range(2):
        for env in ("CartPole-v1", "Acrobot-v1"):
            make_run(tmp_path / f"g{seed}{env}", seed=seed, env=env)
        make_run(tmp_path / f"m{seed}", seed=seed, memory="mamba")
    methods = group_runs([str(tmp_path)])
    assert [(m.name, len(m.runs)) for m in methods] == [("bc gru", 4), ("bc mamba", 2)]
    assert {run.seed for run in methods[0].runs} == {0, 1}


def test_what_acting_is_computed_with_is_no_setting(tmp_path):
    """``auto`` came to one engine on one machine and to another on the next."""
    for engine in ("eager", "onnx"):
        folder = make_run(tmp_path / engine)
        config = json.loads((folder / "config.json").read_text())
        config["collect"]["engine"] = engine
        (folder / "config.json").write_text(json.dumps(config))
    assert [len(method.runs) for method in group_runs([str(tmp_path)])] == [2]


def test_data_of_the_runs_own_task_is_no_setting(tmp_path):
    for i, name in enumerate(("seqrl/TMazePassive-v0", "seqrl/TMazeActive-v0")):
        values = {"train": {"data": [{"scripted": name, "env_kwargs": {"corridor_length": i + 2}}]}}
        make_run(tmp_path / str(i))
        (tmp_path / str(i) / "config.json").write_text(json.dumps(config_factory("bc", values).to_json()))
    (method,) = group_runs([str(tmp_path)])
    assert task_names(method.runs) == ["TMazePassive-v0", "TMazeActive-v0"]
    assert method.runs[0].env_kwargs == {"corridor_length": 2}


def test_methods_of_one_name_tell_in_what_they_differ(tmp_path):
    make_run(tmp_path / "a", optimizer={"learning_rate": 0.001})
    make_run(tmp_path / "b", optimizer={"learning_rate": 0.01})
    assert [m.name for m in group_runs([str(tmp_path)])] == ["bc gru learning_rate=0.001", "bc gru learning_rate=0.01"]
    kinds = [{"algo_name": "x", "algo": {"actor": {"type": kind}}} for kind in ("mlp", "linear")]
    assert method_names(kinds) == ['x actor.type="mlp"', 'x actor.type="linear"']
    many = [{"algo_name": "x", **dict.fromkeys("abcd", i)} for i in range(2)]
    assert method_names(many) == ["x 1", "x 2"]


def test_what_a_number_in_a_name_stands_for_is_below_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "a", rows=ROWS)
    wide = {"learning_rate": 0.01, "weight_decay": 0.1, "warmup_steps": 3, "grad_clip": 2.0}
    make_run(tmp_path / "b", optimizer=wide, rows=ROWS)
    assert compare.main([".", "--metric", "eval/x", "--resamples", "100"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("- ")]
    assert [line.split(":")[0] for line in told] == ["- bc gru 1", "- bc gru 2"]
    for key, value in wide.items():
        assert f"algo.optimizer.{key}={value}" in told[1]
        assert f"algo.optimizer.{key}=" in told[0]
    assert (
        "algo.optimizer.learning_rate=0.01"
        in json.loads((tmp_path / "comparison/results.json").read_text())["settings"]["bc gru 2"]
    )


@pytest.mark.parametrize("words", [["--range", "-1600,-150"], ["--range=-1600,-150"]])
def test_a_range_may_begin_with_a_minus(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "a", rows=ROWS)
    assert compare.main([".", "--metric", "eval/x", "--resamples", "100", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranges"] == {"": [-1600.0, -150.0]}


def test_a_label_takes_what_its_pattern_finds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for memory in ("gru", "mamba"):
        make_run(tmp_path / f"{memory}0", memory=memory)
    (tmp_path / "g0.log").write_text("what g0 said, beside the runs")
    mine, other = group_runs(["mine=g*", "mamba0"])
    assert [run.path.name for run in mine.runs] == ["gru0"]
    assert (mine.name, other.name) == ("mine", "bc mamba")
    with pytest.raises(ConfigError, match="belongs to 'mine' already"):
        group_runs(["mine=g*", "."])
    with pytest.raises(ConfigError, match="nothing"):
        group_runs(["mine=nothing*"])
    assert len(group_runs(["gru0", "./gru0"])[0].runs) == 1


def test_names_of_runs_may_have_an_equals_sign(tmp_path, monkeypatch):
    """As those of sweeps have."""
    monkeypatch.chdir(tmp_path)
    for seed in range(2):
        make_run(tmp_path / "mine" / f"rate=0.1_seed{seed}", seed=seed)
    for argument in ("mine/rate=0.1_seed*", str(tmp_path / "mine" / "rate=0.1_seed*")):
        (method,) = group_runs([argument])
        assert (method.name, len(method.runs)) == ("bc gru", 2)
    monkeypatch.chdir("mine")
    assert group_runs(["rate=0.1_seed*"])[0].name == "bc gru"
    (method,) = group_runs(["low=rate=0.1_seed*"])
    assert (method.name, len(method.runs)) == ("low", 2)
    make_run(tmp_path / "mine" / "rate=[1]")
    assert [run.path.name for run in group_runs(["rate=[1]"])[0].runs] == ["rate=[1]"]


def test_a_folder_without_a_run_hides_no_other(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("seqrl"), "propagate", True)
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "g0")
    make_run(tmp_path / "g1", seed=1)
    (tmp_path / "g1" / "metrics.jsonl").unlink()
    (method,) = group_runs(["g*"])
    assert [run.path.name for run in method.runs] == ["g0"]
    assert "left out: g1 is not a run" in caplog.text
    caplog.clear()
    (tmp_path / "g0" / "checkpoints" / "last").mkdir(parents=True)
    (tmp_path / "g1" / "metrics.jsonl").write_text("")
    assert len(group_runs(["mine=**"])[0].runs) == 2
    assert not caplog.text  # folders inside a run are its own


def test_tasks_are_named_by_what_tells_them_apart(tmp_path):
    kwargs = [{"size": 3, "x": 1}, {"size": 5, "x": 1}]
    runs = [read_run(make_run(tmp_path / str(i), env="seqrl/Maze-v0", kwargs=k)) for i, k in enumerate(kwargs)]
    runs.append(read_run(make_run(tmp_path / "c", env="my_module:Other-v0")))
    assert task_names(runs) == ["Maze-v0 size=3", "Maze-v0 size=5", "Other-v0"]


def test_a_damaged_config_is_named(tmp_path):
    folder = make_run(tmp_path / "a")
    (folder / "config.json").write_text("[]")
    with pytest.raises(DataError, match=r"a.config\.json: is not the config of a run"):
        read_run(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(DataError, match="not readable"):
        read_run(folder)


def test_methods_whose_settings_look_alike_stay_apart(tmp_path):
    for name in ("expert", "random"):
        data = [{"path": f"/a/long/way/to/the/{name}_episodes_of_this_task.hdf5"}]
        values = {"train": {"data": data}, "env": {"id": "CartPole-v1"}}
        make_run(tmp_path / name)
        (tmp_path / name / "config.json").write_text(json.dumps(config_factory("bc", values).to_json()))
    one, other = group_runs([str(tmp_path)])
    assert one.name != other.name
    assert (len(one.runs), len(other.runs)) == (1, 1)


def test_runs_that_were_evaluated_elsewhere_are_of_another_task(tmp_path):
    for length in (10, 50):
        folder = make_run(tmp_path / str(length))
        values = {"env": {"id": "seqrl/TMazePassive-v0", "eval_kwargs": {"corridor_length": length}}}
        (folder / "config.json").write_text(json.dumps(config_factory("bc", values).to_json()))
    (method,) = group_runs([str(tmp_path)])
    assert task_names(method.runs) == ["TMazePassive-v0 corridor_length=10", "TMazePassive-v0 corridor_length=50"]


def test_of_several_evaluations_at_one_place_the_last_counts(tmp_path):
    rows = [{"step": s, "progress/env_steps": 0.0, "eval/return_mean": float(s)} for s in (0, 100, 200)]
    run = read_run(make_run(tmp_path / "run", rows=rows))
    assert run.points("eval/return_mean", AXES["env_steps"]).tolist() == [[0.0, 200.0]]
    assert run.points("eval/return_mean", GRADIENT_STEPS).tolist() == [[0.0, 0.0], [100.0, 100.0], [200.0, 200.0]]
    assert run.points("eval/other", GRADIENT_STEPS).shape == (0, 2)


@pytest.mark.parametrize("section", ["env", "train", "algo"])
def test_an_odd_config_hides_no_other_run(tmp_path, section, caplog):
    make_run(tmp_path / "good", rows=[*ROWS, {"step": float("inf")}])
    odd = make_run(tmp_path / "odd", rows=ROWS)
    values = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps({**values, section: 3}))
    with pytest.raises(DataError, match=f"config.json: {section} must be an object, got 3"):
        read_run(odd)
    rows = list_.runs(str(tmp_path))
    assert [row[0] for row in rows[1:]] == ["good"]
    assert rows[1][5] == "4"
    assert "must be an object" in caplog.text


@pytest.mark.parametrize("option", ["--at", "--target"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_of_options_are_finite(option, value, capsys):
    with pytest.raises(SystemExit):
        compare.main(["runs", option, value])
    assert f"must be a finite number, got {value}" in capsys.readouterr().err
