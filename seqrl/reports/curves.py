"""The curves of the report: which charts there are, and the switch between their horizontal axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from seqrl.reports.plots import curve_svg, stack_svg
from seqrl.reports.series import GRADIENT_STEPS, Axis, Rows, range_end

CURVES_STYLE = """
.curves>input{position:absolute;opacity:0}
.curves>label{display:inline-block;padding:.25rem .9rem;margin:0 .35rem 1rem 0;border:1px solid #d1d5db;
border-radius:999px;color:#4b5563;font-size:.85rem;cursor:pointer}
.curves>label:hover{border-color:#2563eb}
.curves>input:checked+label{background:#2563eb;border-color:#2563eb;color:#fff}
.curves>input:focus-visible+label{outline:2px solid #2563eb;outline-offset:2px}
.curves>input~.charts{display:none}
#axis0:checked~.on0,#axis1:checked~.on1,#axis2:checked~.on2,#axis3:checked~.on3{display:grid}
"""
MAX_TASKS, MAX_SHADED = 8, 3
_ENV_STEPS, _EPOCH, _WALL = "progress/env_steps", "progress/epoch", "time/wall_s"
_SHARES = {
    "time/env_share": "environment",
    "time/policy_share": "policy",
    "time/record_share": "recording",
    "time/data_wait_share": "waiting for data",
    "time/learn_share": "learning",
    "time/evaluation_share": "evaluation",
}
_LOSSES = {"loss/total": "training", "valid/total": "held out"}
_SPEEDS = {"time/env_steps_per_s": "environment steps", "time/gradient_steps_per_s": "gradient steps"}
_GENERAL = ("collect", "data", "eval", "loss", "metric", "optim", "progress", "system", "time", "valid")
_TITLES = {
    "q": "values",
    "target": "targets of the values",
    "policy": "entropy of the policy (nats)",
    "filter": "weights of the filtered imitation",
}
_Chart = Callable[..., str | None]


def curve_axes(rows: Rows) -> list[Axis]:
    """Return the axes that the curves can be seen against, the default one first.

    Environment steps (if there were any), epochs and wall time are axes only if every line has them, so that each axis
    shows the same curves.
    """
    axes = [GRADIENT_STEPS]
    steps, epochs, seconds = (
        range_end(rows, k) if all(k in row for row in rows) else 0.0 for k in (_ENV_STEPS, _EPOCH, _WALL)
    )
    if steps > 0:
        axes.insert(0, Axis(_ENV_STEPS, "environment steps"))
    if epochs > 0:
        axes.append(Axis(_EPOCH, "epochs"))
    if seconds > 0:
        name, unit = ("h", 3600.0) if seconds >= 36000 else ("min", 60.0) if seconds >= 600 else ("s", 1.0)
        axes.append(Axis(_WALL, f"wall time ({name})", unit))
    return axes


def curves_html(rows: Rows) -> str:
    """Return the charts; with several axes, once for each, and radio buttons that choose between them."""
    axes = curve_axes(rows)
    if any(axis.key == _EPOCH for axis in axes):
        rows = [_at_end_of_epoch(row) for row in rows]
    charts = ["".join(_charts(rows, x)) for x in axes]
    if len(axes) == 1 or not any(charts):
        return f"<div class=charts>{charts[0]}</div>"
    buttons = "".join(
        f"<input type=radio name=axis id=axis{i}{'' if i else ' checked'}><label for=axis{i}>{x.label}</label>"
        for i, x in enumerate(axes)
    )
    pages = "".join(f"<div class='charts on{i}'>{text}</div>" for i, text in enumerate(charts))
    return f"<div class=curves role=group aria-label='horizontal axis of the curves'>{buttons}{pages}</div>"


def _at_end_of_epoch(row: dict[str, Any]) -> dict[str, Any]:
    """Return a line whose training loss, logged amid an epoch, counts to the end of that epoch."""
    return {**row, _EPOCH: row[_EPOCH] + 1} if "loss/total" in row and row[_EPOCH] is not None else row


def _charts(rows: Rows, x: Axis) -> list[str]:
    makers: list[_Chart] = [_success, partial(_tasks, measure="success"), _returns, partial(_tasks, measure="return")]
    makers += [
        partial(curve_svg, names=_LOSSES, title="loss", log=True),
        _loss_terms,
        *_own_charts(rows),
        _metrics,
        _logged_by_env,
        partial(curve_svg, names=["optim/learning_rate"], title="learning rate", limits=(0, None)),
        partial(curve_svg, names=["optim/grad_norm"], title="gradient norm before clipping", log=True),
        partial(
            curve_svg, names=["collect/epsilon_mean"], title="exploration (mean epsilon of actions)", limits=(0, None)
        ),
        _speed,
        partial(stack_svg, names=_SHARES, title="shares of time"),
    ]
    charts = [make(rows, x=x) for make in makers]
    return [chart for chart in charts if chart is not None]


def _success(rows: Rows, x: Axis) -> str | None:
    name = "eval/success_mean"
    title = "success" + _note(rows, name, "95 % interval")
    return curve_svg(rows, [name], title, x=x, interval=True, limits=(-0.03, 1.03))


def _returns(rows: Rows, x: Axis) -> str | None:
    """Return the chart of evaluation returns, and of the training episodes' as a thin line."""
    evaluation, training = "eval/return_mean", "collect/return_mean"
    names = {evaluation: "evaluation", training: "training, with exploration"}
    if _is_logged(rows, evaluation):
        title = "return" + _note(rows, evaluation, "mean, 95 % interval over episodes")
    else:
        title = "return (training, with exploration)"
    return curve_svg(rows, names, title, x=x, interval=True, thin=[training])


def _tasks(rows: Rows, x: Axis, measure: str) -> str | None:
    """Return the chart of returns or successes per environment name, if there are several; few have intervals."""
    start, end = "eval/", f"/{measure}_mean"
    keys = sorted({k for row in rows for k in row if k.startswith(start) and k.endswith(end) and k != start + end[1:]})
    if len(keys) < 2:
        return None
    some = f", {MAX_TASKS} of {len(keys)}" if len(keys) > MAX_TASKS else ""
    names = {k: k[len(start) : -len(end)] for k in keys[:MAX_TASKS]}
    limits = (-0.03, 1.03) if measure == "success" else None
    is_shaded = len(keys) <= MAX_SHADED
    note = ", 95 % interval" if is_shaded and _is_logged(rows, f"{keys[0]}_low") else ""
    title = f"{measure} per task (evaluation{some}{note})"
    return curve_svg(rows, names, title, x=x, limits=limits, interval=is_shaded)


def _loss_terms(rows: Rows, x: Axis) -> str | None:
    """Return the chart of the terms that make up the loss, if there are several."""
    keys = sorted({k for row in rows for k in row if k.startswith("loss/") and k != "loss/total"})[:MAX_TASKS]
    return (
        curve_svg(rows, {k: k[len("loss/") :] for k in keys}, "terms of the loss", x=x, log=True)
        if len(keys) > 1
        else None
    )


def _own_charts(rows: Rows) -> list[_Chart]:
    """Return a chart for each group of metrics that only some algorithms log, such as ``q`` or ``conservative``."""
    groups = {key.split("/")[0] for row in rows for key in row if "/" in key}
    return [
        partial(_group, group=group, title=_TITLES.get(group, group))
        for group in sorted(groups - set(_GENERAL), key=lambda g: (g not in _TITLES, g))
    ]


def _logged_by_env(rows: Rows, x: Axis) -> str | None:
    """Return the chart of what the environment logs by itself, if it does."""
    return _group(rows, x, "eval/log", "logged by the environment (evaluation)")


def _group(rows: Rows, x: Axis, group: str, title: str) -> str | None:
    keys = sorted({k for row in rows for k in row if k.startswith(f"{group}/")})
    only = f": {keys[0][len(group) + 1 :]}" if len(keys) == 1 else ""  # a single curve has no legend
    some = f", {MAX_TASKS} of {len(keys)}" if len(keys) > MAX_TASKS else only
    return curve_svg(rows, {k: k[len(group) + 1 :] for k in keys[:MAX_TASKS]}, title + some, x=x)


def _metrics(rows: Rows, x: Axis) -> str | None:
    """Return the chart of ``train.metrics``, if there are any."""
    return _group(rows, x, "metric", "metrics (held out)")


def _speed(rows: Rows, x: Axis) -> str | None:
    """Return the chart of steps per second; a speed of 0 (nothing of its kind was done) is a gap."""
    names = {k: label for k, label in _SPEEDS.items() if range_end(rows, k) > 0}
    positive = [{k: None if k in names and not v else v for k, v in row.items()} for row in rows]
    kind = next(iter(names.values())) if len(names) == 1 else "steps"
    return curve_svg(positive, names, f"{kind} per second", x=x, log=True)


def _note(rows: Rows, name: str, text: str) -> str:
    """Return what the shaded interval is, if there is one."""
    return f" ({text})" if _is_logged(rows, f"{name}_low") else ""


def _is_logged(rows: Rows, name: str) -> bool:
    return any(row.get(name) is not None for row in rows)
