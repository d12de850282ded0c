"""A modality of one's own, through the command line: derived options, training, a saved policy, mistakes named."""

import json
from pathlib import Path

import pytest

import seqrl
from seqrl.scripts import train

ROOT = Path(__file__).parents[2]
PLUGIN = str(ROOT / "examples" / "touch_modality_plugin.py")
ENCODER = "observation.timestep_encoder"
TINY = [
    "--config", "cartpole.json", "--plugin", PLUGIN, "--debug",
    "--set", "env.id=examples/WhichPad-v0",
    "--set", "experiment.report.enabled=false",
    "--set", f"{ENCODER}.type=multimodal",
    "--set", f"{ENCODER}.d_hidden=16",
    "--set", f"{ENCODER}.modalities.touch.type=touch",
]  # fmt: skip


def test_it_trains_and_deploys(tmp_path):
    arguments = [*TINY, "--set", f"{ENCODER}.modalities.touch.d_pad=8"]
    assert train.main([*arguments, "--set", f"experiment.output_dir={tmp_path}", "--name", "r"]) == 0
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["observation"]["timestep_encoder"]["modalities"] == {
        "touch": {"d_pad": 8, "d_output": 32, "type": "touch"}
    }
    policy, _ = seqrl.policy_from_checkpoint(str(tmp_path / "r" / "last"))
    touch = policy.algo.trunk.timestep_encoder.modalities[1]
    assert type(touch).__name__ == "TouchModality"
    assert touch.pad[-1].out_features == 8
    env = seqrl.env_from_checkpoint(str(tmp_path / "r" / "last"))
    obs, _ = env.reset(seed=0)
    policy.start_episode()
    assert env.action_space.contains(policy(obs))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (f"{ENCODER}.modalities.touch.d_pads=8", "unknown key; did you mean 'd_pad'?"),
        (f"{ENCODER}.modalities.touch.type=tuch", "unknown modality 'tuch'; did you mean 'touch'?"),
        (f"{ENCODER}.modalities.tuch.type=vector", "unknown observation 'tuch'; did you mean 'touch'?"),
        (f"{ENCODER}.modalities.grip.type=touch", "modalities.grip.type: grip (float32 [1]) is not an array of touch"),
    ],
)
def test_its_mistakes_are_named(tmp_path, capsys, setting, expected):
    assert train.main([*TINY, "--set", setting, "--set", f"experiment.output_dir={tmp_path}"]) == 2
    assert expected in capsys.readouterr().err
