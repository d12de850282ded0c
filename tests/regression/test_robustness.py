"""Faults that a review or a newcomer found once."""

import gc
import json
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import h5py
import numpy as np
import pytest
import torch

import seqrl
from seqrl.algo.processes import make_accelerator
from seqrl.algo.updater import Updater
from seqrl.core.errors import DataError, EnvError
from seqrl.scripts import collect_dataset, run_trained_agent, train
from tests.helpers import ACTION_SPACES, random_batch, small_algo

TINY = [
    "--debug",
    "--set", "algo.sequence_encoder.type=feedforward",
    "--set", "algo.sequence_encoder.d_model=8",
    "--set", "experiment.report.enabled=false",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_plain(path, *, width=4, env_name=None, actions=None, key="obs", steps=6):
    """Write what another tool would: no spaces, perhaps an environment."""
    actions = np.zeros(steps, np.int64) if actions is None else actions
    with h5py.File(path, "w") as file:
        for i in range(4):
            demo = file.create_group(f"data/demo_{i}")
            demo[f"obs/{key}"] = np.random.default_rng(i).normal(size=(steps, width)).astype(np.float32)
            demo[f"next_obs/{key}"] = np.random.default_rng(i).normal(size=(steps, width)).astype(np.float32)
            demo["actions"] = actions
            demo["rewards"] = np.ones(steps, np.float32)
            demo["dones"] = np.arange(steps) == steps - 1
        if env_name:
            file["data"].attrs["env_args"] = json.dumps({"env_name": env_name, "type": 2, "env_kwargs": {}})


def run(*arguments):
    return train.main(["--algo", "bc", *TINY, "--name", "r", *map(str, arguments)])


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ({"width": 7}, "obs has shape (4,), not (7,)"),
        ({"key": "state"}, "state is missing (it has obs)"),
        ({"actions": np.zeros((6, 1), np.float32)}, "takes Discrete(2)"),
        ({"actions": np.full(6, 5)}, "takes Discrete(2)"),
    ],
)
def test_data_that_does_not_fit_the_environment_is_refused_before_anything_is_made(file, expected, folder, capsys):
    write_plain("d.hdf5", **file)
    assert run("--dataset", "d.hdf5", "--set", "env.id=CartPole-v1") == 2
    assert expected in capsys.readouterr().err
    assert not (folder / "runs").exists()


def test_a_plain_file_deploys_in_a_plain_loop(folder):
    """Only action 0 occurs in the data, yet the policy knows both of the environment's."""
    write_plain("d.hdf5", env_name="CartPole-v1")
    assert run("--dataset", "d.hdf5") == 0
    policy, checkpoint = seqrl.policy_from_checkpoint("runs/r/last")
    env = seqrl.env_from_checkpoint("runs/r/last")
    assert policy.action_space == env.action_space == gym.spaces.Discrete(2)
    obs, _ = env.reset(seed=0)
    for _ in range(5):
        obs, *_ = env.step(policy(obs))
    assert checkpoint.card["env"]["id"] == "CartPole-v1"


def test_scaled_actions_reach_the_environment_as_evaluation_plays_them(folder):
    write_plain("d.hdf5", width=3, env_name="Pendulum-v1", actions=np.full((6, 1), 1.0, np.float32))
    assert run("--dataset", "d.hdf5", "--set", "algo.distribution.type=deterministic") == 0
    policy, _ = seqrl.policy_from_checkpoint("runs/r/last")
    np.testing.assert_allclose(policy._codec.decode(np.array([1.0])), [2.0])


def test_bootstrapping_from_data_without_next_observations_is_refused(folder, capsys):
    write_plain("d.hdf5", env_name="CartPole-v1")
    with h5py.File("d.hdf5", "a") as file:
        del file["data/demo_2/next_obs"]
    settings = ["--debug", "--name", "r", "--dataset", "d.hdf5"]
    assert train.main(["--algo", "actor_critic", *settings]) == 2
    assert "next_obs" in capsys.readouterr().err
    assert train.main(["--algo", "bc", *TINY, *settings]) == 0


