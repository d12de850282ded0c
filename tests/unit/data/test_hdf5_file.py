import os

import h5py
import numpy as np
import pytest

from seqrl.core.errors import DataError
from seqrl.data import hdf5_file
from seqrl.data.cache_folder import cache_folder
from seqrl.data.convert import convert
from seqrl.data.hdf5_file import foreign_file
from seqrl.data.ingest import open_store
from seqrl.scripts import get_dataset_info, validate_dataset


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(hdf5_file, "_KNOWN", {})
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "d.hdf5"
    with h5py.File(path, "w") as file:
        demo = file.create_group("data/demo_0")
        demo["obs/x"], demo["actions"] = np.zeros((4, 3), np.float32), np.zeros((4, 2), np.float32)
        file.create_dataset("texts", data=["a", "bc"] * 10, dtype=h5py.string_dtype())
        file.create_dataset("chunks", data=np.arange(40), chunks=(4,))
        file["data"].attrs["note"] = "text"
        file["self"], file["soft"] = file["/"], h5py.SoftLink("/data")
    return path


def length_of_a_text(data):
    """libhdf5 2.0 loops for ever where this is wrong."""
    return data.index(b"GCOL") + 24, 1 << 7


def kind_of_an_attribute(data):
    """libhdf5 2.0 crashes where this is wrong."""
    return data.index(b"note\0\0\0\0\x19") + 9, 1 << 1


@pytest.mark.parametrize(
    ("main", "place"),
    [
        (validate_dataset.main, length_of_a_text),
        (get_dataset_info.main, length_of_a_text),
        (validate_dataset.main, kind_of_an_attribute),
    ],
)
def test_one_flipped_bit_cannot_make_libhdf5_loop_or_crash(path, capfd, monkeypatch, main, place):
    monkeypatch.setattr(hdf5_file, "STALL_S", 1.0)
    good = path.read_bytes()
    data = bytearray(good)
    at, bit = place(data)
    data[at] ^= bit
    path.write_bytes(data)
    assert main([str(path)]) > 0
    assert "libhdf5 crashes on it, or makes no progress for 1 s" in "".join(capfd.readouterr())
    monkeypatch.setattr(hdf5_file, "_KNOWN", {})
    path.write_bytes(good)
    assert list(open_store(str(path)).names) == ["demo_0"]  # a new helper looks


def test_a_file_is_walked_over_once(path, monkeypatch):
    with h5py.File(path, "r+") as file:
        file["elsewhere"] = h5py.ExternalLink("x", "/")
    asked = []
    ask = hdf5_file._asked
    monkeypatch.setattr(hdf5_file, "_asked", lambda path: asked.append(path) or ask(path))
    for _ in range(2):
        with foreign_file(path) as file:
            assert set(file) == {"data", "texts", "chunks", "self", "soft", "elsewhere"}
    monkeypatch.setattr(hdf5_file, "_KNOWN", {})  # another process
    foreign_file(path).close()
    assert len(asked) == 1
    os.utime(path, (1, 1))
    foreign_file(path).close()
    assert len(asked) == 2
    assert len(list((cache_folder() / ".walked").iterdir())) == 2


@pytest.mark.parametrize("where", ["data", "data/demo_0/obs", "attribute"])
def test_a_name_that_is_no_text_is_an_error(path, where):
    with h5py.File(path, "r+") as file:
        if where == "attribute":
            h5py.h5a.create(file["data"].id, b"\xff\xfe", h5py.h5t.STD_I32LE, h5py.h5s.create(h5py.h5s.SCALAR))
        else:
            h5py.h5g.create(file[where].id, b"\xff\xfe")
    place = "/data" if where == "attribute" else f"/{where}"
    with pytest.raises(DataError, match=rf"d\.hdf5: the name b'\\xff\\xfe' in {place} is not text"):
        open_store(str(path))


def test_a_helper_that_cannot_start_is_an_error(path, monkeypatch):
    hdf5_file._stop_helper()
    monkeypatch.setattr("sys.executable", "/bin/true")
    with pytest.raises(DataError, match=r"d\.hdf5: the process that checks it first \(/bin/true\) does not start"):
        foreign_file(path)


def test_what_is_no_hdf5_file_is_told_by_the_readers(path):
    path.write_text("text")
    with pytest.raises(OSError, match="signature"):
        foreign_file(path)


def test_a_cache_that_cannot_be_used_only_costs_time(path, monkeypatch, tmp_path):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / ("x" * 300)))
    with foreign_file(path) as file:
        assert "data" in file


def test_what_a_site_prints_is_no_verdict(path, monkeypatch, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('hello')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    hdf5_file._stop_helper()
    with h5py.File(path, "r+") as file:
        file.create_group(b"\xff\xfe")
    with pytest.raises(DataError, match="is not text"):
        foreign_file(path)


def test_a_link_that_leads_nowhere_is_an_error_of_the_reader(path, tmp_path):
    with h5py.File(path, "r+") as file:
        del file["data"]
        file["data"] = h5py.SoftLink("/nowhere")
    with pytest.raises(DataError, match=r"d\.hdf5: not a readable robomimic HDF5 file"):
        convert(path, tmp_path / "store")
