"""Online runs: one seed, resume, kill, tasks, vectors, delays, and the Python interface."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import seqrl
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError, EnvError
from seqrl.data import Store
from seqrl.training.collecting import refresh_data

ROOT = Path(__file__).parents[2]
SMALL = {
    "experiment": {
        "report": {"enabled": False},
        "logging": {"every_n_steps": 2, "tensorboard": False},
        "evaluation": {"episodes": 4, "num_envs": 2, "every_n_epochs": 2},
    },
    "env": {"id": "seqrl/TMazeActive-v0", "kwargs": {"corridor_length": 4}},
    "train": {"window_steps": 6, "batch_size": 4, "num_epochs": 4, "steps_per_epoch": 4, "device": "cpu"},
    "collect": {
        "num_envs": 3,
        "steps_per_epoch": 20,
        "exploration": {"type": "epsilon_greedy", "anneal_steps": 50},
    },
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 16, "d_output": 16}},
    "algo": {
        "sequence_encoder": {"type": "gru", "d_hidden": 16, "num_layers": 1, "d_output": 16},
        "actor": {"d_hidden": 16},
        "critic": {"d_hidden": 16},
        "extra_gammas": [],
    },
}


def merged(base, changes):
    out = dict(base)
    for key, value in changes.items():
        is_nested = isinstance(value, dict) and isinstance(base.get(key), dict) and key not in ("kwargs", "exploration")
        out[key] = merged(base[key], value) if is_nested else value
    return out


def small(folder, name="run", **changes):
    values = merged(SMALL, {"experiment": {"output_dir": str(folder), "name": name}})
    return config_factory("actor_critic", merged(values, changes))


def run(config, **options):
    experiment = seqrl.Experiment(config, **options)
    experiment.start()
    stats = experiment.learn()
    return experiment, stats


def rows(folder, name="run"):
    """Return the lines of metrics.jsonl without what depends on the clock."""
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "system/"))} for row in lines]


# ------------------------------------------------------------------------------------------- one seed
@pytest.mark.parametrize("algo", ["actor_critic", pytest.param("multitask", marks=pytest.mark.slow), "bc"])
def test_one_seed_gives_identical_metrics(algo, tmp_path):
    seeds = {"a": 0, "b": 0, "c": 1}
    for name, seed in seeds.items():
        changes = {"algo": {k: v for k, v in SMALL["algo"].items() if k in ("sequence_encoder", "actor")}}
        values = merged(SMALL, {"experiment": {"output_dir": str(tmp_path), "name": name}, "train": {"seed": seed}})
        values["algo"] = changes["algo"] if algo == "bc" else values["algo"]
        run(config_factory(algo, values))
    assert rows(tmp_path, "a") == rows(tmp_path, "b")
    assert rows(tmp_path, "a") != rows(tmp_path, "c")
    assert rows(tmp_path, "a")[-1]["progress/env_steps"] == 4 * 20 * 3
    last = [(tmp_path / n / "checkpoints/epoch_000004/model.safetensors").read_bytes() for n in seeds]
    assert last[0] == last[1] != last[2]


def test_every_transition_is_counted_and_stored(tmp_path):
    _, stats = run(small(tmp_path, collect={"trajectory_steps": 2, "stagger_trajectories": False}))
    store = Store(stats.path / "replay")
    assert stats.env_steps == 240
    assert 240 - 3 * 2 < store.num_transitions <= 240  # only the last piece of each row is unfinished
    assert store.verify() == []
    assert store.length.max() == 2


# -------------------------------------------------------------------------------------------- resume
def test_resuming_goes_on_with_counts_exploration_and_data(tmp_path):
    run(small(tmp_path, train={"num_epochs": 2}))
    second, stats = run(small(tmp_path, train={"num_epochs": 4}), resume=True)
    assert stats.env_steps == 240
    assert second.collector.exploration.num_steps.tolist() == [80, 80, 80]
    assert second.num_steps == 16
    kept = rows(tmp_path)
    assert [r["progress/epoch"] for r in kept if "collect/episodes" in r] == [1, 2, 3, 4]
    assert sum(r["progress/epoch"] == 2 and "eval/episodes" in r for r in kept) == 1
    state = read_checkpoint(stats.path).training_state().values
    assert state["data"]["ready_since"] == [0]
    assert state["env_steps"] == {"seqrl/TMazeActive-v0": 240}


def test_what_an_unfinished_epoch_collected_is_taken_again(tmp_path):
    """A run that is stopped in an epoch and resumed equals one that was stopped before it."""
    folders = {"clean": tmp_path / "clean", "killed": tmp_path / "killed"}
    for name, folder in folders.items():
        experiment = seqrl.Experiment(small(folder))
        experiment.start()
        experiment.loggers += experiment.init_logger()
        experiment.run_epoch(0)
        experiment.run_epoch(1)
        if name == "killed":
            experiment.interact(2)
            refresh_data(experiment.config, experiment.parts, experiment.progress, experiment.ending, 2)
            experiment.learner.learn_epoch(2, log_every=1, on_log=experiment.log, on_step=lambda _: None)
        experiment.close()
    for folder in folders.values():
        run(small(folder), resume=True)
    assert rows(folders["clean"]) == rows(folders["killed"])
    stores = [Store(f / "run" / "replay") for f in folders.values()]
    assert stores[0].total_reward.tolist() == stores[1].total_reward.tolist()


def seqrl_process(folder, *arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "seqrl", "train", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.slow
def test_a_run_that_is_killed_loses_at_most_the_unfinished_epoch(tmp_path):
    config = small(tmp_path, train={"num_epochs": 40})
    (tmp_path / "run.json").write_text(json.dumps(config.to_json()))
    process = seqrl_process(tmp_path, "--config", "run.json")
    checkpoints = tmp_path / "run" / "checkpoints"
    end = time.monotonic() + 120
    while not (checkpoints / "last").exists() or (checkpoints / "last").read_text().strip() < "epoch_000005":
        assert time.monotonic() < end
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    seen = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])["progress/epoch"]
    before = read_checkpoint(tmp_path / "run").training_state().values
    assert before["epoch"] >= seen - 1
    assert before["env_steps"] == {"seqrl/TMazeActive-v0": 60 * before["epoch"]}
    resumed = seqrl_process(tmp_path, "--config", "run.json", "--resume")
    _, text = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, text
    after = read_checkpoint(tmp_path / "run").training_state().values
    assert after["epoch"] == 40
    assert after["env_steps"] == {"seqrl/TMazeActive-v0": 60 * 40}
    assert [r["progress/epoch"] for r in rows(tmp_path) if "collect/episodes" in r] == list(range(1, 41))
    assert Store(tmp_path / "run" / "replay").verify() == []


# ------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize("vectorization", ["sync", "async", "native"])
def test_all_kinds_of_vectors(vectorization, tmp_path):
    env = {"id": "CartPole-v1", "kwargs": {}, "vectorization": vectorization}
    experiment, stats = run(small(tmp_path, env=env, train={"num_epochs": 1}))
    least = 50 if vectorization == "native" else 60  # a native vector spends a step on each reset
    assert least <= stats.env_steps <= 60
    assert experiment.metrics["eval/episodes"] == 4


def test_several_tasks_share_the_rows_and_have_metrics_of_their_own(tmp_path):
    tasks = [{"kwargs": {"corridor_length": 3}}, {"id": "seqrl/TMazePassive-v0"}]
    experiment, stats = run(small(tmp_path, env={"tasks": tasks}, collect={"num_envs": 4}))
    assert experiment.progress.env_steps == {"seqrl/TMazeActive-v0": 160, "seqrl/TMazePassive-v0": 160}
    last = rows(tmp_path)[-1]
    assert last["progress/env_steps/seqrl/TMazePassive-v0"] == 160
    assert {"eval/seqrl/TMazeActive-v0/return_mean", "eval/seqrl/TMazePassive-v0/return_mean"} <= last.keys()
    assert set(Store(stats.path / "replay").env_names) == set(experiment.progress.env_steps)


def test_every_task_is_evaluated_where_fewer_episodes_are_asked_for(tmp_path):
    tasks = [{"id": "seqrl/TMazePassive-v0"}, {"id": "seqrl/TMazeActive-v0"}]
    run(small(tmp_path, env={"tasks": tasks}, experiment={"evaluation": {"episodes": 1}}))
    last = rows(tmp_path)[-1]
    assert {"eval/seqrl/TMazeActive-v0/return_mean", "eval/seqrl/TMazePassive-v0/return_mean"} <= last.keys()


def test_tasks_need_rows_and_equal_spaces(tmp_path):
    tasks = [{"kwargs": {"corridor_length": n}} for n in (3, 4, 5)]
    with pytest.raises(ConfigError, match=r"collect\.num_envs is 2, fewer than the 3"):
        seqrl.Experiment(small(tmp_path, env={"tasks": tasks}, collect={"num_envs": 2})).start()
    other = seqrl.Experiment(small(tmp_path, "other", env={"tasks": [{}, {"id": "CartPole-v1"}], "kwargs": {}}))
    with pytest.raises(EnvError, match="CartPole-v1"):
        other.start()


def test_learning_and_collecting_can_begin_later(tmp_path):
    experiment, _ = run(small(tmp_path, train={"start_epoch": 2}, collect={"start_epoch": 1}))
    assert experiment.num_steps == 2 * 4
    assert experiment.progress.num_env_steps == 3 * 60
    demos = [{"scripted": "seqrl/TMazeActive-v0", "episodes": 6}]
    offline_first, _ = run(small(tmp_path, "later", train={"data": demos}, collect={"start_epoch": 3}))
    shares = [r["data/TMazeActive-v0/share"] for r in rows(tmp_path, "later") if "data/replay/share" in r]
    assert shares == [1, 1, 1, 0.5]
    assert offline_first.num_steps == 16


def test_learning_waits_for_the_minimum_size(tmp_path):
    experiment, _ = run(small(tmp_path, collect={"replay": {"min_transitions": 100}}))
    sizes = [r["data/replay/transitions"] for r in rows(tmp_path) if "data/replay/transitions" in r]
    assert experiment.num_steps == 4 * sum(size >= 100 for size in sizes)
    assert 0 < experiment.num_steps < 16


def test_steps_that_were_dropped_are_told_at_the_end_of_a_resumed_run(tmp_path, caplog):
    late = {"collect": {"replay": {"min_transitions": 100}}}
    run(small(tmp_path, **late, train={"num_epochs": 1}))
    caplog.clear()
    experiment, _ = run(small(tmp_path, **late), resume=True)
    dropped = 16 - experiment.num_steps
    assert f"{dropped} planned gradient steps were not taken" in caplog.text


def test_a_run_that_waits_for_data_says_so_before_its_end(tmp_path, caplog):
    told = []
    hook = type("Hook", (seqrl.Callback,), {"on_epoch_end": lambda self, run, metrics: told.append(caplog.text)})
    changes = {"collect": {"replay": {"min_transitions": 100_000}}, "train": {"num_epochs": 7}}
    run(small(tmp_path, **changes, experiment={"evaluation": {"enabled": False}}), callbacks=hook())
    assert ["20 planned gradient steps have not been taken so far" in text for text in told] == [False] * 4 + [True] * 3


def test_a_budget_is_kept_and_reported(tmp_path):
    _, stats = run(small(tmp_path, collect={"replay": {"max_trajectories": 8}}))
    last = [r for r in rows(tmp_path) if "data/replay/trajectories" in r][-1]
    assert last["data/replay/trajectories"] <= 9
    assert last["data/replay/evicted_transitions"] > 0
    assert len(list((stats.path / "replay" / "fifo").iterdir())) <= 18


def test_forced_resets_store_what_was_unfinished(tmp_path):
    env = {"id": "CartPole-v1", "kwargs": {}}
    collect = {"reset_every_n_epochs": 1, "steps_per_epoch": 5, "exploration": {"type": "none"}}
    _, stats = run(small(tmp_path, env=env, collect=collect))
    store = Store(stats.path / "replay")
    assert store.num_transitions == 3 * 3 * 5  # the last epoch's are cut by nobody
    assert store.start_step.max() == 0
    assert not any(t.truncated.any() or t.terminated.any() for t in store.trajectories())


def test_the_replay_of_another_run_can_be_shared_or_protected(tmp_path):
    _, first = run(small(tmp_path, "first"))
    shared = {"replay": {"path": str(first.path / "replay")}}
    experiment, _ = run(small(tmp_path, "second", collect=shared))
    assert len(experiment.replay) > len(Store(first.path / "replay")) // 2
    protected = {"data": [{"path": str(first.path / "replay")}], "valid_fraction": 0.0}
    third, _ = run(small(tmp_path, "third", train=protected))
    assert [s.is_live for s in third.learner.dataset.sources] == [False, True]
    assert len(Store(first.path / "replay")) == third.learner.dataset.sources[0].num_trajectories


def test_a_replay_of_other_actions_is_refused(tmp_path):
    _, first = run(small(tmp_path, "first", train={"num_epochs": 1}))
    shared = {"replay": {"path": str(first.path / "replay")}}
    with pytest.raises(seqrl.SeqrlError, match="holds an action_space of"):
        run(small(tmp_path, "second", env={"id": "CartPole-v1", "kwargs": {}}, collect=shared))


def test_relabelling_is_one_key(tmp_path):
    relabel = {"type": "scale_rewards", "scale": 0.0, "shift": 7.0}
    experiment, _ = run(small(tmp_path, collect={"replay": {"relabel": relabel}}, train={"num_epochs": 1}))
    batch = experiment.learner.dataset.batch(8, seed=0, path=(0,))
    assert set(batch.rewards[batch.mask].tolist()) == {7.0}
    assert 7.0 not in batch.inputs.prev_reward
