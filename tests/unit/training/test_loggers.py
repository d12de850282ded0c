"""``metrics.jsonl``: whole lines, legal JSON, and cut to the checkpoint on resume."""

import json
from types import SimpleNamespace

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqrl.configs import config_factory
from seqrl.configs.differences import changed_settings
from seqrl.reports.series import read_metrics
from seqrl.training.loggers import JsonlLogger, log_video
from seqrl.training.robomimic_names import robomimic_names
from seqrl.training.tensorboard_logger import TensorBoardLogger
from tests.regression.test_interrupt import offline, run


@pytest.fixture
def file(tmp_path):
    return tmp_path / "metrics.jsonl"


def _write(file, steps, resume_step=None):
    metrics_logger = JsonlLogger(file, resume_step)
    for step in steps:
        metrics_logger.log({"loss/total": step / 4}, step)
    metrics_logger.close()


def test_one_object_per_line(file):
    _write(file, [0, 50, 100])
    lines = file.read_text().splitlines()
    assert [json.loads(x) for x in lines] == [{"step": s, "loss/total": s / 4} for s in (0, 50, 100)]
    assert read_metrics(file) == [json.loads(x) for x in lines]


def test_lines_are_readable_while_the_run_goes_on(file):
    metrics_logger = JsonlLogger(file, None)
    metrics_logger.log({"a": 1.0}, 1)
    assert read_metrics(file) == [{"step": 1, "a": 1.0}]
    metrics_logger.close()


def test_a_new_run_begins_an_empty_file(file):
    _write(file, [0, 50])
    _write(file, [7])
    assert [r["step"] for r in read_metrics(file)] == [7]


def test_resume_cuts_later_lines_and_goes_on(file):
    _write(file, [0, 50, 100, 100, 150, 200])
    _write(file, [110, 160], resume_step=100)
    assert [r["step"] for r in read_metrics(file)] == [0, 50, 100, 100, 110, 160]


def test_resume_without_a_file_begins_one(file):
    _write(file, [5], resume_step=100)
    assert [r["step"] for r in read_metrics(file)] == [5]


@pytest.mark.parametrize("torn", ['{"step": 150, "loss/to', '{"step": 15', "{", '{"step": 150, "loss/total": 37.5'])
def test_torn_last_line_is_left_out_and_does_not_spoil_what_follows(file, torn):
    _write(file, [0, 50, 100])
    with open(file, "a", encoding="utf-8") as handle:
        handle.write(torn)
    assert [r["step"] for r in read_metrics(file)] == [0, 50, 100]
    _write(file, [160], resume_step=1000)
    assert [json.loads(x)["step"] for x in file.read_text().splitlines()] == [0, 50, 100, 160]


def test_whole_last_line_without_newline_is_kept_and_ended(file):
    _write(file, [0, 50])
    file.write_text(file.read_text().rstrip("\n"))
    _write(file, [60], resume_step=50)
    assert [json.loads(x)["step"] for x in file.read_text().splitlines()] == [0, 50, 60]


def test_non_finite_numbers_are_null(file):
    metrics_logger = JsonlLogger(file, None)
    metrics_logger.log({"a": float("nan"), "b": float("inf"), "c": -float("inf"), "d": 1}, 3)
    metrics_logger.close()

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    row = json.loads(file.read_text(), parse_constant=refuse)
    assert row == {"step": 3, "a": None, "b": None, "c": None, "d": 1.0}


def test_names_that_are_not_ascii_come_back(file):
    metrics_logger = JsonlLogger(file, None)
    metrics_logger.log({"eval/Möbius\u2028/return": 1.5}, 1)
    metrics_logger.close()
    assert read_metrics(file) == [{"step": 1, "eval/Möbius\u2028/return": 1.5}]


def test_missing_file_has_no_lines(file):
    assert read_metrics(file) == []


def test_tensorboard_gets_every_value(tmp_path, monkeypatch):
    import tensorboardX

    written, made = [], []

    class Writer:
        def __init__(self, folder, purge_step=None):
            made.append((folder, purge_step))

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def close(self):
            written.append("closed")

    monkeypatch.setattr(tensorboardX, "SummaryWriter", Writer)
    metrics_logger = TensorBoardLogger(tmp_path / "tb", None)
    metrics_logger.log({"a": 1.0, "b": 2.0}, 7)
    metrics_logger.close()
    TensorBoardLogger(tmp_path / "tb", 100)
    assert written == [("a", 1.0, 7), ("b", 2.0, 7), "closed"]
    assert made == [(str(tmp_path / "tb"), None), (str(tmp_path / "tb"), 101)]


def test_tensorboard_writes_a_file(tmp_path):
    metrics_logger = TensorBoardLogger(tmp_path / "tb", None)
    metrics_logger.log({"loss/total": 0.5}, 1)
    metrics_logger.close()
    (events,) = (tmp_path / "tb").iterdir()
    assert b"loss/total" in events.read_bytes()


