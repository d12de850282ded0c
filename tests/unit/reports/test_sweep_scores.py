"""Settings and scores as tables, and as a picture."""

import csv
import re

import imageio.v3 as imageio
import numpy as np
import pytest

from seqrl.reports.sweep_scores import SettingScores, SweepScores, draw_sweep, last_score, sweep_csv, sweep_table


def setting(name, *scores, **options):
    values = options.pop("values", {"a.rate": 0.1})
    return SettingScores(name, values, dict(enumerate(scores)), **options)


def swept(*settings, direction="max", labels=None):
    return SweepScores(settings, {"a.rate": "rate"} if labels is None else labels, "eval/return_mean", direction)


def test_the_best_has_all_its_seeds():
    half, low, high = setting("half", 9.0, None), setting("low", 1.0, 2.0), setting("high", 3.0, 2.0)
    found = swept(half, low, high, setting("none", None))
    assert [s.name for s in found.ranked()] == ["high", "low", "half", "none"]
    assert found.best.name == "high"
    assert swept(*found.settings, direction="min").best.name == "low"
    assert swept(setting("half", 9.0, None)).best is None


def test_few_seeds_have_a_range_and_five_an_interval():
    few, many = setting("few", 1.0, 3.0), setting("many", 0.5, 1.0, 1.0, 1.0, 1.0)
    assert (few.estimate.value, few.estimate.low) == (2.0, None)
    assert many.estimate.high > 1.0
    share = setting("many", 0.5, 1.0, 1.0, 1.0, 1.0, is_share=True).estimate
    assert share.high == 1.0
    assert share.low == many.estimate.low
    text = sweep_table(swept(few, many))
    assert re.search(r"\| 2 +\| 1 to 3 ", text)
    assert re.search(r"\| 0.9 \[0.622, 1.18\] \| 0.5 to 1 ", text)


def test_the_best_is_compared_with_the_base():
    base = setting("base", 1.0, 1.1, 1.2, is_base=True, values={"a.rate": 0.2})
    text = sweep_table(swept(base, setting("other", 3.0, 3.1, 3.2)))
    assert "best: other, 3.1; the base run's own values: 1.1 (+2, p 1.6e-05 by Welch's test)." in text
    text = sweep_table(swept(base, setting("other", 0.0, 0.1, 0.2)))
    assert "best: base, 1.1; these are the base run's own values." in text
    text = sweep_table(swept(setting("x", 1.0), setting("y", 1.0)))
    assert "best: x, 1 (and 1 more)." in text


def test_a_long_table_is_cut_and_the_file_is_not():
    found = swept(*(setting(f"s{i}", float(i)) for i in range(50)))
    assert "20 more settings are in sweep.csv" in sweep_table(found)
    rows = list(csv.DictReader(sweep_csv(found).splitlines()))
    assert [row["setting"] for row in rows] == [f"s{i}" for i in range(50)]
    assert [rows[7][k] for k in ("a.rate", "seeds", "mean", "low", "min", "max", "seed 0", "note")] == [
        "0.1", "1", "7.0", "", "7.0", "7.0", "7.0", ""
    ]  # fmt: skip


def test_the_last_value_counts_if_it_is_finite(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"x": 1.0}\n{"x": 2.0, "w": 3.0}\n{"y": 5.0}\n{"w": null}\n')
    assert last_score(tmp_path, "x") == 2.0
    assert last_score(tmp_path, "w") is None  # the run fell apart
    assert last_score(tmp_path, "z") is None


@pytest.mark.parametrize(
    "values",
    [
        [{"a.rate": 1e-5}, {"a.rate": 1e-1}],
        [{"a.rate": "gru"}, {"a.rate": {"type": "lstm"}}],
        [{"a.rate": True}, {}],
        [],
    ],
)
def test_pictures(values, tmp_path):
    settings = [setting(str(i), float(i), i + 1.0, None, values=v) for i, v in enumerate(values)]
    draw_sweep(tmp_path / "a.png", swept(*settings))
    draw_sweep(tmp_path / "b.png", swept(setting("base", 1.0, 2.0, values={}), labels={}))
    assert all(np.ptp(imageio.imread(tmp_path / name)) > 200 for name in ("a.png", "b.png"))
