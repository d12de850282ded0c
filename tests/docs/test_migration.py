"""The pages for those who come from elsewhere name keys, commands and ids that are there."""

import re
from importlib import import_module
from pathlib import Path

import gymnasium as gym
import pytest
from pydantic import BaseModel

from seqrl.configs import get_all_registered_configs
from seqrl.core import registry
from seqrl.core.registry import Registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / f"coming_from_{name}.md" for name in ("amago", "robomimic")]
TOP = ("experiment", "env", "train", "collect", "observation", "algo")


def ours(page):
    """Return what stands in the right column of the page's tables, in code."""
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row[-1])]


def field_names():
    """Return the names of all fields of all sections, registered ones included."""
    import seqrl.training.experiment  # noqa: F401  (imports what registers sections)

    found, todo = set(), list(get_all_registered_configs().values())
    registries = [r for r in vars(registry).values() if isinstance(r, Registry)]
    todo += [section for r in registries for section in r.sections.values()]
    while todo:
        cls = todo.pop()
        for name, field in cls.model_fields.items():
            found.add(name)
            default = field.get_default(call_default_factory=True)
            if isinstance(default, BaseModel):
                todo.append(type(default))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_keys_are_keys(page):
    names = field_names()
    keys = [code for code in ours(page) if code.split(".")[0] in TOP and "." in code]
    assert len(keys) > 20
    assert [k for k in keys if not set(k.split(".")) <= {*names, *TOP}] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_commands_and_environments_are_there(page):
    for code in ours(page):
        if match := re.match(r"seqrl ([a-z-]+)", code):
            assert import_module(f"seqrl.scripts.{match[1].replace('-', '_')}").parser()
        if code.startswith("seqrl/") and code.endswith("-v0"):
            assert code in gym.registry
