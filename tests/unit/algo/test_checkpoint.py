"""A checkpoint gives back the same policy."""

import errno
import hashlib
import json
import re
import shutil
import sys

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from seqrl.algo.checkpoint import (
    algo_name_from_checkpoint,
    config_from_checkpoint,
    load_algo,
    policy_from_checkpoint,
    read_checkpoint,
    resolve_device,
    save_checkpoint,
)
from seqrl.algo.rollout_policy import RolloutPolicy
from seqrl.configs import config_factory
from seqrl.core.checkpoint_card import find_checkpoint, write_pointer
from seqrl.core.errors import CheckpointError, ConfigError, RegistryError
from tests.unit.algo.checkpoints import (
    ACTIONS,
    FILES,
    OBSERVATIONS,
    TINY_ENCODER,
    edit_card,
    fix_checksums,
    small_algo,
    small_config,
    training_state,
    use_everything,
)


# ------------------------------------------------------------------------------------------- round trip
@pytest.mark.parametrize("reads_past", [False, True])
@pytest.mark.parametrize("memory", ["transformer", "gru", "feedforward"])
def test_loaded_policy_acts_as_the_saved_one(tmp_path, memory, reads_past):
    sizes = {"gru": {"d_hidden": 8, "num_layers": 1, "d_output": 8}, "feedforward": {"d_model": 8, "d_ff": 16}}
    encoder = {"type": memory, **sizes.get(memory, {"d_model": 8, "num_heads": 2, "d_ff": 16, "num_layers": 1})}
    config = small_config(
        algo={"sequence_encoder": encoder, "actor": {"num_layers": 1, "d_hidden": 8}},
        observation={"use_prev_action": reads_past, "use_prev_reward": reads_past, "timestep_encoder": TINY_ENCODER},
    )
    algo = small_algo(config)
    with torch.no_grad():
        for parameter in algo.nets.parameters():
            if parameter.dim() == 2:
                parameter.add_(0.3 * torch.randn_like(parameter))
    save_checkpoint(tmp_path / "c", algo, OBSERVATIONS, ACTIONS)
    observations = np.random.default_rng(0).normal(size=(30, 5, 3)).astype(np.float32)
    for deterministic in (True, False):
        loaded, checkpoint = policy_from_checkpoint(tmp_path / "c", device="cpu", deterministic=deterministic)
        runs = [
            _actions(policy, observations)
            for policy in (
                RolloutPolicy(algo, OBSERVATIONS, ACTIONS, deterministic=deterministic),
                loaded,
                RolloutPolicy(small_algo(config, seed=5), OBSERVATIONS, ACTIONS, deterministic=deterministic),
            )
        ]
        assert checkpoint.card["algo_name"] == "bc"
        assert np.array_equal(runs[0], runs[1])
        assert not np.array_equal(runs[0], runs[2]), "other weights act otherwise"
    assert len(np.unique(runs[0])) == 4, "the sampled actions are of every kind"


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_policy_acts_as_it_was_evaluated_unless_told_otherwise(tmp_path, deterministic):
    config = small_config(experiment={"evaluation": {"deterministic": deterministic}})
    save_checkpoint(tmp_path / "c", small_algo(config), OBSERVATIONS, ACTIONS)
    observations = np.random.default_rng(0).normal(size=(30, 5, 3)).astype(np.float32)
    found = {
        told: _actions(policy_from_checkpoint(tmp_path / "c", device="cpu", deterministic=told)[0], observations)
        for told in (None, True, False)
    }
    assert np.array_equal(found[None], found[deterministic])
    assert not np.array_equal(found[True], found[False])


def _actions(policy, observations):
    """Return what a policy does over 5 rows, with the same noise for each policy."""
    torch.manual_seed(99)
    rewards = [None, *np.random.default_rng(1).normal(size=(len(observations) - 1, 5))]
    return np.stack([policy(o, reward=r, batched_ob=True) for o, r in zip(observations, rewards, strict=True)])


def test_weights_and_buffers_come_back_bit_for_bit(path):
    before = small_algo().serialize()
    algo, observation_space, action_space = load_algo(read_checkpoint(path), "cpu")
    after = algo.serialize()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert any("normalizer" in k for k in after)
    assert (observation_space, action_space) == (OBSERVATIONS, ACTIONS)
    assert not any(m.training for m in algo.nets.modules())


