"""A file of pretrained weights is needed to begin a run, and never again: a checkpoint holds all that came from it."""

import numpy as np
import pytest
import torch
from torch import nn

import seqrl
from seqrl.algo.checkpoint import policy_from_checkpoint, read_checkpoint
from seqrl.algo.ema import averaged_weights, without_averages
from seqrl.configs import config_factory
from seqrl.configs.section import Section
from seqrl.core.errors import ConfigError
from seqrl.core.registry import TIMESTEP_ENCODERS
from seqrl.models.image_cores import build_image_core, skip_local_weights
from seqrl.models.timestep_encoders import TimestepEncoder
from tests.regression.test_online import run, small

NAME = "tiles"
SIZE = 8


class TileEncoder(TimestepEncoder):
    """Reads three numbers as the colour of an image."""

    def __init__(self, obs, d_action, d_reward, *, weights: str):
        super().__init__(obs, d_action, d_reward)
        self.core = build_image_core("resnet18", {"weights": weights, "pool": "mean"}, (3, SIZE, SIZE))
        self.out = nn.Linear(self.core.d_output, 8)
        self.d_output = 8

    def forward(self, inputs):
        x = next(iter(inputs.obs.values())).float()
        image = x[..., :3, None, None].expand(*x.shape[:2], 3, SIZE, SIZE)
        return self.out(self.core(image.flatten(0, 1))).reshape(*x.shape[:2], 8)


class TileSection(Section):
    type: str = NAME
    weights: str


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setitem(TIMESTEP_ENCODERS._entries, NAME, TileEncoder)
    monkeypatch.setitem(TIMESTEP_ENCODERS.sections, NAME, TileSection)
    with skip_local_weights():
        core = build_image_core("resnet18", {"weights": "x.pth", "pool": "mean"}, (3, SIZE, SIZE))
    weights = core.state_dict()
    weights["bn1.running_mean"] += 0.25
    torch.save(weights, tmp_path / "r18.pth")
    return tmp_path / "r18.pth"


def config(tmp_path, file, name="r", **train):
    short = {"num_epochs": 1, "steps_per_epoch": 1, "batch_size": 2, "device": "cpu", **train}
    values = small(tmp_path, name, train=short).to_json()
    values["observation"]["timestep_encoder"] = {"type": NAME, "weights": str(file)}
    return config_factory("actor_critic", values)


@pytest.mark.slow
def test_only_a_fresh_run_needs_the_file(tmp_path, file, monkeypatch):
    _, stats = run(config(tmp_path, file))
    saved = read_checkpoint(stats.path).tensors("model.safetensors")
    assert any("running_mean" in k and torch.allclose(v, torch.tensor(0.25)) for k, v in saved.items())
    file.unlink()

    policy, _ = policy_from_checkpoint(stats.path, device="cpu")
    acting = averaged_weights(saved)
    assert equal(without_averages(policy.algo.serialize()), acting)
    policy.start_episode()
    assert policy(np.zeros(policy.observation_space.shape, np.float32)) in policy.action_space

    given, _ = run(config(tmp_path, file, "given", init_from=str(stats.path), num_epochs=0))
    assert equal(without_averages(given.algo.serialize()), acting)

    resumed, _ = run(config(tmp_path, file, num_epochs=2), resume=True)
    after = resumed.algo.serialize()
    assert not equal(after, saved)
    assert equal(*({k: v for k, v in w.items() if "running" in k} for w in (after, saved)))

    def join(*_):
        raise ConfigError("the networks are built")

    monkeypatch.setattr("seqrl.training.setup.join_run", join)
    with pytest.raises(ConfigError, match="the networks are built"):
        seqrl.Experiment(config(tmp_path, file, num_epochs=2), role="collect").start()
    with pytest.raises(ConfigError, match=r"r18.pth' do not exist"):
        run(config(tmp_path, file, "fresh"))


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(v, b[k]) for k, v in a.items())
