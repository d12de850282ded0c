"""What the page on data says of memory is what was measured."""

import json
import re
from pathlib import Path

from seqrl.data.readers.base import BUILTIN

ROOT = Path(__file__).parents[2]


def test_no_reader_takes_more_memory_than_the_page_says():
    page = " ".join((ROOT / "docs/data.md").read_text().split())
    size, most = re.search(r"Reading a file of (\d+) GB adds at most (\d+) MB of memory", page).groups()
    rows = json.loads((ROOT / "benchmarks/results/reading.json").read_text())["rows"]
    assert {r["format"] for r in rows} >= BUILTIN.keys() - {"arrays"} | {"npy", "npz", "arrow", "parquet", "video"}
    for row in rows:
        assert row["size_mb"] >= 1000 * float(size) or row["format"] == "video"  # whose frames are
        assert row["resident_mb"] <= float(most) <= 500