def test_saved_weights_are_a_copy():
    algo = small_algo()
    saved = algo.serialize()
    before = {k: v.clone() for k, v in saved.items()}
    with torch.no_grad():
        for parameter in algo.nets.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(saved[k], before[k]) for k in saved)


def test_training_state_comes_back(path):
    expected, got = training_state(), read_checkpoint(path).training_state()
    assert got.values == expected.values
    assert got.optimizer.keys() == expected.optimizer.keys()
    assert all(torch.equal(got.optimizer[k], v) for k, v in expected.optimizer.items())


def test_weights_only_cannot_be_resumed(tmp_path):
    save_checkpoint(tmp_path / "c", small_algo(), OBSERVATIONS, ACTIONS)
    with pytest.raises(CheckpointError, match="weights only"):
        read_checkpoint(tmp_path / "c").training_state()


def test_card_tells_what_it_is(path):
    card = read_checkpoint(path).card
    assert sorted(card["files"]) == sorted(FILES)
    assert card["files"] == {n: hashlib.sha256((path / n).read_bytes()).hexdigest() for n in FILES}
    assert (card["env"], card["metrics"], card["plugins"]) == ({"id": "x"}, {"a": 0.5}, [])
    assert card["versions"]["torch"] == torch.__version__
    name, checkpoint = algo_name_from_checkpoint(ckpt_path=path)
    assert name == "bc"
    config, _ = config_from_checkpoint(algo_name="bc", ckpt_dict=checkpoint)
    assert config.to_json() == small_config().to_json()
    with pytest.raises(CheckpointError, match="holds 'bc', not 'iql'"):
        config_from_checkpoint(path, algo_name="iql")
    with pytest.raises(CheckpointError, match="give a path"):
        config_from_checkpoint()
    policy, same = policy_from_checkpoint(ckpt_path=path, device=None, verbose=False)
    assert same.path == checkpoint.path
    assert RolloutPolicy(policy.algo).action_space == policy.action_space


