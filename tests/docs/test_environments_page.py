"""Every built-in environment has a page with each of its options and metrics, and a small picture."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import gymnasium as gym
import pytest

import seqrl.envs  # noqa: F401  (registers them)

DOCS = Path(__file__).parents[2] / "docs"
INDEX = (DOCS / "environments.md").read_text()
PAGES = {page: page.read_text() for page in (DOCS / "environments").glob("*.md")}
ENV_IDS = [i for i in gym.registry if re.fullmatch(r"seqrl/\w+-v\d+", i)]


def page_of(env_id):
    """Return the page whose second line of text, or its title, gives the id."""
    found = [text for text in PAGES.values() if f"`{env_id}`" in text.split("\n![")[0]]
    assert len(found) == 1, f"{env_id} has {len(found)} pages"
    return found[0]


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_every_environment_has_a_page_with_its_options_and_metrics(env_id):
    text = page_of(env_id)
    module, name = gym.spec(env_id).entry_point.split(":")
    options = inspect.signature(getattr(import_module(module), name)).parameters
    rows = re.findall(r"^\| `(\w+)` \|(.*)$", text, flags=re.MULTILINE)
    for option, parameter in options.items():
        cells = [row for key, row in rows if key == option]
        assert cells, f"{option} is missing"
        value = parameter.default
        default = {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
        assert any(re.search(rf"(?<![\w.]){re.escape(default)}(?![\w.])", row) for row in cells), (option, default)
    for metric in re.findall(r'"(log/\w+?)"', inspect.getsource(import_module(module))):
        assert f"`{metric}`" in text, metric


def test_there_are_all_of_them():
    from seqrl.envs.builtin import builtin_env_ids

    assert set(ENV_IDS) >= set(builtin_env_ids())


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_index_leads_to_every_page_and_shows_its_picture(page):
    assert f"(environments/{page.name})" in INDEX
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGES[page])
    assert pictures or page.stem == "suites"
    assert all((page.parent / picture).stat().st_size < 40_000 for picture in pictures)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_page_has_a_command_that_trains(page):
    assert "\nseqrl train " in PAGES[page]
