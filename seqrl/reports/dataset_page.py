"""What a dataset holds, on one page: facts, histograms, ranges, pictures, episodes."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seqrl.reports.page import cards_html, head_html, write_page
from seqrl.reports.plots import histogram_svg

_STYLE = """
.charts{grid-template-columns:repeat(auto-fill,minmax(min(440px,100%),1fr))}
.wide{overflow-x:auto}
.strip{white-space:nowrap;overflow-x:auto;margin:.3rem 0}
.strip img{max-width:none;height:96px;image-rendering:pixelated}
"""


@dataclass(frozen=True)
class Histogram:
    """One chart.

    Attributes:
        title: Above it.
        values: ``(N,)`` numbers.
        label: Of the horizontal axis.
        categories: As in :func:`~seqrl.reports.plots.histogram_svg`.
    """

    title: str
    values: np.ndarray
    label: str = ""
    categories: int = 0


@dataclass(frozen=True)
class DatasetPage:
    """What goes on the page.

    Attributes:
        title: Name of the dataset.
        subtitle: One line below it.
        facts: Name -> text, in the cards at the top.
        episodes: Histograms over the episodes.
        actions: Histograms over the steps.
        actions_note: Below the heading of the actions.
        columns: Heads of the table of observations.
        observations: Its rows.
        strips: Caption -> PNG of pictures side by side.
        episode_columns: Heads of the table of episodes.
        episode_rows: Its rows.
        episode_note: Below it.
    """

    title: str
    subtitle: str
    facts: Mapping[str, str]
    episodes: Sequence[Histogram]
    actions: Sequence[Histogram]
    actions_note: str
    columns: Sequence[str]
    observations: Sequence[Sequence[str]]
    episode_columns: Sequence[str]
    episode_rows: Sequence[Sequence[str]]
    episode_note: str = ""
    strips: Mapping[str, bytes] = field(default_factory=dict)


def write_dataset_page(file: Path, page: DatasetPage) -> None:
    """Write the page."""
    parts = [
        head_html(page.title, page.subtitle),
        cards_html(page.facts),
        "<h2>Episodes</h2>",
        _charts(page.episodes),
        f"<h2>Actions</h2><p class=sub>{html.escape(page.actions_note)}</p>",
        _charts(page.actions),
        f"<h2>Observations</h2>{_table(page.columns, page.observations)}",
    ]
    if page.strips:
        parts.append("<h2>Images</h2>")
    for caption, png in page.strips.items():
        data, text = base64.b64encode(png).decode(), html.escape(caption)
        parts.append(f"<p class=sub>{text}<div class=strip><img alt='{text}' src='data:image/png;base64,{data}'></div>")
    parts.append(f"<h2>Every episode</h2>{_table(page.episode_columns, page.episode_rows)}")
    if page.episode_note:
        parts.append(f"<p class=sub>{html.escape(page.episode_note)}</p>")
    write_page(file, page.title, parts, _STYLE)


def _charts(histograms: Sequence[Histogram]) -> str:
    drawn = [histogram_svg(h.values, h.title, label=h.label, categories=h.categories) for h in histograms]
    return f"<div class=charts>{''.join(f'<div>{svg}</div>' for svg in drawn)}</div>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) for row in rows)
    return f"<div class=wide><table><tr>{head}</tr>{body}</table></div>"
