"""The page stands alone, escapes what it shows, and holds the animation."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from seqrl.training.charts import ENV_STEPS, Chart, axes_of, curve_svg, gif_bytes
from seqrl.training.report import Report, write_report

EVIL = "<script>alert('x')</script>&\"quoted\""
ROWS = [
    {"step": s, "loss/total": 1.0 / (s + 1), "eval/success_mean": 0.5, "eval/success_mean_low": 0.4,
     "eval/success_mean_high": 0.6, "eval/return_mean": 2.0, "valid/total": None if s else 0.7}
    for s in range(0, 100, 10)
]  # fmt: skip


LOSS = Chart("t", {"loss/total": ""})


def online_rows(tasks=()):
    """Return rows of an online run of ten minutes whose first epoch learned nothing."""
    rows = []
    for epoch in range(6):
        axes = {"step": 40 * max(epoch - 1, 0), "progress/env_steps": 240.0 * epoch, "time/wall_s": 120.0 * epoch}
        scores = {f"eval/{t}return_mean": float(epoch) for t in ("", *(f"{name}/" for name in tasks))}
        rows.append({**axes, **scores, "eval/return_mean_low": epoch - 1.0, "eval/return_mean_high": epoch + 1.0})
        rows.append({**axes, "time/env_steps_per_s": 900.0, "time/env_share": 0.4, "collect/epsilon_mean": 0.5})
    return rows


class _Page(HTMLParser):
    """Collects tags, their attributes, and text outside of style."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self._in_style = [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._in_style += tag == "style"

    def handle_endtag(self, tag):
        self._in_style -= tag == "style"

    def handle_data(self, data):
        if not self._in_style:
            self.text.append(data)


def _report(**changes):
    values = {
        "title": "my run",
        "subtitle": "bc with transformer",
        "config": {"train": {"seed": 3}},
        "rows": ROWS,
        "final": {"eval/success_mean": 0.98765, "eval/success_mean_low": 0.9, "eval/success_mean_high": 1.0},
        "facts": {"success": "0.988"},
    }
    return Report(**{**values, **changes})


def _written(tmp_path, **changes):
    write_report(tmp_path / "report.html", _report(**changes))
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    text = _written(tmp_path, animation=gif_bytes([np.zeros((4, 4, 3), np.uint8)] * 2))
    page = _Page(text)
    assert "svg" in page.tags
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    loads = [(t, n, v) for t, n, v in page.attributes if n in ("src", "srcset", "href", "xlink:href", "data", "poster")]
    assert loads
    assert [x for x in loads if not x[2].startswith(("#", "data:"))] == []
    assert "@import" not in text
    assert [u for u in re.findall(r"url\(([^)]*)\)", text) if not u.strip("'\" ").startswith(("#", "data:"))] == []


def test_everything_a_user_names_is_escaped(tmp_path):
    text = _written(
        tmp_path,
        title=EVIL,
        subtitle=EVIL,
        config={EVIL: EVIL},
        final={f"eval/{EVIL}/return_mean": 1.0},
        facts={EVIL: EVIL},
        warnings=[EVIL],
        animation=gif_bytes([np.zeros((4, 4, 3), np.uint8)] * 2),
        animation_caption=EVIL,
    )
    page = _Page(text)
    assert "script" not in page.tags
    assert "".join(page.text).count("alert('x')") >= 8


def test_animation_is_embedded_whole(tmp_path):
    gif = gif_bytes([np.full((6, 8, 3), 40 * i, np.uint8) for i in range(3)])
    page = _Page(_written(tmp_path, animation=gif, animation_caption="two episodes"))
    (source,) = [v for t, n, v in page.attributes if (t, n) == ("img", "src")]
    assert source.startswith("data:image/gif;base64,")
    assert base64.b64decode(source.split(",", 1)[1]) == gif
    assert "two episodes" in page.text
    assert "img" not in _Page(_written(tmp_path)).tags


def test_table_shows_values_with_their_intervals(tmp_path):
    final = {
        "eval/success_mean": 0.98765,
        "eval/success_mean_low": 0.9,
        "eval/success_mean_high": 1.0,
        "time/total_s": 3.0,
        "valid/total": float("nan"),
    }
    page = _Page(_written(tmp_path, final=final))
    cells = [x for x in page.text if x.strip()]
    start = cells.index("eval/success_mean")
    assert cells[start : start + 3] == ["eval/success_mean", "0.9877", "0.9 to 1"]
    assert "valid/total" in cells
    assert not any(x.endswith("_low") or x.startswith("time/") for x in cells)


