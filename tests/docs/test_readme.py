"""What the README shows, works: its Python runs, its commands parse, its links lead somewhere."""

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from seqrl.__main__ import module_of
from seqrl.configs import config_factory
from seqrl.scripts import export, train
from seqrl.sweeps.planning import Plan
from seqrl.sweeps.sweep_file import SweepSection, read_sweep

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
QUICK = {
    "range(200)": "range(4)",
    "60_000": "500",
    "episodes=100": "episodes=4",
    'config_factory("bc", {': 'config_factory("bc", {"experiment": {"evaluation": {"episodes": 4}}, ',
}
"""What the pages' Python says -> what the test runs in its place."""
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(page, language):
    return [code for lang, code in BLOCK.findall(page.read_text()) if lang == language]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("unchecked_shapes", "registries_as_before")
def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("seqrl.reports.curves.curve_svg", lambda *_, **__: "<svg></svg>")  # drawn by other tests
    monkeypatch.chdir(tmp_path)
    quick = ["train.num_epochs=1", "train.steps_per_epoch=5", "experiment.evaluation.episodes=4",
             "experiment.report.enabled=false", "train.data.0.episodes=20"]  # fmt: skip
    assert train.main(["--config", "bc.json", *(a for s in quick for a in ("--set", s))]) == 0
    run = "runs/bc_transformer_TMazePassive-v0_seed0"
    assert export.main([run, "--output", "policy.onnx"]) == 0
    assert export.main([run, "--output", "sampled.onnx", "--sample"]) == 0
    codes = [code for page in PAGES for code in blocks(page, "python")]
    assert len(codes) >= 3
    for code in codes:
        for written, quick in QUICK.items():
            code = code.replace(written, quick)
        exec(compile(code, "README.md", "exec"), {})
    assert "success:" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_parse(page):
    text = "\n".join(blocks(page, "bash")).replace("python seqrl/scripts/train.py", "seqrl train").replace("\\\n", "")
    commands = [line.split("#")[0].strip() for line in text.splitlines() if line.startswith("seqrl ")]
    assert commands or page != ROOT / "README.md"
    for command in commands:
        _, name, *arguments = shlex.split(command)
        import_module(module_of(name)).parser().parse_args(arguments)


def test_fragments_of_run_files_are_legal():
    fragments = [code for page in PAGES if page.name != "sweeps.md" for code in blocks(page, "json")]
    assert fragments
    for fragment in fragments:
        values = json.loads(fragment if fragment.startswith("{") else "{" + fragment + "}")
        config_factory(values.get("algo_name", "actor_critic"), values)


def test_sweep_files_are_legal(tmp_path):
    codes = [*blocks(ROOT / "docs/sweeps.md", "json"), (ROOT / "examples/sweep_tmaze.json").read_text()]
    assert len(codes) >= 4
    for i, code in enumerate(codes):
        file = tmp_path / f"{i}.json"
        file.write_text(code)
        assert Plan(*read_sweep(str(file)), file.name).runs()


def test_the_page_of_sweeps_tells_every_key_and_default():
    text = (ROOT / "docs/sweeps.md").read_text()
    told = set(
        re.findall(r"^\| (`.+?`) \|", text.partition("## The sweep file")[2].partition("## The folder")[0], re.M)
    )
    assert {key for cell in told for key in re.findall(r"`(\w+)`", cell)} == set(SweepSection.model_fields)
    for key in ("trials", "seeds", "prune_after"):
        assert re.search(rf"^\| `{key}` \| .*\({SweepSection.model_fields[key].default}\)", text, re.M), key


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)[)#]", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_headings(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), (target, anchor)


def test_python_deploys_in_ten_lines_or_so():
    deploy = next(code for code in blocks(ROOT / "README.md", "python") if "policy_from_checkpoint" in code)
    loop = [line for line in deploy.splitlines() if line and not line.startswith(("import", "print"))]
    assert len(loop) <= 12
