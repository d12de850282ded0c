"""Pages that need nothing beside them; ``report.html``, what a run did, is one."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqrl.core.files import write_atomic
from seqrl.reports.curves import CURVES_STYLE, curves_html

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1120px;margin:2rem auto;padding:0 1.2rem;color:#1f2937}
h1{font-size:1.5rem;margin:0}
h2{font-size:1.1rem;margin:2rem 0 .6rem}
.sub{color:#6b7280;margin:.2rem 0 1.4rem}
.cards{display:flex;flex-wrap:wrap;gap:.8rem}
.card{border:1px solid #e5e7eb;border-radius:10px;padding:.7rem 1.1rem;min-width:130px}
.card b{display:block;font-size:1.35rem}
.card span{color:#6b7280;font-size:.85rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:1rem}
.charts svg{width:100%;height:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.28rem .9rem .28rem 0;text-align:left;border-bottom:1px solid #f0f1f3}
img{max-width:100%;border:1px solid #e5e7eb;border-radius:6px}
pre{background:#f8fafc;padding:1rem;border-radius:8px;overflow:auto;font-size:12.5px}
summary{cursor:pointer;color:#2563eb}
"""


@dataclass(frozen=True)
class Report:
    """What goes on the page.

    Attributes:
        title: Name of the run.
        subtitle: One line below it.
        config: The run file.
        rows: Lines of ``metrics.jsonl``.
        final: Metrics of the last evaluation and validation.
        facts: Name -> text, in the cards at the top.
        animation: GIF, if there is one.
        animation_caption: Below the animation.
        warnings: Said during the run.
    """

    title: str
    subtitle: str
    config: Mapping[str, Any]
    rows: Sequence[dict[str, Any]]
    final: Mapping[str, float]
    facts: Mapping[str, str]
    animation: bytes | None = None
    animation_caption: str = ""
    warnings: Sequence[str] = field(default_factory=tuple)


def write_report(file: Path, report: Report) -> None:
    """Write the page."""
    parts = [
        head_html(report.title, report.subtitle),
        cards_html(report.facts),
        "<h2>Curves</h2>",
        curves_html(report.rows),
    ]
    if report.animation is not None:
        data = base64.b64encode(report.animation).decode()
        parts.append(
            "<h2>Evaluation episodes</h2>"
            f"<img alt='animation of evaluation episodes' src='data:image/gif;base64,{data}'>"
            f"<p class=sub>{html.escape(report.animation_caption)}</p>"
        )
    parts.append(f"<h2>Final evaluation of this checkpoint</h2>{_table(report.final)}")
    if report.warnings:
        parts.append("<h2>Warnings</h2><ul>" + "".join(f"<li>{html.escape(w)}</li>" for w in report.warnings) + "</ul>")
    config = html.escape(json.dumps(report.config, indent=2))
    parts.append(f"<h2>Config</h2><details><summary>config.json</summary><pre>{config}</pre></details>")
    write_page(file, report.title, parts, CURVES_STYLE)


def write_page(file: Path, title: str, parts: Sequence[str], style: str = "") -> None:
    """Write a page: a title, parts in HTML, and styles beside those of all pages."""
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}{style}</style>"
        f"<body>{''.join(parts)}</body></html>"
    )
    write_atomic(file, page)


def head_html(title: str, subtitle: str) -> str:
    """Return the heading of a page, and the line below it."""
    return f"<h1>{html.escape(title)}</h1><p class=sub>{html.escape(subtitle)}</p>"


def cards_html(facts: Mapping[str, str]) -> str:
    """Return facts as cards."""
    cards = "".join(
        f"<div class=card><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>"
        for name, value in facts.items()
    )
    return f"<div class=cards>{cards}</div>"


def _table(final: Mapping[str, float]) -> str:
    """Return a table of the metrics, intervals in a column of their own."""
    body = []
    for name, value in final.items():
        if name.endswith(("_low", "_high")) or name.startswith("time/"):
            continue
        low, high = final.get(f"{name}_low"), final.get(f"{name}_high")
        interval = "" if low is None or high is None else f"{low:.4g} to {high:.4g}"
        body.append(f"<tr><td>{html.escape(name)}<td>{value:.4g}<td>{interval}")
    if not body:
        return "<p class=sub>No evaluation was made.</p>"
    return f"<table><tr><th>metric<th>value<th>95 % interval</tr>{''.join(body)}</table>"