def test_data_cannot_cause_an_import(folder):
    Path("evilmod.py").write_text("open('executed', 'w').write('!')\n")
    write_plain("d.hdf5", env_name="evilmod:X-v0")
    command = [sys.executable, "-m", "seqrl", "train", "--algo", "bc", *TINY, "--dataset", "d.hdf5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "pass --plugin evilmod" in done.stderr
    assert not (folder / "executed").exists()


def test_best_marks_name_the_epoch_that_was_measured(folder):
    settings = ["train.num_epochs=4", "experiment.evaluation.every_n_epochs=2", "train.steps_per_epoch=20"]
    assert train.main(["--config", "bc.json", *TINY, "--name", "r", *(a for s in settings for a in ("--set", s))]) == 0
    for pointer in Path("runs/r/checkpoints").glob("best_*"):
        card = json.loads((pointer.parent / pointer.read_text().strip() / "card.json").read_text())
        assert pointer.read_text().strip() in ("epoch_000002", "epoch_000004")
        assert card["metrics"]


def test_existing_files_are_kept(folder, capsys):
    assert train.main(["--config", "bc.json", *TINY, "--name", "r"]) == 0
    for name in ("d.hdf5", "v.gif"):
        Path(name).write_text("precious")
    base = ["--agent", "runs/r", "--n-rollouts", "2"]
    for option, name in (("--dataset-path", "d.hdf5"), ("--video-path", "v.gif")):
        assert run_trained_agent.main([*base, option, name]) == 2
        assert "--overwrite" in capsys.readouterr().err
        assert Path(name).read_text() == "precious"
    assert run_trained_agent.main([*base, "--video-path", "v.avi"]) == 2
    assert run_trained_agent.main([*base, "--env", "CartPole-v1"]) == 2
    assert "takes Discrete(2)" in capsys.readouterr().err
    assert run_trained_agent.main([*base, "--seed", "-1"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "experiment.output_dir=file"],
        ["--set", "experiment.output_dir=file/below"],
        ["--set", "experiment.name=../escape"],
        ["--set", "plugins=x.py"],
        ["--set", "train=3"],
    ],
)
def test_wrong_places_and_types_are_messages(arguments, folder, capsys):
    Path("file").write_text("a file")
    assert train.main(["--config", "bc.json", *TINY, *arguments]) == 2
    assert capsys.readouterr().err.strip()
    assert Path("file").read_text() == "a file"


def test_collecting_without_an_expert_names_those_that_exist(folder, capsys):
    assert collect_dataset.main(["--env", "CartPole-v1", "--output", "x.hdf5"]) == 2
    assert "seqrl/TMazeActive-v0, seqrl/TMazePassive-v0" in capsys.readouterr().err
    assert collect_dataset.main(["--env", "seqrl/TMazeActive-v0", "--output", "x.json"]) == 2


def test_policies_refuse_what_does_not_fit(folder):
    assert train.main(["--config", "bc.json", *TINY, "--name", "r"]) == 0
    policy, _ = seqrl.policy_from_checkpoint("runs/r/last")
    good = np.zeros(4, np.float32)
    for bad in (None, 3.0, "hello", np.zeros(3), np.zeros((2, 4))):
        with pytest.raises(DataError):
            policy(bad)
    with pytest.raises(DataError, match="the observation has 2 rows"):
        policy(np.stack([good, good]), reward=[1.0, 2.0, 3.0], batched_ob=True)
    policy.start_episode()
    policy(np.stack([good, good]), batched_ob=True)
    with pytest.raises(DataError, match="2 rows"):
        policy.reset_rows(np.array([True]))
    with pytest.raises(DataError, match="call start_episode"):
        policy(good)


def test_an_environment_of_a_plugin_runs_in_worker_processes(folder):
    Path("my_env.py").write_text(
        "import gymnasium as gym\n"
        "from seqrl.envs.builtin.tmaze import TMazeExpert, TMazePassive\n"
        "from seqrl.envs import register_expert\n"
        "gym.register('Mine-v0', entry_point=TMazePassive)\n"
        "register_expert('Mine-v0')(TMazeExpert)\n"
    )
    settings = ["env.vectorization=async", 'train.data=[{"scripted": "Mine-v0", "episodes": 4}]']
    arguments = [a for s in settings for a in ("--set", s)]
    assert train.main(["--config", "bc.json", *TINY, "--plugin", "my_env.py", "--name", "r", *arguments]) == 0


