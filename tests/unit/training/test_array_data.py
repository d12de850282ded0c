"""What users of arrays meet from training to the choice of a policy, with and without an environment."""

import json
import re

import gymnasium as gym
import h5py
import numpy as np
import pytest

import seqrl
from seqrl.core.errors import ConfigError, DataError, EnvError
from seqrl.data.convert import convert
from seqrl.scripts import probe, select_

NUM, LENGTH = 12, 8
COLUMNS = {
    "obs/obs": "states", "next_obs/obs": "after", "actions": "acts", "rewards": "rews", "episode_ends": "ends"
}  # fmt: skip
SMALL = {
    "experiment": {"logging": {"tensorboard": False, "progress_bar": False}, "report": {"enabled": False}},
    "train": {"window_steps": 4, "num_epochs": 1, "steps_per_epoch": 2, "batch_size": 4},
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
    "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 8, "num_layers": 1, "d_output": 8}},
}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


def arrays(*, width=3, reach=2.0):
    """Return Pendulum's kind of episodes, with actions in [-reach, reach]."""
    rng = np.random.default_rng(0)
    states = rng.random((NUM, LENGTH + 1, width), dtype=np.float32)
    return {
        "states": states[:, :-1].reshape(-1, width),
        "after": states[:, 1:].reshape(-1, width),
        "acts": rng.uniform(-reach, reach, (NUM * LENGTH, 1)),
        "rews": rng.random(NUM * LENGTH) - 0.3,
        "ends": LENGTH * np.arange(1, NUM + 1),
    }


def saved(path, columns=COLUMNS, **changed):
    """Write the arrays, and return the entry of ``train.data``."""
    np.savez(path, **arrays() | changed)
    return {"path": str(path), "columns": columns}


def experiment(tmp_path, data, algorithm="iql", name="run", **sections):
    values = {k: {**SMALL.get(k, {}), **sections.get(k, {})} for k in SMALL.keys() | sections.keys()}
    values["train"]["data"] = [data]
    values["experiment"] |= {"output_dir": str(tmp_path), "name": name}
    return seqrl.Experiment(seqrl.config_factory(algorithm, values))


def trained(*args, **options):
    run = experiment(*args, **options)
    run.start()
    run.learn()
    return run


def called(command, words, data):
    return command.main([*words, "--columns", json.dumps(data["columns"])])


MIN_MAX = {"normalize_actions": "min_max"}


def test_runs_without_an_environment_are_ranked(tmp_path, capsys):
    data = saved(tmp_path / "x.npz")
    for algorithm in ("iql", "bc"):
        trained(tmp_path, data, algorithm, algorithm, train=MIN_MAX)
        assert "2 (1 epoch, 2 each)" in (tmp_path / algorithm / "log.txt").read_text()
    runs = [str(tmp_path / name) for name in ("iql", "bc")]
    assert called(select_, [*runs, "--dataset", data["path"], "--steps", "3", "--json"], data) == 0
    found = json.loads(capsys.readouterr().out)["checkpoints"]
    assert sorted(row["algo"] for row in found) == ["bc", "iql"]
    assert all(np.isfinite(row["value"]) for row in found)


def test_values_are_drawn_along_arrays(tmp_path):
    data = saved(tmp_path / "x.npz")
    trained(tmp_path, data, train=MIN_MAX)
    words = [str(tmp_path / "run"), "--values", data["path"], "--output", str(tmp_path / "out"), "--at", "3"]
    assert called(probe, words, data) == 0
    (found,) = json.loads((tmp_path / "out/values.json").read_text())["episodes"]
    assert found["rewards"] == pytest.approx(arrays()["rews"][3 * LENGTH : 4 * LENGTH], rel=1e-5)


