"""Callbacks are called when they should be, and can end a run."""

import json

import pytest

import seqrl
from seqrl.core.errors import ConfigError
from tests.regression.test_interrupt import offline, run


class Recorder(seqrl.Callback):
    def __init__(self, stop_at=None):
        self.calls, self.stop_at = [], stop_at

    def _note(self, experiment, name, *values):
        self.calls.append((name, *values))
        if self.calls[-1] == self.stop_at:
            experiment.stop("enough")
            experiment.stop("another reason, which comes too late")

    def on_start(self, experiment):
        self._note(experiment, "start")

    def on_gradient_step(self, experiment, step):
        assert step == experiment.num_steps
        self._note(experiment, "step", step)

    def on_epoch_end(self, experiment, metrics):
        assert "time/learn_share" in metrics
        self._note(experiment, "epoch", experiment.progress.epoch)

    def on_evaluation(self, experiment, metrics):
        assert {"eval/success_mean", "valid/total"} <= metrics.keys()
        self._note(experiment, "evaluation", experiment.progress.epoch)

    def on_save(self, experiment, path):
        assert (path / "card.json").is_file()
        self._note(experiment, "save", path.name)

    def on_end(self, experiment):
        experiment.evaluate_val()  # the environments are still there
        self._note(experiment, "end")


def short(folder, **train):
    config = offline(folder)
    values = config.to_json()
    values["train"] |= {"num_epochs": 2, "steps_per_epoch": 2, "accumulate_batches": 1, **train}
    return seqrl.config_factory("bc", values)


def test_the_order_of_the_calls(tmp_path):
    recorder = Recorder()
    run(short(tmp_path), callbacks=[recorder])
    epochs = [
        [("step", 2 * e - 1), ("step", 2 * e), ("epoch", e), ("evaluation", e), ("save", f"epoch_00000{e}")]
        for e in (1, 2)
    ]
    assert recorder.calls == [("start",), ("evaluation", 0), *epochs[0], *epochs[1], ("end",)]


def test_a_hook_of_other_libraries_is_refused(tmp_path):
    class Late(seqrl.Callback):
        on_end_of_the_world = True

        def on_epoch(self, experiment, metrics):
            raise AssertionError

    with pytest.raises(ConfigError, match=r"Late.on_epoch would never be called; did you mean 'on_epoch_end'\?"):
        run(short(tmp_path), callbacks=[Late()])
    del Late.on_epoch
    run(short(tmp_path), callbacks=[Late()])


def test_what_is_logged_at_the_start_is_kept(tmp_path):
    class Says(seqrl.Callback):
        def on_start(self, experiment):
            experiment.log({"mine/rooms": 3.0}, 0)

    stats = run(short(tmp_path), callbacks=[Says()])
    lines = [json.loads(line) for line in (stats.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["mine/rooms"] for line in lines if "mine/rooms" in line] == [3.0]


@pytest.mark.parametrize(
    ("moment", "epochs"),
    [
        (("start",), 0),
        (("evaluation", 0), 0),
        (("step", 3), 2),
        (("epoch", 2), 2),
        (("evaluation", 2), 2),
        (("save", "epoch_000002"), 2),
        (("end",), 4),
    ],
)
def test_a_callback_ends_the_run_after_its_epoch(moment, epochs, tmp_path, caplog):
    recorder, second = Recorder(moment), Recorder()
    caplog.set_level("INFO", "seqrl")
    config = short(tmp_path, num_epochs=4)
    is_out_of_turn = moment[0] in ("step", "epoch")
    if is_out_of_turn:
        config.experiment.evaluation.every_n_epochs = config.experiment.save.last_every_n_epochs = 4
    stats = run(config, callbacks=[recorder, second])
    assert stats.epochs == epochs
    if moment == ("end",):
        return
    assert stats.stop_reason == "enough"
    assert f"stopped after epoch {epochs}: enough" in caplog.text
    assert "nothing was learned" not in caplog.text
    assert second.calls[-1] == ("end",)
    if is_out_of_turn:  # evaluated and saved all the same
        assert second.calls[-3:] == [("evaluation", 2), ("save", "epoch_000002"), ("end",)]
        assert "eval/success_mean" in stats.metrics
        assert run(config, resume=True).epochs == 4


def test_the_report_of_a_stopped_run_is_written(tmp_path):
    config = short(tmp_path)
    config.experiment.report.enabled = True
    config.experiment.report.animation_episodes = 0
    stats = run(config, callbacks=[Recorder(("step", 1))])
    assert (stats.path / "report.html").is_file()


def test_without_callbacks_a_step_calls_none(tmp_path, monkeypatch):
    """Callbacks that do not look at steps cost nothing in them."""

    class Quiet(seqrl.Callback):
        pass

    def never(*_):
        raise AssertionError("called")

    monkeypatch.setattr("seqrl.training.callbacks.Callbacks.on_gradient_step", never)
    run(short(tmp_path), callbacks=[Quiet()])
    with pytest.raises(AssertionError, match="called"):
        run(short(tmp_path / "other"), callbacks=[Recorder()])


def test_on_end_is_called_after_an_error_too(tmp_path):
    class Failing(Recorder):
        def on_epoch_end(self, experiment, metrics):
            raise RuntimeError("of the user's")

    failing = Failing()
    with pytest.raises(RuntimeError, match="of the user's"):
        run(short(tmp_path), callbacks=[failing])
    assert failing.calls[-1] == ("end",)
    assert "RuntimeError: of the user's" in (tmp_path / "run/log.txt").read_text()


def test_what_is_no_callback_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"callbacks: must be objects of subclasses of seqrl\.Callback, got <class"):
        seqrl.Experiment(short(tmp_path), callbacks=[Recorder])


def test_a_callback_may_save_in_the_middle_of_an_epoch(tmp_path):
    class Saving(seqrl.Callback):
        def on_gradient_step(self, experiment, step):
            if step == 3:
                experiment.save()
                names = {p.name for p in experiment.folder.checkpoints.iterdir()}
                assert {"epoch_000001", "epoch_000001_step_000001"} <= names  # the former is the best so far
                assert experiment.folder.last.name == "epoch_000001_step_000001"

    stats = run(short(tmp_path), callbacks=[Saving()])
    assert sorted(p.name for p in (stats.path / "checkpoints").glob("epoch_*_step_*")) == []
    state = json.loads((stats.path / "checkpoints/epoch_000002/training_state/state.json").read_text())
    assert state["step_in_epoch"] == 0
    assert state["generators"] == []