def events_in(folder):
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_tensorboard_shows_settings_texts_and_videos(tmp_path):
    Image.new("RGB", (6, 4)).save(tmp_path / "a.gif")
    settings = {"train.seed": 3, "env.id": "X-v0", "algo.layers": [1, 2]}
    board = TensorBoardLogger(tmp_path / "tb", None, texts={"provenance": {"commit": "abc"}}, settings=settings)
    board.log({"eval/return_mean": 1.0, "loss/total": 0.5}, 1)
    board.log_video(tmp_path / "a.gif", 5)
    board.log_video(tmp_path / "a.mp4", 6)
    board.log({"eval/return_mean": 2.0}, 9)
    board.close()
    events = events_in(tmp_path / "tb")
    (text,) = events.Tensors("provenance/text_summary")
    assert b'"commit": "abc"' in text.tensor_proto.string_val[0]
    (video,) = events.Images("video/a")
    assert (video.step, video.width, video.height) == (5, 6, 4)
    assert video.encoded_image_string == (tmp_path / "a.gif").read_bytes()
    (last,) = events_in(tmp_path / "tb/settings").Scalars("last/eval/return_mean")
    assert last.value == 2.0
    (file,) = (tmp_path / "tb/settings").iterdir()
    assert b"algo.layers" in file.read_bytes()


def test_what_was_set_to_nothing_is_among_the_settings():
    saved = config_factory("bc", {"algo": {"optimizer": {"grad_clip": None}}, "train": {"batch_size": 7}}).to_json()
    assert changed_settings(saved).items() >= {"algo.optimizer.grad_clip": None, "train.batch_size": 7}.items()
    assert "train.window_steps" not in changed_settings(saved)


def test_a_logger_that_fails_with_a_video_ends_nothing(tmp_path, caplog):
    class Failing:
        def log_video(self, file, step):
            raise ConnectionError("no route")

    taken = []
    taking = SimpleNamespace(log_video=lambda file, step: taken.append((file, step)))
    log_video([Failing(), object(), taking], tmp_path / "a.gif", 3)
    assert taken == [(tmp_path / "a.gif", 3)]
    assert "a.gif was not logged by Failing: ConnectionError: no route" in caplog.text


def test_robomimics_names():
    ours = {
        "loss/total": 1.0, "loss/nll": 2.0, "valid/total": 3.0, "eval/return_mean": 4.0, "eval/success_mean": 0.5,
        "eval/Lift/length_mean": 7.0, "eval/return_mean_low": 3.5, "system/memory_gb": 0.25, "q/mean_0.9": 1.0,
    }  # fmt: skip
    assert robomimic_names(ours, "Can") == {
        "Train/Loss": 1.0, "Train/Log_Likelihood": -2.0, "Valid/Loss": 3.0, "Rollout/Return/Can": 4.0,
        "Rollout/Success_Rate/Can": 0.5, "Rollout/Horizon/Lift": 7.0, "System/RAM Usage (MB)": 250.0,
    }  # fmt: skip


def test_a_run_tells_where_it_ran(tmp_path):
    """A run logs its settings, its commit and what it used of the machine; robomimic's names go to TensorBoard only."""
    config = offline(tmp_path, experiment={"logging": {"every_n_steps": 2, "robomimic_names": True}})
    path = run(config).path
    (facts,) = json.loads((path / "provenance.json").read_text())
    assert {"seqrl", "python", "torch", "host", "command"} <= facts.keys()
    events = events_in(path / "tb")
    assert b'"algo_name": "bc"' in events.Tensors("config/text_summary")[0].tensor_proto.string_val[0]
    rows = read_metrics(path / "metrics.jsonl")
    assert {"Train/Loss", "system/memory_gb"} <= set(events.Tags()["scalars"])
    used = [row for row in rows if "system/memory_gb" in row]
    assert all(0.05 < row["system/memory_gb"] < 100 and 0 < row["system/cpus_used"] < 100 for row in used)
    assert used
    (path / "provenance.json").write_text(json.dumps([facts | {"cpus": float("nan")}]))
    run(offline(tmp_path, experiment={"logging": {"every_n_steps": 2}}), resume=True)
    first, _ = json.loads((path / "provenance.json").read_text())
    assert first == facts | {"cpus": "nan"}  # what a run cannot have written is kept as text
    assert not any(key.startswith(("Train/", "Rollout/")) for row in rows for key in row)


@pytest.mark.parametrize("is_evaluated", [True, False])
def test_an_evaluation_that_comes_again_is_cut_off(file, is_evaluated):
    """A run goes on before the evaluation of its last epoch, which was logged before it was killed."""
    first = JsonlLogger(file, None)
    for values in ({"eval/x": 1.0}, {"loss/total": 2.0}, {"time/learn_share": 3.0}, {"eval/x": 4.0}):
        epoch = float("time/learn_share" in values or values.get("eval/x") == 4.0)
        first.log({**values, "progress/epoch": epoch}, 0)
    first.close()
    JsonlLogger(file, 0, 1, is_evaluated=is_evaluated).close()
    assert [r.get("eval/x") for r in read_metrics(file)] == [1.0, None, None, 4.0][: 3 + is_evaluated]


def test_a_full_disk_ends_no_run(tmp_path, caplog):
    class Full:
        name = "metrics.jsonl"

        def write(self, text):
            raise OSError(28, "No space left on device")

        flush = close = lambda self: self.write("")

    file = JsonlLogger(tmp_path / "metrics.jsonl", None)
    file._file.close()
    file._file = Full()
    for step in range(3):
        file.log({"a": 1.0}, step)
    file.close()
    assert [r.message for r in caplog.records] == [
        "metrics.jsonl cannot be written, so lines of it are missing: [Errno 28] No space left on device"
    ]
    board = TensorBoardLogger(tmp_path / "tb", None)
    events = board._writer.file_writer.event_writer
    events._worker.stop()
    for step in range(50):  # more than the writer's queue holds
        board.log({"a": 1.0}, step)
    board.close()
    assert sum("is the disk full" in r.message for r in caplog.records) == 1