def test_saving_again_replaces_all_of_it(path):
    (path / "stale").write_text("x")
    save_checkpoint(path, small_algo(seed=3), OBSERVATIONS, ACTIONS)
    kept = ["README.md", "card.json", "config.json", "model.safetensors", "spaces.json"]
    assert sorted(p.name for p in path.iterdir()) == kept
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_failed_save_leaves_the_old_one_and_no_rubbish(path, monkeypatch):
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    algo = small_algo(seed=3)
    monkeypatch.setattr(algo, "serialize", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_checkpoint(path, algo, OBSERVATIONS, ACTIONS)
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def _full(free=1000):
    """Stand for ``shutil.disk_usage`` of a disk on which so many bytes are free."""
    return lambda _: shutil._ntuple_diskusage(10**9, 10**9 - free, free)


def _too_much(*_):
    raise SafetensorError("I/O error: No space left on device (os error 28)")


def _no_inode(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("where", "fails"),
    [("shutil.disk_usage", _full()), ("seqrl.algo.checkpoint.save_file", _too_much),
     ("seqrl.algo.checkpoint.write_json", _no_inode), ("seqrl.algo.checkpoint.model_card", _no_inode)],
)  # fmt: skip
@pytest.mark.parametrize("is_first", [False, True])
def test_a_full_disk_is_an_error_that_says_what_is_needed(where, fails, is_first, path, monkeypatch):
    target = path.with_name("epoch_000004") if is_first else path
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    monkeypatch.setattr(where, fails)
    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(target, small_algo(seed=3), OBSERVATIONS, ACTIONS, training_state=training_state())
    text = r"cannot be written: .*No space left on device.* \([\d,]+\.\d MB are free there\); it takes 0\.2 MB"
    assert re.search(re.escape(str(target)) + " " + text, str(caught.value))
    assert {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()} == before


def test_a_pointer_on_a_full_disk_stays(path, monkeypatch):
    pointer = path.parent / "last"
    write_pointer(pointer, path.name)
    monkeypatch.setattr("seqrl.core.files.os.fsync", _no_inode)
    with pytest.raises(CheckpointError, match="last cannot be written: No space left on device"):
        write_pointer(pointer, "epoch_000004")
    assert find_checkpoint(pointer) == path


# --------------------------------------------------------------------------------------------- pointers
def test_every_way_to_name_a_checkpoint(path):
    run = path.parent.parent
    write_pointer(path.parent / "last", path.name)
    write_pointer(path.parent / "best_success", path.name)
    for name in (path, path.parent / "last", run, run / "last", run / "best_success", str(run)):
        assert find_checkpoint(name).resolve() == path.resolve()


def test_pointer_is_followed_to_the_newest(path):
    newer = path.parent / "epoch_000004"
    shutil.copytree(path, newer)
    write_pointer(path.parent / "last", path.name)
    write_pointer(path.parent / "last", newer.name)
    assert find_checkpoint(path.parent.parent) == newer
    assert sorted(p.name for p in path.parent.iterdir()) == ["epoch_000003", "epoch_000004", "last"]


@pytest.mark.parametrize(
    "content",
    [
        b"../outside", b"{outside}", b"..", b".", b"./epoch_000003", b"epoch_000003/", b"epoch_000003/../../../outside",
        b"sub/epoch", b"", b"  \n", b"\xff\xfe\x00\x81", b"\x00", b"epoch_000003\x00", b"epoch_000009", b"x" * 100_000,
    ],
)  # fmt: skip
def test_pointer_that_does_not_name_a_checkpoint_beside_it(path, content):
    """Each place outside that it could lead to holds a good checkpoint."""
    run = path.parent.parent
    for outside in (run / "outside", run.parent / "outside"):
        shutil.copytree(path, outside)
    for name in ("card.json", *FILES):
        for place in (run, path.parent):  # what ".." and "." would be
            (place / name).parent.mkdir(exist_ok=True)
            shutil.copy(path / name, place / name)
    (path.parent / "last").write_bytes(content.replace(b"{outside}", str(run / "outside").encode()))
    with pytest.raises(CheckpointError, match=r"pointer|should hold the name"):
        find_checkpoint(path.parent / "last")


def test_path_that_leads_nowhere_shows_what_is_there(path):
    with pytest.raises(CheckpointError, match=r"does not exist; .* holds: epoch_000003"):
        find_checkpoint(path.parent / "epoch_000099")


def test_folder_that_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match=r"not a checkpoint.*card\.json"):
        find_checkpoint(tmp_path)