def test_predicting_memory_leaks_none():
    from seqrl.training.learner import predict_cost

    algo = small_algo()
    train = algo.config.train

    def live():
        gc.collect()
        return sum(type(o) in (torch.Tensor, torch.nn.Parameter) for o in gc.get_objects())

    first = predict_cost(algo, train)
    before = live()
    for _ in range(3):
        again = predict_cost(algo, train)
        assert (again.weights_mb, again.activations_mb) == (first.weights_mb, first.activations_mb)
    assert live() <= before
    assert first.activations_mb > 0
    assert first.step_s > 0


def test_two_updaters_in_one_process_do_not_disturb_each_other():
    first = small_algo()
    first.updater = Updater(first, make_accelerator(first.device), accumulate_batches=4)
    batch = random_batch(ACTION_SPACES["discrete"])
    for k in range(8):
        second = small_algo()
        second.train_on_batch(second.process_batch_for_training(batch))
        first.train_on_batch(first.process_batch_for_training(batch))
        assert first.updater.num_steps == (k + 1) // 4


@pytest.mark.parametrize(
    ("name", "space", "options"),
    [
        ("bc", "discrete", {}),
        ("actor_critic", "discrete", {"num_critics_td": 4}),
        ("actor_critic", "box", {"num_critics_td": 4, "distribution": {"type": "deterministic"}}),
    ],
)
def test_accumulated_batches_equal_one_large_batch(name, space, options):
    """Equal mask counts, no dropout, all critics in the target, nothing sampled; plain gradient descent."""
    big = random_batch(ACTION_SPACES[space], num=8)
    big = type(big)(**{**vars(big), "mask": torch.ones_like(big.mask)})
    results = []
    for parts in (1, 4, 0):
        algo = small_algo(name, "gru", ACTION_SPACES[space], **options)
        optimizer = torch.optim.SGD([p for p in algo.nets.parameters() if p.requires_grad], lr=0.1)
        if parts:
            algo.updater = Updater(algo, accumulate_batches=parts, optimizer=optimizer)
        for _ in range(2 if parts else 0):
            for i in range(parts):
                part = big.map(lambda x, i=i, parts=parts: x[i * 8 // parts : (i + 1) * 8 // parts])
                algo.train_on_batch(algo.process_batch_for_training(part))
            assert algo.updater.num_steps > 0
        results.append(algo.serialize())
    for key in results[0]:
        torch.testing.assert_close(results[0][key], results[1][key], atol=1e-5, rtol=1e-5)
    assert max((results[0][k] - results[2][k]).abs().max() for k in results[0] if k.startswith("trunk")) > 1e-3


def test_an_unusable_environment_of_the_user_is_an_error():
    from seqrl.rollout.agreement import check_actions

    with pytest.raises(EnvError, match="takes Discrete"):
        check_actions(gym.spaces.Discrete(2), gym.spaces.Discrete(4), "X-v0")


def test_a_resume_that_is_refused_changes_nothing(folder, capsys):
    write_plain("a.hdf5")
    write_plain("b.hdf5", steps=5)
    assert run("--dataset", "a.hdf5") == 0
    files = [folder / "runs/r" / name for name in ("config.json", "metrics.jsonl", "checkpoints/last")]
    before = [file.read_bytes() for file in files]
    assert run("--dataset", "b.hdf5", "--resume", "--set", "train.num_epochs=3") == 2
    assert "cannot resume" in capsys.readouterr().err
    assert [file.read_bytes() for file in files] == before
    assert run("--dataset", "a.hdf5", "--resume", "--set", "train.num_epochs=3") == 0


@pytest.mark.parametrize("demo", range(4))
def test_the_range_of_all_actions_is_told_whoever_is_held_out(demo, folder, capsys):
    write_plain("d.hdf5", actions=np.zeros((6, 2), np.float32))
    with h5py.File("d.hdf5", "a") as file:
        file[f"data/demo_{demo}/actions"][3, 1] = 1.0001
    assert run("--dataset", "d.hdf5") == 2
    assert "they go from 0 to 1.0001" in capsys.readouterr().err
