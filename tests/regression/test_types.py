"""A misspelt setting of an algorithm is a type error."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MISSPELT = {
    "actor_critic.py": ("section.online_coeff", "section.online_coef"),
    "chunk_policy.py": ("section.chunk_steps", "section.chunk_stepz"),
    "iql.py": ("algo_config.expectile", "algo_config.expectil"),
    "value_agent.py": ("algo_config.n_step", "algo_config.nstep"),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_mypy_finds_misspelt_settings(tmp_path):
    shutil.copytree(ROOT / "seqrl", tmp_path / "seqrl", ignore=shutil.ignore_patterns("__pycache__"))
    settings = (ROOT / "pyproject.toml").read_text().replace('files = ["seqrl", "examples"]', 'files = ["seqrl"]')
    (tmp_path / "pyproject.toml").write_text(settings)
    for name, (right, wrong) in MISSPELT.items():
        file = tmp_path / "seqrl" / "algo" / name
        text = file.read_text()
        assert right in text
        file.write_text(text.replace(right, wrong, 1))
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=tmp_path, capture_output=True, text=True)
    found = re.findall(r"seqrl/algo/(\w+\.py):\d+: error: .* has no attribute \"(\w+)\"", done.stdout)
    assert sorted(found) == sorted((name, wrong.split(".")[1]) for name, (_, wrong) in MISSPELT.items()), done.stdout
