"""A checkpoint gives back the same policy, and an altered one gives an error and nothing else."""

import errno
import hashlib
import json
import pickle
import re
import shutil
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from seqrl.algo import algo_factory
from seqrl.algo.checkpoint import (
    TrainingState,
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
from seqrl.core.errors import CheckpointError, ConfigError, RegistryError, SeqrlError

OBSERVATIONS, ACTIONS = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Discrete(4)
TINY_ENCODER = {"type": "mlp", "num_layers": 1, "d_hidden": 8, "d_output": 8}
FILES = [
    "config.json",
    "spaces.json",
    "model.safetensors",
    "training_state/state.json",
    "training_state/optimizer.safetensors",
]


def _config(**values):
    small = {
        "observation": {"timestep_encoder": TINY_ENCODER},
        "train": {"window_steps": 4},
        "algo": {
            "sequence_encoder": {"type": "transformer", "d_model": 8, "num_heads": 2, "d_ff": 16, "num_layers": 1},
            "actor": {"num_layers": 1, "d_hidden": 8},
        },
    }
    return config_factory("bc", {**small, **values})


def _algo(config=None, seed=0):
    torch.manual_seed(seed)
    algo = algo_factory("bc", config or _config(), {"obs": (3,)}, 4, "cpu", action_space=ACTIONS)
    algo.set_eval()
    return algo


def _state():
    return TrainingState(
        optimizer={"0.exp_avg": torch.arange(6.0).reshape(2, 3), "0.step": torch.tensor(7.0)},
        values={"epoch": 3, "num_steps": 150, "rng": [1, 2**63, "text"]},
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "checkpoints" / "epoch_000003"
    save_checkpoint(path, _algo(), OBSERVATIONS, ACTIONS, env={"id": "x"}, metrics={"a": 0.5}, training_state=_state())
    return path


@pytest.fixture
def path(template, tmp_path):
    """A fresh copy of a good checkpoint, to be spoiled."""
    copy = tmp_path / "run" / "checkpoints" / "epoch_000003"
    shutil.copytree(template, copy)
    return copy


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "executed"


class _Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def _bomb(marker, protocol):
    return pickle.dumps(_Bomb(marker), protocol=protocol)


def _open_card(path):
    """Return the card without the checksum of itself, as one of an earlier version has none."""
    card = json.loads((path / "card.json").read_text())
    card.pop("checksum", None)
    return card


def _fix_checksums(path):
    """Do what an attacker would: make the card agree with the files."""
    card = _open_card(path)
    for name in card["files"]:
        card["files"][name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    (path / "card.json").write_text(json.dumps(card))


def _edit_card(path, **values):
    card = _open_card(path)
    card |= values
    (path / "card.json").write_text(json.dumps({k: v for k, v in card.items() if v is not _ABSENT}))


_ABSENT = object()


def _use_everything(path):
    """Read all that a checkpoint holds, as deployment and resuming do."""
    policy_from_checkpoint(path, device="cpu")
    read_checkpoint(path).training_state()


# ------------------------------------------------------------------------------------------- round trip
@pytest.mark.parametrize("reads_past", [False, True])
@pytest.mark.parametrize("memory", ["transformer", "gru", "feedforward"])
def test_loaded_policy_acts_as_the_saved_one(tmp_path, memory, reads_past):
    sizes = {"gru": {"d_hidden": 8, "num_layers": 1, "d_output": 8}, "feedforward": {"d_model": 8, "d_ff": 16}}
    encoder = {"type": memory, **sizes.get(memory, {"d_model": 8, "num_heads": 2, "d_ff": 16, "num_layers": 1})}
    config = _config(
        algo={"sequence_encoder": encoder, "actor": {"num_layers": 1, "d_hidden": 8}},
        observation={"use_prev_action": reads_past, "use_prev_reward": reads_past, "timestep_encoder": TINY_ENCODER},
    )
    algo = _algo(config)
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
                RolloutPolicy(_algo(config, seed=5), OBSERVATIONS, ACTIONS, deterministic=deterministic),
            )
        ]
        assert checkpoint.card["algo_name"] == "bc"
        assert np.array_equal(runs[0], runs[1])
        assert not np.array_equal(runs[0], runs[2]), "other weights act otherwise"
    assert len(np.unique(runs[0])) == 4, "the sampled actions are of every kind"


def _actions(policy, observations):
    """Return what a policy does over 5 rows, with the same noise for each policy."""
    torch.manual_seed(99)
    rewards = [None, *np.random.default_rng(1).normal(size=(len(observations) - 1, 5))]
    return np.stack([policy(o, reward=r, batched_ob=True) for o, r in zip(observations, rewards, strict=True)])


def test_weights_and_buffers_come_back_bit_for_bit(path):
    before = _algo().serialize()
    algo, observation_space, action_space = load_algo(read_checkpoint(path), "cpu")
    after = algo.serialize()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert any("normalizer" in k for k in after)
    assert (observation_space, action_space) == (OBSERVATIONS, ACTIONS)
    assert not any(m.training for m in algo.nets.modules())


def test_saved_weights_are_a_copy():
    algo = _algo()
    saved = algo.serialize()
    before = {k: v.clone() for k, v in saved.items()}
    with torch.no_grad():
        for parameter in algo.nets.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(saved[k], before[k]) for k in saved)


