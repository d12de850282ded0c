"""Charts are drawn from what was logged, gaps and repeated places included."""

import re

import numpy as np

from seqrl.reports.plots import curve_svg, stack_svg
from seqrl.reports.series import GRADIENT_STEPS, Axis, merged, points_of, shares_of, thinned

ENV_STEPS = Axis("progress/env_steps", "environment steps")
ROWS = [
    {"step": s, "loss/total": 1.0 / (s + 1), "valid/total": None if s else 0.7,
     "eval/success_mean": 0.5, "eval/success_mean_low": 0.4, "eval/success_mean_high": 0.6}
    for s in range(0, 100, 10)
]  # fmt: skip


def test_curve_of_nothing_is_none():
    assert curve_svg(ROWS, ["absent"], "t") is None
    assert curve_svg([], ["loss/total"], "t") is None
    assert curve_svg([{"step": 1, "loss/total": None}], ["loss/total"], "t") is None


def test_curve_is_an_svg_with_title_and_names():
    svg = curve_svg(ROWS, ["loss/total", "valid/total"], "my title")
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    assert "my title" in svg
    assert "loss/total" in svg
    assert "valid/total" in svg


def test_interval_is_shaded_only_if_asked():
    plain, shaded = (curve_svg(ROWS, ["eval/success_mean"], "t", interval=i) for i in (False, True))
    assert "FillBetween" in shaded
    assert "FillBetween" not in plain


def test_title_in_a_chart_is_escaped():
    assert "<script>" not in curve_svg(ROWS, ["loss/total"], "<script>1</script>")


def test_repeated_places_become_their_mean_and_a_bar_over_their_range():
    rows = [{"progress/env_steps": e, "loss/total": v} for e, v in [(9, 5.0), (0, 1.0), (0, None), (0, 4.0), (0, 1.0)]]
    np.testing.assert_array_equal(merged(points_of(rows, "loss/total", ENV_STEPS)), [[0, 2, 1, 4], [9, 5, 5, 5]])
    assert "LineCollection" in curve_svg(rows, ["loss/total"], "t", x=ENV_STEPS)
    assert "LineCollection" not in curve_svg(rows[:2], ["loss/total"], "t", x=ENV_STEPS)
    rows = [{**row, "time/learn_share": 0.5} for row in rows]
    assert curve_svg(rows, ["loss/total"], "t", x=ENV_STEPS, interval=True)
    assert stack_svg(rows, ["time/learn_share"], "t", x=ENV_STEPS)


def test_points_are_in_the_order_of_the_axis_and_in_its_unit():
    rows = [{"t": t, "a": a, "a_low": a - 1} for t, a in [(120.0, 2.0), (60.0, 1.0), (None, 9.0)]] + [{"t": 180.0}]
    points = points_of(rows, "a", Axis("t", "minutes", 60.0))
    np.testing.assert_array_equal(points, [[1, 1, 0, np.nan], [2, 2, 1, np.nan]])


def test_null_is_a_gap_and_a_point_between_gaps_is_a_dot():
    rows = [{"step": s, "a": None if s in (5, 7, 20) else 1.0 + s} for s in range(40)]
    whole = curve_svg([row for row in rows if row["a"] is not None], ["a"], "t")
    gaps = curve_svg(rows, ["a"], "t")
    (line,), (parts,) = (re.findall(r'<path d="([^"]*)"[^>]*stroke: #2563eb', svg) for svg in (whole, gaps))
    assert (line.count("M"), parts.count("M")) == (1, 4)
    assert (whole.count("<use"), gaps.count("<use")) == (whole.count("<use"), whole.count("<use") + 1)


def test_many_points_keep_their_extremes():
    points = np.column_stack([np.arange(9000.0), np.sin(np.arange(9000.0)), np.zeros((9000, 2))])
    points[4321, 1], points[1234, 1], points[10:20, 1] = 7, -7, np.nan
    few = thinned(points)
    assert len(few) < 700
    assert (np.diff(few[:, 0]) > 0).all()
    assert (np.nanmax(few[:, 1]), np.nanmin(few[:, 1])) == (7, -7)


def test_share_that_a_line_does_not_name_is_zero_and_a_null_is_a_gap():
    rows = [{"step": 1, "a": 0.5}, {"step": 2, "a": 0.5, "b": 0.25}, {"step": 3, "a": 0.5, "b": None}, {"step": 4}]
    places, shares = shares_of(rows, ["a", "b"], GRADIENT_STEPS)
    np.testing.assert_array_equal(places, [1, 2, 3])
    np.testing.assert_array_equal(shares, [[0.5, 0], [0.5, 0.25], [0.5, np.nan]])
    assert stack_svg(rows, ["absent"], "t") is None
