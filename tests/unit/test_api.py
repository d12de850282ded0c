"""Training, evaluation, runs and data by one call each, from Python."""

import logging
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import seqrl
import seqrl.envs
from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError, EnvError

TINY = {
    "train": {"num_epochs": 2, "steps_per_epoch": 3, "batch_size": 4, "window_steps": 5},
    "experiment": {"evaluation": {"episodes": 4}, "report": {"enabled": False}, "logging": {"tensorboard": False}},
    "algo": {"sequence_encoder": {"type": "feedforward"}},
}


class Lamp(gym.Env):
    """Do what is shown."""

    observation_space = gym.spaces.Box(0.0, 1.0, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, num_steps=3):
        self.num_steps = num_steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.light = 0, int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.light], {}

    def step(self, action):
        self.time += 1
        reward = float(int(action) == self.light)
        return np.eye(2, dtype=np.float32)[self.light], reward, self.time == self.num_steps, False, {}


class Short(Lamp):
    """Cut by gymnasium."""


@pytest.fixture
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    collect = {"steps_per_epoch": 20, "num_envs": 2, "replay": {"min_transitions": 1, "min_trajectories": 1}}
    experiment = {**TINY["experiment"], "output_dir": str(tmp_path_factory.mktemp("runs"))}
    yield seqrl.train("actor_critic", env=Lamp, memory="gru", name="lamp", collect=collect, verbose=False,
                      train=TINY["train"], experiment=experiment)  # fmt: skip
    del gym.registry["Lamp-v0"]


def test_an_environment_of_ones_own_is_learned_in(run):
    assert run.path.name == "lamp"
    assert run.config["env"]["id"] == "Lamp-v0"
    assert run.config["algo"]["sequence_encoder"]["type"] == "gru"
    metrics = run.metrics
    assert {len(column) for column in metrics.values()} == {len(metrics["step"])}
    assert metrics["step"].max() == 6
    returns = metrics["eval/return_mean"]
    assert run.last("eval/return_mean") == returns[np.isfinite(returns)][-1]
    with pytest.raises(ConfigError, match="no metric 'eval/retrun_mean'; did you mean 'eval/return_mean'"):
        run.last("eval/retrun_mean")
    policy = run.policy()
    assert (policy.deterministic, run.policy(deterministic=False).deterministic) == (True, False)
    policy.start_episode()
    assert policy(np.array([1.0, 0.0], np.float32), reward=None) in (0, 1)


def test_a_run_is_evaluated_and_drawn(run, tmp_path):
    found = run.evaluate(8, seed=3)
    assert found["eval/episodes"] == 8
    assert found == seqrl.evaluate(run.path, 8, seed=3)
    longer = seqrl.evaluate(run, 4, env=lambda: Lamp(num_steps=7))
    assert longer["eval/length_mean"] == 7.0
    picture = run.plot("eval/length_mean", "eval/return_mean", file=tmp_path / "curve.png")
    assert picture.width > picture.height > 100
    assert (tmp_path / "curve.png").exists()
    with pytest.raises(ConfigError, match="eval/retrn_mean"):
        run.plot("eval/retrn_mean")


@pytest.mark.usefixtures("_here")
def test_each_environment_has_an_id_of_its_own(run):
    """A later one of the same name is not what an earlier run is evaluated in, and what the user registered stays."""
    seqrl.evaluate(run, 4, env=partial(Lamp, num_steps=5))
    assert run.evaluate(4)["eval/length_mean"] == 3.0
    assert seqrl.evaluate(run, 4, env=lambda: Lamp(6))["eval/length_mean"] == 6.0
    assert seqrl.evaluate(run, 4, env=lambda: Lamp(7))["eval/length_mean"] == 7.0
    gym.register("Short-v0", entry_point=Short, max_episode_steps=2)
    assert seqrl.evaluate(run, 4, env=Short)["eval/length_mean"] == 2.0
    assert gym.registry["Short-v0"].max_episode_steps == 2


