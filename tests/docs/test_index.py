"""The index of the documentation leads to every page, and commands that train are legal."""

import re
import shlex
from pathlib import Path

import pytest

from seqrl.core.errors import EnvError
from seqrl.rollout.environments import single_makers, tasks
from seqrl.scripts import collect_dataset, train

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


SAVED = {
    name: code
    for page in PAGES
    for name, code in re.findall(r"Save this as `(\w+\.py)`.*?```python\n(.*?)```", page.read_text(), re.DOTALL)
}
"""Plug-ins that pages tell their readers to save."""


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    """Write data of one's own."""
    file = tmp_path_factory.mktemp("data") / "demos.hdf5"
    assert collect_dataset.main(["--env", "seqrl/PointRecall-v0", "--episodes", "2", "--output", str(file)]) == 0
    return file


@pytest.fixture
def _at_the_top(tmp_path, monkeypatch, demos):
    """Be where the examples are, and what the pages say to save."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / demos.name).symlink_to(demos)
    for folder in ("examples", "benchmarks"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for name, code in SAVED.items():
        (tmp_path / name).write_text(code)


def test_the_index_leads_to_every_page_once():
    index = ROOT / "docs" / "README.md"
    linked = re.findall(r"^ *- \[[^\]]+\]\(([^)]+)\): \S", index.read_text(), flags=re.MULTILINE)
    assert sorted(linked) == sorted(p.relative_to(ROOT / "docs").as_posix() for p in PAGES if p != index)


@pytest.mark.usefixtures("_at_the_top", "registries_as_before")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_training_command_has_a_legal_config(command, capsys):
    code = train.main([*shlex.split(command)[2:], "--print-config"])
    if "pip install 'seqrl[" in (told := capsys.readouterr().err):
        pytest.skip(told)
    assert code == 0


@pytest.mark.usefixtures("_at_the_top", "registries_as_before")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_training_command_names_environments_that_take_their_arguments(command):
    try:
        config, _ = train.resolve_config(train.parser().parse_args(shlex.split(command)[2:]))
        for is_evaluation in (False, True):
            for make in single_makers(config, tasks(config.env, None, {}, is_evaluation=is_evaluation)):
                env = make()
                obs, _ = env.reset(seed=0)
                assert env.observation_space.contains(obs)
                env.close()
    except EnvError as error:
        if "pip install 'seqrl[" not in str(error):
            raise
        pytest.skip(str(error))
