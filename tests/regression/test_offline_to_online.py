"""Whatever learns values from data goes on online, from its weights, with the data beside what it collects."""

import json

import pytest

import seqrl
from seqrl.algo.ema import averaged_weights, without_averages
from seqrl.core.errors import ConfigError

ALGOS = ("actor_critic", "multitask", "iql", "td3_bc", "cql", "bcq", "edac")
DATA = {"scripted": "seqrl/PointRecall-v0", "episodes": 20, "noise": 0.5, "name": "demos"}


def run(folder, algo, name, **values):
    """Train a little, and return the experiment."""
    config = seqrl.config_factory(
        algo,
        {
            "experiment": {
                "output_dir": str(folder),
                "name": name,
                "evaluation": {"episodes": 4, "num_envs": 4},
                "report": {"enabled": False},
                "logging": {"tensorboard": False, "progress_bar": False},
            },
            "env": {"id": "seqrl/PointRecall-v0", "kwargs": {"delay_steps": 2}},
            "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 16, "d_output": 16}},
            "algo": {
                "sequence_encoder": {"type": "gru", "d_hidden": 16, "num_layers": 1, "d_output": 16},
                "actor": {"d_hidden": 16},
                "critic": {"d_hidden": 16},
            },
            **values,
            "train": {"data": [DATA], "window_steps": 10, "batch_size": 4, "steps_per_epoch": 5, **values["train"]},
        },
    )
    experiment = seqrl.Experiment(config)
    experiment.start()
    experiment.learn()
    return experiment


@pytest.mark.parametrize("algo", [a if a in ("bc", "iql") else pytest.param(a, marks=pytest.mark.slow) for a in ALGOS])
def test_it_goes_on_online_from_its_weights_beside_the_data(algo, tmp_path):
    first = run(tmp_path, algo, "offline", train={"num_epochs": 1})
    kept = averaged_weights(first.algo.serialize())
    collect = {"num_envs": 2, "steps_per_epoch": 40, "replay": {"min_transitions": 10}}
    given = {"num_epochs": 0, "init_from": str(tmp_path / "offline")}
    same = run(tmp_path, algo, "same", train=given).algo.serialize()
    assert all(kept[name].equal(same[name]) for name in kept)
    online = run(tmp_path, algo, "online", train={**given, "num_epochs": 2}, collect=collect)
    now = without_averages(online.algo.serialize())
    assert any(not kept[name].equal(weight) for name, weight in now.items())
    lines = [json.loads(line) for line in (tmp_path / "online" / "metrics.jsonl").read_text().splitlines()]
    last = {key: value for line in lines for key, value in line.items()}
    assert last["data/replay/transitions"] > 40
    assert last["data/demos/trajectories"] == 18  # two are held out
    assert 0.0 < last["data/demos/share"] < 1.0


def test_rewards_on_another_scale_are_told(tmp_path):
    scaled = {"normalize_rewards": "return_range"}
    run(tmp_path, "iql", "offline", train={"num_epochs": 1, **scaled})
    given = {"num_epochs": 0, "init_from": str(tmp_path / "offline")}
    run(tmp_path, "iql", "same", train={**given, **scaled})
    with pytest.raises(ConfigError, match=r"set train\.normalize_rewards to 'return_range'"):
        run(tmp_path, "iql", "other", train=given)
