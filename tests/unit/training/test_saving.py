"""Which checkpoints are kept, also over a resume."""

import shutil
import signal

import pytest
import torch

import seqrl
from seqrl.core.errors import CheckpointError
from seqrl.training.checkpoints import save_at_signal
from tests.regression.test_interrupt import offline


@pytest.fixture
def experiment(tmp_path):
    """Return a function that gives an experiment whose clock the test holds."""
    opened = []

    def make(resume=False, **save):
        config = offline(tmp_path, experiment={"save": {"best": [], **save}})
        config.experiment.evaluation.enabled = False
        made = seqrl.Experiment(config, resume=resume)
        made.start()
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close()


def epochs_of(experiment):
    return [int(p.name[6:]) for p in sorted(experiment.folder.checkpoints.glob("epoch_*"))]


def pass_epochs(experiment, seconds, monkeypatch):
    """End one epoch for each time of the run."""
    for now in seconds:
        monkeypatch.setattr(type(experiment.progress), "run_s", now)
        experiment.progress.epoch += 1
        experiment.epochs.end_epoch()
    monkeypatch.undo()


def test_some_epochs(experiment, monkeypatch):
    first = experiment(epochs=[2, 3, 7])
    pass_epochs(first, range(6), monkeypatch)
    assert epochs_of(first) == [2, 3, 6]
    first.close()
    second = experiment(epochs=[2, 3, 7], resume=True)
    pass_epochs(second, range(2), monkeypatch)
    assert epochs_of(second) == [2, 3, 7, 8]


def test_some_seconds(experiment, monkeypatch):
    """The times are those of the run: a resume neither forgets what is kept nor starts the clock anew."""
    first = experiment(every_s=10.0)
    pass_epochs(first, [4.0, 9.9, 10.0, 15.0, 25.0, 30.0], monkeypatch)
    assert epochs_of(first) == [3, 5, 6]
    first.close()
    second = experiment(every_s=10.0, resume=True)
    assert second.checkpoints.kept_epochs == [3, 5]
    pass_epochs(second, [34.0, 35.0, 36.0], monkeypatch)
    assert epochs_of(second) == [3, 5, 8, 9]


def test_a_checkpoint_that_cannot_be_written_does_not_start_the_clock_anew(experiment, monkeypatch):
    made = experiment(every_s=10.0)
    pass_epochs(made, [4.0], monkeypatch)

    def full(*args, **options):
        raise CheckpointError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("seqrl.training.checkpoints.save_checkpoint", full)
        pass_epochs(made, [12.0], patch)
    pass_epochs(made, [13.0, 14.0], monkeypatch)
    assert epochs_of(made) == [3, 4]


def test_what_is_kept_is_saved_between_the_moves_of_last(experiment, monkeypatch):
    made = experiment(every_s=10.0, epochs=[2], every_n_epochs=7, last_every_n_epochs=6)
    pass_epochs(made, [1.0, 2.0, 3.0, 12.0, 13.0, 14.0, 15.0, 16.0], monkeypatch)
    assert epochs_of(made) == [2, 4, 7]
    assert made.folder.last == made.folder.checkpoint(7)


def test_the_best_evaluation_is_saved_between_the_moves_of_last(experiment, monkeypatch):
    made = experiment(best=["return"], last_every_n_epochs=6)
    scores = iter([0.2, 0.9, 0.3, 0.1, 0.4, 0.5])
    monkeypatch.setattr(type(made.learner), "validate", lambda self: {"eval/return_mean": next(scores)})
    pass_epochs(made, range(6), monkeypatch)
    assert epochs_of(made) == [2, 6]
    assert (made.folder.checkpoints / "best_return").read_text().strip() == "epoch_000002"


def test_best_marks_are_repaired(experiment, monkeypatch):
    """As if the run had been killed between ``last`` and ``best_return``."""
    first = experiment(best=["return"])
    monkeypatch.setattr(type(first.learner), "validate", lambda self: {"eval/return_mean": 1.0})
    pass_epochs(first, [1.0], monkeypatch)
    mark = first.folder.checkpoints / "best_return"
    assert mark.read_text().strip() == "epoch_000001"
    mark.unlink()
    first.close()
    experiment(best=["return"], resume=True)
    assert mark.read_text().strip() == "epoch_000001"


def full(free=1000):
    """Stand for ``shutil.disk_usage`` of a disk on which so many bytes are free."""
    return lambda _: shutil._ntuple_diskusage(10**9, 10**9 - free, free)


def test_a_save_that_fails_costs_nothing_but_itself(experiment, monkeypatch, caplog):
    """The best of the checkpoints that are there is marked, not the best of all epochs."""
    made = experiment(best=["return"])
    returns = iter([1.0, 3.0, 2.0])
    monkeypatch.setattr(type(made.learner), "validate", lambda self: {"eval/return_mean": next(returns)})

    def pass_epoch():
        made.progress.epoch += 1
        made.epochs.end_epoch()

    pass_epoch()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", full())
        pass_epoch()
    text = "epoch_000002 cannot be written: No space left on device"
    assert caplog.text.count(text) == caplog.text.count("The run goes on") == 1
    assert epochs_of(made) == [1]
    assert made.folder.last == made.folder.checkpoint(1)
    with pytest.raises(CheckpointError, match=f"{text}.*Make room there.* go on from .*epoch_000001 with --resume"):
        made.checkpoints.check_saved()
    pass_epoch()
    made.checkpoints.check_saved()
    assert epochs_of(made) == [3]
    assert (made.folder.checkpoints / "best_return").read_text().strip() == "epoch_000003"


def test_a_first_save_that_fails_ends_the_run(experiment, monkeypatch):
    made = experiment()
    monkeypatch.setattr("shutil.disk_usage", full())
    made.progress.epoch += 1
    with pytest.raises(CheckpointError, match="epoch_000001 cannot be written"):
        made.epochs.end_epoch()


def test_a_signal_on_a_full_disk_says_what_is_lost(experiment, monkeypatch, caplog):
    made = experiment()
    made.progress.epoch += 1
    made.epochs.end_epoch()
    made.progress.step_in_epoch = 2
    monkeypatch.setattr("shutil.disk_usage", full())
    save_at_signal(made.checkpoints, signal.SIGTERM)
    assert "step_000002 cannot be written" in caplog.text
    assert "SIGTERM: what was reached since is lost; go on from" in caplog.text
    assert "saved at" not in caplog.text


def test_what_is_not_finite_is_taken_over_only_where_it_is_allowed(experiment, tmp_path):
    first = experiment()
    first.progress.epoch = 1
    weight = next(first.algo.nets.parameters())
    with torch.no_grad():
        weight.view(-1)[0] = torch.nan
    first.save()
    first.close()
    with pytest.raises(CheckpointError, match=r"model.safetensors: NaN or inf.*train.allow_nonfinite"):
        experiment(resume=True)
    begin = offline(tmp_path, "begin", train={"init_from": str(tmp_path / "run")})
    with pytest.raises(CheckpointError, match=r"model.safetensors: NaN or inf.*train.allow_nonfinite"):
        seqrl.Experiment(begin).start()
    for config, is_resumed in ((first.config, True), (begin, False)):
        config.train.allow_nonfinite = True
        made = seqrl.Experiment(config, resume=is_resumed)
        made.start()
        made.close()
        assert next(made.algo.nets.parameters()).isnan().any()
