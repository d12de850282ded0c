"""Messages on a terminal."""

import contextlib
import errno
import io
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from seqrl.core.console import Console, wrapped

ROOT = Path(__file__).parents[3]
SUMMARY = "  memory    65.5 MB predicted: weights and optimiser 47.5 MB, activations 18 MB"


def test_long_lines_are_broken_between_words():
    assert wrapped("plan\n" + SUMMARY, 40).splitlines() == [
        "plan",
        "  memory    65.5 MB predicted: weights",
        "            and optimiser 47.5 MB,",
        "            activations 18 MB",
    ]
    line = "epoch   2  success 0.000 [0.000, 0.168]  20 episodes"
    assert wrapped(line, 45).splitlines() == ["epoch   2  success 0.000 [0.000, 0.168]  20", "    episodes"]
    assert wrapped(line, 60) == line
    coloured = f"\x1b[32m{line}\x1b[0m"
    assert wrapped(coloured, len(line)) == coloured, "colours take no place"
    assert wrapped("a" * 50, 20) == "a" * 50, "a path stays whole"


def test_a_terminal_that_was_closed_ends_nothing(monkeypatch):
    leader, follower = pty.openpty()
    terminal = io.TextIOWrapper(os.fdopen(follower, "wb", buffering=0), write_through=True)  # as stderr is
    monkeypatch.setattr(sys, "stderr", terminal)
    os.close(leader)
    Console().emit(logging.makeLogRecord({"msg": SUMMARY, "levelno": logging.INFO}))
    with contextlib.suppress(OSError):
        terminal.close()


def test_a_terminal_gets_lines_that_fit(monkeypatch):
    leader, follower = pty.openpty()
    terminal = os.fdopen(follower, "w")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((40, 24)))
    Console().emit(logging.makeLogRecord({"msg": SUMMARY, "levelno": logging.INFO}))
    terminal.flush()
    shown = os.read(leader, 1000).decode().split("\r\n")
    assert max(map(len, shown)) <= 40
    assert " ".join(" ".join(shown).split()) == " ".join(SUMMARY.split())
    terminal.close()
    os.close(leader)


def test_a_command_runs_with_its_standard_streams_closed(tmp_path):
    """The first file that it opens must not become its output."""
    code = "import logging, os; from seqrl.scripts._script import script; say = logging.getLogger('seqrl').warning; "
    code += "main = script(lambda argv: say('text') or os.open('f', os.O_RDWR | os.O_CREAT)); os._exit(main() >= 3)"
    line = f'exec {sys.executable} -c "{code}" <&- >&- 2>&-'
    done = subprocess.run(line, shell=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 1
    assert (tmp_path / "f").read_bytes() == b""


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_what_takes_no_messages_ends_nothing(monkeypatch, number):
    class Closed(io.StringIO):
        def write(self, text):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sys, "stderr", Closed())
    Console().emit(logging.makeLogRecord({"msg": SUMMARY, "levelno": logging.INFO}))


def test_a_command_whose_reader_has_gone_ends_as_shells_expect():
    code = "from seqrl.scripts._script import script; main = script(lambda argv: print('line ' * 100_000) or 0)"
    code += "; raise SystemExit(main([]))"
    command = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    )
    command.stdout.close()
    told = command.stderr.read()
    assert command.wait() == 141
    assert not told
