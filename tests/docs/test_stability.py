"""The table of what stays learned is that of the results, and a fall is counted as the page says."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import stability  # noqa: E402
from record import table  # noqa: E402

FILES = sorted(stability.HERE.rglob("*.json"))


@pytest.mark.parametrize("page", list(stability.PAGES))
def test_a_table_is_that_of_the_results(page):
    _, optimizers = stability.PAGES[page]
    assert table(stability.rows_of_table(optimizers)) in (ROOT / page).read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_result_says_what_its_curve_shows(file):
    result = json.loads(file.read_text())
    assert file == stability.result_file(result["task"], result["optimizer"], result["seed"], result["threads"])
    assert stability.falls(result["curve"]).items() <= result.items()
    assert result["commit"]
    assert result["curve"][-1][0] == 5_000 or not result["task"].startswith("demo")


def test_a_fall_is_an_evaluation_below_after_the_task_was_solved():
    curve = [[0, 0.0, 1.0, 9.0], [100, 0.98, 2.0, 8.0], [200, 0.89, 3.0, 7.0], [300, 0.9, 0.5, 1.0]]
    found = stability.falls(curve)
    assert (found["solved_at"], found["evaluations_below"], found["lowest"]) == (100, 1, 0.89)
    assert (found["largest_update"], found["largest_gradient"]) == (3.0, 7.0)
    assert stability.falls(curve[:1])["solved_at"] is None


def test_only_the_librarys_own_optimiser_limits_spikes_and_averages():
    found = {name: stability.config_of("demo_gru", name, 0, 1).algo for name in stability.OPTIMIZERS}
    limits = {name: (algo.optimizer.spike_clip, algo.average_decay) for name, algo in found.items()}
    assert None not in limits.pop("default")
    assert limits.pop("spike_clip") == (found["default"].optimizer.spike_clip, None)
    assert set(limits.values()) == {(None, None)}
