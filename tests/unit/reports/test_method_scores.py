"""Scores of runs, what they are scaled by, and what a reader is warned of."""

import logging

import numpy as np
import pytest

from seqrl.core.errors import ConfigError, DataError
from seqrl.reports.method_scores import Options, compare
from seqrl.reports.runs import Method, Run
from seqrl.reports.series import AXES

STEPS = AXES["env_steps"]
KEY = "eval/return_mean"


def run(name, values, *, seed=0, env="A-v0", every=10, key=KEY, **others):
    rows = [{"step": i, STEPS.key: i * every, key: v} for i, v in enumerate(values)] if not others else others["rows"]
    return Run(name, {"train": {"seed": seed}}, rows, env, {})


def method(name, finals, env="A-v0"):
    return Method(name, [run(f"{name}{i}", [0.0, v], seed=i, env=env) for i, v in enumerate(finals)])


def options(**values):
    return Options(**{"metric": KEY, "x": STEPS, "num_resamples": 200, **values})


@pytest.fixture(autouse=True)
def heard(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("seqrl"), "propagate", True)  # a script may have turned it off
    caplog.set_level(logging.WARNING)
    return caplog


def test_the_last_evaluation_is_the_score_and_at_moves_it(heard):
    methods = [Method("m", [run(str(i), [0.0, 5.0, None, 7.0], seed=i) for i in range(3)])]
    found = compare(methods, options())
    assert [(s.x, s.value) for s in found.methods[0].scores] == [(30.0, 7.0)] * 3
    earlier = compare(methods, options(at=15.0)).methods[0]
    assert [(s.x, s.value) for s in earlier.scores] == [(10.0, 5.0)] * 3
    np.testing.assert_array_equal(earlier.places, [0.0, 10.0])
    assert not heard.messages
    with pytest.raises(DataError, match=r"up to -1 environment steps"):
        compare(methods, options(at=-1.0))


def test_a_range_scales_scores_and_curves_of_its_task():
    methods = [Method("m", [*method("m", [4.0, 6.0, 8.0]).runs, *method("m", [1.0, 1.0, 1.0], env="B-v0").runs])]
    found = compare(methods, options(ranges={"A-v0": (4.0, 8.0)}))
    assert [s.value for s in found.methods[0].scores] == [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert found.methods[0].scores[0].curve[0, 1] == -1.0
    assert found.methods[0].by_task["A-v0"].value == 0.5
    assert compare(methods, options(ranges={"": (0.0, 2.0)})).methods[0].by_task["B-v0"].value == 0.5
    with pytest.raises(ConfigError, match=r"C-v0=\.\.\.: no such task"):
        compare(methods, options(ranges={"C-v0": (0.0, 1.0)}))


def test_the_better_method_wins_and_the_gap_needs_a_target():
    methods = [method("good", [0.8, 0.9, 1.2]), method("bad", [0.1, 0.2, 0.3])]
    found = compare(methods, options(target=1.0))
    assert found.improvement["good", "bad"].value == 1.0
    assert found.methods[0].aggregates["optimality_gap"].value == pytest.approx(0.1)
    assert found.methods[0].profile[0, 0] == 1.0
    assert found.methods[1].profile[-1, 0] == 0.0
    assert "optimality_gap" not in compare(methods, options()).methods[0].aggregates
    assert found.to_json() == compare(methods, options(target=1.0)).to_json()


def test_only_tasks_that_all_methods_have_are_compared(heard):
    both = Method("m", [*method("m", [1.0] * 3).runs, *method("m", [9.0] * 3, env="B-v0").runs])
    found = compare([both, method("n", [2.0] * 3)], options())
    assert found.tasks == ["A-v0"]
    assert found.methods[0].aggregates["mean"].value == 1.0
    assert {s.task for s in found.methods[0].scores} == {"A-v0"}
    assert found.thresholds[-1] < 3.0
    assert heard.messages == ["left out, because not every method has it: B-v0"]
    with pytest.raises(DataError, match=r"no task is common to all methods \(m: A-v0; n: B-v0\)"):
        compare([method("m", [1.0] * 3), method("n", [1.0] * 3, env="B-v0")], options())


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([run("a", [1.0]), run("b", [1.0], seed=1)], "2 runs of a task"),
        ([run("a", [1.0]), run("b", [1.0]), run("c", [1.0], seed=1)], "one seed twice"),
        ([run(str(i), [1.0] * (2 + i), seed=i) for i in range(3)], "at 10 to 30 environment steps"),
        ([run(f"{e}{i}", [1.0], seed=i, env=e) for i in range(3) for e in ("A-v0", "B-v0")], "pooled as they are"),
        ([*(run(str(i), [1.0], seed=i) for i in range(3)), run("empty", [], seed=9)], "empty is left out"),
    ],
)
def test_what_a_reader_has_to_know_is_a_warning(runs, message, heard):
    compare([Method("m", runs)], options())
    assert len(heard.messages) == 1
    assert message in heard.messages[0]


def test_a_run_of_several_tasks_has_a_score_for_each():
    rows = [{"step": 1, STEPS.key: 5, KEY: 3.0, "eval/seqrl/A-v0/return_mean": 1.0, "eval/B-v0/return_mean": 5.0}]
    found = compare([Method("m", [run(str(i), (), seed=i, rows=rows) for i in range(3)])], options())
    assert found.tasks == ["A-v0", "B-v0"]
    assert found.methods[0].by_task["B-v0"].value == 5.0