OTHERS = {
    "names": ({"obs/o": "states", "next_obs/o": "after"}, {}, r"x.npz does not give .* obs is missing \(it has o\)"),
    "shape": ({}, {k: arrays(width=4)[k] for k in ("states", "after")}, r"obs has shape \(4,\), not \(3,\)"),
    "actions": ({}, {"acts": np.zeros(NUM * LENGTH, int)}, r"x.npz has actions like Discrete\(1\), but the policy"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_data_of_something_else_is_refused_at_once(tmp_path, capsys, other):
    trained(tmp_path, saved(tmp_path / "own.npz"), train=MIN_MAX)
    names, changed, message = OTHERS[other]
    kept = {k: v for k, v in COLUMNS.items() if not names or "obs/" not in k}
    data = saved(tmp_path / "x.npz", kept | names, **changed)
    for command, option in ((select_, "--dataset"), (probe, "--values")):
        assert called(command, [str(tmp_path / "run"), option, data["path"]], data) == 2
        assert re.search(message, capsys.readouterr().err)


def test_select_names_the_file_and_not_the_cache(tmp_path, capsys):
    trained(tmp_path, saved(tmp_path / "own.npz"), train=MIN_MAX)
    data = saved(tmp_path / "x.npz", {k: v for k, v in COLUMNS.items() if k != "rewards"})
    assert called(select_, [str(tmp_path / "run"), "--dataset", data["path"]], data) == 2
    assert f"error: {tmp_path / 'x.npz'}: all rewards are 0" in capsys.readouterr().err


PENDULUM = {"env": {"id": "Pendulum-v1"}, "experiment": {**SMALL["experiment"], "evaluation": {"enabled": False}}}


def warnings_of(tmp_path, data, name="run", **options):
    """Return the warnings of a run that begins."""
    run = experiment(tmp_path, data, name=name, **options)
    run.start()
    run.close()
    return [line for line in (tmp_path / name / "log.txt").read_text().splitlines() if "warning" in line]


def test_bounds_that_nobody_says_are_asked_for(tmp_path):
    data = saved(tmp_path / "x.npz", acts=np.linspace(-2.5, 2.25, NUM * LENGTH)[:, None])
    message = (
        r"x.npz does not say the bounds of its actions \(they go from -2.5 to 2.25\): give --env ID, or set "
        "train.normalize_actions=min_max"
    )
    for algorithm in ("iql", "bc"):
        with pytest.raises(ConfigError, match=message):
            experiment(tmp_path, data, algorithm).start()


def test_actions_of_a_robomimic_file_that_leave_its_convention_are_told_with_their_range(tmp_path):
    data = saved(tmp_path / "x.npz", acts=np.linspace(-2.5, 2.25, NUM * LENGTH)[:, None])
    convert(tmp_path / "x.npz", tmp_path / "x.hdf5", options={"columns": data["columns"]})
    with h5py.File(tmp_path / "x.hdf5", "r+") as file:
        for name in ("action_space", "observation_space", "spaces_are_known", "actions_are_scaled"):
            file["data"].attrs.pop(name, None)
    data = {"path": str(tmp_path / "x.hdf5")}
    with pytest.raises(ConfigError, match=r"x.hdf5 does not say .* from -2.5 to 2.25\): write the space as JSON"):
        experiment(tmp_path, data).start()
    message = r"actions of .*x.hdf5 are outside \[-1, 1\] \(they go from -2.5 to 2.25\) .*clip them to it; .*: .\"type"
    with pytest.raises(EnvError, match=message):
        experiment(tmp_path, data, **PENDULUM).start()


def test_an_environment_without_bounds_is_told_how_to_get_them(tmp_path):
    class Free(gym.Env):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (3,))
        action_space = gym.spaces.Box(-np.inf, np.inf, (1,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(3, np.float32), {}

    run = experiment(tmp_path, saved(tmp_path / "x.npz"))
    run = seqrl.Experiment(run.config, make_val_env=Free)
    with pytest.raises(EnvError, match=r"has no bounds, .* finite bounds \(gymnasium.wrappers.TransformAction, or low"):
        run.start()


@pytest.mark.parametrize(
    ("acts", "told"),
    [
        ([-2.0, 0.0, 1.0], ""),
        ([-3.0, 0.0, 1.0], "x.npz: 33 % of the actions lie outside [-2, 2] of the environment"),
        ([90.0], "x.npz: 100 % of the actions lie outside"),
    ],
)
def test_actions_that_will_be_clipped_are_a_warning(tmp_path, acts, told):
    acts = np.resize(acts, NUM * LENGTH)[:, None]
    found = warnings_of(tmp_path, saved(tmp_path / "x.npz", acts=acts), **PENDULUM)
    assert [told in line for line in found if "clipped" in line] == [True] * bool(told)


def test_data_without_rewards_is_refused_where_they_are_read(tmp_path):
    data = saved(tmp_path / "x.npz", {k: v for k, v in COLUMNS.items() if k != "rewards"})
    for algorithm in ("iql", "decision_transformer"):
        with pytest.raises(DataError, match=f"x.npz has no rewards, and {algorithm} learns from them: name them"):
            experiment(tmp_path, data, algorithm, **PENDULUM).start()
    convert(tmp_path / "x.npz", tmp_path / "store", options={"columns": data["columns"]})
    with pytest.raises(DataError, match="store has no rewards"):
        experiment(tmp_path, {"path": str(tmp_path / "store")}, **PENDULUM).start()
    assert not warnings_of(tmp_path, data, algorithm="bc", **PENDULUM)
    relabelled = data | {"relabel": {"type": "scale_rewards", "shift": 1.0}}
    assert not [w for w in warnings_of(tmp_path, relabelled, "relabelled", **PENDULUM) if "reward" in w]


@pytest.mark.parametrize("kind", ["zeros", "cancelling", "rewards"])
def test_rewards_that_are_all_zero_are_a_warning(tmp_path, kind):
    cancelling = np.tile([0.0] * (LENGTH - 2) + [1.0, -1.0], NUM)
    changed = {"zeros": {"rews": 0 * cancelling}, "cancelling": {"rews": cancelling}, "rewards": {}}[kind]
    found = warnings_of(tmp_path, saved(tmp_path / "x.npz", **changed), **PENDULUM)
    assert len([w for w in found if "x.npz: all rewards are 0, and iql learns" in w]) == (kind == "zeros")


def test_names_that_the_environment_does_not_have_are_told_with_its_own(tmp_path):
    own = {k.replace("obs/obs", "obs/state"): v for k, v in COLUMNS.items()}
    message = r'state is missing \(it has obs\); in columns, name .* as the environment does: "obs/obs", "next_obs/obs"'
    with pytest.raises(EnvError, match=message):
        experiment(tmp_path, saved(tmp_path / "x.npz", own), **PENDULUM).start()
