"""A run's folder is never overwritten by accident, nor resumed with another config."""

import json
import re
import threading
from pathlib import Path

import pytest

from seqrl.configs import config_factory
from seqrl.configs.differences import differences
from seqrl.core.checkpoint_card import find_checkpoint
from seqrl.core.errors import CheckpointError, ConfigError, SeqrlError
from seqrl.reports.runs import find_runs
from seqrl.training.run_folder import (
    RunFolder,
    changes_since,
    default_name,
    join_run,
    last_checkpoint,
    whole_folder,
)
from seqrl.training.setup import run_path


def _config(**values):
    return config_factory("bc", {"train": {"num_epochs": 3}, **values})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "mine"


def _started(path, config=None, last=True):
    folder = RunFolder(path, config or _config())
    folder.settle()
    if last:
        folder.checkpoint(1).mkdir()
        folder.point("last", folder.checkpoint(1))
    return folder


def test_a_new_folder_holds_the_resolved_config(path):
    folder = RunFolder(path, _config())
    assert json.loads((path / "config.json").read_text()) == _config().to_json()
    assert folder.checkpoints.is_dir()
    assert folder.metrics == path / "metrics.jsonl"


def test_an_empty_folder_is_as_good_as_none(path):
    path.mkdir(parents=True)
    RunFolder(path, _config())
    assert (path / "config.json").is_file()


def test_an_existing_run_is_refused_and_left_alone(path):
    _started(path)
    before = sorted(p.relative_to(path) for p in path.rglob("*"))
    other = _config(train={"seed": 5})
    with pytest.raises(ConfigError, match=r"exists.*--resume.*--overwrite.*--name") as caught:
        RunFolder(path, other)
    assert str(path) in str(caught.value)
    assert sorted(p.relative_to(path) for p in path.rglob("*")) == before
    assert json.loads((path / "config.json").read_text())["train"]["seed"] == 0


def test_overwrite_replaces_a_run(path):
    _started(path)
    (path / "metrics.jsonl").write_text("{}\n")
    RunFolder(path, _config(train={"seed": 5}), overwrite=True)
    assert not (path / "metrics.jsonl").exists()
    assert list((path / "checkpoints").iterdir()) == []
    assert json.loads((path / "config.json").read_text())["train"]["seed"] == 5


def test_a_run_that_cannot_start_leaves_the_folder_as_it_was(path):
    _started(path).release()
    (path / "metrics.jsonl").write_text("{}\n")
    before = sorted(p.relative_to(path) for p in path.rglob("*"))
    folder = RunFolder(path, _config(train={"seed": 5}), overwrite=True)
    assert not (path / "metrics.jsonl").exists()
    folder.release()
    assert sorted(p.relative_to(path) for p in path.rglob("*")) == before
    assert [p.name for p in path.parent.iterdir()] == ["mine"]
    new = RunFolder(path.with_name("new"), _config())
    new.release()
    new.release()
    assert not new.path.exists()


def test_a_kill_while_a_run_is_replaced_leaves_its_name_free(path, monkeypatch):
    _started(path).release()
    (path / "metrics.jsonl").write_text("{}\n")
    folder = RunFolder(path, _config(train={"seed": 5}), overwrite=True)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        folder.settle()
    monkeypatch.undo()
    (left,) = path.parent.glob(".mine.*")
    (path / "metrics.jsonl").write_text("{}\n")
    assert find_runs(path.parent) == [path]  # reports do not count it
    folder.release()
    assert json.loads((path / "config.json").read_text())["train"]["seed"] == 5
    RunFolder(path, _config(), overwrite=True).settle()
    assert not left.exists()
    assert json.loads((path / "config.json").read_text())["train"]["seed"] == 0


def test_a_folder_of_the_users_stays_when_a_run_cannot_start_in_it(path):
    path.mkdir(parents=True)
    RunFolder(path, _config()).release()
    assert path.is_dir()


@pytest.mark.parametrize("content", [None, '{"model_type": "llama"}', "not json", "[]"])
def test_overwrite_spares_a_folder_that_is_no_run(path, content):
    """Also one that holds the ``config.json`` of something else."""
    path.mkdir(parents=True)
    (path / "thesis.tex").write_text("years of work")
    if content is not None:
        (path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match="not the folder of a run"):
        RunFolder(path, _config(), overwrite=True)
    assert (path / "thesis.tex").read_text() == "years of work"


def test_a_file_in_the_way_is_an_error_with_a_message(path):
    path.parent.mkdir(parents=True)
    path.write_text("a file")
    with pytest.raises(SeqrlError, match=re.escape(str(path))):
        RunFolder(path, _config())
    assert path.read_text() == "a file"


