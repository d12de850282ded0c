"""What runs say of data that does not fit: other entries or ranges than the first weights, missing rewards, no ends."""

import dataclasses
import json
import re

import h5py
import numpy as np
import pytest

import seqrl
from seqrl.core.errors import DataError
from seqrl.core.types import Trajectory
from seqrl.data.ingest import open_store
from seqrl.data.relabel import Hindsight, Relabeler, relabelled
from seqrl.rollout.environments import Task, tasks
from seqrl.scripts import collect_dataset, train, validate_dataset

STEPS = 6


def robomimic(path, *, scale=1.0, entries=(("a", 2), ("b", 3)), has_rewards=True):
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for number in range(4):
            demo = file.create_group(f"data/demo_{number}")
            for name, width in entries:
                demo[f"obs/{name}"] = rng.normal(size=(STEPS, width)).astype(np.float32)
                demo[f"next_obs/{name}"] = rng.normal(size=(STEPS, width)).astype(np.float32)
            demo["actions"] = (scale * rng.uniform(-1, 1, (STEPS, 2))).astype(np.float32)
            demo["dones"] = np.eye(STEPS)[-1]
            if has_rewards:
                demo["rewards"] = np.eye(STEPS)[-1]
    return str(path)


def warnings_of(folder, name, paths, algo="bc", env=None, **values):
    """Train a little, and return what the run warns of."""
    config = {
        "env": {"id": env},
        "experiment": {
            "output_dir": str(folder),
            "name": name,
            "evaluation": {"enabled": False},
            "report": {"enabled": False},
            "logging": {"tensorboard": False, "progress_bar": False},
        },
        "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
        "algo": {"sequence_encoder": {"type": "feedforward", "d_model": 8, "d_ff": 8, "num_layers": 1}},
        "train": {"data": [{"path": path} for path in paths], "num_epochs": 1, "steps_per_epoch": 1, "window_steps": 4,
                  "batch_size": 2, "normalize_actions": "min_max", **values},
    }  # fmt: skip
    experiment = seqrl.Experiment(seqrl.config_factory(algo, config))
    experiment.start()
    experiment.learn()
    return (folder / name / "log.txt").read_text()


def test_actions_beyond_the_range_of_the_first_weights_are_told(tmp_path):
    narrow, wide = robomimic(tmp_path / "narrow.hdf5", scale=0.1), robomimic(tmp_path / "wide.hdf5", scale=5.0)
    assert "lie outside the range" not in warnings_of(tmp_path, "first", [narrow])
    start = str(tmp_path / "first")
    assert "lie outside the range" not in warnings_of(tmp_path, "same", [narrow], init_from=start)
    text = warnings_of(tmp_path, "other", [wide], init_from=start)
    assert "% of the actions lie outside the range of the data that the weights come from (train.init_from)" in text


def test_weights_that_read_other_observations_are_told(tmp_path, caplog):
    first, other = robomimic(tmp_path / "first.hdf5"), robomimic(tmp_path / "other.hdf5", entries=(("c", 5),))
    warnings_of(tmp_path, "first", [first])
    caplog.clear()
    warnings_of(tmp_path, "same", [first], init_from=str(tmp_path / "first"))
    assert "and this run" not in caplog.text
    warnings_of(tmp_path, "second", [other], init_from=str(tmp_path / "first"))
    assert "read a [2], b [3], and this run c [5]" in caplog.text


def test_files_without_rewards_beside_others_are_told(tmp_path):
    paid, unpaid = robomimic(tmp_path / "paid.hdf5"), robomimic(tmp_path / "unpaid.hdf5", has_rewards=False)
    text = warnings_of(tmp_path, "mixed", [paid, unpaid], "iql")
    assert "unpaid.hdf5: has no rewards, so iql takes them for 0" in text
    assert "no rewards" not in warnings_of(tmp_path, "cloned", [paid, unpaid])


def d4rl(path, *, bad_row=None, leave_out=()):
    columns = {
        "observations": np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32),
        "actions": np.zeros((20, 2), np.float32),
        "rewards": np.zeros(20, np.float32),
        "terminals": np.zeros(20, bool),
        "timeouts": np.arange(20) % 5 == 4,
    }
    if bad_row is not None:
        columns["observations"][bad_row] = np.nan
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            if name not in leave_out:
                file[name] = values
    return path


