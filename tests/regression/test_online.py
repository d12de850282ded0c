"""Online runs: one seed, resume, kill, tasks, vectors, delays, and the Python interface."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import seqrl
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.configs import config_factory
from seqrl.core.errors import CheckpointError, ConfigError, EnvError
from seqrl.core.plugins import load_plugins
from seqrl.core.registry import EXPLORATIONS
from seqrl.core.seeding import seed_sequence
from seqrl.core.spaces import ActionCodec
from seqrl.data import NoData, Store
from seqrl.envs.make import env_maker
from seqrl.envs.vector import BatchedEnv
from seqrl.scripts import train

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
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in lines]


# ------------------------------------------------------------------------------------------- one seed
@pytest.mark.parametrize("algo", ["actor_critic", "multitask", "bc"])
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
        experiment._open_loggers()
        experiment.run_epoch(0)
        experiment.run_epoch(1)
        if name == "killed":
            experiment.collect_epoch(2)
            experiment.refresh_data(2)
            experiment.learner.learn_epoch(2, log_every=1, on_log=experiment._log, on_step=lambda _: None)
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
    assert all(t.truncated[-1] and not t.terminated.any() for t in store.trajectories())


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


# ---------------------------------------------------------------------------------- the Python interface
def test_an_environment_of_ones_own_in_a_few_lines(tmp_path):
    class Echo(gym.Env):
        observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.t += 1
            return np.zeros(1, np.float32), float(action), self.t == 5, False, {"success": bool(action)}

    config = small(tmp_path, env={"id": None, "kwargs": {}})
    experiment = seqrl.Experiment(config, make_train_env=Echo)
    experiment.start()
    experiment.learn()
    metrics, episodes = experiment.evaluate_test(Echo, episodes=10)
    assert len(episodes) == 10
    assert metrics["eval/length_mean"] == 5


def test_evaluate_test_by_steps_renders_and_saves_trajectories(tmp_path):
    experiment = seqrl.Experiment(small(tmp_path))
    experiment.start()
    frames = []

    class Watched(gym.Wrapper):
        def render(self):
            frames.append(1)
            return super().render()

    maker = env_maker("seqrl/TMazeActive-v0", {"corridor_length": 4}, render_mode="rgb_array")
    metrics, episodes = experiment.evaluate_test(
        lambda: Watched(maker()), timesteps=21, render=True, save_trajs_to=tmp_path / "saved"
    )
    assert len(episodes) >= 4
    assert frames
    store = Store(tmp_path / "saved")
    assert len(store) >= len(episodes)
    assert metrics["eval/episodes"] == len(episodes)
    with pytest.raises(EnvError, match="no episode ended within 1 steps"):
        experiment.evaluate_test(maker, timesteps=1)
    experiment.close()


def test_evaluation_only(tmp_path):
    config = small(tmp_path, train={"num_epochs": 0, "steps_per_epoch": 0}, collect={"steps_per_epoch": 0})
    experiment, stats = run(config)
    assert isinstance(experiment.learner.dataset, NoData)
    assert stats.metrics["eval/episodes"] == 4
    other, _ = run(small(tmp_path, "other", collect={"steps_per_epoch": 20}, train={"num_epochs": 1}), dataset=NoData())
    assert other.num_steps == 0


def test_a_given_epoch_can_be_loaded(tmp_path):
    experiment, stats = run(small(tmp_path, experiment={"save": {"every_n_epochs": 1}}))
    experiment.load_checkpoint(2)
    assert (experiment.progress.epoch, experiment.num_steps) == (2, 8)
    wanted = read_checkpoint(stats.path / "checkpoints" / "epoch_000002").tensors("model.safetensors")
    assert all(torch.equal(v, wanted[k]) for k, v in experiment.algo.serialize().items())
    experiment.load_checkpoint(4, resume_training_state=False)
    assert experiment.num_steps == 8
    with pytest.raises(CheckpointError, match="epoch_000009"):
        experiment.load_checkpoint(9)


def test_a_run_that_went_back_to_an_epoch_goes_on_collecting(tmp_path):
    experiment = seqrl.Experiment(small(tmp_path, experiment={"save": {"every_n_epochs": 1}}))
    experiment.start()
    for epoch in range(4):
        experiment.run_epoch(epoch)
    experiment.load_checkpoint(2)
    before = experiment.replay.num_transitions
    for epoch in range(2, 6):
        experiment.run_epoch(epoch)
    assert experiment.progress.num_env_steps == 6 * 60
    assert experiment.replay.num_transitions > before + 3 * 60
    assert experiment.replay.verify() == []
    experiment.close()


def test_the_budget_holds_within_an_epoch_too(tmp_path):
    config = small(
        tmp_path, train={"num_epochs": 1}, collect={"steps_per_epoch": 700, "replay": {"max_transitions": 400}}
    )
    experiment = seqrl.Experiment(config)
    experiment.start()
    sizes = []
    experiment.collector.collect(0, lambda *_: sizes.append(Store(experiment.replay.path).num_transitions))
    assert 300 < max(sizes) <= 400 + 2 * (400 // 16 + 12)
    experiment.close()


def test_evaluation_does_not_disturb_environments_that_draw_from_global_generators(tmp_path):
    class Global(gym.Env):
        observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.full(1, random.random(), np.float32), {}

        def step(self, action):
            self.t += 1
            return np.random.random(1).astype(np.float32), 1.0, self.t == 5, False, {}  # noqa: NPY002

    for name, every in (("a", 1), ("b", 4)):
        changes = {"evaluation": {"every_n_epochs": every}}
        run(small(tmp_path, name, env={"id": None, "kwargs": {}}, experiment=changes), make_train_env=Global)
    kept = [[r for r in rows(tmp_path, n) if "eval/return_mean" not in r] for n in "ab"]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"make_train_env": []}, "make_train_env must be a callable"),
        ({"make_train_env": gym.make("CartPole-v1")}, "make_train_env must be a callable"),
        ({"make_train_env": lambda: None}, "returned None"),
        ({"role": "other"}, "role must be"),
    ],
)
def test_bad_arguments_are_said(options, says, tmp_path):
    with pytest.raises(seqrl.SeqrlError, match=says):
        seqrl.Experiment(small(tmp_path), **options).start()
    assert not (tmp_path / "run").exists()


def test_verbs_out_of_order_are_said(tmp_path):
    experiment = seqrl.Experiment(small(tmp_path, train={"num_epochs": 1}))
    with pytest.raises(ConfigError, match="call start"):
        experiment.learn()
    experiment.start()
    with pytest.raises(ConfigError, match="episodes must be at least 1, got 0"):
        experiment.evaluate_test(env_maker("seqrl/TMazeActive-v0"), episodes=0)
    with pytest.raises(EnvError, match="make_env"):
        experiment.evaluate_test(env_maker("CartPole-v1"), episodes=1)
    experiment.learn()
    with pytest.raises(ConfigError, match="resume=True"):
        experiment.learn()


def test_a_run_begins_with_given_weights(tmp_path):
    _, first = run(small(tmp_path, "first"))
    given = {"init_from": str(first.path), "num_epochs": 0}
    second, _ = run(small(tmp_path, "second", train=given))
    wanted = read_checkpoint(first.path).tensors("model.safetensors")
    assert all(torch.equal(v, wanted[k]) for k, v in second.algo.serialize().items())


def test_another_optimiser(tmp_path):
    class WithSGD(seqrl.Experiment):
        def init_optimizer(self, nets):
            return torch.optim.SGD([p for p in nets.parameters() if p.requires_grad], lr=1e-3, momentum=0.9)

    for _ in range(2):
        experiment = WithSGD(small(tmp_path, train={"num_epochs": 2}), overwrite=True)
        experiment.start()
        experiment.learn()
    assert experiment.num_steps == 8
    resumed = WithSGD(small(tmp_path, train={"num_epochs": 3}), resume=True)
    resumed.start()
    resumed.learn()
    assert resumed.num_steps == 12


def test_a_broken_update_is_suppressed_with_any_optimiser(tmp_path):
    class WithSGD(seqrl.Experiment):
        def init_optimizer(self, nets):
            return torch.optim.SGD([p for p in nets.parameters() if p.requires_grad], lr=float("1e-3"))

    experiment = WithSGD(small(tmp_path, train={"on_nonfinite": "skip"}))
    experiment.start()
    experiment.collect_epoch(0)
    experiment.refresh_data(0)
    before = experiment.algo.serialize()
    batch = experiment.learner.dataset.batch(4, seed=0, path=(0,))
    batch.rewards[:] = float("nan")
    experiment.algo.train_on_batch(experiment.algo.process_batch_for_training(batch))
    after = experiment.algo.serialize()
    trained = [k for k, p in experiment.algo.nets.named_parameters() if p.requires_grad]
    assert all(torch.equal(before[k], after[k]) for k in trained)
    experiment.close()


# ------------------------------------------------------------------------------------------ command line
def test_what_is_missing_is_said(tmp_path, capsys):
    assert train.main(["--algo", "actor_critic", "--set", "collect.steps_per_epoch=5"]) == 2
    assert "env.id: is required" in capsys.readouterr().err
    never = 'collect.replay={"min_trajectories": 5, "max_trajectories": 4}'
    assert train.main(["--algo", "actor_critic", "--set", never]) == 2
    assert "min_trajectories 5 exceeds max_trajectories 4" in capsys.readouterr().err
    assert train.main(["--algo", "actor_critic", "--role", "learn"]) == 2
    assert "role 'learn' needs a run that collects" in capsys.readouterr().err


def test_the_start_says_what_will_happen(tmp_path, caplog):
    caplog.set_level("INFO", logger="seqrl")
    run(small(tmp_path, train={"num_epochs": 1}, collect={"replay": {"max_gb": 0.5}}))
    for text in ("60 env steps", "limit 0.5 GB", "gradient steps per environment step", "of learning", "predicted"):
        assert text in caplog.text, text


def test_the_corridor_plugin_explores_where_it_is_safe(tmp_path):
    """Half of the walks through the corridor take no random step, and at the junction epsilon is the schedule's."""
    plugin = str(ROOT / "examples" / "corridor_exploration_plugin.py")
    load_plugins([plugin])
    codec = ActionCodec(gym.spaces.Discrete(4))
    options = {"corridor_length": 20, "start": 0.5, "end": 0.5}
    explore = EXPLORATIONS.get("corridor")(codec, 4000, seed_sequence(0), **options)
    right = codec.encode(np.zeros(4000, np.int64))
    env = BatchedEnv(gym.make_vec("seqrl/TMazePassive-v0", 4000, corridor_length=20, vectorization_mode="sync"))
    step, clean = env.reset(seed=0), np.ones(4000, bool)
    for _ in range(20):
        actions = explore(right, step)
        clean &= (actions == right).all(1)
        step = env.step(right)
    assert 0.5 < clean.mean() < 0.66  # a quarter of the random steps goes right too
    changed = (explore(right, step) != right).any(1)
    assert abs(changed.mean() - 0.5 * 0.75) < 0.03
    config = small(tmp_path, env={"kwargs": {}}, collect={"exploration": {"type": "corridor", "corridor_length": 50}})
    config.plugins = [plugin]
    run(config)


def test_memory_and_disk_stay_flat_while_the_replay_turns_over():
    """A tenth of the soak in benchmarks/replay.py."""
    command = [sys.executable, "benchmarks/replay.py", "--transitions", "2e6", "--gb", "0.05", "--rounds", "20"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    code = "import runpy, sys, record; record.record = lambda *a: 'no file'; sys.argv = sys.argv[1:]; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    environment["PYTHONPATH"] += os.pathsep + str(ROOT / "benchmarks")
    done = subprocess.run(
        [sys.executable, "-c", code, *command[1:], "--windows", "240"],
        capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.search(r"'RssAnon \(MB\)': ([\d.]+)}; most on disk ([\d.]+) MB; left behind: (\[.*\])", done.stdout)
    assert abs(float(found[1]) - 1) < 0.05
    assert float(found[2]) <= 50 * (1 + 1 / 16)
    assert found[3] == "[]"
