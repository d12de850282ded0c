"""What ``--set`` does to the values of a run file."""

import copy

import pytest

from seqrl.configs import apply_overrides, config_factory, layered
from seqrl.core.errors import ConfigError
from seqrl.scripts.train import parser, resolve_config

VALUES = {
    "train": {"seed": 1, "data": [{"path": "x"}, {"path": "y", "weight": 2.0}]},
    "algo": {"sequence_encoder": {"type": "transformer", "d_model": 64, "num_heads": 4}},
}


def changed(*overrides):
    values = copy.deepcopy(VALUES)
    return values, apply_overrides(values, overrides)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("2", 2),
        ("-1.5e-3", -1.5e-3),
        ("true", True),
        ("False", False),
        ("None", None),
        ("Falsehood", "Falsehood"),
        ("null", None),
        ('"2"', "2"),
        ('["a", 1]', ["a", 1]),
        ('{"n": 3}', {"n": 3}),
        ("CartPole-v1", "CartPole-v1"),
        ("a=b=c", "a=b=c"),
        ("runs/a b", "runs/a b"),
        ("007", "007"),
        ("", ""),
        ("True", True),
    ],
)
def test_the_value_is_json_where_it_is_json_and_text_elsewhere(raw, value):
    values, dropped = changed(f"env.new={raw}")
    assert values["env"]["new"] == value
    assert type(values["env"]["new"]) is type(value)
    assert dropped == []


def test_an_existing_key_is_replaced_and_nothing_else():
    values, _ = changed("train.seed=2")
    expected = copy.deepcopy(VALUES)
    expected["train"]["seed"] = 2
    assert values == expected


def test_missing_sections_are_made():
    values, _ = changed("experiment.logging.every_n_steps=5", "top=1")
    assert values["experiment"] == {"logging": {"every_n_steps": 5}}
    assert values["top"] == 1


def test_later_overrides_win():
    assert changed("train.seed=2", "train.seed=3")[0]["train"]["seed"] == 3


def test_blanks_around_the_path_are_ignored():
    assert changed(" train.seed =2")[0]["train"]["seed"] == 2


def test_list_items_are_reached_by_index():
    values, dropped = changed("train.data.1.path=z", 'train.data.0={"path": "w"}')
    assert values["train"]["data"] == [{"path": "w"}, {"path": "z", "weight": 2.0}]
    assert dropped == []


@pytest.mark.parametrize("index", ["2", "-1", "first", "", "²"])
@pytest.mark.parametrize("rest", ["", ".path"])
def test_an_index_outside_the_list_is_refused(index, rest):
    with pytest.raises(ConfigError, match=r"--set train\.data\..*not a valid index; the list has length 2"):
        changed(f"train.data.{index}{rest}=z")


def test_a_new_type_replaces_the_section_and_reports_what_it_dropped():
    values, dropped = changed("algo.sequence_encoder.type=gru")
    assert values["algo"]["sequence_encoder"] == {"type": "gru"}
    assert dropped == ["algo.sequence_encoder.type=gru drops algo.sequence_encoder.{d_model, num_heads}"]


def test_keys_set_after_a_new_type_are_kept():
    values, dropped = changed("algo.sequence_encoder.type=gru", "algo.sequence_encoder.d_hidden=8")
    assert values["algo"]["sequence_encoder"] == {"type": "gru", "d_hidden": 8}
    assert len(dropped) == 1
    assert config_factory("bc", values).algo.sequence_encoder.d_hidden == 8


def test_the_same_type_drops_nothing():
    values, dropped = changed("algo.sequence_encoder.type=transformer")
    assert values == VALUES
    assert dropped == []


def test_a_type_where_there_was_no_section_drops_nothing():
    values, dropped = changed("algo.distribution.type=tanh_gaussian")
    assert values["algo"]["distribution"] == {"type": "tanh_gaussian"}
    assert dropped == []


@pytest.mark.parametrize("text", ["train.seed", "", "=3", "  =3"])
def test_a_text_without_key_and_value_is_refused(text):
    with pytest.raises(ConfigError, match=r"must have the form key\.subkey=value"):
        changed(text)


@pytest.mark.parametrize(
    ("text", "where"), [("train.seed.x=3", "train.seed"), ("train.data.0.path.deep.er=3", "train.data.0.path")]
)
def test_a_path_through_a_value_is_refused(text, where):
    with pytest.raises(ConfigError, match=rf"{where} is a value"):
        changed(text)


@pytest.mark.parametrize("text", ["train..seed=3", ".seed=3", "train.=3"])
def test_an_empty_key_does_not_pass(text):
    def build():
        values, _ = changed(text)
        return config_factory("bc", values)

    with pytest.raises(ConfigError):
        build()


def test_a_misspelt_path_is_reported_by_the_config():
    values, _ = changed("train.sed=3")
    with pytest.raises(ConfigError, match=r"train\.sed +unknown key; did you mean 'seed'\?"):
        config_factory("bc", values, "--set")