def test_a_metric_that_nobody_has_is_named_with_the_nearest():
    with pytest.raises(DataError, match=r"no run has 'eval/retrun_mean'; did you mean 'eval/return_mean'\? there are"):
        compare([method("m", [1.0] * 3)], options(metric="eval/retrun_mean"))


def test_a_loss_is_compared_with_a_warning(caplog):
    key = "valid/total"
    rows = [{"step": 1, STEPS.key: 5, key: 3.0}]
    compare([Method("m", [run(str(i), (), seed=i, rows=rows) for i in range(3)])], options(metric=key))
    assert "valid/total is compared as if higher were better" in caplog.text


def test_intervals_of_success_stay_between_none_and_all():
    key = "eval/success_mean"
    runs = [run(str(i), [0.0, v], seed=i, key=key) for i, v in enumerate([1.0, 1.0, 1.0, 1.0, 0.5])]
    found = compare([Method("m", runs)], options(metric=key)).methods[0]
    assert found.aggregates["mean"].high == found.by_task["A-v0"].high == 1.0
    assert found.aggregates["mean"].low < 0.9


def test_a_difference_comes_with_p_and_the_seeds_that_it_needs():
    found = compare([method("good", [0.8, 0.9, 1.2]), method("bad", [0.1, 0.2, 0.3])], options())
    difference = found.differences["good", "bad"]
    assert difference.value == pytest.approx(0.967 - 0.2, abs=1e-3)
    assert difference.p_value < 0.05
    assert found.to_json()["differences"][0]["num_seeds"] == difference.num_seeds == 3


def test_a_run_whose_last_evaluation_is_no_number_has_no_score(heard):
    """An earlier one would hide that it fell apart."""
    runs = [run(str(i), [0.0, 5.0], seed=i) for i in range(3)]
    found = compare([Method("m", [*runs, run("lost", [0.0, 9.0, None], seed=3)])], options())
    assert {s.run for s in found.methods[0].scores} == {"0", "1", "2"}
    assert heard.messages == ["lost is left out: its last eval/return_mean is no number"]
    again = run("again", [0.0, 5.0], seed=3)
    again.rows.append({**again.rows[-1], "step": 9, KEY: None})  # a later one at the same place
    found = compare([Method("m", [*runs, again])], options())
    assert {s.run for s in found.methods[0].scores} == {"0", "1", "2"}


def test_a_run_of_several_tasks_with_one_that_is_no_number_is_left_out_as_a_whole(heard):
    def rows(second):
        return [{"step": 1, STEPS.key: 5, "eval/A/return_mean": 1.0, "eval/B/return_mean": second}]

    runs = [run(str(i), (), seed=i, rows=rows(None if i == 5 else float(i))) for i in range(6)]
    found = compare([Method("m", runs)], options()).methods[0]
    assert found.num_runs == 5
    assert found.aggregates["mean"].low is not None
    assert "5 is left out: its last eval/B/return_mean is no number" in heard.messages


def test_runs_of_other_tasks_than_the_rest_are_told(heard):
    both = [{"step": 1, STEPS.key: 5, "eval/A-v0/return_mean": 1.0, "eval/B-v0/return_mean": 2.0}]
    runs = [run(str(i), (), seed=i, rows=both) for i in range(5)] + [run("one", [3.0], seed=5)]
    found = compare([Method("m", runs)], options()).methods[0]
    assert found.aggregates["mean"].low is None
    assert any("intervals need 5 runs of each set of tasks, and one set has 1" in text for text in heard.messages)


def test_tasks_of_one_run_are_one_run():
    def rows(shift):
        return [{"step": 1, STEPS.key: 5, "eval/A/return_mean": 1.0 + shift, "eval/B/return_mean": 2.0 + shift}]

    runs = [run(str(i), (), seed=i, rows=rows(0.1 * i)) for i in range(5)]
    both = compare([Method("m", runs)], options()).methods[0]
    assert both.num_runs == 5
    one = compare([method("m", [1.5 + 0.1 * i for i in range(5)])], options()).methods[0]
    assert both.aggregates["mean"].low == pytest.approx(one.aggregates["mean"].low)


def test_runs_that_were_evaluated_by_other_rules_are_told(heard):
    runs = [run(str(i), [1.0], seed=i) for i in range(4)]
    for each, steps in zip(runs, (None, None, 50, 50), strict=True):
        each.config["experiment"] = {"evaluation": {"max_steps": steps}}
    compare([Method("m", runs)], options())
    assert heard.messages == ["A-v0: runs differ in experiment.evaluation.max_steps: null, 50"]
    heard.clear()
    for each, size in zip(runs, (1, 1, 2, 2), strict=True):
        each.env_kwargs["size"] = size  # two tasks, each by rules of its own
    compare([Method("m", runs)], options(metric=KEY, ranges={"": (0.0, 1.0)}))
    assert not any("runs differ" in text for text in heard.messages)


def test_a_method_without_the_metric_is_left_out(heard):
    found = compare([method("m", [1.0] * 3), Method("new", [run("new0", [])])], options())
    assert [m.name for m in found.methods] == ["m"]
    assert "new0 is left out: it has no eval/return_mean" in heard.messages[0]