# --------------------------------------------------------------------------------------------- resuming
def test_resume_with_the_same_config_keeps_everything(path):
    _started(path)
    (path / "metrics.jsonl").write_text('{"step": 1}\n')
    folder = RunFolder(path, _config(), resume=True)
    assert (path / "metrics.jsonl").read_text() == '{"step": 1}\n'
    assert (folder.checkpoints / "last").read_text().strip() == "epoch_000001"


def test_nothing_to_resume(path):
    with pytest.raises(ConfigError, match=r"nothing to resume.*does not exist"):
        RunFolder(path, _config(), resume=True)
    assert not path.exists()
    path.mkdir(parents=True)
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"nothing to resume.*not the folder of a run"):
        RunFolder(path, _config(), resume=True)
    assert [p.name for p in path.iterdir()] == ["thesis.tex"]


def test_resuming_what_had_saved_nothing_begins_it_with_any_config(path, caplog):
    _started(path, last=False).release()
    RunFolder(path, _config(train={"seed": 5}), resume=True).settle()
    assert "nothing was saved yet" in caplog.text
    assert json.loads((path / "config.json").read_text())["train"]["seed"] == 5


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("left", [[], ["checkpoints/"], ["checkpoints/", "lock", ".config.json.0123abcd.tmp"]])
def test_what_a_run_leaves_that_was_killed_at_once_is_as_good_as_nothing(path, left, resume):
    path.mkdir(parents=True)
    for name in left:
        (path / name).mkdir() if name.endswith("/") else (path / name).write_text('{"half":')
    RunFolder(path, _config(), resume=resume)
    assert sorted(p.name for p in path.iterdir()) == ["checkpoints", "config.json", "lock"]


def test_a_first_checkpoint_that_nothing_names_yet_is_the_last(path):
    folder = _started(path, last=False)
    folder.release()
    for epoch in (1, 2):
        folder.checkpoint(epoch).mkdir()
        (folder.checkpoint(epoch) / "card.json").write_text("{}")
    folder.checkpoint(3).mkdir()  # not of this library's making: without a card
    assert last_checkpoint(path) == folder.checkpoint(2)
    RunFolder(path, _config(), resume=True)
    assert (folder.checkpoints / "last").read_text().strip() == "epoch_000002"


def test_what_killed_writers_have_left_is_cleared_away(path):
    folder = _started(path)
    folder.release()
    (path / ".metrics.jsonl.0123abcd.tmp").write_text("{")
    (folder.checkpoints / ".epoch_000001.0123abcd.old").mkdir()
    (folder.checkpoints / ".last.0123abcd.tmp").write_text("epo")
    (path / ".notes").write_text("mine")
    (path / "videos").mkdir()
    (path / "videos" / ".epoch_000002.0123abcd.tmp.mp4").write_text("half")
    RunFolder(path, _config(), resume=True)
    assert sorted(p.name for p in folder.checkpoints.iterdir()) == ["epoch_000001", "last"]
    assert {p.name for p in path.iterdir() if p.name.startswith(".")} == {".notes"}
    assert list((path / "videos").iterdir()) == []


def test_a_checkpoint_that_was_being_replaced_is_brought_back(path):
    """A kill came between the two renames."""
    folder = _started(path)
    folder.release()
    last = folder.last
    last.rename(last.with_name(f".{last.name}.0123abcd.old"))
    (folder.checkpoints / f".{last.name}.89abcdef.tmp").mkdir()
    RunFolder(path, _config(), resume=True)
    assert sorted(p.name for p in folder.checkpoints.iterdir()) == [last.name, "last"]


def test_data_may_have_moved(path):
    _started(path, _config(train={"data": [{"path": "here.hdf5"}]}))
    saved = json.loads((path / "config.json").read_text())
    assert changes_since(saved, _config(train={"data": [{"path": "there.hdf5"}]})) == []
    (line,) = changes_since(saved, _config(train={"data": [{"path": "there.hdf5", "weight": 2.0}]}))
    assert line.startswith("  train.data  was")


def test_resume_with_another_config_lists_every_difference(path):
    _started(path)
    other = _config(train={"num_epochs": 3, "seed": 9, "batch_size": 5}, algo={"optimizer": {"learning_rate": 0.5}})
    with pytest.raises(ConfigError, match="with another config") as caught:
        RunFolder(path, other, resume=True)
    *lines, hint = str(caught.value).splitlines()[1:]
    assert hint == f"For another setting with the same networks, begin a new run with --set train.init_from={path}"
    assert [line.split() for line in lines] == [
        ["algo.optimizer.learning_rate", "was", "0.0001,", "now", "0.5"],
        ["train.batch_size", "was", "24,", "now", "5"],
        ["train.seed", "was", "0,", "now", "9"],
    ]
    assert json.loads((path / "config.json").read_text()) == _config().to_json()


