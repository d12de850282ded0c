"""An altered checkpoint gives an error and nothing else."""

import hashlib
import json
import pickle
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from seqrl.algo.checkpoint import (
    load_algo,
    policy_from_checkpoint,
    read_checkpoint,
)
from seqrl.core.errors import CheckpointError, SeqrlError
from tests.unit.algo.checkpoints import ABSENT, FILES, Bomb, bomb, edit_card, fix_checksums, open_card, use_everything


# ---------------------------------------------------------------------------------------- altered files
@pytest.mark.parametrize("name", [*FILES, "card.json"])
def test_missing_file(path, name):
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=name if name != "card.json" else r"card\.json"):
        use_everything(path)


def test_a_policy_to_deploy_needs_no_training_state(path):
    weights = read_checkpoint(path).tensors("model.safetensors")
    shutil.rmtree(path / "training_state")
    slim = read_checkpoint(path)
    load_algo(slim, "cpu")
    assert all(torch.equal(value, weights[name]) for name, value in slim.tensors("model.safetensors").items())
    with pytest.raises(CheckpointError, match="holds weights only"):
        slim.training_state()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_one_flipped_bit(path, name, where):
    data = bytearray((path / name).read_bytes())
    data[{"first": 0, "middle": len(data) // 2, "last": -1}[where]] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name}.*checksum"):
        use_everything(path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["cut", "longer", "empty"])
def test_another_length(path, name, change):
    data = (path / name).read_bytes()
    (path / name).write_bytes({"cut": data[:-1], "longer": data + b"\n", "empty": b""}[change])
    with pytest.raises(CheckpointError, match=name):
        use_everything(path)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("name", [*FILES, "card.json"])
def test_pickle_in_place_of_a_file_is_never_executed(path, marker, name, protocol, fixed):
    (path / name).write_bytes(bomb(marker, protocol))
    if fixed and name != "card.json":
        fix_checksums(path)
    with pytest.raises(CheckpointError):
        use_everything(path)
    assert not marker.exists()


def test_the_bomb_would_go_off(marker):
    """Negative control: the file appears when one does unpickle it."""
    pickle.loads(bomb(marker, 2)).close()
    assert marker.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "training_state/optimizer.safetensors"])
def test_torch_archive_in_place_of_safetensors_is_never_executed(path, marker, name):
    torch.save({"x": Bomb(marker)}, path / name)
    fix_checksums(path)
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        use_everything(path)
    assert not marker.exists()


@pytest.mark.parametrize("text", ["[]", "5", "null", '"text"', "{", "", '{"a": NaN'])
@pytest.mark.parametrize("name", ["config.json", "spaces.json", "training_state/state.json", "card.json"])
def test_json_of_another_kind_is_a_checkpoint_error(path, name, text):
    (path / name).write_text(text)
    if name != "card.json":
        fix_checksums(path)
    with pytest.raises(CheckpointError, match=re.escape(name)):
        use_everything(path)


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
    fix_checksums(path)
    with pytest.raises(CheckpointError, match=r"spaces\.json"):
        policy_from_checkpoint(path, device="cpu")


def test_config_out_of_range_is_an_error_with_its_path(path):
    config = json.loads((path / "config.json").read_text())
    config["train"]["batch_size"] = -1
    (path / "config.json").write_text(json.dumps(config))
    fix_checksums(path)
    with pytest.raises(SeqrlError, match=r"train\.batch_size"):
        policy_from_checkpoint(path, device="cpu")


# ------------------------------------------------------------------------------------------------- card
@pytest.mark.parametrize("version", [0, 2, 99, "1", None, ABSENT])
def test_another_format_version(path, version):
    edit_card(path, format_version=version)
    with pytest.raises(CheckpointError, match=r"checkpoint format .*; this seqrl reads 1"):
        policy_from_checkpoint(path, device="cpu")


@pytest.mark.parametrize("files", [{}, [], None, ABSENT, {"config.json": "0"}])
def test_card_that_does_not_list_the_files(path, files):
    edit_card(path, files=files)
    with pytest.raises(CheckpointError, match="does not list"):
        policy_from_checkpoint(path, device="cpu")


@pytest.mark.parametrize("values", [{"algo_name": ABSENT}, {"algo_name": None}, {"algo_name": ["bc"]}])
def test_card_without_a_usable_algorithm(path, values):
    edit_card(path, **values)
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
    card = open_card(path)
    card["files"]["config.json"] = 17
    (path / "card.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        policy_from_checkpoint(path, device="cpu")


@pytest.mark.parametrize("name", ["../../../outside.json", "{absolute}"])
def test_card_may_not_list_files_outside(path, tmp_path, name):
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    card = open_card(path)
    card["files"][name.format(absolute=outside)] = hashlib.sha256(b"{}").hexdigest()
    (path / "card.json").write_text(json.dumps(card))
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_state_of_the_optimizer_has_to_be_listed_to_be_read(path):
    """A file that the card does not vouch for is not used."""
    card = open_card(path)
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
    fix_checksums(path)
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
    fix_checksums(path)
    with pytest.raises(CheckpointError, match="weights do not fit this config"):
        policy_from_checkpoint(path, device="cpu")
