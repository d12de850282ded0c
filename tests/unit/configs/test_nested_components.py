"""Lists and dicts of components, and components within components: every problem at its path, JSON there and back."""

import json
from typing import Annotated

import pytest
from pydantic import Field

from seqrl.configs import Component, Section, apply_overrides, config_factory
from seqrl.configs.building import build_section
from seqrl.configs.sections.images import ImpalaSection, NatureSection, ShiftSection
from seqrl.configs.sections.modalities import ImageSection, ScanSection
from seqrl.configs.sections.policy import OptimizerSection
from seqrl.configs.sections.timestep_encoders import CNNTimestepEncoderSection, MultimodalTimestepEncoderSection
from seqrl.core.errors import ConfigError
from seqrl.core.registry import IMAGE_RANDOMIZERS, MODALITIES, Registry
from tests.unit.configs.test_config import problems, schema_of

KEY = "observation.timestep_encoder"


def run_file(section):
    return {"observation": {"timestep_encoder": section}}


def encoder_of(section):
    return config_factory("bc", run_file(section)).observation.timestep_encoder


CNN = {
    "type": "cnn",
    "core": {"type": "impala", "block_channels": [8]},
    "randomizers": [{"type": "shift", "pad": 2}, {"type": "crop", "height": 60, "width": 60}, {"type": "shift"}],
}
FUSED = {
    "type": "multimodal",
    "modalities": {"lidar": {"type": "scan", "max_range": 8.0}, "robot/cam": {**CNN, "type": "image", "d_output": 8}},
}


# -------------------------------------------------------------------------------------------- values
def test_lists_keep_their_order_and_repetitions():
    section = encoder_of(CNN)
    assert type(section) is CNNTimestepEncoderSection
    assert section.core == ImpalaSection(block_channels=[8])
    assert [r.type for r in section.randomizers] == ["shift", "crop", "shift"]
    assert section.randomizers[0] == ShiftSection(pad=2)


def test_dicts_keep_their_names():
    section = encoder_of(FUSED)
    assert list(section.modalities) == ["lidar", "robot/cam"]
    assert section.modalities["lidar"] == ScanSection(max_range=8.0)
    assert section.modalities["robot/cam"].randomizers[1].height == 60


@pytest.mark.parametrize("section", [CNN, FUSED, {"type": "cnn"}, {"type": "multimodal"}])
def test_json_there_and_back(section):
    config = config_factory("bc", run_file(section))
    text = json.dumps(config.to_json(), allow_nan=False)
    back = config_factory("bc", json.loads(text))
    assert back == config
    assert json.dumps(back.to_json()) == text


def test_options_are_choices():
    assert encoder_of(CNN).options() == {
        **CNNTimestepEncoderSection().options(),
        "core": ("impala", ImpalaSection(block_channels=[8]).options()),
        "randomizers": [
            ("shift", {"pad": 2, "share": 0.75}),
            ("crop", {"height": 60, "width": 60, "num_crops": 1, "share": 1.0}),
            ("shift", {"pad": 4, "share": 0.75}),
        ],
    }
    name, options = encoder_of(FUSED).options()["modalities"]["robot/cam"]
    assert name == "image"
    assert options["core"][0] == "impala"


def test_sections_are_taken_as_values():
    inner = ImageSection(core=ImpalaSection(block_channels=[4]), randomizers=[ShiftSection(pad=1)])
    section = encoder_of(MultimodalTimestepEncoderSection(modalities={"a": inner}))
    assert section.modalities == {"a": inner}
    assert encoder_of({"type": "multimodal", "modalities": {"a": inner}}).modalities == {"a": inner}


def test_two_configs_share_no_list():
    one, other = (config_factory("bc", run_file({"type": "cnn"})) for _ in range(2))
    one.observation.timestep_encoder.randomizers.append(ShiftSection())
    one.observation.timestep_encoder.core.num_keypoints = 3
    assert other.observation.timestep_encoder == CNNTimestepEncoderSection()


# ------------------------------------------------------------------------------------------ problems
def test_all_problems_at_once_with_their_paths():
    found = problems(
        run_file(
            {
                "type": "multimodal",
                "modalities": {
                    "cam": {
                        "type": "image",
                        "core": {"type": "impla"},
                        "randomizers": [
                            {"type": "shiftt"},
                            {"pad": 3},
                            3,
                            {"type": "shift", "pad": 0},
                            {"type": "crop"},
                        ],
                    },
                    "depth": {"type": "depth", "max_depth": -1},
                    "lidar": {"type": "scan", "range": 3, "kernels": [3, "a", 3], "strides": [1]},
                    "words": {"type": "tokns"},
                    "x": "vector",
                },
                "d_outputs": 3,
            }
        )
    )
    m = f"{KEY}.modalities"
    assert found.keys() == {
        f"{m}.cam.core.type",
        f"{m}.cam.randomizers.0.type",
        f"{m}.cam.randomizers.1.type",
        f"{m}.cam.randomizers.2",
        f"{m}.cam.randomizers.3.pad",
        f"{m}.cam.randomizers.4.height",
        f"{m}.cam.randomizers.4.width",
        f"{m}.depth.max_depth",
        f"{m}.lidar.range",
        f"{m}.lidar.kernels.1",
        f"{m}.words.type",
        f"{m}.x",
        f"{KEY}.d_outputs",
    }
    assert found[f"{m}.cam.randomizers.0.type"] == IMAGE_RANDOMIZERS.unknown("shiftt")
    assert "did you mean 'shift'?" in found[f"{m}.cam.randomizers.0.type"]
    assert found[f"{m}.cam.randomizers.1.type"].startswith("is required; registered: color, crop")
    assert found[f"{m}.words.type"] == MODALITIES.unknown("tokns")
    assert found[f"{m}.x"].endswith("got 'vector'")


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"type": "cnn", "randomizers": {"type": "shift"}}, "randomizers"),
        ({"type": "cnn", "randomizers": "shift"}, "randomizers"),
        ({"type": "cnn", "randomizers": None}, "randomizers"),
        ({"type": "cnn", "randomizers": [None]}, "randomizers.0"),
        ({"type": "cnn", "core": None}, "core"),
        ({"type": "multimodal", "modalities": [{"type": "vector"}]}, "modalities"),
        ({"type": "multimodal", "modalities": None}, "modalities"),
        ({"type": "multimodal", "modalities": {"a": None}}, "modalities.a"),
    ],
)
def test_wrong_containers(section, path):
    assert list(problems(run_file(section))) == [f"{KEY}.{path}"]


