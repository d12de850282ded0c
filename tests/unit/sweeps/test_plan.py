"""Sweep files become runs, and every mistake in them is told before anything starts."""

import json
import re
from pathlib import Path

import pytest

from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError
from seqrl.scripts import sweep, train
from seqrl.sweeps.naming import key_labels, setting_name, value_label
from seqrl.sweeps.planning import Plan
from seqrl.sweeps.sweep_file import DrawSection, read_sweep

BASE = {"algo_name": "bc", "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 8}}}
RATE, WIDTH = "algo.optimizer.learning_rate", "algo.sequence_encoder.d_hidden"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def planned(tmp_path, **values):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"base": BASE, **values}))
    return Plan(*read_sweep(str(file)), "mine.json")


def refused(tmp_path, **values):
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, **values)
    return str(caught.value)


def test_a_grid_is_every_combination_with_every_seed(tmp_path):
    plan = planned(tmp_path, grid={RATE: [1e-4, 0.01], WIDTH: [8, 16]}, seeds=[3, 5], set={"train.num_epochs": 2})
    runs = plan.runs()
    assert [run.name for run in runs[:4]] == [
        "learning_rate=0.0001_d_hidden=8_seed3",
        "learning_rate=0.0001_d_hidden=16_seed3",
        "learning_rate=0.01_d_hidden=8_seed3",
        "learning_rate=0.01_d_hidden=16_seed3",
    ]
    assert len(runs) == len({run.name for run in runs}) == 8
    config = runs[-1].config
    assert (config.algo.optimizer.learning_rate, config.algo.sequence_encoder.d_hidden) == (0.01, 16)
    assert (config.train.seed, config.train.num_epochs) == (5, 2)
    assert (config.experiment.output_dir, config.experiment.name) == ("sweeps/mine/runs", runs[-1].name)
    assert plan.base_values == {RATE: 1e-4, WIDTH: 8}


def test_seeds_of_one_run_are_a_sweep(tmp_path):
    assert [run.name for run in planned(tmp_path, seeds=3).runs()] == ["base_seed0", "base_seed1", "base_seed2"]


def test_cases_hold_keys_that_belong_together(tmp_path):
    """Types are set first, whatever the order: a type takes the other keys of its section away."""
    cases = [
        {"algo.sequence_encoder.d_model": 32, "algo.sequence_encoder.type": "transformer"},
        {"algo.sequence_encoder.d_hidden": 16},
    ]
    plan = planned(tmp_path, cases=cases, grid={RATE: [1e-3, 1e-2]})
    assert [s.name for s in plan.settings] == [
        "d_model=32_sequence_encoder.type=transformer_learning_rate=0.001",
        "d_model=32_sequence_encoder.type=transformer_learning_rate=0.01",
        "d_hidden=16_learning_rate=0.001",
        "d_hidden=16_learning_rate=0.01",
    ]
    assert plan.runs()[0].config.algo.sequence_encoder.d_model == 32


def test_a_component_that_varies_keeps_what_is_set_in_it(tmp_path):
    memory, both = "algo.sequence_encoder", {"type": "gru", "d_hidden": 8}
    plan = planned(tmp_path, grid={memory: [both, {"type": "lstm"}]}, set={f"{memory}.num_layers": 3, WIDTH: 24})
    found = [run.config.algo.sequence_encoder for run in plan.runs()]
    assert [(each.type, each.num_layers, each.d_hidden) for each in found] == [("gru", 3, 24), ("lstm", 3, 24)]
    assert [plan.is_base(setting) for setting in plan.settings] == [True, False]


def test_draws_are_the_same_every_time_and_begin_with_the_base(tmp_path):
    draw = {RATE: {"log_uniform": [1e-5, 1.0]}, WIDTH: {"log_integer": [2, 64]}}
    first, more = (planned(tmp_path, draw=draw, trials=n).settings for n in (6, 12))
    assert more[:6] == first
    assert first[0].values == {RATE: 1e-4, WIDTH: 8}
    assert planned(tmp_path, draw=draw, trials=6, seed=1).settings[1:] != first[1:]
    assert len({s.name for s in more}) == 12
    rates = sorted(s.values[RATE] for s in planned(tmp_path, draw=draw, trials=200).settings)
    assert rates[0] < 1e-4
    assert 1e-3 < rates[100] < 1e-2
    assert rates[-1] > 0.1
    assert all(float(f"{rate:.4g}") == rate for rate in rates)


def test_few_choices_are_drawn_once_each(tmp_path, caplog):
    plan = planned(tmp_path, draw={WIDTH: {"one_of": [4, 8, 16]}}, trials=9)
    assert sorted(s.values[WIDTH] for s in plan.settings) == [4, 8, 16]
    assert "only 3 different settings were drawn, of 9" in caplog.text


