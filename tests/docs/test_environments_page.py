"""The page of the built-in environments names each of them with every option, and with what it reports."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import gymnasium as gym
import pytest

from seqrl.envs.builtin import builtin_env_ids

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("env_id", builtin_env_ids())
def test_every_environment_is_described_with_its_options_and_metrics(env_id):
    (section,) = (s for s in SECTIONS if f"`{env_id}`" in s.split("| | |")[0])
    module, name = gym.spec(env_id).entry_point.split(":")
    options = inspect.signature(getattr(import_module(module), name)).parameters
    missing = [o for o in options if o != "render_mode" and f"`{o}`" not in section]
    assert not missing
    source = inspect.getsource(import_module(module))
    for metric in re.findall(r'"(log/\w+?)"', source):
        assert f"`{metric}`" in section, metric


def test_the_table_of_contents_leads_to_sections():
    titles = [s.splitlines()[0] for s in SECTIONS]
    assert re.findall(r"\]\(#([\w-]+)\)", PAGE) == [t.lower() for t in titles]