def test_an_error_in_d4rls_data_says_where(tmp_path):
    with pytest.raises(DataError, match=r"bad.hdf5: episode 2, rows 10 to 14: .* non-finite value at step 1"):
        open_store(str(d4rl(tmp_path / "bad.hdf5", bad_row=11)))
    with pytest.raises(DataError, match="A file as D4RL's has observations, actions, rewards and terminals"):
        open_store(str(d4rl(tmp_path / "endless.hdf5", leave_out=("terminals",))))


def test_a_d4rl_file_is_not_damaged_but_has_to_be_converted(tmp_path, capsys):
    assert validate_dataset.main([str(d4rl(tmp_path / "good.hdf5"))]) == 2
    assert "convert it: seqrl convert-dataset" in capsys.readouterr().err


def test_the_arguments_of_the_datas_environment_hold_if_its_id_is_repeated():
    section = seqrl.config_factory("bc", {"env": {"id": "mine-v0", "kwargs": {"speed": 2}}}).env
    assert tasks(section, "mine-v0", {"size": 7, "speed": 1}, is_evaluation=False) == [
        Task("mine-v0", {"size": 7, "speed": 2})
    ]
    assert tasks(section, "other-v0", {"size": 7}, is_evaluation=False) == [Task("mine-v0", {"speed": 2})]


def test_a_budget_of_environment_steps_takes_the_datas_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--env", "seqrl/TMazePassive-v0", "--env-kwargs", '{"corridor_length": 40}', "--episodes", "4"]
    assert collect_dataset.main([*words, "--output", "maze.hdf5"]) == 0
    words = ["--algo", "iql", "--dataset", "maze.hdf5", "--env-steps", "600"]
    parser = train.parser()
    for more in ([], ["--env", "seqrl/TMazePassive-v0"]):
        config, _ = train.resolve_config(parser.parse_args([*words, *more]))
        assert config.train.window_steps == 41
        assert config.env.kwargs == {}


def test_relabelled_rewards_on_another_scale_than_the_datas_are_told_once(caplog, monkeypatch):
    monkeypatch.setattr("seqrl.data.relabel._TOLD", set())

    def relabel(rewards, **options):
        steps = len(rewards)
        places = np.arange(steps + 1, dtype=np.float32)[:, None]
        ends = np.arange(steps) == steps - 1
        walk = Trajectory(
            obs={"achieved_goal": places, "desired_goal": places + 9},
            actions=np.zeros(steps, np.int64),
            rewards=np.array(rewards, np.float32),
            terminated=np.zeros(steps, bool),
            truncated=ends,
        )
        Hindsight(threshold=0.0, **options).relabel_trajectory(walk, np.random.default_rng(0))

    relabel([-1.0, 0.0])
    assert not caplog.text
    for _ in range(2):
        relabel([0.0, 1.0])
    told = "the data has rewards from 0 to 1, and relabelled trajectories get 0 at the goal and -1 elsewhere"
    assert caplog.text.count(told) == 1
    relabel([0.0, 1.0], success_reward=1.0, failure_reward=0.0)
    assert caplog.text.count("relabelled") == 1


class Short(Relabeler):
    """Gives too few rewards."""

    needs = "trajectory"

    def relabel_trajectory(self, trajectory, rng):
        return dataclasses.replace(trajectory, rewards=trajectory.rewards[:-1])


def test_a_relabeler_whose_trajectory_is_none_is_named(tmp_path):
    with pytest.raises(DataError, match=r"^relabeler Short: (trajectory of .*: )?rewards has 5 rows, not 6$"):
        relabelled(Short(), open_store(robomimic(tmp_path / "arm.hdf5")).trajectory(0), np.random.default_rng(0))


