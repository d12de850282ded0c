"""Code on the pages is run to its end: policies play, plug-ins train, readers are read."""

import json
import re
from pathlib import Path

import gymnasium as gym
import h5py
import numpy as np
import pytest

import seqrl
from seqrl.configs import config_factory
from seqrl.data import StoreInfo
from seqrl.scripts import train

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
QUICK = [
    "train.num_epochs=1", "train.steps_per_epoch=3", "train.window_steps=6", "train.batch_size=4",
    "experiment.evaluation.episodes=4", "experiment.report.enabled=false", "experiment.logging.tensorboard=false",
    "env.kwargs.corridor_length=5",
]  # fmt: skip
DATA = 'train.data=[{"scripted": "seqrl/TMazePassive-v0", "episodes": 20}]'
ONLINE = ["collect.steps_per_epoch=30", "collect.num_envs=2", "collect.trajectory_steps=10"]
PLUGINS = {
    "soft_bc": [DATA, "algo_name=soft_bc"],
    "my_iql": [DATA, "algo_name=my_iql"],
    "my_regression": [
        'train.data=[{"scripted": "seqrl/PointRecall-v0", "episodes": 20}]',
        "algo_name=my_regression",
        "env.kwargs={}",
        "env.eval_kwargs={}",
    ],
    "every_nth": [
        DATA,
        'algo.sequence_encoder.score={"type": "every_nth", "n": 2}',
        "algo.sequence_encoder.attention=vanilla",
    ],
    "shortcut": [DATA, 'algo.actor={"network": "shortcut", "kwargs": {"scale": 0.5}}'],
    "moving_average": [DATA, "algo.sequence_encoder.type=moving_average"],
    "reward_share": [DATA, 'train.metrics=[{"type": "reward_share"}]'],
    "csv": [DATA, 'experiment.logging.others=[{"type": "csv"}]'],
    "one_npz": ['train.data=[{"path": "one.npz"}]', "env.id=seqrl/TMazePassive-v0"],
    "lengths": [
        'train.data=[{"path": "told.hdf5"}]',
        "env.id=null",
        "env.kwargs={}",
        "observation.timestep_encoder.type=multimodal",
        'observation.timestep_encoder.modalities.say={"type": "text", "function": "lengths"}',
    ],
    "laplace": [
        'train.data=[{"scripted": "seqrl/PointRecall-v0", "episodes": 20}]',
        "algo.distribution.type=laplace",
        "env.kwargs={}",
        "env.eval_kwargs={}",
    ],
    "noisy_rewards": [DATA.replace("20", '20, "relabel": {"type": "noisy_rewards"}')],
    "good_returns": [DATA, "train.sample_by=good_returns"],
    "rooms": ["train.data=[]", "env.id=rooms-small", "env.kwargs={}", *ONLINE],
}
"""What a block registers -> how it is trained with."""


def blocks(page):
    return BLOCK.findall(page.read_text())


def registered(code):
    return re.findall(r'register\w*\("(\w+)"\)', code)


REGISTERING = {name: code for page in PAGES for code in blocks(page) for name in registered(code)}


def run(*arguments):
    return train.main([str(a) for a in arguments])


def settings(*values):
    return [word for value in values for word in ("--set", value)]


def test_every_block_that_registers_something_is_trained_with():
    assert set(REGISTERING) == set(PLUGINS)


@pytest.mark.usefixtures("unchecked_shapes", "registries_as_before")
@pytest.mark.parametrize("name", PLUGINS)
def test_a_block_that_registers_something_takes_gradient_steps(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plugin.py").write_text(REGISTERING[name])
    rng = np.random.default_rng(0)
    np.savez(
        "one.npz",
        obs=rng.random((21, 4)).astype(np.float32),
        actions=rng.integers(0, 4, 20),
        rewards=np.zeros(20, np.float32),
    )
    with h5py.File("told.hdf5", "w") as file:
        for k in range(10):
            demo = file.create_group(f"data/demo_{k}")
            demo["obs/say"], demo["actions"] = ["wait", "go left"], rng.integers(0, 2, 2)
    algo = ["--algo", "actor_critic"] if name == "rooms" else ["--config", "bc.json"]
    assert run(*algo, "--plugin", "plugin.py", "--name", "run", *settings(*QUICK, *PLUGINS[name])) == 0
    (state,) = Path("runs/run/checkpoints").glob("epoch_*/training_state/state.json")
    assert json.loads(state.read_text())["num_steps"] == 3
    if name == "csv":
        assert "valid/nll" in Path("runs/run/metrics.csv").read_text()


def test_a_dataset_of_ones_own_class_is_trained_on(tmp_path):
    (code,) = (c for c in blocks(ROOT / "docs/data.md") if "(TrainingDataset)" in c)
    names = {}
    exec(compile(code, "data.md", "exec"), names)
    dataset = names["Waves"]()
    box = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    dataset.info = StoreInfo(gym.spaces.Dict(obs=box), box)
    train_section = {"window_steps": 16, "num_epochs": 1, "steps_per_epoch": 3, "device": "cpu"}
    config = config_factory("bc", {"experiment": {"output_dir": str(tmp_path)}, "train": train_section})
    experiment = seqrl.Experiment(config, dataset=dataset, verbose=False)
    experiment.start()
    assert experiment.learn() is not None
    assert experiment.num_steps == 3
    again = [dataset.batch(4, seed=0, path=("train", 0, 0, k)).actions for k in (0, 0, 1)]
    assert again[0].equal(again[1])
    assert not again[0].equal(again[2])


@pytest.mark.usefixtures("unchecked_shapes", "registries_as_before")
@pytest.mark.parametrize("kind", ["imitation", "online"])
def test_the_deployment_loop_plays(kind, tmp_path, monkeypatch, capsys):
    """With a policy that imitates, and with an agent that reads its rewards."""
    monkeypatch.chdir(tmp_path)
    (code,) = (c for c in blocks(ROOT / "README.md") if "policy_from_checkpoint" in c)
    path = re.search(r'policy_from_checkpoint\("(runs/[^"]+)/last"\)', code)[1]
    chosen = ["--config", "bc.json", *settings(DATA)]
    if kind == "online":
        own = ["env.id=seqrl/TMazePassive-v0", "observation.use_prev_reward=true", "algo.sequence_encoder.type=gru"]
        chosen = ["--algo", "actor_critic", *settings(*own, *ONLINE)]
    assert run(*chosen, "--name", Path(path).name, *settings(*QUICK)) == 0
    exec(compile(code.replace("range(200)", "range(3)"), "README.md", "exec"), {})
    assert re.search(r"success: [01]\.\d{3}", capsys.readouterr().out)
