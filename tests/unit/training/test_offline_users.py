"""What users of offline data expect: normalised scores, scaled rewards, and the critics' view of held-out starts."""

import json

import numpy as np
import pytest
import torch

import seqrl
from seqrl.core.errors import ConfigError
from seqrl.data.mixture import Source
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.rollout.evaluator import normalized_scores
from seqrl.scripts import probe

SMALL = {
    "experiment": {
        "evaluation": {"episodes": 4, "num_envs": 2},
        "logging": {"tensorboard": False, "progress_bar": False},
        "report": {"enabled": False},
    },
    "env": {"kwargs": {"delay_steps": 3}},
    "train": {
        "data": [{"scripted": "seqrl/PointRecall-v0", "episodes": 20, "noise": 0.5}],
        "window_steps": 6,
        "num_epochs": 1,
        "steps_per_epoch": 3,
        "batch_size": 8,
    },
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
    "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 8, "num_layers": 1, "d_output": 8}},
}


def trained(tmp_path, name, algorithm="iql", **values):
    """Return a tiny run that has ended, with sections merged over the small ones."""
    merged = {k: {**SMALL.get(k, {}), **values.get(k, {})} for k in SMALL.keys() | values.keys()}
    merged["experiment"] = {**merged["experiment"], "output_dir": str(tmp_path), "name": name}
    experiment = seqrl.Experiment(seqrl.config_factory(algorithm, merged))
    experiment.start()
    experiment.learn()
    return experiment


def metrics_of(tmp_path, name):
    rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
    return {k: v for row in rows for k, v in row.items()}


def test_scores_are_d4rls():
    class Reference:
        random, expert = -20.0, 80.0

    found = normalized_scores(
        {"eval/return_mean": 30.0, "eval/a/return_mean_low": -20.0, "eval/length_mean": 3.0}, Reference
    )
    assert found == {"eval/score_mean": 50.0, "eval/a/score_mean_low": 0.0}
    assert normalized_scores({"eval/return_mean": 30.0}, None) == {}


def test_a_run_logs_them_beside_its_returns(tmp_path):
    trained(tmp_path, "scored", env={"reference_scores": {"random": -1.0, "expert": 3.0}})
    metrics = metrics_of(tmp_path, "scored")
    assert metrics["eval/score_mean"] == pytest.approx(100 * (metrics["eval/return_mean"] + 1.0) / 4.0)
    with pytest.raises(ConfigError, match="must be below the expert's"):
        seqrl.config_factory("bc", {"env": {"reference_scores": {"random": 3.0, "expert": 3.0}}})


def test_scaled_rewards_are_those_of_a_multiplier(tmp_path):
    run = trained(tmp_path, "scaled", train={"normalize_rewards": "return_range"})
    (source,) = run.parts.data.sources
    returns = source.store.total_reward[source.numbers]
    factor = 1000.0 / (returns.max() - returns.min())
    assert float(run.algo.multiplier) == pytest.approx(factor, rel=1e-6)
    other = trained(tmp_path, "multiplied", algo={"reward_multiplier": float(np.float32(factor))})
    for name, weight in other.algo.serialize().items():
        torch.testing.assert_close(run.algo.serialize()[name], weight, rtol=1e-5, atol=1e-6)
    loaded, _ = seqrl.policy_from_checkpoint(tmp_path / "scaled")
    assert float(loaded.algo.multiplier) == pytest.approx(factor, rel=1e-6)


def test_values_along_an_episode_are_those_of_the_algorithm(tmp_path, capsys):
    run = trained(tmp_path, "seen", algo={**SMALL["algo"], "extra_gammas": [0.5]})
    (source,) = run.parts.data.sources
    words = [str(tmp_path / "seen"), "--values", str(source.store.path), "--output", str(tmp_path / "out")]
    assert probe.main([*words, "--at", "2,5"]) == 0
    found = json.loads((tmp_path / "out" / "values.json").read_text())["episodes"]
    assert [one["number"] for one in found] == [2, 5]
    whole = source.store.trajectory(5)
    assert found[1]["rewards"] == pytest.approx(whole.rewards.tolist())
    assert found[1]["returns"][0] == pytest.approx(sum(0.99**t * r for t, r in enumerate(whole.rewards)), rel=1e-5)
    length = len(whole)
    dataset = SequenceDataset([Source(source.store, indices=np.array([5]))], length)
    run.algo.set_eval()
    batch = run.algo.process_batch_for_training(dataset.batch(1, seed=0, path=("x",)))
    with run.algo.averaged():
        values = run.algo.get_values(batch)
    assert found[1]["v"] == pytest.approx(values["v"][0, :, -1].tolist(), abs=1e-5)
    assert found[1]["q"] == pytest.approx(values["q"][0, :, -1].tolist(), abs=1e-5)
    assert (tmp_path / "out" / "values.png").stat().st_size > 10_000
    capsys.readouterr()
    assert probe.main([*words, "--at", "99"]) == 2
    assert "there is no episode 99: the data has 20" in capsys.readouterr().err
    trained(tmp_path, "cloned", "bc")
    assert probe.main([str(tmp_path / "cloned"), *words[1:]]) == 2
    assert "bc learns no values" in capsys.readouterr().err


def test_what_learns_no_values_refuses_to_scale_rewards(tmp_path):
    with pytest.raises(ConfigError, match="bc learns no values"):
        trained(tmp_path, "cloned", "bc", train={"normalize_rewards": "return_range"})


def test_the_best_by_value_is_kept_if_asked(tmp_path):
    run = trained(tmp_path, "valued", experiment={"save": {"best": ["value"]}})
    assert metrics_of(tmp_path, "valued")["valid/value"] == pytest.approx(
        run.learner.validate()["valid/value"], abs=1e-6
    )
    assert (tmp_path / "valued" / "checkpoints" / "best_value").is_file()
    trained(tmp_path, "plain", "bc")
    assert "valid/value" not in metrics_of(tmp_path, "plain")
