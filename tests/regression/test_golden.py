"""Old files can be read: one of each format, made when it was new, never to be made again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import seqrl
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.configs.base_config import config_factory
from seqrl.core.errors import CheckpointError, ConfigError, DataError
from seqrl.core.tensors import SeqInputs
from seqrl.data import Store
from seqrl.scripts import train

V1 = Path(__file__).parents[1] / "golden" / "v1"
EXPECTED = json.loads((V1 / "expected.json").read_text()) if (V1 / "expected.json").exists() else {}
OBS = np.random.default_rng(1).normal(size=(6, 4), scale=2.0).astype(np.float32)


def probabilities(policy, obs):
    """Return what the policy thinks of each action, after each of several observations."""
    algo = policy.algo
    inputs = SeqInputs(
        obs={"obs": torch.from_numpy(obs)[None]},
        prev_action=torch.zeros(1, len(obs), algo.codec.dim),
        prev_reward=torch.zeros(1, len(obs)),
        step=torch.arange(len(obs))[None],
    )
    with torch.no_grad():
        distribution = algo.actor(algo.trunk(inputs)[0], inputs)
        actions = torch.eye(algo.codec.dim)
        return torch.stack([distribution.log_prob(a.expand(1, len(obs), -1))[0] for a in actions], -1).exp().tolist()


def leaves(value, path=""):
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in leaves(inner, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, inner in enumerate(value) for k, v in leaves(inner, f"{path}[{i}]").items()}
    return {path: value}


def test_a_run_file_of_version_1():
    """What it said is still said; new keys have defaults."""
    values = json.loads((V1 / "bc.json").read_text())
    now = leaves(config_factory("bc", values).to_json())
    assert {k: now.get(k, "missing") for k in leaves(values)} == leaves(values)


def test_a_checkpoint_of_version_1_acts():
    policy, checkpoint = seqrl.policy_from_checkpoint(V1 / "checkpoint", device="cpu")
    assert checkpoint.card["format_version"] == 1
    policy.start_episode()
    assert [int(policy(o)) for o in OBS] == EXPECTED["actions"]
    np.testing.assert_allclose(probabilities(policy, OBS), EXPECTED["probabilities"], rtol=1e-4)
    assert np.ptp(EXPECTED["probabilities"], axis=0).max() > 3e-3  # it tells observations apart


def test_why_weights_of_version_1_do_not_fit_names_no_key_that_has_come_since(tmp_path, capsys):
    run_file = tmp_path / "run.json"
    values = json.loads((V1 / "checkpoint/config.json").read_text())
    values["algo"]["sequence_encoder"]["d_hidden"] = 9
    values["train"]["init_from"] = str(V1 / "checkpoint")
    run_file.write_text(json.dumps(values))
    arguments = ["--config", str(run_file), "--set", f"experiment.output_dir={tmp_path}"]
    assert train.main(arguments) == 2
    said = "v1/checkpoint: algo.sequence_encoder.d_hidden is 9 (theirs: 8); weights do not fit"
    assert said in capsys.readouterr().err


def test_a_run_of_version_1_goes_on(tmp_path):
    checkpoints = tmp_path / "golden" / "checkpoints"
    shutil.copytree(V1 / "checkpoint", checkpoints / "epoch_000001")
    (checkpoints / "last").write_text("epoch_000001\n")
    shutil.copy(V1 / "bc.json", tmp_path / "golden" / "config.json")
    settings = [f"experiment.output_dir={tmp_path}", "train.num_epochs=2"]
    arguments = ["--config", str(V1 / "bc.json"), "--resume", *(a for s in settings for a in ("--set", s))]
    assert train.main(arguments) == 0
    state = read_checkpoint(tmp_path / "golden").training_state().values
    assert (state["epoch"], state["num_steps"]) == (2, 80)


def test_a_store_of_version_1():
    store = Store(V1 / "store")
    assert store.verify() == []
    assert (store.info.env_id, store.info.env_kwargs, store.info.filters) == (
        "Golden-v0", {"size": 2}, {"train": ["demo_0"]},
    )  # fmt: skip
    assert store.names == ["demo_0", "demo_1"]
    assert len(store) == len(EXPECTED["store"])
    for got, expected in zip(store.trajectories(), EXPECTED["store"], strict=True):
        for name, values in expected.items():
            array = got.obs[name] if name in got.obs else getattr(got, name)
            np.testing.assert_array_equal(array, np.array(values, array.dtype))


def test_files_of_a_newer_version_say_so(tmp_path, capsys):
    values = {**json.loads((V1 / "bc.json").read_text()), "format_version": 2, "new_section": {"key": 1}}
    with pytest.raises(ConfigError, match=r"^bc\.json: format_version 2; this seqrl reads 1; update seqrl$"):
        config_factory("bc", values, "bc.json")
    shutil.copytree(V1, tmp_path / "v2")
    for file in ("checkpoint/card.json", "store/store.json"):
        changed = {**json.loads((tmp_path / "v2" / file).read_text()), "format_version": 2}
        (tmp_path / "v2" / file).write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match=r"card\.json: checkpoint format 2; this seqrl reads 1; update seqrl$"):
        seqrl.policy_from_checkpoint(tmp_path / "v2" / "checkpoint")
    with pytest.raises(DataError, match=r"store\.json: store format 2; this seqrl reads 1; update seqrl$"):
        Store(tmp_path / "v2" / "store")


def test_the_golden_files_are_small():
    def size(path):
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())

    assert size(V1 / "checkpoint") < 60_000
    assert size(V1 / "store") < 20_000
