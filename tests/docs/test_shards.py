"""What the page on data says of the speed of many shards is what was measured."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_thousands_of_shards_are_as_fast_under_the_usual_limit():
    page = " ".join((ROOT / "docs/data.md").read_text().split())
    found = json.loads((ROOT / "benchmarks/results/shards.json").read_text())
    before, after, every = found["rows"]
    assert before["shards"] == after["shards"] < every["shards"] == 5000
    assert after["limit_of_open_files"] == every["limit_of_open_files"] == 1024
    assert min(found["ratio"], found["gathered_ratio"]) >= 0.9
    said = "with 3,980 shards and `ulimit -n 1024`, windows are drawn 0.96 times as fast as with every file open"
    assert f"{after['shards']:,} shards" in said
    assert f"{found['ratio']:.2f} times" in said
    assert said in page
