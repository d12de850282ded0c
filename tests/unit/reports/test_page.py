"""The page stands alone, escapes what it shows, and holds the animation."""

import base64
import re
from html.parser import HTMLParser

import pytest

from seqrl.reports import curves
from seqrl.reports.curves import curve_axes, curves_html
from seqrl.reports.page import Report, write_report
from seqrl.reports.series import GRADIENT_STEPS

GIF = b"GIF89a, or any bytes"
EVIL = "<script>alert('x')</script>&\"quoted\""
ROWS = [
    {"step": s, "loss/total": 1.0 / (s + 1), "eval/success_mean": 0.5, "eval/success_mean_low": 0.4,
     "eval/success_mean_high": 0.6, "eval/return_mean": 2.0, "valid/total": None if s else 0.7}
    for s in range(0, 100, 10)
]  # fmt: skip
OFFLINE = [{**r, "progress/env_steps": 0, "progress/epoch": 1, "time/wall_s": 1.0 + r["step"]} for r in ROWS]
ONLINE = [{**r, "progress/env_steps": 40 * r["step"], "time/env_share": 0.2, "time/learn_share": 0.7} for r in OFFLINE]
FILES = {"old": ROWS, "offline": OFFLINE, "online": ONLINE}


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
    text = _written(tmp_path, animation=GIF)
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
        animation=GIF,
        animation_caption=EVIL,
        rows=[{"step": 1, "time/wall_s": 1.0, f"eval/{EVIL}/return_mean": 1.0, "eval/b/return_mean": 1.0}],
    )
    page = _Page(text)
    assert "script" not in page.tags
    assert "".join(page.text).count("alert('x')") >= 8


def test_animation_is_embedded_whole(tmp_path):
    page = _Page(_written(tmp_path, animation=GIF, animation_caption="two episodes"))
    (source,) = [v for t, n, v in page.attributes if (t, n) == ("img", "src")]
    assert source.startswith("data:image/gif;base64,")
    assert base64.b64decode(source.split(",", 1)[1]) == GIF
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


# ------------------------------------------------------------------------------------------------ axes
@pytest.mark.parametrize(
    ("file", "labels"),
    [
        ("old", ["gradient steps"]),
        ("offline", ["gradient steps", "epochs", "wall time (s)"]),
        ("online", ["environment steps", "gradient steps", "epochs", "wall time (s)"]),
    ],
)
def test_axes_of_a_file_and_its_switch(tmp_path, file, labels):
    rows = FILES[file]
    assert [axis.label for axis in curve_axes(rows)] == labels
    page = _Page(_written(tmp_path, rows=rows))
    ids = [v for t, n, v in page.attributes if (t, n) == ("input", "id")]
    assert len(ids) == (len(labels) if len(labels) > 1 else 0)
    assert [v for t, n, v in page.attributes if (t, n) == ("label", "for")] == ids
    assert [n for t, n, _ in page.attributes if t == "input"].count("checked") == bool(ids)
    assert {v for t, n, v in page.attributes if (t, n) == ("input", "type")} <= {"radio"}
    texts = [text.strip() for text in page.text]
    counts = [texts.count(label) - bool(ids) for label in labels]
    assert counts == [4 if file == "online" else 3] * len(labels)
    assert page.tags.count("svg") == sum(counts)


def test_default_axis_is_the_checked_one_and_shown():
    html = curves_html(ONLINE)
    assert "<input type=radio name=axis id=axis0 checked><label for=axis0>environment steps</label>" in html
    assert "environment steps" in html.split("'charts on0'")[1].split("'charts on1'")[0]


@pytest.mark.parametrize(("end", "unit"), [(599, "s"), (600, "min"), (35999, "min"), (36000, "h")])
def test_wall_time_has_a_unit_of_its_length(end, unit):
    assert curve_axes([{"step": 1, "time/wall_s": end}])[-1].label == f"wall time ({unit})"


def test_key_that_some_lines_lack_is_no_axis():
    assert curve_axes([*ROWS, *ONLINE]) == [GRADIENT_STEPS]
    assert curve_axes([]) == [GRADIENT_STEPS]