def test_a_base_that_cannot_be_drawn_is_not_tried(tmp_path, caplog):
    plan = planned(tmp_path, draw={RATE: {"uniform": [0.1, 0.2]}}, trials=3)
    assert all(0.1 <= s.values[RATE] <= 0.2 for s in plan.settings)
    assert "own values cannot be drawn" in caplog.text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gird": {}}, "unknown key; did you mean 'grid'?"),
        ({"grid": {RATE: []}}, f"grid.{RATE} must have at least one value"),
        ({"grid": {RATE: [0.1, 0.1]}}, "0.1 is given twice"),
        ({"grid": {RATE: [0.1, "0.1"]}}, "must be a valid number, got '0.1'"),
        ({"grid": {"train.seed": [1, 2]}}, "train.seed is not for a sweep to set: give 'seeds'"),
        ({"set": {RATE: 0.1}, "grid": {RATE: [0.1]}}, f"{RATE} is given twice"),
        ({"seeds": 0}, "seeds must be at least one"),
        ({"seeds": [1, 1]}, "1 is given twice"),
        ({"trials": 3}, "'trials' is for 'draw', and nothing is drawn"),
        ({"metric": "success_mean"}, "'success_mean' must begin with one of eval/, valid/, metric/"),
        ({"names": {RATE: "lr"}}, f"names.{RATE}: nothing varies that key"),
        ({"draw": {RATE: {"uniform": [1, 2]}}, "grid": {WIDTH: [2]}}, "give 'draw', or 'grid' and 'cases', not both"),
        ({"draw": {RATE: {"uniform": [2, 1]}}}, "the lowest number must be below the highest, got [2, 1]"),
        ({"draw": {RATE: {"log_uniform": [0, 1]}}}, "log_uniform needs numbers above 0, got 0"),
        ({"draw": {RATE: {"unifrom": [0, 1]}}}, f"draw.{RATE}.unifrom"),
        ({"draw": {RATE: {}}}, "give exactly one of uniform, log_uniform, integer, log_integer, one_of, got none"),
        ({"base": "bcc.json"}, "no such file; did you mean 'bc.json'?"),
        ({"base": {}}, "algo_name is required"),
    ],
)
def test_what_is_wrong_with_a_sweep_file_is_told(values, message, tmp_path):
    assert message in refused(tmp_path, **values)


def test_a_run_file_is_told_to_be_the_base_of_a_sweep(tmp_path):
    (tmp_path / "bc.json").write_text(json.dumps(BASE))
    with pytest.raises(ConfigError, match=r'bc.json is a run file; name it in a sweep file: {"base": '):
        read_sweep(str(tmp_path / "bc.json"))


def test_a_file_whose_name_is_no_folders_is_told_to_give_one(tmp_path):
    file = tmp_path / "my sweep (1).json"
    file.write_text(json.dumps({"base": BASE, "grid": {WIDTH: [2]}}))
    with pytest.raises(
        ConfigError, match="its name cannot be that of a folder of runs; give 'name', or rename the file"
    ):
        read_sweep(str(file))
    file.write_text(json.dumps({"name": "mine", "base": BASE, "grid": {WIDTH: [2]}}))
    assert read_sweep(str(file))[0].name == "mine"


@pytest.mark.parametrize("search", ["random", "optuna"])
def test_every_setting_is_checked_before_anything_starts(search, tmp_path):
    """Also the ends of what Optuna may propose."""
    text = refused(tmp_path, grid={RATE: [1e-3, -1.0], WIDTH: [4, 8]})
    assert "algo.optimizer.learning_rate  must be > 0.0, got -1.0" in text
    assert "in learning_rate=-1_d_hidden=4 and 1 more of 4 settings" in text
    text = refused(tmp_path, draw={WIDTH: {"integer": [-5, 64]}}, search=search, trials=20)
    assert f"{WIDTH}  must be > 0, got -" in text
    text = refused(tmp_path, grid={"algo.optimizer.learning_rat": [0.1]})
    assert "did you mean 'learning_rate'?" in text
    assert not (tmp_path / "sweeps").exists()


