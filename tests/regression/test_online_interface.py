"""The Python interface and the command line of online runs, the exploration plug-in, and the replay at length."""

import os
import random
import re
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch

import seqrl
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.algo.ema import averaged_weights, without_averages
from seqrl.core.errors import CheckpointError, ConfigError, EnvError
from seqrl.core.plugins import load_plugins
from seqrl.core.registry import EXPLORATIONS
from seqrl.core.seeding import seed_sequence
from seqrl.core.spaces import ActionCodec
from seqrl.data import NoData, Store
from seqrl.envs.make import env_maker
from seqrl.envs.vector import BatchedEnv
from seqrl.scripts import train
from tests.regression.test_online import ROOT, rows, run, small


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

    class FailsOnce(gym.Wrapper):
        num_steps = 0

        def step(self, action):
            FailsOnce.num_steps += 1
            return 1 / 0 if FailsOnce.num_steps == 3 else super().step(action)

    experiment.evaluate_test(lambda: FailsOnce(maker()), episodes=2, save_trajs_to=tmp_path / "whole")
    whole = Store(tmp_path / "whole")
    assert len(whole) >= 2
    assert all(t.terminated[-1] or t.truncated[-1] for t in whole.trajectories())
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


def test_a_native_vector_that_does_not_exist_is_said_before_training(tmp_path):
    changes = {"env": {"id": "Pendulum-v1", "kwargs": {}, "vectorization": "native"}}
    with pytest.raises(seqrl.SeqrlError, match="'Pendulum-v1' has no native vector; set env"):
        seqrl.Experiment(small(tmp_path, **changes)).start()
    assert not (tmp_path / "run").exists()


def test_limits_of_evaluation_need_single_environments(tmp_path):
    changes = {"env": {"id": "CartPole-v1", "kwargs": {}, "vectorization": "native"}}
    config = small(tmp_path, experiment={"evaluation": {"max_steps": 5}}, **changes)
    with pytest.raises(ConfigError, match="max_steps and terminate_on_success need"):
        run(config)


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
    second.algo.config.train.normalize_obs = "gaussian"
    with pytest.raises(ConfigError, match=r"'gaussian', and these weights .* were trained with 'none'"):
        second.load_checkpoint_from_path(first.path)
    wanted = averaged_weights(read_checkpoint(first.path).tensors("model.safetensors"))
    assert all(torch.equal(v, wanted[k]) for k, v in without_averages(second.algo.serialize()).items())


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
    experiment.interact(0)
    experiment.learner.dataset.refresh(0)
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
    close = 'collect.replay={"min_transitions": 990, "max_transitions": 1000}'
    assert train.main(["--algo", "actor_critic", "--set", close]) == 2
    assert "min_transitions 990 is more than half of max_transitions 1000" in capsys.readouterr().err
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


@pytest.mark.slow
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