def test_training_state_comes_back(path):
    expected, got = _state(), read_checkpoint(path).training_state()
    assert got.values == expected.values
    assert got.optimizer.keys() == expected.optimizer.keys()
    assert all(torch.equal(got.optimizer[k], v) for k, v in expected.optimizer.items())


def test_weights_only_cannot_be_resumed(tmp_path):
    save_checkpoint(tmp_path / "c", _algo(), OBSERVATIONS, ACTIONS)
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
    assert config.to_json() == _config().to_json()
    with pytest.raises(CheckpointError, match="holds 'bc', not 'iql'"):
        config_from_checkpoint(path, algo_name="iql")
    with pytest.raises(CheckpointError, match="give a path"):
        config_from_checkpoint()
    policy, same = policy_from_checkpoint(ckpt_path=path, device=None, verbose=False)
    assert same.path == checkpoint.path
    assert RolloutPolicy(policy.algo).action_space == policy.action_space


def test_saving_again_replaces_all_of_it(path):
    (path / "stale").write_text("x")
    save_checkpoint(path, _algo(seed=3), OBSERVATIONS, ACTIONS)
    kept = ["README.md", "card.json", "config.json", "model.safetensors", "spaces.json"]
    assert sorted(p.name for p in path.iterdir()) == kept
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_failed_save_leaves_the_old_one_and_no_rubbish(path, monkeypatch):
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    algo = _algo(seed=3)
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
        save_checkpoint(target, _algo(seed=3), OBSERVATIONS, ACTIONS, training_state=_state())
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


