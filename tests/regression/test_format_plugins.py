"""Formats of plug-ins, through the command line: training, info, conversion, and the same numbers at the end."""

import json
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import seqrl
from seqrl.core.plugins import load_plugins
from seqrl.data import Store
from seqrl.data.readers import READERS
from seqrl.scripts import convert_dataset, get_dataset_info, train

EXAMPLES = Path(__file__).parents[2] / "examples"
LENGTHS = [4, 6, 3, 5]
RUN = [
    "--algo", "bc", "--debug", "--name", "r", "--set", "train.window_steps=4", "--set", "train.valid_fraction=0.25",
    "--set", "algo.sequence_encoder.type=feedforward", "--set", "experiment.report.enabled=false",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _separate(tmp_path, monkeypatch):
    """Work in a folder of its own, and forget the readers of plug-ins afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(READERS, "_entries", dict(READERS._entries))
    yield
    for name in [n for n in sys.modules if n.startswith("seqrl_plugin_")]:
        del sys.modules[name]


def episodes():
    rng = np.random.default_rng(0)
    for number, steps in enumerate(LENGTHS):
        last = np.arange(steps) == steps - 1
        yield {
            "obs": rng.random((steps + 1, 3)).astype(np.float32),
            "actions": rng.uniform(-1, 1, (steps, 2)).astype(np.float32),
            "rewards": rng.random(steps).astype(np.float32),
            "terminated": last & (number % 2 == 0),
            "truncated": last & (number % 2 == 1),
        }


def write_flat(path):
    names = {"actions": "actions", "rewards": "rewards", "ended": "terminated", "cut": "truncated"}
    data = list(episodes())
    with h5py.File(path, "w") as file:
        file["states"] = np.concatenate([*(e["obs"][:-1] for e in data), np.zeros((2, 3), np.float32)])
        for name, key in names.items():
            rest = np.zeros((2, *data[0][key].shape[1:]), data[0][key].dtype)  # an episode that never ended
            file[name] = np.concatenate([*(e[key] for e in data), rest])


def write_npz(path):
    path.mkdir()
    for number, episode in enumerate(episodes()):
        np.savez(path / f"{number}.npz", **episode)


FORMATS = {
    "flat": ("flat_hdf5_plugin.py", "maze.hdf5", write_flat),
    "npz_folder": ("npz_folder_plugin.py", "episodes", write_npz),
}


@pytest.fixture(params=FORMATS)
def made(request):
    """Write a dataset; return its format, its path and the plug-in's."""
    plugin, path, write = FORMATS[request.param]
    write(Path(path))
    return request.param, path, str(EXAMPLES / plugin)


def test_it_trains(made):
    name, path, plugin = made
    assert train.main([*RUN, "--plugin", plugin, "--dataset", path]) == 0
    rows = [json.loads(line) for line in Path("runs/r/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["valid/total"] > 0
    log = Path("runs/r/log.txt").read_text()
    assert f"reading {path} as {name} " in log
    assert ("maze.hdf5 is read as flat; --format (format) can choose robomimic instead" in log) == (name == "flat")
    assert seqrl.policy_from_checkpoint("runs/r/last")


def test_it_is_told_and_converted(made, capsys):
    name, path, plugin = made
    assert get_dataset_info.main(["--dataset", path, "--plugin", plugin, "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert (info["trajectories"], info["transitions"]) == (len(LENGTHS), sum(LENGTHS))
    assert info["true next observations"] is (name == "npz_folder")
    assert convert_dataset.main([path, "store", "--plugin", plugin, "--format", name]) == 0
    for got, expected in zip(Store(Path("store")).trajectories(), episodes(), strict=True):
        np.testing.assert_array_equal(got.obs["obs"][:-1], expected["obs"][:-1])
        is_last_known = name == "npz_folder"
        np.testing.assert_array_equal(got.obs["obs"][-1], expected["obs"][-1 if is_last_known else -2])
        for key in ("actions", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(got, key), expected[key])


def test_a_format_may_be_named_in_the_run_file_and_on_the_command_line(capsys):
    write_flat(Path("maze.hdf5"))
    plugin = ["--plugin", str(EXAMPLES / "flat_hdf5_plugin.py")]
    assert train.main([*RUN, *plugin, "--dataset", "maze.hdf5", "--format", "flat", "--print-config"]) == 0
    assert json.loads(capsys.readouterr().out)["train"]["data"][0]["format"] == "flat"
    assert train.main([*RUN, *plugin, "--dataset", "maze.hdf5", "--set", "train.data.0.format=robomimic"]) == 2
    assert "maze.hdf5: has no group 'data'" in capsys.readouterr().err
    assert train.main([*RUN, *plugin, "--dataset", "maze.hdf5", "--format", "flad"]) == 2
    assert (
        "unknown data format 'flad'; did you mean 'flat'? registered: amago, arrays, d4rl, flat, lerobot, minari, "
        in capsys.readouterr().err
    )
    assert train.main([*RUN, "--format", "flat"]) == 2
    assert "--format describes --dataset" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_without_the_plugin_the_error_says_what_was_tried(capsys):
    write_npz(Path("episodes"))
    assert train.main([*RUN, "--dataset", "episodes"]) == 2
    assert "say in columns what they are, or add a reader (--plugin)" in capsys.readouterr().err
    Path("words.txt").write_text("no data")
    assert train.main([*RUN, "--dataset", "words.txt"]) == 2
    err = capsys.readouterr().err
    assert "'words.txt' is neither a seqrl store nor in a format that can be read; tried: minari, d4rl, amago, " in err


@pytest.mark.parametrize("name", FORMATS)
def test_asking_never_raises(name, tmp_path):
    load_plugins([str(EXAMPLES / FORMATS[name][0])])
    FORMATS[name][2](tmp_path / "whole")
    write_flat(tmp_path / "hdf5")
    (tmp_path / "half").write_bytes((tmp_path / "hdf5").read_bytes()[:700])
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "nothing").mkdir()
    reader = READERS.get(name)()
    assert reader.can_read(tmp_path / "whole")
    assert not any(reader.can_read(tmp_path / other) for other in ("half", "empty", "nothing"))
