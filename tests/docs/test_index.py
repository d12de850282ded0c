"""The index of the documentation leads to every page, and commands that train are legal."""

import re
import shlex
from pathlib import Path

import pytest

from seqrl.core.errors import EnvError
from seqrl.rollout.environments import single_makers, tasks
from seqrl.scripts import train

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
COMMANDS = sorted(
    {
        line.split(" #")[0].strip()
        for page in [ROOT / "README.md", *PAGES]
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("seqrl train ")
    }
)


def test_the_index_leads_to_every_page_once():
    index = ROOT / "docs" / "README.md"
    linked = re.findall(r"^ *- \[[^\]]+\]\(([^)]+)\): \S", index.read_text(), flags=re.MULTILINE)
    assert sorted(linked) == sorted(p.relative_to(ROOT / "docs").as_posix() for p in PAGES if p != index)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_training_command_has_a_legal_config(command, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert train.main([*shlex.split(command)[2:], "--print-config"]) == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_training_command_names_environments_that_take_their_arguments(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    config, _ = train.resolve_config(train.parser().parse_args(shlex.split(command)[2:]))
    for is_evaluation in (False, True):
        for make in single_makers(config, tasks(config.env, None, {}, is_evaluation=is_evaluation)):
            try:
                env = make()
            except EnvError as error:
                if "pip install 'seqrl[" not in str(error):
                    raise
                pytest.skip(str(error))
            obs, _ = env.reset(seed=0)
            assert env.observation_space.contains(obs)
            env.close()
