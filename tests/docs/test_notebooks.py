"""The notebooks run to their end, and hold the outputs of such a run."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples/notebooks"
FILES = sorted(FOLDER.glob("*.ipynb"))
QUICK = (
    (r'"?num_epochs"?(:|=) \d+', r'"num_epochs"\1 1'),
    (r'"steps_per_epoch": \d+', '"steps_per_epoch": 50'),
    (r"env_steps=[\d_]+", "env_steps=400"),
    (r'"--episodes", "\d+"', '"--episodes", "30"'),
    (r"episodes=\d+", "episodes=4"),
    (r'"evaluation": \{"episodes": \d+\}', '"evaluation": {"episodes": 4}'),
)


def test_there_are_notebooks_and_the_page_of_examples_lists_them():
    assert len(FILES) >= 4
    page = (FOLDER.parent / "README.md").read_text()
    assert [f.name for f in FILES if f"(notebooks/{f.name})" not in page] == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_stored_outputs_are_of_one_run_without_faults(file):
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any(output.output_type == "display_data" or "data" in output for output in outputs)
    assert not any(output.output_type == "error" for output in outputs)
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert not re.search(r"Warning|Traceback|/home|/root|/work", said)
    assert file.stat().st_size < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_it_runs(file, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(file, as_version=4)
    for cell in notebook.cells:
        for pattern, quick in QUICK:
            cell.source = re.sub(pattern, quick, cell.source)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any(tmp_path.glob("runs/*/metrics.jsonl"))
