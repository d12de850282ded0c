"""The page of metrics explains every number that runs log."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRACES = sorted((ROOT / "tests/golden/traces").glob("*.json"))


def patterns():
    """Return a pattern for each metric of the page's tables; ``<...>`` stands for a name, ``...`` for anything."""
    rows = [line for line in (ROOT / "docs/metrics.md").read_text().splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    return [re.compile(re.sub(r"<\w+>", r"[^/]+", n.replace(".", r"\.").replace(r"\.\.\.", ".+"))) for n in names]


def unexplained(names):
    """Return those of the metrics that the page does not have."""
    known = patterns()
    return sorted(name for name in names if not any(pattern.fullmatch(name) for pattern in known))


def names_in(value):
    """Return the metrics in a recorded trace."""
    if isinstance(value, dict):
        return {k for k in value if "/" in k}.union(*map(names_in, value.values()))
    return set().union(*map(names_in, value)) if isinstance(value, list) else set()


def test_metrics_of_recorded_runs_are_explained():
    logged = set().union(*(names_in(json.loads(trace.read_text())) for trace in TRACES))
    assert len(logged) > 50
    assert unexplained(logged) == []


def test_what_is_not_on_the_page_is_told():
    assert unexplained({"loss/total", "loss/something_new", "q/mean_0.99", "evil/return_mean"}) == [
        "evil/return_mean",
        "loss/something_new",
    ]