def test_resume_with_another_algorithm_says_just_that(path):
    _started(path)
    with pytest.raises(ConfigError, match="it is a run of bc, not of iql"):
        RunFolder(path, config_factory("iql", {}), resume=True)


def test_resume_may_be_longer_and_logged_otherwise(path):
    _started(path)
    longer = _config(
        train={"num_epochs": 30, "prefetch_batches": 0},
        experiment={"logging": {"every_n_steps": 1}, "save": {"every_n_epochs": 2}},
        plugins=["mine.py"],
        algo={"optimizer": {"rates": {"trunk": 0.1}}},
    )
    folder, before = RunFolder(path, longer, resume=True), (path / "config.json").read_bytes()
    folder.release()  # it could not start
    assert (path / "config.json").read_bytes() == before
    RunFolder(path, longer, resume=True).settle()
    assert json.loads((path / "config.json").read_text())["train"]["num_epochs"] == 30


def test_resume_with_an_unreadable_config(path):
    _started(path)
    (path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json: not readable"):
        RunFolder(path, _config(), resume=True)


def test_differences_are_dotted_and_complete():
    old = {"a": {"b": 1, "c": [1, 2]}, "d": None, "same": {"x": 1.5}}
    new = {"a": {"b": 2, "c": [1, 3], "e": "new"}, "d": {"f": 0}, "same": {"x": 1.5}}
    assert differences(old, new) == [
        ("a.b", 1, 2),
        ("a.c", [1, 2], [1, 3]),
        ("a.e", None, "new"),
        ("d", None, {"f": 0}),
    ]
    assert differences(old, old) == []


# ------------------------------------------------------------------------------------------ checkpoints
def _with_checkpoints(path, epochs, pointers):
    folder = RunFolder(path, _config())
    for epoch in epochs:
        folder.checkpoint(epoch).mkdir()
        (folder.checkpoint(epoch) / "card.json").write_text("{}")
    for name, epoch in pointers.items():
        folder.point(name, folder.checkpoint(epoch))
    return folder


def _epochs(folder):
    return sorted(int(p.name[6:]) for p in folder.checkpoints.iterdir() if p.is_dir())


def test_unused_checkpoints_are_removed_and_named_ones_kept(path):
    folder = _with_checkpoints(
        path, range(1, 9), {"last": 8, "best_success": 3, "best_return": 3, "best_valid_loss": 6}
    )
    folder.remove_unused(lambda _: False)
    assert _epochs(folder) == [3, 6, 8]


def test_periodic_checkpoints_are_kept(path):
    folder = _with_checkpoints(path, range(1, 13), {"last": 11, "best_success": 5})
    folder.remove_unused(lambda epoch: epoch % 4 == 0)
    assert _epochs(folder) == [4, 5, 8, 11, 12]


def test_what_a_pointer_left_is_removed_next_time(path):
    folder = _with_checkpoints(path, [1, 2], {"last": 1})
    folder.remove_unused(lambda _: False)
    assert _epochs(folder) == [1]
    folder.checkpoint(2).mkdir()
    folder.point("last", folder.checkpoint(2))
    folder.remove_unused(lambda _: False)
    assert _epochs(folder) == [2]


def test_other_things_among_the_checkpoints_do_no_harm(path):
    folder = _with_checkpoints(path, [1, 2], {"last": 2})
    (folder.checkpoints / "epoch_000002_backup").mkdir()
    (folder.checkpoints / ".DS_Store").write_bytes(b"\x00\xff\xfe\x80")
    (folder.checkpoints / "notes").mkdir()
    folder.remove_unused(lambda _: False)
    assert sorted(p.name for p in folder.checkpoints.iterdir() if p.is_dir()) == [
        "epoch_000002",
        "epoch_000002_backup",
        "notes",
    ]


def test_checkpoints_of_interrupted_epochs_stay_as_long_as_they_are_named(path):
    folder = _with_checkpoints(path, [3], {})
    paths = [folder.unfinished(3, step, is_evaluated=ended) for step, ended in ((20, True), (0, False), (0, True))]
    assert [p.name for p in paths] == ["epoch_000003_step_000020", "epoch_000003_unevaluated", "epoch_000003"]
    for unfinished in paths[:2]:
        unfinished.mkdir()
    folder.point("last", paths[0])
    folder.remove_unused(lambda _: True)
    assert sorted(p.name for p in folder.checkpoints.iterdir() if p.is_dir()) == [paths[2].name, paths[0].name]
    assert folder.last == paths[0]


def test_checkpoint_names_sort_by_epoch(path):
    folder = RunFolder(path, _config())
    names = [folder.checkpoint(e).name for e in (2, 10, 100)]
    assert names == sorted(names) == ["epoch_000002", "epoch_000010", "epoch_000100"]


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("seqrl/TMazePassive-v0", "bc_transformer_TMazePassive-v0_seed4"),
        ("my.module:pkg/Env-v1", "bc_transformer_Env-v1_seed4"),
        (None, "bc_transformer_seed4"),
        ("a b&c/../d e", "bc_transformer_d-e_seed4"),
    ],
)
def test_default_name_is_one_folder(task, name):
    assert default_name(_config(train={"seed": 4}), task) == name


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a\0b", b"../other", b"x" * 300, b"a/b"])
def test_a_damaged_mark_of_the_last_checkpoint_is_an_error_that_names_those_that_are_there(path, content):
    folder = _started(path)
    (folder.checkpoint(1) / "card.json").write_text("{}")
    (folder.checkpoints / "last").write_bytes(content)
    folder.release()
    with pytest.raises(CheckpointError, match=r"checkpoints/last .*(there are: epoch_000001|not a checkpoint pointer)"):
        RunFolder(path, _config(), resume=True)
    assert (folder.checkpoints / "last").read_bytes() == content
    RunFolder(path, _config(), overwrite=True)