def test_a_run_file_over_another_changes_its_keys():
    over = {"train": {"seed": 7, "data": [{"path": "z"}]}, "algo": {"sequence_encoder": {"d_model": 32}}}
    expected = copy.deepcopy(VALUES)
    expected["train"] = {"seed": 7, "data": [{"path": "z"}]}
    expected["algo"]["sequence_encoder"]["d_model"] = 32
    assert layered(copy.deepcopy(VALUES), over) == (expected, [])
    assert layered(VALUES, {}) == (VALUES, [])


def test_a_component_of_another_type_keeps_no_settings_of_the_first():
    merged, dropped = layered(VALUES, {"algo": {"sequence_encoder": {"type": "gru", "num_heads": 8}}})
    assert merged["algo"]["sequence_encoder"] == {"type": "gru", "num_heads": 8}
    assert dropped == ["algo.sequence_encoder.type=gru drops algo.sequence_encoder.{d_model}"]
    same, dropped = layered(VALUES, {"algo": {"sequence_encoder": {"type": "transformer", "d_model": 8}}})
    assert same["algo"]["sequence_encoder"] == {"type": "transformer", "d_model": 8, "num_heads": 4}
    assert dropped == []
    unnamed = {"algo": {"sequence_encoder": {"d_model": 64}}}  # of the default type
    merged, dropped = layered(unnamed, {"algo": {"sequence_encoder": {"type": "gru"}}})
    assert (merged["algo"]["sequence_encoder"], len(dropped)) == ({"type": "gru"}, 1)


def test_an_object_changes_the_keys_that_it_has():
    values = {"collect": {"num_envs": 12, "steps_per_epoch": 5}, "algo": {"memory": {"type": "gru", "d_hidden": 64}}}
    assert apply_overrides(values, ['collect={"num_envs": 4}', 'algo.memory={"type": "gru", "num_layers": 1}']) == []
    assert values["collect"] == {"num_envs": 4, "steps_per_epoch": 5}
    assert values["algo"]["memory"] == {"type": "gru", "d_hidden": 64, "num_layers": 1}
    (dropped,) = apply_overrides(values, ['algo.memory={"type": "lstm", "num_layers": 1}'])
    assert values["algo"]["memory"] == {"type": "lstm", "num_layers": 1}
    assert dropped == "algo.memory.type=lstm drops algo.memory.{d_hidden}"


def test_arguments_of_an_environment_and_empty_objects_replace_what_was_there():
    for changes in (
        ['env.kwargs={"length": 4}', "algo.rates={}"],
        ['env={"kwargs": {"length": 4}}', 'algo={"rates": {}}'],
    ):
        values = {"env": {"id": "A", "kwargs": {"size": 3}}, "algo": {"rates": {"actor": 0.1}}}
        assert apply_overrides(values, changes) == []
        assert values == {"env": {"id": "A", "kwargs": {"length": 4}}, "algo": {"rates": {}}}


def test_arguments_of_an_environment_are_no_component():
    values = {"env": {"kwargs": {"type": "a", "n": 1, "map": {"type": "a", "size": 3}}}}
    merged, dropped = layered(values, {"env": {"kwargs": {"type": "b", "map": {"type": "b"}}}})
    assert merged == {"env": {"kwargs": {"type": "b", "n": 1, "map": {"type": "b", "size": 3}}}}
    assert dropped == []


def test_the_command_takes_run_files_in_layers(tmp_path):
    (tmp_path / "mine.json").write_text('{"train": {"batch_size": 7}}')
    (tmp_path / "gru.json").write_text('{"algo": {"sequence_encoder": {"type": "gru"}}, "train": {"seed": 3}}')
    files = ["bc.json", str(tmp_path / "mine.json"), "--config", str(tmp_path / "gru.json")]
    config, _ = resolve_config(parser().parse_args(["--config", *files, "--set", "train.seed=4"]))
    assert (config.train.batch_size, config.train.seed) == (7, 4)
    assert config.algo.sequence_encoder.choice()[0] == "gru"
    assert config.env.kwargs == {"corridor_length": 50}, "what no later file has is that of the first"
    (tmp_path / "wrong.json").write_text('{"train": {"batchsize": 7}}')
    with pytest.raises(ConfigError, match=r"bc.json .*wrong.json: 1 problem\n.*did you mean 'batch_size'"):
        resolve_config(parser().parse_args(["--config", "bc.json", str(tmp_path / "wrong.json")]))


def test_a_key_of_another_memory_is_told_beside_those_that_there_are():
    with pytest.raises(ConfigError, match=r"sequence_encoder\.d_hidden +unknown key; there are .*d_model"):
        config_factory("bc", {"algo": {"sequence_encoder": {"type": "mamba", "d_hidden": 16}}})


def test_a_key_without_its_section_and_names_without_quotes_are_told():
    with pytest.raises(ConfigError, match=r"batch_size  unknown key; did you mean 'train.batch_size'\?"):
        config_factory("bc", changed("batch_size=8")[0])
    with pytest.raises(ConfigError, match=r"got '\[a, b\]', which is no JSON: names need double quotes"):
        config_factory("bc", changed("observation.keys=[a, b]")[0])
    with pytest.raises(ConfigError, match=r"--dataset \{'path': 'x'\}: is no JSON"):
        resolve_config(parser().parse_args(["--algo", "bc", "--dataset", "{'path': 'x'}"]))