def test_run_without_metrics_still_has_a_page(tmp_path):
    page = _Page(_written(tmp_path, rows=[], final={}, facts={}))
    assert "No evaluation was made." in page.text
    assert "svg" not in page.tags


def test_warnings_are_listed_only_where_there_are_some(tmp_path):
    assert "Warnings" not in _Page(_written(tmp_path)).text
    page = _Page(_written(tmp_path, warnings=["slow disk", "no animation"]))
    assert page.text.index("slow disk") < page.text.index("no animation")


def test_config_is_shown(tmp_path):
    text = "".join(_Page(_written(tmp_path)).text)
    assert '"seed": 3' in text


# ---------------------------------------------------------------------------------------------- charts
def test_curve_of_nothing_is_none():
    assert curve_svg(ROWS, Chart("t", {"absent": ""})) is None
    assert curve_svg([], LOSS) is None
    assert curve_svg([{"step": 1, "loss/total": None}], LOSS) is None


def test_curve_is_an_svg_with_title_and_names():
    svg = curve_svg(ROWS, Chart("my title", {"loss/total": "training", "valid/total": "held out"}))
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    assert "my title" in svg
    assert "training" in svg
    assert "held out" in svg
    assert "gradient steps" in svg


def test_interval_is_shaded_only_if_asked():
    plain, shaded = (curve_svg(ROWS, Chart("t", {"eval/success_mean": ""}, interval=i)) for i in (False, True))
    assert "FillBetween" in shaded
    assert "FillBetween" not in plain


def test_title_in_a_chart_is_escaped():
    assert "<script>" not in curve_svg(ROWS, Chart("<script>1</script>", {"loss/total": ""}))


@pytest.mark.parametrize(("width", "thinned"), [(100, 100), (640, 640), (641, 321), (1400, 467)])
def test_gif_holds_every_frame_and_is_not_too_wide(width, thinned):
    import imageio.v3 as imageio

    frames = [np.full((8, width, 3), 60 * i, np.uint8) for i in range(4)]
    data = gif_bytes(frames)
    assert data[:4] == b"GIF8"
    back = imageio.imread(data, extension=".gif", index=None)
    assert back.shape[0] == 4
    assert back.shape[2] == thinned
    assert [int(f[..., 0].mean()) for f in back] == pytest.approx([0, 60, 120, 180], abs=4)


# ---------------------------------------------------------------------------------------------- axes
def labels(text):
    return re.findall(r"<label for=axis\d>([^<]*)</label>", text)


def test_an_online_run_can_be_seen_against_three_axes(tmp_path):
    text = _written(tmp_path, rows=online_rows())
    assert labels(text) == ["environment steps", "gradient steps", "wall time"]
    assert text.count(" checked>") == 1
    assert text.index(" checked>") < text.index("environment steps</label>")
    assert text.count("<!-- minutes -->") == text.count("<!-- environment steps -->") > 2
    assert "script" not in _Page(text).tags


def test_an_offline_run_has_gradient_steps_first_and_an_old_file_nothing_else(tmp_path):
    offline = [{**row, "time/wall_s": 2.0 * row["step"], "progress/env_steps": 0.0} for row in ROWS]
    assert labels(_written(tmp_path, rows=offline)) == ["gradient steps", "wall time"]
    assert labels(_written(tmp_path, rows=ROWS)) == []
    assert [a.label for a in axes_of(ROWS)] == ["gradient steps"]


def test_a_chart_without_data_on_an_axis_is_left_out():
    rows = [{"step": 1, "loss/total": 1.0}, {"step": 2, "progress/env_steps": 5.0, "eval/return_mean": 1.0}]
    assert curve_svg(rows, LOSS, ENV_STEPS) is None
    assert curve_svg(rows, LOSS) is not None


def test_null_values_leave_gaps_and_repeated_positions_are_drawn():
    rows = [{"step": s, "loss/total": v} for s, v in [(0, 1.0), (0, 2.0), (5, None), (9, 3.0)]]
    assert curve_svg(rows, LOSS).startswith("<svg")


def test_each_task_has_its_line_up_to_eight(tmp_path):
    text = _written(tmp_path, rows=online_rows([f"task {i}" for i in range(10)]))
    assert "return by environment" in text
    assert "<!-- task 7 -->" in text
    assert "<!-- task 8 -->" not in text
    assert "return by environment" not in _written(tmp_path, rows=online_rows())