def test_a_folder_in_the_place_of_a_mark_is_an_error(path):
    folder = _started(path)
    (folder.checkpoints / "best_success").mkdir()
    with pytest.raises(CheckpointError, match="best_success should be a file"):
        folder.point("best_success", folder.checkpoint(1))
    (folder.checkpoints / "last").unlink()
    (folder.checkpoints / "last").mkdir()
    folder.release()
    with pytest.raises(CheckpointError, match="last is not a checkpoint pointer"):
        RunFolder(path, _config(), resume=True)


def test_a_run_without_a_last_checkpoint_names_those_that_it_has(path):
    folder = _started(path)
    (folder.checkpoints / "last").unlink()
    held = ", ".join(sorted(p.name for p in folder.checkpoints.iterdir()))
    with pytest.raises(CheckpointError, match=f"checkpoints has no 'last' checkpoint; it holds: {held}"):
        find_checkpoint(path)


def test_a_folder_in_the_place_of_another_file_is_an_error(path):
    path.mkdir(parents=True)
    (path / "checkpoints").write_text("a file")
    with pytest.raises(ConfigError, match="checkpoints is in the way"), whole_folder():
        RunFolder(path, _config())


def test_a_disk_that_may_not_be_written_to_is_an_error():
    with pytest.raises(ConfigError, match=r"output_dir: /proc/nothing/run/.* cannot be made"):
        RunFolder(Path("/proc/nothing/run"), _config())


@pytest.mark.parametrize("content", [b"[1]", b"\xff", b"[" * 10**5, b"{"])
def test_a_damaged_config_of_the_run_is_an_error(path, content):
    _started(path).release()
    (path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json: (not readable|must be a JSON object)"):
        RunFolder(path, _config(), resume=True)


@pytest.mark.parametrize(("name", "size"), [("n" * 250, 250), ("é" * 125, 250)])
def test_a_name_that_no_system_takes_is_an_error(name, size):
    with pytest.raises(ConfigError, match=f"experiment.name: .* has {size} bytes, more than 240"):
        run_path(_config(experiment={"name": name}), None)
    with pytest.raises(ConfigError, match=r"experiment\.output_dir: a path has no NUL"):
        run_path(_config(experiment={"name": "n", "output_dir": "a\0b"}), None)


def test_of_two_that_begin_in_the_same_instant_one_is_told(path, monkeypatch):
    def is_held(_):
        raise BlockingIOError("held")

    monkeypatch.setattr("seqrl.training.run_folder.FileLock", is_held)
    with pytest.raises(ConfigError, match="another process is running"):
        RunFolder(path, _config())


def test_a_file_in_the_place_of_the_folder_of_runs_is_named(tmp_path):
    (tmp_path / "text").write_text("")
    config = _config(experiment={"output_dir": str(tmp_path / "text" / "runs")})
    with pytest.raises(ConfigError, match=r"experiment\.output_dir: .*text is a file; choose another folder"):
        run_path(config, "x")


def test_a_collector_waits_until_the_learner_that_goes_on_has_written_its_config(path):
    _started(path).release()
    (path / "published").mkdir()
    (path / "published/weights.safetensors").touch()
    other = _config(algo={"optimizer": {"rates": {"trunk": 0.1}}})
    learner = RunFolder(path, other, resume=True)
    with pytest.raises(ConfigError, match="with another policy"):
        join_run(path, other, timeout_s=0.3)
    threading.Timer(0.3, learner.settle).start()
    assert join_run(path, other, timeout_s=20.0).path == path
