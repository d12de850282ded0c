"""Pictures of metrics, and numbers behind them."""

import imageio.v3 as imageio
import numpy as np
import pytest

from seqrl.reports.plots import plot_metrics, styles_of
from seqrl.reports.series import AXES, GRADIENT_STEPS, default_axis, smoothed

ROWS = [{"step": s, "a": float(s % 7), "b": None if s % 3 else 0.1 * s, "b_low": 0.0, "b_high": 2.0} for s in range(40)]


def test_smoothing_is_a_weighted_mean_of_the_past():
    values = np.array([4.0, np.nan, 0.0, 8.0])
    got = smoothed(values, 0.5)
    expected = [4.0, np.nan, (0.5 * 4) / 1.5, (0.25 * 4 + 8) / 1.75]
    np.testing.assert_allclose(got, expected)
    np.testing.assert_array_equal(smoothed(values, 0.0), values)
    np.testing.assert_allclose(smoothed(np.full(50, 3.0), 0.9), 3.0)


def test_the_axis_is_environment_steps_where_all_runs_take_some():
    offline, online = [{"step": 1, "progress/env_steps": 0.0}], [{"step": 1, "progress/env_steps": 9.0}]
    assert default_axis([offline]) is GRADIENT_STEPS
    assert default_axis([offline, online]) is GRADIENT_STEPS
    assert default_axis([online]) is AXES["env_steps"]


@pytest.mark.parametrize("weight", [0.0, 0.9])
@pytest.mark.parametrize("num_runs", [1, 4, 9])
def test_runs_are_drawn(tmp_path, num_runs, weight):
    file = tmp_path / "p.png"
    plot_metrics(file, {f"run{i}": ROWS for i in range(num_runs)}, ["a", "b"], GRADIENT_STEPS, weight=weight)
    picture = imageio.imread(file)
    empty = tmp_path / "empty.png"
    plot_metrics(empty, {f"run{i}": [] for i in range(num_runs)}, ["a", "b"], GRADIENT_STEPS, weight=weight)
    assert picture.shape[1] > 1000
    assert (picture < 250).any(-1).mean() > (imageio.imread(empty) < 250).any(-1).mean()


def test_lines_of_one_colour_differ_otherwise():
    styles = styles_of([str(i) for i in range(20)])
    assert len({tuple(s.values()) for s in styles.values()}) == 20
