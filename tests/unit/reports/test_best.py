"""A run that ended worse than it was says so, and names the checkpoint to deploy."""

import pytest

from seqrl.reports.best import fall_from_best


def row(epoch, value, half=None, measure="success"):
    key = f"eval/{measure}_mean"
    ends = {} if half is None else {f"{key}_low": value - half, f"{key}_high": value + half}
    return {"progress/epoch": float(epoch), key: value, **ends}


def test_a_fall_beyond_both_intervals_is_told_with_the_checkpoint():
    rows = [row(1, 0.2, 0.1), row(2, 0.95, 0.05), {"loss/total": 1.0}, row(3, 0.5, 0.1)]
    text = fall_from_best(rows, ["success"])
    assert "success 0.5 in the end, 0.95 after epoch 2" in text
    assert text.endswith("deploy checkpoints/best_success")
    assert "add 'success' to experiment.save.best" in fall_from_best(rows, [])


def test_an_end_that_is_no_number_is_told():
    rows = [row(1, 0.95, 0.05), {**row(2, 0.0), "eval/success_mean": None}]
    assert "success not finite in the end, 0.95 after epoch 1" in fall_from_best(rows, ["success"])
    steady = [{**each, "eval/success_mean": 1.0} for each in (row(1, 7.0, 1.0, "return"), row(2, 7.0, 1.0, "return"))]
    steady[-1]["eval/return_mean"] = None
    assert "return not finite in the end, 7 after epoch 1" in fall_from_best(steady, [])


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"loss/total": 1.0}],
        [row(1, 0.5, 0.1)],
        [row(1, 0.9, 0.1), row(2, 0.75, 0.1)],  # the intervals touch
        [row(1, 5.0, 1.0, "return"), row(2, 9.0, 1.0, "return")],
        [{**row(1, 0.9, 0.01), **row(1, 9.0, 0.1, "return")}, {**row(2, 0.9, 0.01), **row(2, 1.0, 0.1, "return")}],
    ],
)
def test_nothing_is_told_where_nothing_was_lost(rows):
    assert fall_from_best(rows, ["success", "return"]) is None


def test_values_without_an_interval_count_only_where_all_episodes_were_alike():
    rows = [row(1, 2.0, measure="return"), row(2, 1.0, measure="return")]
    assert fall_from_best(rows, ["return"]) is None
    assert fall_from_best([{**r, "eval/episodes": 4.0} for r in rows], ["return"]) is None
    alike = [{**r, "eval/episodes": 50.0} for r in rows]
    assert "return 1 in the end, 2 after epoch 1" in fall_from_best(alike, ["return"])
    several = [{**r, "eval/easy/return_mean": 1.0, "eval/hard/return_mean": 2.0} for r in alike]
    assert fall_from_best(several, ["return"]) is None  # a mean over environments has no interval of its own


def losses(*values):
    return [{"progress/epoch": float(epoch), "valid/total": value} for epoch, value in enumerate(values)]


def test_a_rise_of_the_held_out_loss_is_told_where_nothing_is_evaluated():
    text = fall_from_best(losses(4.0, 1.0, -5.0, -4.0), ["valid_loss"])
    assert text == "the held-out loss rose: -4 in the end, -5 after epoch 2; checkpoints/best_valid_loss is of then"
    assert fall_from_best(losses(4.0, 1.0, -5.0, -4.0), []).endswith("no checkpoint of it was kept")
    assert fall_from_best(losses(4.0, 1.0, -5.0, -4.5), ["valid_loss"]) is None
    assert fall_from_best(losses(4.0, 5.0, 6.0), ["valid_loss"]) is not None
    assert fall_from_best(losses(1.0, 1.0, 1.0001), ["valid_loss"]) is None
    assert fall_from_best(losses(4.0), ["valid_loss"]) is None
    assert fall_from_best([*losses(4.0, 1.0, 3.0), row(3, 0.9, 0.1)], ["valid_loss"]) is None
