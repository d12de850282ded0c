"""Runs that are interrupted or stopped: what was reached is saved, and going on equals never having stopped."""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium as gym
import pytest

import seqrl
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.configs import config_factory
from seqrl.core.errors import RunInterrupted
from seqrl.scripts._script import script

ROOT = Path(__file__).parents[2]
OFFLINE = {
    "experiment": {
        "report": {"enabled": False},
        "logging": {"every_n_steps": 2, "tensorboard": False},
        "evaluation": {"episodes": 4, "num_envs": 2},
    },
    "env": {"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 3}},
    "train": {
        "data": [{"scripted": "seqrl/TMazePassive-v0", "episodes": 12}],
        "window_steps": 4,
        "batch_size": 3,
        "num_epochs": 3,
        "steps_per_epoch": 6,
        "accumulate_batches": 2,
        "valid_batches": 1,
        "device": "cpu",
    },
    "algo": {
        "sequence_encoder": {"type": "gru", "d_hidden": 8, "num_layers": 2, "d_output": 8, "dropout": 0.3},
        "actor": {"d_hidden": 8},
    },
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
}
COLLECTING = {"collect": {"steps_per_epoch": 8, "num_envs": 2}}


def offline(folder, name="run", **changes):
    values = json.loads(json.dumps(OFFLINE))
    values["experiment"] |= {"output_dir": str(folder), "name": name, **changes.pop("experiment", {})}
    for section, value in changes.items():
        values[section] = {**values.get(section, {}), **value}
    return config_factory("bc", values)


def run(config, **options):
    experiment = seqrl.Experiment(config, **options)
    experiment.start()
    return experiment.learn()


class Send(seqrl.Callback):
    """Sends signals to this process, from a moment of the run."""

    def __init__(self, moment, at, *numbers):
        self.moment, self.at, self.numbers, self.steps = moment, at, numbers, []

    def on_gradient_step(self, experiment, step):
        self.steps.append(step)
        self._send("step", step)

    def on_epoch_end(self, experiment, metrics):
        self._send("epoch", experiment.progress.epoch)

    def on_evaluation(self, experiment, metrics):
        self._send("evaluation", experiment.progress.epoch)

    def on_save(self, experiment, path):
        self._send("save", experiment.progress.epoch)

    def _send(self, moment, at):
        if (moment, at) == (self.moment, self.at):
            for number in self.numbers:
                signal.raise_signal(number)


def result(folder, name="run"):
    """Return what has to be equal: weights, optimiser, metrics without the clock, best marks, names of checkpoints."""
    path = folder / name
    last = read_checkpoint(path)
    files = [(last.path / f).read_bytes() for f in ("model.safetensors", "training_state/optimizer.safetensors")]
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    rows = [{k: v for k, v in row.items() if not k.startswith(("time/", "system/"))} for row in lines]
    pointers = {p.name: p.read_text() for p in (path / "checkpoints").iterdir() if p.is_file()}
    names = sorted(p.name for p in (path / "checkpoints").iterdir())
    metrics = {k: v for k, v in last.card["metrics"].items() if not k.startswith(("time/", "system/"))}
    return files, rows, pointers, names, metrics


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    run(offline(folder))
    return result(folder)


def interrupted(config, *arguments, **options):
    callback = Send(*arguments)
    with pytest.raises(RunInterrupted) as caught:
        run(config, callbacks=[callback], **options)
    assert caught.value.exit_code == 128 + arguments[2]
    return callback


@pytest.mark.parametrize(
    ("moment", "at", "saved"),
    [
        ("step", 1, "epoch_000000_step_000001"),
        ("step", 8, "epoch_000001_step_000002"),
        ("step", 12, "epoch_000001_step_000006"),
        ("epoch", 2, "epoch_000002_unevaluated"),
        ("evaluation", 2, "epoch_000002"),
        ("save", 2, "epoch_000002"),
    ],
)
def test_going_on_equals_never_having_been_interrupted(moment, at, saved, whole, tmp_path, caplog):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    callback = interrupted(offline(tmp_path), moment, at, signal.SIGTERM)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert (tmp_path / "run/checkpoints/last").read_text().strip() == saved
    assert moment != "step" or callback.steps[-1] == at  # not one more
    assert bool(read_checkpoint(tmp_path / "run").card["metrics"]) == (moment in ("evaluation", "save"))
    assert all(text in caplog.text for text in ("SIGTERM: saved at gradient step", saved, "--resume"))
    seqrl.policy_from_checkpoint(tmp_path / "run/last")
    again = Send("none", 0)
    run(offline(tmp_path), resume=True, callbacks=[again])
    assert again.steps == list(range(callback.steps[-1] + 1, 19))
    assert result(tmp_path) == whole


def test_interrupted_again_and_again(whole, tmp_path):
    for step in (3, 4, 5, 7, 17):
        interrupted(offline(tmp_path), "step", step, signal.SIGINT, resume=step > 3)
    run(offline(tmp_path), resume=True)
    assert result(tmp_path) == whole


def test_an_evaluation_does_not_hold_up_the_end(whole, tmp_path):
    """The signal comes in the middle of an episode."""
    steps = []

    class Begin(seqrl.Callback):
        def on_epoch_end(self, experiment, metrics):
            steps.append("begin")

    class Signalling(gym.Wrapper):
        def step(self, action):
            steps.append(action)
            if steps[-4:-3] == ["begin"]:
                signal.raise_signal(signal.SIGTERM)
            return super().step(action)

    def make():
        return Signalling(gym.make("seqrl/TMazePassive-v0", corridor_length=3))

    with pytest.raises(RunInterrupted):
        run(offline(tmp_path), make_val_env=make, callbacks=[Begin()])
    assert steps[-5:].count("begin") == 1
    assert (tmp_path / "run/checkpoints/last").read_text().strip() == "epoch_000001_unevaluated"
    run(offline(tmp_path), resume=True)
    assert result(tmp_path) == whole


@pytest.mark.parametrize("moment", ["save", "episode", "video"])
def test_a_signal_while_the_report_is_written_ends_at_once(moment, tmp_path, monkeypatch, caplog):
    """Not only at the next step of an environment: what takes long may be a file, too."""
    import seqrl.training.rendering as rendering
    import seqrl.training.run_report as run_report

    def signalling(name, *_, **__):
        reached.append(name)
        if moment == name:
            signal.raise_signal(signal.SIGTERM)

    reached, record = [], rendering.record_episodes
    monkeypatch.setattr(rendering, "record_episodes", lambda *a, **k: (signalling("episode"), record(*a, **k))[1])
    monkeypatch.setattr(run_report, "write_report", lambda file, _: (file.write_text("drawn"), signalling("page")))
    monkeypatch.setattr("seqrl.training.experiment.log_video", functools.partial(signalling, "video"))
    config = offline(tmp_path, train={**OFFLINE["train"], "num_epochs": 1}, experiment={"report": {}})
    config.experiment.report.animation_episodes = 1
    with pytest.raises(RunInterrupted) as caught:
        run(config, callbacks=[Send(moment, 1, signal.SIGTERM)])
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert reached == {"save": [], "episode": ["episode"], "video": ["episode", "page", "video"]}[moment]
    assert "SIGTERM: training is complete and saved in" in caplog.text
    assert "epoch_000001" in caplog.text.rpartition("complete and saved in")[2]
    is_written = (tmp_path / "run/report.html").exists()
    assert is_written == (moment == "video")
    assert is_written != ("the report is not written, --resume writes it" in caplog.text)
    assert not list((tmp_path / "run").rglob(".*"))
    moment = None
    run(config, resume=True)
    assert (tmp_path / "run/report.html").exists()


def test_before_the_first_step_there_is_nothing_to_save(whole, tmp_path, caplog):
    interrupted(offline(tmp_path), "evaluation", 0, signal.SIGTERM)
    assert "nothing was saved yet" in caplog.text
    assert list((tmp_path / "run/checkpoints").iterdir()) == []
    run(offline(tmp_path), resume=True)
    assert "starts over" in caplog.text
    assert result(tmp_path) == whole


def test_a_second_ctrl_c_ends_at_once_and_leaves_whole_files(whole, tmp_path):
    callback = Send("step", 8, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(offline(tmp_path), callbacks=[callback])
    assert caught.type is KeyboardInterrupt
    assert (tmp_path / "run/checkpoints/last").read_text().strip() == "epoch_000001"
    assert not list((tmp_path / "run").rglob(".*"))
    run(offline(tmp_path), resume=True)
    assert result(tmp_path) == whole


def test_a_second_ctrl_c_within_saving_leaves_whole_files(whole, tmp_path, monkeypatch):
    import seqrl.algo.checkpoint as checkpoint

    interrupted(offline(tmp_path), "step", 8, signal.SIGINT)
    save_file = checkpoint.save_file

    def impatient(*arguments):
        save_file(*arguments)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(checkpoint, "save_file", impatient)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(offline(tmp_path), resume=True, callbacks=[Send("step", 10, signal.SIGINT)])
    monkeypatch.undo()
    assert caught.type is KeyboardInterrupt
    assert (tmp_path / "run/checkpoints/last").read_text().strip() == "epoch_000001_step_000002"
    assert not list((tmp_path / "run").rglob(".*"))
    run(offline(tmp_path), resume=True)
    assert result(tmp_path) == whole


@pytest.mark.parametrize(("moment", "at", "epoch"), [("step", 8, 1), ("epoch", 2, 2), ("save", 2, 2)])
def test_a_run_that_collects_goes_on_after_a_whole_epoch(moment, at, epoch, tmp_path, caplog):
    interrupted(offline(tmp_path, **COLLECTING), moment, at, signal.SIGTERM)
    assert read_checkpoint(tmp_path / "run").training_state().values["epoch"] == epoch
    assert ("epoch 2 is dropped" in caplog.text) == (moment == "step")
    stats = run(offline(tmp_path, **COLLECTING), resume=True)
    assert stats.epochs == 3
    assert stats.env_steps == 3 * 8 * 2
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [r["progress/epoch"] for r in rows if "collect/episodes" in r] == [1, 2, 3]
    assert [r["progress/epoch"] for r in rows if "eval/episodes" in r] == [0, 1, 2, 3]


def test_all_epochs_since_the_last_checkpoint_are_named_and_a_callback_is_told_that_it_saves_nothing(tmp_path, caplog):
    class Saver(seqrl.Callback):
        def on_gradient_step(self, experiment, step):
            if step == 1:
                experiment.save()

    changes = {**COLLECTING, "train": {"num_epochs": 6}, "experiment": {"save": {"last_every_n_epochs": 3, "best": []}}}
    interrupted(offline(tmp_path, **changes), "step", 26, signal.SIGTERM)
    assert "epochs 4 to 5 are dropped" in caplog.text
    run(offline(tmp_path, **changes), resume=True)
    run(offline(tmp_path / "other", **changes), callbacks=[Saver()])
    assert "nothing is saved within epoch 1, as the run collects" in caplog.text
    caplog.clear()
    before = (tmp_path / "run/config.json").read_bytes()
    run(offline(tmp_path, **{**changes, "train": {"num_epochs": 4}}), resume=True)
    assert "nothing is left to learn: 6 epochs are done, and train.num_epochs is 4; raise it, or the" in caplog.text
    assert (tmp_path / "run/config.json").read_bytes() == before


def test_no_other_thread_and_nobody_elses_handler_is_touched(tmp_path):
    class Look(seqrl.Callback):
        def on_start(self, experiment):
            self.seen = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def mine(*_):
        pass

    look, before = Look(), signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=run, args=(offline(tmp_path),), kwargs={"callbacks": [look]})
    thread.start()
    thread.join()
    assert look.seen == (signal.SIG_DFL, before)
    signal.signal(signal.SIGTERM, mine)
    try:
        run(offline(tmp_path, "other", train={**OFFLINE["train"], "num_epochs": 1}), callbacks=[look])
        assert look.seen[0] is mine
        assert look.seen[1] != before
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_scripts_return_the_signal(number, code):
    @script
    def main(argv=None):
        raise RunInterrupted(number)

    assert main([]) == code


def test_the_command_says_how_to_go_on(tmp_path):
    config = offline(tmp_path, train={**OFFLINE["train"], "num_epochs": 2000})
    (tmp_path / "run.json").write_text(json.dumps(config.to_json()))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "seqrl", "train", "--config", "run.json"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not (tmp_path / "run/checkpoints/last").exists():
        assert time.monotonic() < end
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.terminate()
    _, text = process.communicate(timeout=100)
    assert process.returncode == 143, text
    assert "Traceback" not in text
    assert "warning: SIGTERM: saved at gradient step" in text
    assert "go on with --resume" in text
    assert "saved at gradient step" in (tmp_path / "run/log.txt").read_text()
    read_checkpoint(tmp_path / "run").training_state()