def test_charts_are_in_order_and_several_tasks_have_one():
    tasks = {f"eval/_$\\frac_{i}$/return_mean": 1.0 for i in range(10)}
    more = {
        "collect/epsilon_mean": 0.1,
        "collect/return_mean": 1.0,
        "time/env_steps_per_s": 9.0,
        "optim/grad_norm": 1.0,
        "optim/learning_rate": 1e-3,
        "loss/actor": 1.0,
        "loss/critic": 2.0,
    }
    tasks |= {f"eval/task{i}/success_mean": 1.0 for i in range(2)}
    rows = [{**row, **tasks, **more} for row in ROWS]
    html = curves_html([{**row, "time/learn_share": 0.4} for row in rows])
    titles = [
        ">success (",
        ">success per task (evaluation)<",
        ">return<",
        ">return per task (evaluation, 8 of 10)<",
        ">loss<",
        ">terms of the loss<",
        ">learning rate<",
        ">gradient norm",
        ">exploration",
    ]
    places = [html.index(title) for title in [*titles, ">environment steps per second<", ">shares of time<"]]
    assert places == sorted(places)
    assert [f"_$\\frac_{i}$<" in html for i in range(10)] == [True] * 8 + [False] * 2
    assert ">training, with exploration<" in html
    assert ">held out<" in html
    one = [{**row, "eval/task/return_mean": 1.0, "eval/task/success_mean": 1.0, "loss/nll": 1.0} for row in ROWS]
    assert "per task" not in curves_html(one)
    assert "terms of" not in curves_html(one)


def test_few_tasks_have_intervals():
    def shown(num):
        ends = {"": 0.5, "_low": 0.4, "_high": 0.6}
        return curves_html(
            [
                {"step": s, **{f"eval/t{i}/success_mean{k}": v for i in range(num) for k, v in ends.items()}}
                for s in (1, 2)
            ]
        )

    assert shown(3).count("FillBetween") == 3
    assert ">success per task (evaluation, 95 % interval)<" in shown(3)
    assert "FillBetween" not in shown(4)


def test_a_training_loss_counts_to_the_end_of_its_epoch(monkeypatch):
    drawn = {}
    monkeypatch.setattr(curves, "_charts", lambda rows, x: drawn.update({x.key: rows}) or ["<svg>"])
    rows = [
        {"step": 1, "progress/epoch": 0, "loss/total": 1.0},
        {"step": 1, "progress/epoch": 1, "eval/return_mean": 0.0},
    ]
    curves_html(rows)
    assert [row["progress/epoch"] for row in drawn["progress/epoch"]] == [1, 1]
    assert rows[0]["progress/epoch"] == 0


AXES = ["step", "progress/env_steps", "time/wall_s"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "keys",
    [
        ["eval/success_mean_low", "loss/total", "time/env_share"],
        *(pytest.param([key], marks=pytest.mark.slow) for key in AXES),
    ],
)
def test_nulls_anywhere_do_not_crash(keys):
    assert "<svg" in curves_html([{**row, **dict.fromkeys(keys)} for row in ONLINE])


@pytest.mark.filterwarnings("error")
def test_nulls_everywhere_draw_nothing():
    values = [k for k in ONLINE[-1] if k not in AXES]
    assert "<svg" not in curves_html([{**row, **dict.fromkeys(values)} for row in ONLINE])


def test_metrics_of_held_out_windows_have_a_chart():
    assert "held out)" not in curves_html(ROWS)
    few = [{**row, "metric/regret": 0.1, "metric/gap_last": 0.2} for row in ROWS]
    text = curves_html(few)
    assert "metrics (held out)" in text
    assert ">regret<" in text
    assert ">gap_last<" in text
    many = [{**row, **{f"metric/m{i:02}": 1.0 * i for i in range(12)}} for row in ROWS]
    assert f"metrics (held out), {curves.MAX_TASKS} of 12" in curves_html(many)
