"""Plug-ins load once, and a missing one is told from a broken one."""

import re
import sys
from types import SimpleNamespace

import pytest

from seqrl.core import plugins
from seqrl.core.errors import ConfigError
from seqrl.core.plugins import are_loaded, load_plugins


@pytest.fixture(autouse=True)
def _no_trace(monkeypatch):
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if "plug" in name:
            del sys.modules[name]


COUNTING = "import sys\nsys.plugin_test_loads = getattr(sys, 'plugin_test_loads', []) + [__file__]\n"


@pytest.fixture
def loads(monkeypatch):
    monkeypatch.setattr(sys, "plugin_test_loads", [], raising=False)
    return lambda: [path.rsplit("/", 2)[-2:] for path in sys.plugin_test_loads]


def test_a_file_is_imported_once(tmp_path, loads):
    file = tmp_path / "mine_plugin.py"
    file.write_text(COUNTING)
    load_plugins([str(file), str(file)])
    load_plugins([str(file)])
    assert loads() == [[tmp_path.name, "mine_plugin.py"]]


def test_one_file_under_two_spellings_is_imported_once(tmp_path, loads, monkeypatch):
    (tmp_path / "mine_plugin.py").write_text(COUNTING)
    monkeypatch.chdir(tmp_path)
    load_plugins(["mine_plugin.py", "./mine_plugin.py", str(tmp_path / "mine_plugin.py")])
    assert len(loads()) == 1


def test_two_files_of_the_same_name_are_both_imported(tmp_path, loads):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine_plugin.py").write_text(COUNTING)
    load_plugins([str(tmp_path / "a" / "mine_plugin.py"), str(tmp_path / "b" / "mine_plugin.py")])
    assert loads() == [["a", "mine_plugin.py"], ["b", "mine_plugin.py"]]


def test_a_file_does_not_shadow_a_module_of_its_name(tmp_path, loads):
    (tmp_path / "json.py").write_text(COUNTING)
    load_plugins([str(tmp_path / "json.py")])
    assert len(loads()) == 1
    assert hasattr(sys.modules["json"], "dumps")


def test_a_module_is_imported_by_name(tmp_path, loads, monkeypatch):
    (tmp_path / "named_plugin.py").write_text(COUNTING)
    monkeypatch.syspath_prepend(tmp_path)
    load_plugins(["named_plugin"])
    assert loads() == [[tmp_path.name, "named_plugin.py"]]


@pytest.mark.parametrize("name", ["nowhere/plugin.py", "no_such_plugin", "no_such_plugin.sub", "seqrl.no_such_plugin"])
def test_a_missing_plugin_is_a_config_error_that_names_it(name):
    with pytest.raises(ConfigError, match=name):
        load_plugins([name])


def test_an_error_of_the_plugins_own_code_is_not_caught_and_it_can_be_loaded_again(tmp_path, loads):
    file = tmp_path / "broken_plugin.py"
    file.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        load_plugins([str(file)])
    file.write_text(COUNTING + "# mended\n")
    load_plugins([str(file)])
    assert len(loads()) == 1


@pytest.mark.parametrize("missing", ["absent_package", "outer"])
def test_a_module_whose_own_import_is_missing_says_so(tmp_path, monkeypatch, missing):
    """The plug-in exists; what it needs does not, even where one name begins with the other."""
    (tmp_path / "outer_plugin.py").write_text(f"import {missing}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match=missing):
        load_plugins(["outer_plugin"])


def test_installed_plugins_load_first(tmp_path, loads, monkeypatch):
    order = []

    class EntryPoint:
        def load(self):
            order.append(len(sys.plugin_test_loads))

    asked = []
    monkeypatch.setattr(plugins, "entry_points", lambda group: asked.append(group) or [EntryPoint()])
    file = tmp_path / "mine_plugin.py"
    file.write_text(COUNTING)
    load_plugins([str(file)])
    assert asked == ["seqrl.plugins"]
    assert order == [0]
    assert len(loads()) == 1


def test_an_installed_plugin_that_is_broken_is_named(monkeypatch):
    def broken():
        raise ModuleNotFoundError("No module named 'gone'")

    entry = SimpleNamespace(load=broken, value="pkg.gone", dist=SimpleNamespace(name="pkg"))
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    with pytest.raises(ConfigError, match=r"'pkg.gone' of the package pkg cannot be imported: ModuleNotFoundError"):
        load_plugins([])


def test_one_by_itself_is_a_list_of_one_and_is_loaded_then(tmp_path, loads):
    file = tmp_path / "mine_plugin.py"
    file.write_text(COUNTING)
    assert not are_loaded([str(file)])
    assert load_plugins(file) == load_plugins(str(file)) == [str(file)]
    assert are_loaded([str(file), "elsewhere/mine_plugin.py", "sys"])
    assert not are_loaded([str(file), "other_plugin.py"])
    assert not are_loaded(["mine.py"])
    assert not are_loaded(["no_such_plugin"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (".", "'.' is a folder; name a .py file in it"),
        ("folder", "'folder' is a folder; name a .py file in it"),
        ("./folder", "'./folder' is a folder"),
        ("./package", "'./package' is a folder; name its __init__.py"),
        ("a b", "'a b' is not a module"),
        ("a\0b", "is not a module"),
        ("..x", "is not a module"),
        ("x" * 300 + ".py", "does not exist"),
        ("broken.py", "broken.py, line 2: '(' was never closed"),
    ],
)
def test_what_cannot_be_a_plugin_is_an_error(name, message, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "broken.py").write_text("x = 1\nprint(\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_plugins([name])


def test_a_folder_that_python_would_import_without_code_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "plugs").mkdir()
    (tmp_path / "plugs" / "memory.py").write_text(COUNTING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"'plugs' is a folder; name"):
        load_plugins("plugs")