def test_actions_at_their_bounds_are_told_where_densities_have_no_limit_there(tmp_path):
    path = robomimic(tmp_path / "arm.hdf5")
    assert "is at a bound" not in warnings_of(tmp_path, "free", [path], normalize_actions="none")
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            demo["actions"][:3, 1] = [-1.0, 1.0, 1.0]
    text = warnings_of(tmp_path, "gripper", [path], normalize_actions="none")
    assert "arm.hdf5: action 1 is at a bound in 50% of the steps, where the density of tanh_gaussian" in text
    assert "is at a bound" not in warnings_of(tmp_path, "iql", [path], algo="iql", normalize_actions="none")


def test_bounds_of_scaled_actions_are_those_of_the_data(tmp_path):
    path = robomimic(tmp_path / "degrees.hdf5", scale=90.0)
    assert "is at a bound" not in warnings_of(tmp_path, "free", [path])
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            demo["actions"][:3, 1] = [-90.0, 90.0, 90.0]
    assert "action 1 is at a bound in 50% of the steps" in warnings_of(tmp_path, "gripper", [path])


def test_actions_in_one_that_are_taken_for_wider_units_are_told(tmp_path):
    path, told = robomimic(tmp_path / "swing.hdf5", entries=[("obs", 3)]), "are read in the units of the environment"
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            actions = demo["actions"][:, :1]
            del demo["actions"]
            demo["actions"] = actions
    given = {"env": "Pendulum-v1", "normalize_actions": "none"}
    assert told not in warnings_of(tmp_path, "scaled", [path], **given)
    space = {"type": "Box", "shape": [1], "dtype": "float32", "low": -1.0, "high": 1.0}
    for bound in (1.0, 2.0):
        with h5py.File(path, "a") as file:
            file["data"].attrs["action_space"] = json.dumps({**space, "low": -bound, "high": bound})
        assert (told in warnings_of(tmp_path, f"units_{bound}", [path], **given)) == (bound == 1.0)


def test_filter_keys_that_split_a_file_and_are_not_used_are_told(tmp_path, caplog):
    path = robomimic(tmp_path / "split.hdf5")
    with h5py.File(path, "a") as file:
        file["mask/train"], file["mask/valid"] = ([f"demo_{i}" for i in own] for own in ((0, 1, 2), (3,)))
        file["data/demo_3/rewards"][-1] = 9.0
    warnings_of(tmp_path, "all", [path])
    assert "split.hdf5: its filter keys train and valid are not used" in caplog.text
    caplog.clear()
    keys = {"filter_key": "train", "valid_filter_key": "valid"}
    text = warnings_of(tmp_path, "split", [], data=[{"path": path, **keys}])
    assert "filter keys" not in caplog.text
    assert re.search(r"mean return +1\n", text)


def test_episodes_without_dones_are_told(tmp_path, caplog):
    path = robomimic(tmp_path / "endless.hdf5")
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            del demo["dones"]
    warnings_of(tmp_path, "endless", [path])
    (said,) = [record.message for record in caplog.records if "has no 'dones'" in record.message]
    assert "/data/demo_0 has no 'dones', so it is read as cut" in said


def num_epochs_of(run):
    return json.loads((run / "config.json").read_text())["train"]["num_epochs"]


def test_a_run_goes_on_from_its_own_run_file_by_a_larger_budget(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--set", "algo.sequence_encoder.d_model=8", "--set", "experiment.report.enabled=false"]
    words = ["--algo", "bc", "--memory", "feedforward", "--dataset", robomimic("arm.hdf5"), "--name", "r", *small]
    assert train.main([*words, "--gradient-steps", "4"]) == 0
    again = ["--config", "runs/r/config.json", "--resume"]
    capsys.readouterr()
    assert train.main([*again, "--gradient-steps", "6"]) == 0
    assert "2 (the last 2 of 6 epochs, 1 each)" in capsys.readouterr().err
    assert num_epochs_of(tmp_path / "runs/r") == 6
    assert train.main([*again, "--gradient-steps", "9", "--set", "train.num_epochs=7"]) == 0
    assert num_epochs_of(tmp_path / "runs/r") == 7
    assert train.main(["--name", "r", "--resume", "--gradient-steps", "8"]) == 0
    assert num_epochs_of(tmp_path / "runs/r") == 8
    assert train.main(["--name", "s", "--resume"]) == 2
    assert "nothing to resume: runs/s/config.json does not exist" in capsys.readouterr().err