# ---------------------------------------------------------------------------------------- altered files
@pytest.mark.parametrize("name", [*FILES, "card.json"])
def test_missing_file(path, name):
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=name if name != "card.json" else r"card\.json"):
        _use_everything(path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_one_flipped_bit(path, name, where):
    data = bytearray((path / name).read_bytes())
    data[{"first": 0, "middle": len(data) // 2, "last": -1}[where]] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name}.*checksum"):
        _use_everything(path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["cut", "longer", "empty"])
def test_another_length(path, name, change):
    data = (path / name).read_bytes()
    (path / name).write_bytes({"cut": data[:-1], "longer": data + b"\n", "empty": b""}[change])
    with pytest.raises(CheckpointError, match=name):
        _use_everything(path)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("name", [*FILES, "card.json"])
def test_pickle_in_place_of_a_file_is_never_executed(path, marker, name, protocol, fixed):
    (path / name).write_bytes(_bomb(marker, protocol))
    if fixed and name != "card.json":
        _fix_checksums(path)
    with pytest.raises(CheckpointError):
        _use_everything(path)
    assert not marker.exists()


def test_the_bomb_would_go_off(marker):
    """Negative control: the file appears when one does unpickle it."""
    pickle.loads(_bomb(marker, 2)).close()
    assert marker.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "training_state/optimizer.safetensors"])
def test_torch_archive_in_place_of_safetensors_is_never_executed(path, marker, name):
    torch.save({"x": _Bomb(marker)}, path / name)
    _fix_checksums(path)
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        _use_everything(path)
    assert not marker.exists()


@pytest.mark.parametrize("text", ["[]", "5", "null", '"text"', "{", "", '{"a": NaN'])
@pytest.mark.parametrize("name", ["config.json", "spaces.json", "training_state/state.json", "card.json"])
def test_json_of_another_kind_is_a_checkpoint_error(path, name, text):
    (path / name).write_text(text)
    if name != "card.json":
        _fix_checksums(path)
    with pytest.raises(CheckpointError, match=re.escape(name)):
        _use_everything(path)


@pytest.mark.parametrize(
    "text",
    [
        '{"observation_space": {"type": "Box"}, "action_space": {"type": "Discrete"}}',
        '{"observation_space": {"type": "os.system"}, "action_space": {"type": "Discrete"}}',
        '{"observation_space": 3, "action_space": [1]}',
    ],
)
def test_spaces_that_are_none(path, text):
    (path / "spaces.json").write_text(text)
    _fix_checksums(path)
    with pytest.raises(CheckpointError, match=r"spaces\.json"):
        policy_from_checkpoint(path, device="cpu")


def test_config_out_of_range_is_an_error_with_its_path(path):
    config = json.loads((path / "config.json").read_text())
    config["train"]["batch_size"] = -1
    (path / "config.json").write_text(json.dumps(config))
    _fix_checksums(path)
    with pytest.raises(SeqrlError, match=r"train\.batch_size"):
        policy_from_checkpoint(path, device="cpu")


# ------------------------------------------------------------------------------------------------- card
@pytest.mark.parametrize("version", [0, 2, 99, "1", None, _ABSENT])
def test_another_format_version(path, version):
    _edit_card(path, format_version=version)
    with pytest.raises(CheckpointError, match=r"checkpoint format .*; this seqrl reads 1"):
        policy_from_checkpoint(path, device="cpu")


@pytest.mark.parametrize("files", [{}, [], None, _ABSENT, {"config.json": "0"}])
def test_card_that_does_not_list_the_files(path, files):
    _edit_card(path, files=files)
    with pytest.raises(CheckpointError, match="does not list"):
        policy_from_checkpoint(path, device="cpu")


@pytest.mark.parametrize("values", [{"algo_name": _ABSENT}, {"algo_name": None}, {"algo_name": ["bc"]}])
def test_card_without_a_usable_algorithm(path, values):
    _edit_card(path, **values)
    with pytest.raises(SeqrlError):
        policy_from_checkpoint(path, device="cpu")


@pytest.mark.parametrize("key", ["algo_name", "env", "metrics", "plugins", "versions"])
def test_an_altered_card_is_an_error(path, key):
    card = json.loads((path / "card.json").read_text())
    card[key] = "bd" if key == "algo_name" else {"id": "y"}
    (path / "card.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError, match=r"card\.json: it was changed.*remove its entry 'checksum'"):
        read_checkpoint(path)


def test_card_with_a_checksum_of_another_kind(path):
    card = _open_card(path)
    card["files"]["config.json"] = 17
    (path / "card.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        policy_from_checkpoint(path, device="cpu")


@pytest.mark.parametrize("name", ["../../../outside.json", "{absolute}"])
def test_card_may_not_list_files_outside(path, tmp_path, name):
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    card = _open_card(path)
    card["files"][name.format(absolute=outside)] = hashlib.sha256(b"{}").hexdigest()
    (path / "card.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_state_of_the_optimizer_has_to_be_listed_to_be_read(path):
    """A file that the card does not vouch for is not used."""
    card = _open_card(path)
    del card["files"]["training_state/optimizer.safetensors"]
    (path / "card.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError):
        read_checkpoint(path).training_state()


# ---------------------------------------------------------------------------------------------- weights
def _rewrite_weights(path, change):
    tensors = load_file(path / "model.safetensors")
    name = next(k for k, v in tensors.items() if v.dim() == 2)
    change(tensors, name)
    save_file(tensors, path / "model.safetensors")
    _fix_checksums(path)
    return name


def test_weights_of_another_shape(path):
    name = _rewrite_weights(path, lambda t, k: t.update({k: torch.zeros(3, 5)}))
    with pytest.raises(CheckpointError, match=rf"{name} is torch.float32 \(3, 5\), not torch.float32 \("):
        policy_from_checkpoint(path, device="cpu")


def test_missing_weight(path):
    name = _rewrite_weights(path, lambda t, k: t.pop(k))
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        policy_from_checkpoint(path, device="cpu")


def test_unknown_weight(path):
    _rewrite_weights(path, lambda t, k: t.update({"trunk.extra": torch.zeros(1)}))
    with pytest.raises(CheckpointError, match=r"trunk\.extra is unknown"):
        policy_from_checkpoint(path, device="cpu")


def test_weights_of_another_config(path):
    config = json.loads((path / "config.json").read_text())
    config["algo"]["actor"]["d_hidden"] = 9
    (path / "config.json").write_text(json.dumps(config))
    _fix_checksums(path)
    with pytest.raises(CheckpointError, match="weights do not fit this config"):
        policy_from_checkpoint(path, device="cpu")


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
    _edit_card(path, algo_name="their_algo", plugins=plugins)
    _fix_checksums(path)
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


def test_plugins_of_a_known_algorithm_are_not_imported_either(path, marker, tmp_path, monkeypatch):
    (tmp_path / "evil_plugin_of_tests.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = json.loads((path / "config.json").read_text())
    config["plugins"] = ["evil_plugin_of_tests", str(tmp_path / "evil_plugin_of_tests.py")]
    config["env"]["id"] = "evil_plugin_of_tests:Maze-v0"
    (path / "config.json").write_text(json.dumps(config))
    _edit_card(path, plugins=config["plugins"], env={"id": "evil_plugin_of_tests:Maze-v0"})
    _fix_checksums(path)
    _use_everything(path)
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
    _fix_checksums(path)
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
    _edit_card(path, algo_name="bcc")
    _fix_checksums(path)
    with pytest.raises((CheckpointError, RegistryError), match=r"did you mean 'bc'\?"):
        policy_from_checkpoint(path, device="cpu")


# ------------------------------------------------------------------------------------------- not finite
def _spoil(path, file, value):
    """Put a number into a tensor of a checkpoint, and seal it again; return the tensor's name."""
    tensors = load_file(path / file)
    name = max(tensors)
    tensors[name].view(-1)[0] = value
    save_file(tensors, path / file)
    _fix_checksums(path)
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