def test_the_base_may_lie_beside_the_sweep_file_or_be_a_template(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/run.json").write_text(json.dumps(BASE))
    (tmp_path / "mine/sweep.json").write_text(json.dumps({"base": "run.json"}))
    assert read_sweep("mine/sweep.json")[1] == BASE
    (tmp_path / "mine/sweep.json").write_text(json.dumps({"base": "bc_rnn.json", "name": "other"}))
    section, base = read_sweep("mine/sweep.json")
    assert base["algo"]["sequence_encoder"]["type"] == "lstm"
    assert section.name == "other"


def test_names():
    keys = ["algo.optimizer.learning_rate", "algo.actor.d_hidden", "algo.critic.d_hidden", "algo.sequence_encoder.type"]
    labels = key_labels(keys, {"algo.optimizer.learning_rate": "lr"})
    assert list(labels.values()) == ["lr", "actor.d_hidden", "critic.d_hidden", "sequence_encoder.type"]
    assert key_labels(["a.b", "b"], {}) == {"a.b": "a.b", "b": "b"}
    assert [value_label(v) for v in (1e-3, 3, True, None, "gru", 0.12345678)] == [
        "0.001", "3", "true", "null", "gru", "0.12345678"
    ]  # fmt: skip
    assert value_label({"type": "gru", "d_hidden": 8}).startswith("gru-")
    assert value_label("a/b") != value_label("a-b")
    assert len(setting_name({f"k{i}": "x" * 20 for i in range(20)}, {f"k{i}": f"k{i}" for i in range(20)})) <= 160


def test_two_settings_of_one_name_are_refused(tmp_path):
    key = "env.kwargs.what"
    assert "two settings have the name what=1" in refused(tmp_path, grid={key: [1, "1"]})


def test_what_a_draw_holds():
    assert DrawSection(log_uniform=[0.1, 1.0]).holds(0.5)
    assert not DrawSection(log_uniform=[0.1, 1.0]).holds(None)
    assert not DrawSection(integer=[1, 4]).holds(2.5)
    assert DrawSection(one_of=["a", [1]]).holds([1])
    assert not DrawSection(one_of=[1]).holds(True)


def test_the_best_run_file_stands_for_itself(tmp_path):
    base = {**BASE, "experiment": {"output_dir": "elsewhere", "name": "x"}}
    plan = planned(tmp_path, base=base, grid={RATE: [0.5]}, seeds=[7])
    values = plan.best_values(plan.settings[0])
    assert values["experiment"] == {"output_dir": "elsewhere", "name": "mine_best"}
    assert values["train"]["seed"] == 7
    assert values["algo"]["optimizer"]["learning_rate"] == 0.5
    assert "output_dir" not in planned(tmp_path).best_values(plan.setting({}))["experiment"]


@pytest.mark.parametrize("listed", [3, "x.py", {"a": 1}])
def test_plugins_of_the_base_are_a_list(tmp_path, listed):
    assert "base: plugins: must be a list of files or modules, got" in refused(
        tmp_path, base={**BASE, "plugins": listed}, grid={RATE: [1e-4]}
    )


def test_plugins_among_the_keys_of_all_runs_are_loaded_first_and_added(tmp_path, registries_as_before):
    folder = Path(__file__).parents[3] / "examples"
    first, second = (str(folder / name) for name in ("filtered_bc_plugin.py", "memory_plugin.py"))
    name = re.search(r'register\("(\w+)"', Path(second).read_text())[1]
    base = {"algo_name": "filtered_bc", "plugins": [first]}
    changes = {"plugins": [second], "algo.sequence_encoder": {"type": name}}
    runs = planned(tmp_path, base=base, set=changes, seeds=2).runs()
    assert [run.config.algo.sequence_encoder.type for run in runs] == [name, name]
    assert [run.values["plugins"] for run in runs] == [[first, second]] * 2
    assert "plugins cannot vary" in refused(tmp_path, base=base, grid={"plugins": [[second], []]})


def by_budget_of(file):
    section, base = read_sweep(file)
    return Plan(section, base, file, sweep.by_budget(section))


def test_a_budget_is_worked_out_for_each_setting(tmp_path):
    base = {"algo_name": "actor_critic", "env": {"id": "CartPole-v1"}, "train": {"batch_size": 40}}
    grid = {"algo.sequence_encoder.type": ["lstm", "feedforward"], "algo.gamma": [0.9]}
    Path("mine.json").write_text(json.dumps({"base": base, "grid": grid, "env_steps": 20_000, "seeds": [3]}))
    for run in by_budget_of("mine.json").runs():
        memory = run.setting.values["algo.sequence_encoder.type"]
        words = ["--algo", "actor_critic", "--env", "CartPole-v1", "--memory", memory, "--env-steps", "20k"]
        words += ["--seed", "3", "--set", "algo.gamma=0.9", "--set", "train.batch_size=40"]
        alone = train.resolve_config(train.parser().parse_args(words))[0].to_json()
        own = config_factory("actor_critic", run.values).to_json()
        assert own.pop("experiment")["name"] == run.name
        assert alone.pop("experiment") is not None
        assert own == alone


def test_a_budget_that_does_not_fit_names_the_settings():
    base = {"algo_name": "actor_critic", "env": {"id": "CartPole-v1"}}
    both = {"base": base, "env_steps": 20_000, "gradient_steps": 5}
    for values, told in (
        (both, "not both"),
        ({"base": base, "gradient_steps": 5}, "--gradient-steps is for fixed data"),
        ({"base": base, "env_steps": 20, "grid": {"train.num_epochs": [3, 50]}}, "20 environment steps are too few"),
    ):
        Path("mine.json").write_text(json.dumps(values))
        with pytest.raises(ConfigError, match=told):
            by_budget_of("mine.json")


def test_settings_may_have_what_the_budget_needs():
    grid = {"env.id": ["CartPole-v1", "seqrl/TMazePassive-v0"]}
    Path("mine.json").write_text(json.dumps({"base": {"algo_name": "actor_critic"}, "env_steps": 2000, "grid": grid}))
    assert [run.config.train.window_steps for run in by_budget_of("mine.json").runs()] == [32, 51]
