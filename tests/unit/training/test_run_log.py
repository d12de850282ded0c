"""``log.txt`` holds what a run says, with the time; its warnings are said once more at the end."""

import logging
import re
import subprocess
import sys
import warnings

import pytest

import seqrl
from seqrl.core.errors import ConfigError
from seqrl.scripts import train
from seqrl.training.run_log import RunLog
from tests.regression.test_interrupt import offline

logger = logging.getLogger("seqrl.test")
STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ")


@pytest.fixture
def log():
    log = RunLog()
    log.begin()
    yield log
    log.close()


def lines(file):
    read = file.read_text().splitlines()
    assert all(STAMP.match(line) for line in read)
    return [STAMP.sub("", line) for line in read]


def test_messages_are_kept_until_there_is_a_file(log, tmp_path):
    logger.warning("early %d", 1)
    log.open(tmp_path / "log.txt")
    logger.error("late\nin two lines")
    log.write("\x1b[33mcoloured\x1b[0m")
    assert lines(tmp_path / "log.txt") == ["warning: early 1", "error: late", "in two lines", "coloured"]
    log.close()
    logger.warning("after")
    assert len(lines(tmp_path / "log.txt")) == 4


def test_the_file_is_appended_to(tmp_path):
    for number in (1, 2):
        log = RunLog()
        log.begin()
        log.open(tmp_path / "log.txt")
        logger.warning("part %d", number)
        log.close()
    assert lines(tmp_path / "log.txt") == ["warning: part 1", "warning: part 2"]


def test_a_warning_that_may_recur_is_said_once_in_each_part_of_a_run(tmp_path):
    log = RunLog(["no video"])  # of an earlier part
    log.begin()
    log.open(tmp_path / "log.txt")
    log.warn_once("no video")
    log.warn_once("no video")
    log.close()
    assert lines(tmp_path / "log.txt") == ["warning: no video"]


def test_warnings_of_python_are_shown_and_written(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(warnings, "showwarning", before := lambda message, *_: shown.append(str(message)))
    log = RunLog()
    log.begin()
    log.open(tmp_path / "log.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("careful", stacklevel=1)
        warnings.simplefilter("ignore")
        warnings.warn("not shown", stacklevel=1)
    (line,) = lines(tmp_path / "log.txt")
    assert line.startswith("warning: UserWarning: careful (")
    assert shown == ["careful"]
    log.close()
    assert warnings.showwarning is before


def test_a_run_writes_what_it_says(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plugin = tmp_path / "plugin.py"
    plugin.write_text("import warnings\nwarnings.warn('of the plug-in', stacklevel=1)\n")
    settings = ["algo.sequence_encoder.type=gru", "env.kwargs.corridor_length=3", "train.data.0.episodes=8",
                "collect.start_epoch=9", "experiment.report.enabled=false"]  # fmt: skip
    arguments = ["--config", "bc.json", "--debug", *(a for s in settings for a in ("--set", s)), "--name", "r"]
    log = seqrl.Experiment.log
    odd = "something\x1b[0m odd"
    monkeypatch.setattr(seqrl.Experiment, "log", lambda self, *given: (self.warn(odd), log(self, *given)))
    assert train.main([*arguments, "--plugin", str(plugin)]) == 0
    said, err = lines(tmp_path / "runs/r/log.txt"), capsys.readouterr().err
    assert said[0].startswith("note: ")
    assert any("drops algo.sequence_encoder" in line for line in said)
    assert "seqrl bc" in said
    assert "warning: something odd" in said
    assert any(line.startswith("epoch   2  success") for line in said)
    end = said[said.index("warning: the warnings of this run:") :]
    assert end.count("  something odd") == 1
    assert err.rstrip().endswith("something\x1b[0m odd")
    num_lines = len(said)
    monkeypatch.setattr(seqrl.Experiment, "log", lambda self, *given: (self.warn("later"), log(self, *given)))
    longer = ["--set", "train.num_epochs=3", "--set", "experiment.report.enabled=true"]
    assert train.main([*arguments, "--resume", *longer]) == 0
    assert lines(tmp_path / "runs/r/log.txt")[:num_lines] == said
    page = (tmp_path / "runs/r/report.html").read_text()
    assert page.count("<li>something\x1b[0m odd</li>") == page.count("<li>later</li>") == 1


def test_errors_are_written_and_nothing_goes_on_listening(tmp_path):
    before = logging.getLogger("seqrl").handlers[:]
    config = offline(tmp_path)
    made = seqrl.Experiment(config)
    made.start()
    made.evaluate_val = lambda: (_ for _ in ()).throw(ConfigError("the user's mistake"))
    with pytest.raises(ConfigError):
        made.learn()
    assert lines(tmp_path / "run/log.txt")[-1] == "error: the user's mistake"
    with pytest.raises(ConfigError, match="exists"):
        seqrl.Experiment(config).start()
    assert logging.getLogger("seqrl").handlers == before


def test_warnings_reach_a_console_that_nobody_has_set_up(tmp_path):
    """In a program without logging: Python shows warnings there itself, unless somebody listens."""
    program = (
        "import logging; from seqrl.training.run_log import RunLog\n"
        "logs = [RunLog(), RunLog()]\n"
        "for log in logs: log.begin()\n"
        "logging.getLogger('seqrl.x').warning('look out'); logging.getLogger('seqrl.x').info('fine')\n"
        "logging.basicConfig(format='mine %(message)s')\n"
        "logging.getLogger('seqrl.x').warning('again')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == "look out\nmine again\n"
