"""A registry finds, refuses and suggests."""

import sys

import pytest

from seqrl.core.errors import RegistryError, SeqrlError, did_you_mean
from seqrl.core.registry import Registry


@pytest.fixture
def colours():
    registry = Registry("colour")
    registry.register("red")(1)
    registry.register("green")(2)
    return registry


def test_registers_and_returns_the_object_unchanged():
    registry = Registry("colour")

    @registry.register("red")
    def red():
        return "r"

    assert red() == "r"
    assert registry.get("red") is red
    assert "red" in registry
    assert "blue" not in registry


def test_names_are_sorted_and_include_sections_without_code(colours):
    colours.register_section("blue")(dict)
    assert colours.names() == ["blue", "green", "red"]
    assert "blue" not in colours


def test_unknown_name_lists_all_names_and_the_nearest(colours):
    with pytest.raises(RegistryError, match=r"unknown colour 'gren'; did you mean 'green'\? registered: green, red$"):
        colours.get("gren")


def test_unknown_name_without_a_near_one_lists_the_names(colours):
    with pytest.raises(RegistryError, match=r"unknown colour 'xyzzy'; registered: green, red$"):
        colours.get("xyzzy")


def test_empty_registry_says_none():
    with pytest.raises(RegistryError, match=r"unknown colour 'red'; registered: none$"):
        Registry("colour").get("red")


def test_duplicate_name_is_refused_and_keeps_the_first(colours):
    class Rival:
        pass

    class Other:
        pass

    colours.register("rival")(Rival)
    with pytest.raises(RegistryError, match=r"colour 'rival' is already registered.*Rival"):
        colours.register("rival")(Other)
    assert colours.get("rival") is Rival


def test_the_same_object_may_register_twice(colours):
    class Blue:
        pass

    colours.register("blue")(Blue)
    colours.register("blue")(Blue)
    assert colours.get("blue") is Blue


def test_section_travels_with_its_entry_and_duplicates_are_refused(colours):
    class BlueSection:
        pass

    class OtherSection:
        pass

    colours.register("blue", section=BlueSection)(3)
    assert colours.sections["blue"] is BlueSection
    with pytest.raises(RegistryError, match="section of colour 'blue'"):
        colours.register_section("blue")(OtherSection)


def test_registries_do_not_share_names(colours):
    assert Registry("colour").names() == []
    assert colours.names() == ["green", "red"]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Name of a module that nobody has imported, which holds the class Blue."""
    (tmp_path / "lazily_imported.py").write_text("class Blue:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "lazily_imported"
    sys.modules.pop("lazily_imported", None)


def test_a_lazy_entry_is_there_before_its_module_is_imported(colours, module):
    colours.register_lazy("blue", f"{module}:Blue")
    assert "blue" in colours
    assert colours.names() == ["blue", "green", "red"]
    assert module not in sys.modules
    blue = colours.get("blue")
    assert blue is sys.modules[module].Blue
    assert colours.get("blue") is blue


def test_a_lazy_entry_has_a_name_that_others_may_not_take(colours, module):
    colours.register_lazy("blue", f"{module}:Blue")
    colours.register_lazy("blue", f"{module}:Blue")
    with pytest.raises(RegistryError, match=r"colour 'blue' is already registered, by lazily_imported\.Blue"):
        colours.register("blue")(dict)
    with pytest.raises(RegistryError, match="colour 'blue' is already registered"):
        colours.register_lazy("blue", "other:Blue")
    with pytest.raises(RegistryError, match="colour 'red' is already registered"):
        colours.register_lazy("red", f"{module}:Blue")
    assert module not in sys.modules
    colours.register("blue")(colours.get("blue"))  # the same, by a decorator in the module itself


def test_registry_error_is_a_seqrl_error():
    assert issubclass(RegistryError, SeqrlError)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("batchsize", "; did you mean 'batch_size'?"), ("zzz", ""), ("seed", "; did you mean 'seed'?")],
)
def test_did_you_mean(name, expected):
    assert did_you_mean(name, ["batch_size", "seed"]) == expected
