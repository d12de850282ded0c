"""Optuna proposes, prunes, and goes on after a kill; without it, a message says what to install."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from seqrl.scripts import sweep

RATE = "algo.optimizer.learning_rate"
DRAW = {RATE: {"log_uniform": [1e-6, 1.0]}}


@pytest.fixture
def optuna():
    return pytest.importorskip("optuna", reason="pip install 'seqrl[sweep]'")


def study_of(optuna, mine):
    return optuna.load_study(study_name="mine", storage=f"sqlite:///{mine.path}/optuna.db")


def counted(study, optuna):
    """Return the trials that count: a kill leaves some that do not."""
    state = optuna.trial.TrialState
    return [t for t in study.trials if t.state in (state.COMPLETE, state.PRUNED)]


def test_without_optuna_a_message_says_what_to_install(stand_in, monkeypatch, capsys):
    stand_in(draw=DRAW, search="optuna")
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert sweep.main(["mine.json"]) == 2
    assert "pip install 'seqrl[sweep]'" in capsys.readouterr().err
    assert sweep.main(["mine.json", "--backend", "slurm"]) == 2
    assert "runs on this machine" in capsys.readouterr().err


def test_it_begins_with_the_base_and_finds_better(stand_in, optuna, capsys):
    mine = stand_in(draw=DRAW, trials=6, search="optuna", seeds=2, prune_after=None, set={"train.num_epochs": 1})
    assert sweep.main(["mine.json", "--jobs", "2"]) == 0
    out, err = capsys.readouterr()
    assert len(mine.epochs) == 12
    assert "12/12" in err
    assert {f"learning_rate=0.0001_seed{s}" for s in (0, 1)} <= set(mine.epochs)
    assert "; the base run's own values: 0.492 (+0." in out
    trials = counted(study_of(optuna, mine), optuna)
    assert len(trials) == 6
    best = json.loads(mine.read("best.json"))
    assert abs(best["algo"]["optimizer"]["learning_rate"] - max(trials, key=lambda t: t.value).params[RATE]) < 1e-3
    assert sweep.main(["mine.json"]) == 0
    assert "12 of 12 runs are finished already" in capsys.readouterr().err


@pytest.mark.slow
def test_seeds_may_be_added(stand_in, optuna, capsys):
    values = {"draw": DRAW, "search": "optuna", "prune_after": None, "set": {"train.num_epochs": 1}}
    mine = stand_in(**values, trials=2, seeds=1)
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0
    before = set(mine.epochs)
    mine = stand_in(**values, trials=2, seeds=2)
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0
    assert {name.replace("seed0", f"seed{seed}") for name in before for seed in (0, 1)} == set(mine.epochs)
    assert len({name.rpartition("_")[0] for name in mine.epochs}) == 2
    capsys.readouterr()
    stand_in(**values, trials=3, seeds=2)
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0
    assert "4 of 6 runs are finished already" in capsys.readouterr().err
    assert len(mine.epochs) == 6


def test_less_can_be_better(stand_in, optuna, capsys):
    values = {"draw": {RATE: {"one_of": [1e-4, 1e-3, 1e-2]}}, "trials": 3, "search": "optuna", "direction": "min"}
    mine = stand_in(**values, set={"train.num_epochs": 1})
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0
    assert "best: learning_rate=0.0001, 0.5; these are the base run's own values" in capsys.readouterr().out
    assert study_of(optuna, mine).direction.name == "MINIMIZE"


def test_a_run_below_the_median_is_pruned(stand_in, optuna, capsys):
    """Five trials come first; the sixth is the worst of all, and stops long before its end."""
    values = {"draw": {RATE: {"log_uniform": [1e-9, 1e-1]}}, "search": "optuna"}
    mine = stand_in(**values, trials=5)
    assert sweep.main(["mine.json", "--jobs", "2"]) == 0
    study = study_of(optuna, mine)
    study.enqueue_trial({RATE: 1e-9})
    stand_in(**values, trials=6, set={"env.kwargs.hangs_at": 2})
    for file in (mine.path / "runs").glob("*/config.json"):  # else the change of the base would be refused
        config = json.loads(file.read_text())
        config.setdefault("env", {})["kwargs"] = {"hangs_at": 2}
        file.write_text(json.dumps(config))
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    assert "6/6  learning_rate=1e-09_seed0  pruned" in err
    assert mine.epochs["learning_rate=1e-09_seed0"] == [1, 2]
    assert next(line for line in out.splitlines() if "1e-09" in line).endswith("| pruned |")
    assert [t.state.name for t in study.trials][-1] == "PRUNED"


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on(stand_in, optuna):
    """What was under way is finished, in its folder, and no trial is lost or counted twice."""
    set_ = {"train.num_epochs": 2, "env.kwargs.epoch_s": 0.3}
    mine = stand_in(draw=DRAW, trials=6, search="optuna", prune_after=None, set=set_)
    for num, number in ((1, signal.SIGKILL), (3, signal.SIGTERM)):
        process = mine.begin("--jobs", "2")
        end = time.monotonic() + 60
        while sum(len(epochs) == 2 for epochs in mine.epochs.values()) < num:
            assert time.monotonic() < end
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert mine.begin("--jobs", "2").wait(timeout=60) == 0
    assert list(mine.epochs.values()) == [[1, 2]] * 6
    trials = counted(study_of(optuna, mine), optuna)
    assert len(trials) == 6
    assert len({t.params[RATE] for t in trials}) == 6


@pytest.mark.slow
def test_a_trial_whose_run_fails_is_told_and_tried_again(stand_in, optuna, capsys):
    mine = stand_in(draw=DRAW, trials=2, search="optuna", seeds=2, set={"env.kwargs.fail": "broken"})
    Path("broken").touch()
    assert sweep.main(["mine.json", "--jobs", "1"]) == 1
    out, err = capsys.readouterr()
    assert "2 runs failed" in err
    assert out.count("failed  ") == 1
    assert "| base, failed |" in out
    Path("broken").unlink()
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0
    assert len(mine.epochs) == 4
    assert "failed" not in capsys.readouterr().out
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0
    assert {len(pids) for pids in mine.starts.values()} == {1, 2}
    assert [t.state.name for t in study_of(optuna, mine).trials] == ["FAIL", "FAIL", "COMPLETE", "COMPLETE"]


def test_another_choice_or_direction_is_another_search(stand_in, optuna, capsys):
    values = {"trials": 1, "search": "optuna", "set": {"train.num_epochs": 1}}
    stand_in(**values, draw={RATE: {"one_of": [1e-4, 1e-3]}})
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0
    stand_in(**{**values, "trials": 2}, draw={RATE: {"one_of": [1e-4, 1e-2]}})
    assert sweep.main(["mine.json", "--jobs", "1"]) == 2
    assert "was begun with another 'draw'" in capsys.readouterr().err
    stand_in(**values, draw={RATE: {"one_of": [1e-4, 1e-3]}}, direction="min")
    assert sweep.main(["mine.json", "--jobs", "1"]) == 2
    assert "was begun with another direction" in capsys.readouterr().err
    stand_in(**values, draw={RATE: {"one_of": [1e-4, 1e-3]}}, metric="eval/success_mean")
    assert sweep.main(["mine.json", "--jobs", "1"]) == 2
    assert "was begun with the metric 'eval/return_mean'" in capsys.readouterr().err
    values["set"]["train.batch_size"] = 7
    stand_in(**{**values, "trials": 2}, draw={RATE: {"one_of": [1e-4, 1e-3]}})
    assert sweep.main(["mine.json", "--jobs", "1"]) == 2
    assert "was begun with other settings" in capsys.readouterr().err
    stand_in(**{**values, "seeds": 2}, draw={RATE: {"one_of": [1e-4, 1e-3]}})  # no trial is done
    assert sweep.main(["mine.json", "--jobs", "1"]) == 2
    assert "was begun with other settings" in capsys.readouterr().err


@pytest.mark.slow
def test_values_that_do_not_go_together_cost_no_results(stand_in, optuna, capsys):
    memory = "algo.sequence_encoder"
    draw = {f"{memory}.d_model": {"one_of": [96, 64]}, f"{memory}.num_heads": {"one_of": [4, 6]}}  # 6 divides 96 only
    own = {"algo": {"sequence_encoder": {"type": "transformer", "d_model": 96, "num_heads": 4}}}
    base = {"algo_name": "bc", **own, "train": {"num_epochs": 1}, "experiment": {"report": {"enabled": False}}}
    mine = stand_in(base=base, draw=draw, search="optuna", trials=12)
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    assert "is not legal" in err
    assert "not legal" in out
    assert mine.read("best.json")
    assert sweep.main(["mine.json", "--jobs", "1"]) == 0  # nor are they tried again
    assert "is not legal" not in capsys.readouterr().err


@pytest.mark.slow
def test_no_two_trials_run_the_same_runs_at_once(stand_in, optuna, capsys):
    values = {"draw": {RATE: {"one_of": [1e-3, 1e-2]}}, "search": "optuna", "prune_after": None}
    mine = stand_in(**values, trials=8, set={"train.num_epochs": 1, "env.kwargs.epoch_s": 0.3})
    assert sweep.main(["mine.json", "--jobs", "4"]) == 0
    assert [len(processes) for processes in mine.starts.values()] == [1] * len(mine.starts)
    assert len(mine.starts) <= 3
    tried = len(study_of(optuna, mine).trials)
    assert sweep.main(["mine.json", "--jobs", "4"]) == 0
    assert len(study_of(optuna, mine).trials) == tried  # the search is at its end
