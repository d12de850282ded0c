"""Run files: defaults, every problem in one message, JSON there and back."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest

import seqrl
from seqrl.configs import (
    BaseConfig,
    BCConfig,
    Component,
    Section,
    config_factory,
    get_all_registered_configs,
    read_config_values,
    template_names,
)
from seqrl.configs.base_config import register_config
from seqrl.configs.building import build_section
from seqrl.configs.sections.algo import AlgoSection
from seqrl.configs.sections.policy import OptimizerSection
from seqrl.configs.sections.sequence_encoders import GRUSection, TransformerSection
from seqrl.core.errors import ConfigError, RegistryError
from seqrl.core.registry import SEQUENCE_ENCODERS, Registry
from seqrl.sweeps.sweep_file import SweepSection


def problems(values):
    """Return dotted path -> text of every problem that building the config reports."""
    with pytest.raises(ConfigError) as caught:
        config_factory("bc", values, "run.json")
    head, *lines = str(caught.value).splitlines()
    assert head == f"run.json: {len(lines)} problem{'s' if len(lines) > 1 else ''}"
    return dict(line.split(maxsplit=1) for line in lines)


# -------------------------------------------------------------------------------------------- values
def test_pure_defaults():
    config = config_factory("bc")
    assert isinstance(config, BCConfig)
    assert config.algo_name == "bc"
    assert config.train.batch_size == 24
    assert config.train.data == []
    assert config.env.id is None
    assert config.algo.sequence_encoder == TransformerSection()
    assert config.algo.optimizer.learning_rate == 1e-4


def test_two_configs_share_nothing():
    one, other = config_factory("bc"), config_factory("bc")
    one.train.batch_size = 3
    one.env.kwargs["a"] = 1
    one.algo.sequence_encoder.d_model = 64
    one.plugins.append("x.py")
    assert other == config_factory("bc")
    assert other.train.batch_size == 24
    assert other.env.kwargs == {}
    assert other.plugins == []
    assert other.algo.sequence_encoder.d_model == 256


def test_values_replace_defaults_only_where_given():
    config = config_factory("bc", {"train": {"seed": 5}, "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 8}}})
    expected = config_factory("bc").to_json()
    expected["train"]["seed"] = 5
    expected["algo"]["sequence_encoder"] = {**GRUSection().model_dump(), "d_hidden": 8}
    assert config.to_json() == expected


def test_a_component_without_a_type_is_the_default_type():
    config = config_factory("bc", {"algo": {"sequence_encoder": {"d_model": 64}}})
    assert config.algo.sequence_encoder == TransformerSection(d_model=64)


def test_config_factory_does_not_change_its_argument():
    values = {"train": {"data": [{"path": "a.hdf5"}]}}
    config_factory("bc", values)
    assert values == {"train": {"data": [{"path": "a.hdf5"}]}}


def test_lists_of_sections():
    config = config_factory("bc", {"train": {"data": [{"path": "a.hdf5"}, {"scripted": "E-v0", "episodes": 3}]}})
    assert [d.path for d in config.train.data] == ["a.hdf5", None]
    assert [d.episodes for d in config.train.data] == [500, 3]


def test_options_are_all_fields_but_the_type():
    options = GRUSection(d_hidden=8).options()
    others = {"num_layers": 2, "d_output": 256, "dropout": 0.0, "norm": "layer", "start": "zero"}
    assert options == {"d_hidden": 8, "num_frames": 1, **others}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"algo": {"sequence_encoder": {"type": "gru", "num_layers": 1}, "distribution": {"type": "tanh_gaussian"}}},
        {
            "train": {
                "data": [{"path": "a"}, {"scripted": "b", "env_kwargs": {"n": [1, {"x": None}]}}],
                "num_threads": 1,
            }
        },
        {
            "experiment": {"save": {"every_n_epochs": 3, "best": []}},
            "observation": {"keys": ["a"]},
            "plugins": ["p.py"],
        },
    ],
)
def test_json_round_trip_gives_an_equal_config(values):
    config = config_factory("bc", values)
    text = json.dumps(config.to_json(), allow_nan=False)
    back = config_factory("bc", json.loads(text))
    assert back == config
    assert type(back.algo.sequence_encoder) is type(config.algo.sequence_encoder)
    assert json.dumps(back.to_json()) == text


# ------------------------------------------------------------------------------------------ problems
def test_unknown_key_names_the_nearest():
    assert problems({"train": {"batchsize": 3}}) == {"train.batchsize": "unknown key; did you mean 'batch_size'?"}
    for theirs in ({"train": {"hdf5_filter_key": "x"}}, {"observation": {"modalities": {"obs": {}}}}):
        (told,) = problems(theirs).values()
        assert told == "unknown key (robomimic's); seqrl convert-config shows what replaces it"
    assert problems({"trian": {}}) == {"trian": "unknown key; did you mean 'train'?"}


def test_out_of_range_says_the_limit_and_the_value():
    assert problems({"algo": {"optimizer": {"learning_rate": -1}}}) == {
        "algo.optimizer.learning_rate": "must be > 0.0, got -1"
    }
    assert problems({"train": {"valid_fraction": 1.0}}) == {"train.valid_fraction": "must be < 1.0, got 1.0"}
    assert problems({"train": {"seed": -3}}) == {"train.seed": "must be >= 0, got -3"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("train.batch_size", 3.5),
        ("train.batch_size", "three"),
        ("train.batch_size", "3"),
        ("train.batch_size", True),
        ("train.batch_size", [3]),
        ("train.batch_size", None),
        ("train.seed", False),
        ("train.device", 3),
        ("train.data", {"path": "a"}),
        ("train.data", None),
        ("train.data.0", 3),
        ("train", 3),
        ("train", None),
        ("train", []),
        ("env.kwargs", [1]),
        ("algo.sequence_encoder", None),
        ("algo.sequence_encoder", "gru"),
        ("algo.optimizer.learning_rate", "fast"),
        ("algo.optimizer.learning_rate", float("inf")),
        ("algo.optimizer.learning_rate", float("nan")),
        ("algo.sequence_encoder.use_head_scale", "perhaps"),
        ("experiment.logging.tensorboard", 1),
        ("train.precision", "fp8"),
    ],
)
def test_wrong_type_is_a_problem_at_its_path(path, value):
    values = value
    for key in reversed(path.split(".")):
        values = [values] if key.isdigit() else {key: values}
    assert list(problems(values)) == [path]


def test_all_problems_come_in_one_error():
    found = problems(
        {
            "train": {"batchsize": 3, "seed": -1, "data": [{"path": "a"}, {"path": "b", "weight": 0, "episodez": 4}]},
            "algo": {"optimizer": {"learning_rate": -1}, "sequence_encoder": {"type": "gruu"}},
            "plugin": [],
        }
    )
    assert "did you mean 'gru'?" in found["algo.sequence_encoder.type"]
    assert found == {
        "train.batchsize": "unknown key; did you mean 'batch_size'?",
        "train.seed": "must be >= 0, got -1",
        "train.data.1.weight": "must be > 0.0, got 0",
        "train.data.1.episodez": "unknown key; did you mean 'episodes'?",
        "algo.optimizer.learning_rate": "must be > 0.0, got -1",
        "algo.sequence_encoder.type": SEQUENCE_ENCODERS.unknown("gruu"),
        "plugin": "unknown key; did you mean 'plugins'?",
    }


def test_key_of_another_component_is_unknown():
    found = problems({"algo": {"sequence_encoder": {"type": "gru", "num_heads": 4}}})
    assert list(found) == ["algo.sequence_encoder.num_heads"]
    assert found["algo.sequence_encoder.num_heads"].startswith("unknown key")


def test_linked_values_are_checked():
    found = problems({"algo": {"sequence_encoder": {"num_heads": 7}}})
    assert list(found) == ["algo.sequence_encoder"]
    assert "num_heads 7 does not divide d_model 256" in found["algo.sequence_encoder"]


@pytest.mark.parametrize("entry", [{}, {"path": "a", "scripted": "b"}])
def test_data_has_exactly_one_source(entry):
    assert problems({"train": {"data": [{"path": "a"}, entry]}}) == {
        "train.data.1": "give exactly one of 'path' and 'scripted'"
    }


def test_later_format_version_is_refused():
    with pytest.raises(ConfigError, match=r"^run\.json: format_version 2; this seqrl reads 1; update seqrl$"):
        config_factory("bc", {"format_version": 2, "of_the_future": 1}, "run.json")
    assert list(problems({"format_version": 0})) == ["format_version"]


def test_unknown_algorithm_names_the_nearest():
    with pytest.raises(RegistryError, match=r"unknown algorithm 'bcc'; did you mean 'bc'\?"):
        config_factory("bcc")


def test_file_of_another_algorithm_is_refused():
    with pytest.raises(ConfigError, match=r"run.json: algo_name is 'other', but algorithm 'bc'"):
        config_factory("bc", {"algo_name": "other"}, "run.json")


# ---------------------------------------------------------------------------------------- assignment
@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        (lambda c: c, "trian", 3),
        (lambda c: c, "train", 3),
        (lambda c: c, "plugins", 3),
        (lambda c: c.train, "batchsize", 3),
        (lambda c: c.train, "batch_size", -1),
        (lambda c: c.train, "batch_size", "many"),
        (lambda c: c.train, "data", [3]),
        (lambda c: c.algo, "sequence_encoder", 3),
        (lambda c: c.algo, "sequence_encoder", OptimizerSection()),
        (lambda c: c.algo, "optimizer", GRUSection()),
        (lambda c: c.algo.optimizer, "learning_rate", float("nan")),
        (lambda c: c.algo.sequence_encoder, "num_heads", 7),
    ],
)
def test_bad_assignment_raises_and_changes_nothing(section, name, value):
    config = config_factory("bc")
    with pytest.raises((ValueError, ConfigError)):
        setattr(section(config), name, value)
    assert config == config_factory("bc")


def test_good_assignment_is_kept():
    config = config_factory("bc")
    config.train.batch_size = 3
    config.algo.sequence_encoder = GRUSection(d_hidden=8)
    assert config.to_json()["train"]["batch_size"] == 3
    assert config.to_json()["algo"]["sequence_encoder"]["d_hidden"] == 8


# ------------------------------------------------------------------------------------------ plug-ins
@pytest.fixture
def widgets():
    registry = Registry("widget")

    class PlainSection(Section):
        type: str = "plain"

    class Fancy:
        def __init__(self, size, *, width: int, depth: int = 2, label: str | None = None) -> None:
            pass

    registry.register("plain", section=PlainSection)(object())
    registry.register("fancy")(Fancy)

    class Host(Section):
        widget: Annotated[Section, Component(registry)] = PlainSection()

    return Host


def test_section_of_a_plugin_comes_from_its_keyword_arguments(widgets):
    host = build_section(widgets, {"widget": {"type": "fancy", "width": 3}}, "x")
    assert host.widget.options() == {"width": 3, "depth": 2, "label": None}
    assert host.widget.type == "fancy"


def test_required_and_wrong_arguments_of_a_plugin_are_reported(widgets):
    with pytest.raises(ConfigError) as caught:
        build_section(widgets, {"widget": {"type": "fancy", "depth": "deep", "size": 3}}, "x")
    text = str(caught.value)
    assert text.startswith("x: 3 problems")
    assert "widget.width" in text
    assert "is required" in text
    assert "widget.depth" in text
    assert "widget.size" in text


def test_config_of_a_new_algorithm(monkeypatch):
    from seqrl.configs import base_config

    monkeypatch.setattr(base_config, "CONFIGS", Registry("algorithm"))

    class MineSection(AlgoSection):
        temperature: float = 1.0

    @register_config("mine")
    class MineConfig(BaseConfig):
        algo: MineSection = MineSection()

    config = config_factory("mine", {"algo": {"temperature": 2}})
    assert config.algo_name == "mine"
    assert config.algo.temperature == 2.0
    assert get_all_registered_configs() == {"mine": MineConfig}
    assert BCConfig().algo_name == "bc"


def test_config_without_a_memory_is_refused():
    class BareSection(Section):
        temperature: float = 1.0

    with pytest.raises(ConfigError, match=r"BareConfig.algo: .*BareSection.* must be a subclass of .*AlgoSection"):

        @register_config("bare")
        class BareConfig(BaseConfig):
            algo: BareSection = BareSection()

    assert "bare" not in get_all_registered_configs()


# --------------------------------------------------------------------------------- files and templates
@pytest.mark.parametrize("name", template_names())
def test_template_resolves_and_its_values_are_taken(name):
    values = read_config_values(name)
    resolved = config_factory(values["algo_name"], values, name).to_json()

    def covered(part, whole):
        if isinstance(part, dict):
            return all(k in whole and covered(v, whole[k]) for k, v in part.items())
        if isinstance(part, list):
            return len(part) == len(whole) and all(map(covered, part, whole))
        return part == whole

    assert covered(values, resolved)


def test_every_algorithm_has_a_template_of_its_name():
    configs = get_all_registered_configs()
    built_in = {
        name for name, cls in configs.items() if cls.__module__.startswith("seqrl.")
    }  # not other tests' plug-ins
    assert {f"{name}.json" for name in built_in} <= set(template_names())


def test_a_file_wins_over_a_template(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = read_config_values("bc.json")
    (tmp_path / "bc.json").write_text('{"train": {"seed": 9}}')
    assert read_config_values("bc.json") == {"train": {"seed": 9}} != packaged


def test_missing_file_lists_the_templates():
    with pytest.raises(ConfigError, match=r"bcc.json: no such file; did you mean 'bc.json'\? packaged templates: .*bc"):
        read_config_values("bcc.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON: .* line 1 column 2"),
        (b'{"a": 1,\n }', "line 2"),
        (b"[1]", "must be a JSON object, got list"),
        (b"\xff\xfe", "cannot be read as text"),
        (b"", "not JSON"),
    ],
)
def test_broken_file_is_named(tmp_path, content, message):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_config_values(str(path))
    assert str(path) in str(caught.value)


# ------------------------------------------------------------------------------------------ JSON schema
def accepts(schema, value, defs):
    """A small independent JSON-schema check: references, anyOf, types, constants, properties, items, limits."""
    if "$ref" in schema:
        return accepts(defs[schema["$ref"].rsplit("/", 1)[-1]], value, defs)
    if "anyOf" in schema and not any(accepts(s, value, defs) for s in schema["anyOf"]):
        return False
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    kind = schema.get("type")
    if kind in ("integer", "number") and (isinstance(value, bool) or not isinstance(value, int | float)):
        return False
    if kind in kinds and not isinstance(value, kinds[kind]):
        return False
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return False
    if "exclusiveMinimum" in schema and not value > schema["exclusiveMinimum"]:
        return False
    if isinstance(value, dict) and "properties" in schema:
        if schema.get("additionalProperties") is False and not value.keys() <= schema["properties"].keys():
            return False
        return all(accepts(schema["properties"][k], v, defs) for k, v in value.items() if k in schema["properties"])
    if isinstance(value, list) and "items" in schema:
        return all(accepts(schema["items"], v, defs) for v in value)
    return True


@functools.cache
def schema_of(algo_name):
    schema = json.loads(json.dumps(get_all_registered_configs()[algo_name].model_json_schema(), allow_nan=False))
    return lambda value: accepts(schema, value, schema["$defs"])


@pytest.mark.parametrize("name", template_names())
def test_json_schema_accepts_every_template_and_its_resolved_form(name):
    values = read_config_values(name)
    valid = schema_of(values["algo_name"])
    assert valid(values)
    assert valid(config_factory(values["algo_name"], values).to_json())


@pytest.mark.parametrize(
    "values",
    [
        {"trian": {}},
        {"train": {"batchsize": 3}},
        {"train": {"batch_size": 0}},
        {"train": {"data": [{"pathh": "a"}]}},
        {"algo": {"sequence_encoder": {"type": "gruu"}}},
        {"algo": {"sequence_encoder": {"type": "gru", "num_heads": 4}}},
        {"train": {"precision": "fp8"}},
    ],
)
def test_json_schema_refuses_what_the_config_refuses(values):
    assert not schema_of("bc")(values)
    assert problems(values)


def test_json_schema_describes_every_leaf():
    properties = get_all_registered_configs()["bc"].model_json_schema()["$defs"]["TrainSection"]["properties"]
    assert all(p.get("description") for p in properties.values())


# ---------------------------------------------------------------------------------------------- import
def test_import_is_quick_and_free_of_torch():
    code = (
        "import sys, time; start = time.process_time(); import seqrl.configs; seqrl.configs.config_factory('bc'); "
        "print(time.process_time() - start, 'torch' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(seqrl.__file__).parents[1])}
    done = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True) for _ in range(3)]
    seconds, with_torch = zip(*(each.stdout.decode().split() for each in done), strict=True)
    assert set(with_torch) == {"False"}
    assert min(map(float, seconds)) < 2.5  # most of it is pydantic's; torch alone takes 2 to 4


def test_of_very_many_problems_the_first_are_told_and_the_others_counted(monkeypatch):
    from seqrl.configs import building

    hints = []
    monkeypatch.setattr(building, "did_you_mean", lambda key, legal: hints.append(key) or "")
    with pytest.raises(ConfigError) as caught:
        config_factory("bc", {f"k{i}": 1 for i in range(200)} | {"k" * 10**5: 1, "env": {"tasks": [1] * 10**4}})
    lines = str(caught.value).splitlines()
    assert lines[0] == "config: 201 problems"
    assert lines[-1] == "  and 151 more"
    assert len(lines) == 52
    assert len(hints) == 50  # those of the others would take half a minute
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize("name", ["", ".", "..", "...", "a/b", "a b"])
def test_a_run_cannot_be_named_after_a_folder_that_is_there(name):
    with pytest.raises(ConfigError, match=r"experiment\.name +must be a name of letters, digits and _ \. \+ = -"):
        config_factory("bc", {"experiment": {"name": name}})
    with pytest.raises(ValueError, match="should match pattern"):
        SweepSection(name=name, base="bc.json")


@pytest.mark.parametrize("name", ["a", ".hidden", "..a", "run-1", "x=0.5+b", "é"])
def test_other_names_are_legal(name):
    assert config_factory("bc", {"experiment": {"name": name}}).experiment.name == name


def test_a_list_of_entries_is_not_empty():
    with pytest.raises(ConfigError, match=r"observation\.keys +must have at least 1 entries"):
        config_factory("bc", {"observation": {"keys": []}})


def test_a_folder_is_no_run_file(tmp_path):
    with pytest.raises(ConfigError, match="is a folder"):
        read_config_values(str(tmp_path))
