"""Relay: values join the good halves of different episodes, unless a memory keeps them apart.

The task is told in benchmarks/relay.py. Cloning takes the goal less than half of the time. Seed 0, 200 episodes, CPU.
"""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import relay  # noqa: E402
from record import table  # noqa: E402

RESULTS = json.loads((ROOT / "benchmarks" / "results" / "relay.json").read_text())


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.parametrize("algo", ["iql", "cql", "bcq"])
def test_a_policy_without_memory_joins_what_one_with_a_memory_keeps_apart(tmp_path, algo):
    assert relay.success(tmp_path, algo, "feedforward") >= 0.95
    assert relay.success(tmp_path, algo, "gru") <= 0.1


@pytest.mark.slow
@pytest.mark.learning
def test_without_telling_rewards_it_finds_no_more_than_cloning(tmp_path):
    cloned = relay.success(tmp_path, "bc", "feedforward")
    assert 0.2 <= cloned <= 0.6
    assert relay.success(tmp_path, "iql", "feedforward", rewards_of_others=True) <= 0.6


def test_the_table_of_three_seeds_is_on_the_page():
    runs = RESULTS["success"]
    assert RESULTS["commit"]
    assert all(len(found) == len(relay.SEEDS) for found in runs.values())
    best = [f"{algo}, feedforward, its own" for algo in relay.OWN if algo != "bc"]
    assert min(min(runs[name]) for name in best) >= 0.95
    assert max(value for name, found in runs.items() if name not in best for value in found) <= 0.6
    for algo in relay.OWN.keys() - {"bc"}:
        assert table(relay.rows_of_table(runs, algo)) in (relay.PAGES / f"{algo}.md").read_text()