def test_mistakes_are_errors_and_end_nothing(run):
    with pytest.raises(ConfigError, match="such as 50k or 1M, got '0'"):
        seqrl.train("actor_critic", env=Lamp, env_steps=0)
    with pytest.raises(ConfigError, match="x is one of env_steps, "):
        run.plot("eval/return_mean", x="steps")
    with pytest.raises(ConfigError, match="the config: algo_name is required"):
        seqrl.train({}, env=Lamp)
    with pytest.raises(ConfigError, match=r"env is <.*: give a gymnasium id, or a class or function"):
        seqrl.train("actor_critic", env=Lamp(), env_steps=5000)
    with pytest.raises(ConfigError, match=r"'memori' is neither an argument .*; did you mean 'memory'"):
        seqrl.train("actor_critic", env=Lamp, memori="gru", env_steps=5000)
    with pytest.raises(ConfigError, match="has no checkpoint 'best'; it has: best_return, epoch_"):
        run.policy("best")
    with pytest.raises(ConfigError, match=r"plug-in 'gone\.py' does not exist"):
        run.policy(plugins="gone.py")
    with pytest.raises(ConfigError, match="give one of the two"):
        seqrl.train("bc.json", resume=True, overwrite=True)
    collecting = config_factory("actor_critic", {"collect": {"steps_per_epoch": 5}, "env": {"id": "CartPole-v1"}})
    with pytest.raises(ConfigError, match="give one of the two"):
        seqrl.Experiment(collecting, role="collect", resume=True, overwrite=True)
    for wrong in ({"episodes": 0}, {"episodes": float("nan")}, {"num_envs": 2.5}, {"seed": -1}):
        with pytest.raises(ConfigError, match="at least 1, 1 and 0 are needed"):
            seqrl.evaluate(run, **wrong)