# ---------------------------------------------------------------------------------------- assignment
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("randomizers", [OptimizerSection()]),
        ("randomizers", [NatureSection()]),
        ("randomizers", ShiftSection()),
        ("core", ShiftSection()),
    ],
)
def test_bad_assignment_changes_nothing(name, value):
    section = encoder_of(CNN)
    with pytest.raises(ValueError, match=name):
        setattr(section, name, value)
    assert section == encoder_of(CNN)


def test_good_assignment_is_kept():
    section = encoder_of(FUSED)
    section.modalities = {"a": ScanSection()}
    assert section.modalities == {"a": ScanSection()}
    with pytest.raises(ValueError, match="must be the section of a registered modality"):
        section.modalities = {"a": ShiftSection()}


# ----------------------------------------------------------------------------------------- overrides
def test_overrides_reach_lists_and_dicts():
    values = {"observation": {"keys": None}}
    apply_overrides(
        values,
        [
            f"{KEY}.type=multimodal",
            f"{KEY}.modalities.lidar.type=scan",
            f"{KEY}.modalities.lidar.max_range=9.5",
            f"{KEY}.modalities.cam.type=image",
            f"{KEY}.modalities.cam.core.type=drq",
            f'{KEY}.modalities.cam.randomizers=[{{"type": "shift"}}, {{"type": "noise"}}]',
            f"{KEY}.modalities.cam.randomizers.0.pad=7",
            f"{KEY}.modalities.cam.randomizers.1.type=color",
            f'{KEY}.modalities.type={{"type": "vector"}}',
        ],
    )
    modalities = config_factory("bc", values).observation.timestep_encoder.modalities
    assert modalities["lidar"] == ScanSection(max_range=9.5)
    assert modalities["cam"].core.type == "drq"
    assert [r.type for r in modalities["cam"].randomizers] == ["shift", "color"]
    assert modalities["cam"].randomizers[0].pad == 7
    assert modalities["type"].type == "vector"


def test_another_modality_drops_what_the_first_had():
    values = run_file({"type": "multimodal", "modalities": {"a": {"type": "scan", "max_range": 3.0}}})
    dropped = apply_overrides(values, [f"{KEY}.modalities.a.type=vector"])
    assert dropped == [f"{KEY}.modalities.a.type=vector drops {KEY}.modalities.a.{{max_range}}"]
    assert config_factory("bc", values).observation.timestep_encoder.modalities["a"].type == "vector"


# ------------------------------------------------------------------------------------------ plug-ins
def test_derived_sections_in_lists():
    registry = Registry("widget")

    class Fancy:
        def __init__(self, size, *, width: int, label: str | None = None) -> None:
            pass

    registry.register("fancy")(Fancy)

    class Host(Section):
        widgets: list[Annotated[Section, Component(registry)]] = Field([])
        named: dict[str, Annotated[Section, Component(registry)]] = Field({})

    values = {"widgets": [{"type": "fancy", "width": 3}], "named": {"a": {"type": "fancy", "width": 4}}}
    host = build_section(Host, values, "x")
    assert host.options() == {
        "widgets": [("fancy", {"width": 3, "label": None})],
        "named": {"a": ("fancy", {"width": 4, "label": None})},
    }
    with pytest.raises(ConfigError, match=r"widgets.0.width +is required"):
        build_section(Host, {"widgets": [{"type": "fancy"}]}, "x")


# -------------------------------------------------------------------------------------------- schema
@pytest.mark.parametrize("section", [CNN, FUSED, {"type": "multimodal", "modalities": {}}])
def test_json_schema_accepts_what_the_config_accepts(section):
    valid = schema_of("bc")
    assert valid(run_file(section))
    assert valid(config_factory("bc", run_file(section)).to_json())


@pytest.mark.parametrize(
    "section",
    [
        {"type": "cnn", "randomizers": [{"type": "shiftt"}]},
        {"type": "cnn", "randomizers": [{"type": "shift", "pad": 0}]},
        {"type": "cnn", "core": {"type": "nature", "block_channels": [3]}},
        {"type": "cnn", "randomizers": {"type": "shift"}},
    ],
)
def test_json_schema_refuses_what_the_config_refuses(section):
    assert not schema_of("bc")(run_file(section))
    assert problems(run_file(section))