# --------------------------------------------------------------------------------------------- plug-ins
@pytest.fixture
def foreign(path, tmp_path, marker, monkeypatch):
    """A checkpoint of an algorithm from a plug-in, which lies ready to be imported."""
    plugin = tmp_path / "evil_plugin_of_tests.py"
    plugin.write_text(f"open({str(marker)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins = [str(plugin), "evil_plugin_of_tests"]
    config = json.loads((path / "config.json").read_text())
    config |= {"algo_name": "their_algo", "plugins": plugins}
    (path / "config.json").write_text(json.dumps(config))
    edit_card(path, algo_name="their_algo", plugins=plugins)
    fix_checksums(path)
    return path


def test_unknown_algorithm_names_its_plugins_and_imports_none(foreign, marker):
    with pytest.raises(CheckpointError, match="their_algo") as caught:
        policy_from_checkpoint(foreign, device="cpu")
    assert "evil_plugin_of_tests.py" in str(caught.value)
    assert "--plugin" in str(caught.value)
    assert "plugins=[" in str(caught.value)
    assert not marker.exists()
    assert "evil_plugin_of_tests" not in sys.modules


def test_plugin_is_imported_when_the_caller_names_it(foreign, marker, tmp_path):
    with pytest.raises(CheckpointError, match="their_algo"):
        config_from_checkpoint(foreign, plugins=[str(tmp_path / "evil_plugin_of_tests.py")])
    assert marker.exists()


def test_plugins_that_are_there_are_not_asked_for(foreign, tmp_path):
    plugins = [str(tmp_path / "evil_plugin_of_tests.py"), "evil_plugin_of_tests"]
    with pytest.raises(RegistryError, match="their_algo") as caught:
        policy_from_checkpoint(foreign, plugins=plugins)
    assert "--plugin" not in str(caught.value)
    del sys.modules["evil_plugin_of_tests"]


def test_plugins_of_a_known_algorithm_are_not_imported_either(path, marker, tmp_path, monkeypatch):
    (tmp_path / "evil_plugin_of_tests.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = json.loads((path / "config.json").read_text())
    config["plugins"] = ["evil_plugin_of_tests", str(tmp_path / "evil_plugin_of_tests.py")]
    config["env"]["id"] = "evil_plugin_of_tests:Maze-v0"
    (path / "config.json").write_text(json.dumps(config))
    edit_card(path, plugins=config["plugins"], env={"id": "evil_plugin_of_tests:Maze-v0"})
    fix_checksums(path)
    use_everything(path)
    assert not marker.exists()


def test_what_a_run_of_its_config_would_import_has_to_be_given(path, marker, tmp_path, monkeypatch, caplog):
    plugin = tmp_path / "evil_plugin_of_tests.py"
    plugin.write_text(f"open({str(marker)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = json.loads((path / "config.json").read_text())
    named = "evil_plugin_of_tests:Maze-v0"
    config |= {"plugins": [str(plugin), "evil_plugin_of_tests"]}
    config["env"] |= {"id": named, "kwargs": {"size": 3}, "tasks": [{"id": named}]}
    config["train"]["data"] = [{"path": "mine.hdf5"}, {"scripted": named}]
    (path / "config.json").write_text(json.dumps(config))
    fix_checksums(path)
    safe, _ = config_from_checkpoint(path)
    assert not marker.exists()
    assert (safe.plugins, safe.env.id, safe.env.kwargs, safe.env.tasks) == ([], None, {}, [])
    assert [source.path for source in safe.train.data] == ["mine.hdf5"]
    assert all(text in caplog.text for text in (str(plugin), named, "plugins=["))
    caplog.clear()
    trusted, _ = config_from_checkpoint(path, plugins=config["plugins"])
    assert marker.exists()
    assert trusted.to_json() == config_factory("bc", {k: v for k, v in config.items() if k != "algo_name"}).to_json()
    assert not caplog.text
    del sys.modules["evil_plugin_of_tests"]


def test_unknown_algorithm_without_plugins_names_the_nearest(path):
    config = json.loads((path / "config.json").read_text())
    config["algo_name"] = "bcc"
    (path / "config.json").write_text(json.dumps(config))
    edit_card(path, algo_name="bcc")
    fix_checksums(path)
    with pytest.raises((CheckpointError, RegistryError), match=r"did you mean 'bc'\?"):
        policy_from_checkpoint(path, device="cpu")


# ------------------------------------------------------------------------------------------- not finite
def _spoil(path, file, value):
    """Put a number into a tensor of a checkpoint, and seal it again; return the tensor's name."""
    tensors = load_file(path / file)
    name = max(tensors)
    tensors[name].view(-1)[0] = value
    save_file(tensors, path / file)
    fix_checksums(path)
    return name


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused_unless_allowed(path, value):
    name = _spoil(path, "model.safetensors", value)
    text = rf"{path}/model.safetensors: NaN or inf in '{name}'; .*allow_nonfinite=True"
    with pytest.raises(CheckpointError, match=text):
        policy_from_checkpoint(path, device="cpu")
    read_checkpoint(path).training_state()
    for options in ({"ckpt_path": path, "allow_nonfinite": True},
                    {"ckpt_dict": read_checkpoint(path), "allow_nonfinite": True},
                    {"ckpt_dict": read_checkpoint(path, allow_nonfinite=True)}):  # fmt: skip
        policy, _ = policy_from_checkpoint(device="cpu", **options)
        assert not policy.algo.serialize()[name].isfinite().all()


def test_moments_that_are_not_finite_are_refused_unless_allowed(path):
    name = _spoil(path, "training_state/optimizer.safetensors", np.nan)
    policy_from_checkpoint(path, device="cpu")
    with pytest.raises(CheckpointError, match=rf"optimizer.safetensors.*'{name}'.*train.allow_nonfinite"):
        read_checkpoint(path).training_state()
    assert read_checkpoint(path, allow_nonfinite=True).training_state().optimizer[name].isnan().any()


# ----------------------------------------------------------------------------------------------- device
def test_devices():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigError, match="'warp' is not a device"):
        resolve_device("warp")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_gpu_that_is_not_there():
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        resolve_device("cuda")
