"""Runs on a small disk that gets full: nothing is torn, and with room again nothing is missing."""

import contextlib
import os
import subprocess

import pytest

import seqrl
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.core.errors import CheckpointError
from tests.regression.test_interrupt import offline, result, run, whole  # noqa: F401  (a fixture)

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB; only root can have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Fill(seqrl.Callback):
    """Leaves so many bytes after an epoch, and frees the disk after another."""

    def __init__(self, left, begin=1, end=99):
        self.left, self.begin, self.end = left, begin, end

    def on_epoch_end(self, experiment, metrics):
        disk = experiment.folder.path.parent
        if experiment.progress.epoch == self.begin + 1:
            with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1024))
            os.truncate(disk / "filler", os.path.getsize(disk / "filler") - self.left)
        elif experiment.progress.epoch == self.end + 1:
            (disk / "filler").unlink()


@pytest.mark.parametrize("left", [150_000, 20_000], ids=["some", "little"])
def test_a_run_survives_a_full_disk(left, whole, small_disk, caplog):  # noqa: F811
    run(offline(small_disk), callbacks=[Fill(left, end=2)])
    assert caplog.text.count("epoch_000002 cannot be written: No space left on device") == 1
    assert result(small_disk) == whole


@pytest.mark.parametrize("predicts", [True, False])
def test_a_run_whose_end_cannot_be_saved_fails_and_can_go_on(predicts, whole, small_disk, monkeypatch):  # noqa: F811
    if not predicts:  # as where another process fills the disk in the meantime
        monkeypatch.setattr("seqrl.algo.checkpoint.require_space", lambda *_: None)
    with pytest.raises(CheckpointError, match=r"epoch_000003 cannot be written.* MB.*epoch_000001 with --resume"):
        run(offline(small_disk), callbacks=[Fill(10_000)])
    assert read_checkpoint(small_disk / "run").path.name == "epoch_000001"
    assert not list((small_disk / "run/checkpoints").glob(".*"))
    (small_disk / "filler").unlink()
    run(offline(small_disk), resume=True)
    assert result(small_disk) == whole
