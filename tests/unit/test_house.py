"""Rules of the house that no linter knows."""

import ast
import builtins
import dis
import importlib
import re
import sys
import types
from pathlib import Path

import pytest

from seqrl.scripts import doctor

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "seqrl").rglob("*.py"))
ALLOWED_LONG_FILES: set[str] = set()
ALLOWED_LONG_FUNCTIONS: set[str] = set()
"""Only ever shrink."""


@pytest.mark.parametrize("file", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_size(file):
    text = file.read_text()
    name = file.relative_to(ROOT).as_posix()
    assert text.count("\n") <= 500 or name in ALLOWED_LONG_FILES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60 or f"{name}:{node.name}" in ALLOWED_LONG_FUNCTIONS, node.name


def test_hdf5_files_are_opened_at_one_door():
    names = {file.name for file in SOURCES if "h5py.File(" in file.read_text()}
    assert names == {"hdf5_file.py", "hdf5_walk.py"}


def test_median_file_is_short():
    lengths = sorted(p.read_text().count("\n") for p in SOURCES if p.name != "__init__.py")
    assert lengths[len(lengths) // 2] <= 150


def test_an_algorithm_that_learns_values_is_a_short_file():
    assert (ROOT / "seqrl" / "algo" / "iql.py").read_text().count("\n") <= 120


PLUGINS = {
    "flat_hdf5_plugin.py": 40,
    "filtered_bc_plugin.py": 60,
    "npz_folder_plugin.py": 40,
    "offline_metric_plugin.py": 20,
    "touch_modality_plugin.py": 80,
}


@pytest.mark.parametrize(("name", "lines"), PLUGINS.items())
def test_example_plugins_are_short(name, lines):
    assert (ROOT / "examples" / name).read_text().count("\n") <= lines


def extras():
    text = (ROOT / "setup.py").read_text()
    return {"".join(name) for name in re.findall(r'^    "([^"]+)": \[|^EXTRAS\["(.+?)"\] = ', text, re.M)}


def test_every_extra_has_a_name_that_old_pips_find_and_is_looked_for_by_the_doctor():
    declared = extras()
    assert {name for name in declared if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)} == set()
    assert set(doctor.OPTIONAL) == declared - {"test", "dev", "docs"}


def test_every_extra_that_is_named_is_declared():
    files = [*(ROOT / "seqrl").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "Makefile"]
    named = {
        extra.strip(): file
        for file in files
        for found in re.findall(r"seqrl\[([a-z0-9_, -]+)\]'", file.read_text())
        for extra in found.split(",")
    }
    assert len(named) > 15
    assert {extra: file for extra, file in named.items() if extra not in extras()} == {}


def test_no_script_has_the_name_of_a_module_that_it_would_hide():
    """``python seqrl/scripts/train.py`` puts this folder before the standard library."""
    names = {file.stem for file in (ROOT / "seqrl" / "scripts").glob("*.py")}
    assert not names & set(sys.stdlib_module_names)


def test_the_citation_names_the_version():
    version = re.search(r'__version__ = "(.+?)"', (ROOT / "seqrl/version.py").read_text())[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def _global_names(code):
    """Return the global names that a function reads, those of the functions in it included."""
    own = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    return own.union(*(_global_names(const) for const in code.co_consts if isinstance(const, types.CodeType)))


@pytest.mark.parametrize(
    "package", ["algo", "configs", "core", "data", "envs", "models", "reports", "rollout", "sweeps", "training"]
)
def test_every_name_that_is_read_is_there(package):
    """Neither ruff nor mypy can tell, because shapes in annotations are names as well."""
    unknown = []
    for file in sorted((ROOT / "seqrl" / package).rglob("*.py")):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue  # it needs a package that is not installed
        code = compile(file.read_text(encoding="utf-8"), str(file), "exec")
        known = vars(module).keys() | vars(builtins).keys()
        unknown += [f"{name}: {missing}" for missing in sorted(_global_names(code) - known)]
    assert unknown == []