@pytest.mark.usefixtures("_here")
def test_the_section_of_the_environment_is_taken_too(capsys):
    config, kwargs = "actor_critic", {"env": {"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 2}}}
    collect = {"steps_per_epoch": 8, "num_envs": 2, "replay": {"min_transitions": 1, "min_trajectories": 1}}
    run = seqrl.train(config, memory="gru", name="a", env_steps=100, verbose=False, collect=collect, **kwargs,
                      **{k: v for k, v in TINY.items() if k != "algo"})  # fmt: skip
    assert run.config["env"]["kwargs"] == {"corridor_length": 2}
    assert "note:" not in capsys.readouterr().err


@pytest.mark.usefixtures("_here")
def test_a_seed_one_callback_and_an_entry_of_data_are_arguments():
    class Starts(seqrl.Callback):
        number = 0

        def on_start(self, run):
            self.number += 1

    callback = Starts()
    data = {"scripted": "seqrl/TMazePassive-v0", "episodes": 6, "env_kwargs": {"corridor_length": 3}}
    env = {"eval_kwargs": {"corridor_length": 4}}  # in place of those of the template
    run = seqrl.train("bc.json", env=env, dataset=data, seed=7, callbacks=callback, verbose=False, **TINY)
    assert (run.config["train"]["seed"], callback.number) == (7, 1)
    assert run.config["env"]["eval_kwargs"] == {"corridor_length": 4}
    assert run.config["train"]["data"][0]["episodes"] == 6
    assert run.config["train"]["batch_size"] == TINY["train"]["batch_size"]


@pytest.mark.usefixtures("_here")
def test_values_of_a_run_file_and_its_template_are_taken(tmp_path):
    data = [{"scripted": "seqrl/TMazePassive-v0", "episodes": 6, "env_kwargs": {"corridor_length": 3}}]
    values = {**TINY, "algo_name": "bc", "train": {**TINY["train"], "data": data}}
    env = {"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 3}}
    first = seqrl.train(values, name="a", verbose=False, **{"env.id": env["id"]}, **{"env.kwargs": env["kwargs"]})
    assert first.config["env"]["kwargs"] == {"corridor_length": 3}
    few = {**TINY["train"], "num_epochs": 1, "data": data}
    second = seqrl.train("bc.json", name="b", verbose=False, **{**TINY, "train": few})
    assert second.metrics["step"].max() == 3
    third = seqrl.train("bc.json", name="c", verbose=False, **{**TINY, "train": few, "env": {}})
    assert third.config["env"] == second.config["env"]  # an empty section changes nothing
    with pytest.raises(ConfigError, match="did you mean 'batch_size'"):
        seqrl.train("bc.json", train={"batchsize": 3})
    with pytest.raises(ConfigError, match="is not a run"):
        seqrl.Run(tmp_path)


@pytest.mark.usefixtures("_here")
def test_paths_and_numbers_of_numpy_are_values_too(tmp_path):
    data = [{"path": tmp_path / "none.hdf5", "weight": np.float32(1.0)}]
    for call in (
        lambda: seqrl.train("bc", train={"data": data}),
        lambda: seqrl.train({"algo_name": "bc", "train": {"data": data}}),
    ):
        with pytest.raises(seqrl.core.errors.SeqrlError, match=r"none\.hdf5"):
            call()
    with pytest.raises(ConfigError, match="is not JSON: a run file holds"):
        seqrl.train("bc", train={"seed": {1}})


@pytest.mark.usefixtures("_here")
def test_data_are_opened():
    from seqrl.scripts.collect_dataset import main

    assert main(["--env", "seqrl/TMazePassive-v0", "--episodes", "5", "--output", "maze.hdf5"]) == 0
    data = seqrl.load_dataset("maze.hdf5")
    assert len(data) == 5
    assert len(data.trajectory(2).actions) == 51
    assert len(list(data.trajectories())) == 5


@pytest.mark.usefixtures("_here")
def test_a_run_in_python_says_how_far_it_is(capsys, monkeypatch):
    data = [{"scripted": "seqrl/TMazePassive-v0", "episodes": 6}]
    ours = logging.getLogger("seqrl")
    monkeypatch.setattr(ours, "handlers", [])
    monkeypatch.setattr(ours, "propagate", True)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    seqrl.train("bc.json", name="a", **{**TINY, "train": {**TINY["train"], "data": data}})
    said = capsys.readouterr().err
    assert "plan" in said
    assert "epoch   2  success" in said
    assert "report" not in said
    assert ours.handlers == []
    seqrl.train("bc.json", name="b", verbose=False, **{**TINY, "train": {**TINY["train"], "data": data}})
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_here")
def test_an_environment_that_draws_nothing_costs_a_note_and_no_warning(caplog, recwarn):
    report = {"experiment": {**TINY["experiment"], "report": {"enabled": True}}}
    collect = {"steps_per_epoch": 20, "num_envs": 2, "replay": {"min_transitions": 1, "min_trajectories": 1}}
    run = seqrl.train("actor_critic", env=Lamp, memory="gru", name="lamp", collect=collect, **{**TINY, **report})
    assert not [w for w in recwarn if "render" in str(w.message)]
    assert "no video: the environment has no render mode 'rgb_array'" in (run.path / "log.txt").read_text()


def balanced():
    return gym.make("CartPole-v1")


@pytest.mark.usefixtures("_here")
def test_a_function_that_takes_no_render_mode_costs_a_note_and_no_warning():
    report = {"experiment": {**TINY["experiment"], "report": {"enabled": True}}}
    collect = {"steps_per_epoch": 20, "num_envs": 2, "replay": {"min_transitions": 1, "min_trajectories": 1}}
    run = seqrl.train("actor_critic", env=balanced, memory="gru", name="rod", collect=collect, **{**TINY, **report})
    said = (run.path / "log.txt").read_text()
    assert "no video: balanced() has no argument 'render_mode' to pass on to the environment" in said
    assert "warning: no video" not in said
    assert "Traceback" not in said


def test_what_is_no_run_no_config_and_no_callback_is_told():
    with pytest.raises(ConfigError, match=r"a run, a checkpoint or its path is needed, not int"):
        seqrl.evaluate(5)
    with pytest.raises(
        ConfigError, match=r"config_factory gives it, not dict; seqrl.train takes names, files and dicts"
    ):
        seqrl.Experiment({})
    for wrong in (seqrl.Callback, print):
        with pytest.raises(ConfigError, match=r"callbacks: must be objects of subclasses of seqrl.Callback"):
            seqrl.Experiment(config_factory("bc", {}), callbacks=wrong)
    with pytest.raises(ConfigError, match=r"dataset: give several as train="):
        seqrl.train("bc", dataset=["a.hdf5", "b.hdf5"])
    with pytest.raises(ConfigError, match=r"call start\(\) before evaluate_val\(\)"):
        seqrl.Experiment(config_factory("bc", {"env": {"id": "CartPole-v1"}})).evaluate_val()
    with pytest.raises(ConfigError, match=r"initial_weight has no effect without anneal_epochs"):
        config_factory("actor_critic", {"collect": {"replay": {"initial_weight": 0.5}}})


def test_home_is_where_a_run_lies(run, monkeypatch):
    monkeypatch.setenv("HOME", str(run.path.parent))
    assert seqrl.Run(f"~/{run.path.name}").config == run.config
    assert seqrl.evaluate(f"~/{run.path.name}", 2.0)["eval/episodes"] == 2


def test_a_vector_in_place_of_an_environment_is_told_where_it_goes():
    with pytest.raises(EnvError, match=r"make_train_env="):
        seqrl.train("actor_critic", env=lambda: gym.make_vec("CartPole-v1", 2), collect={"steps_per_epoch": 5})
