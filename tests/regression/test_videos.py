"""Videos on the command line: in a run, from a checkpoint, of a dataset; what cannot be rendered ends no run."""

import importlib.util
import json

import h5py
import imageio.v3 as imageio
import numpy as np
import pytest

from seqrl.scripts import collect_dataset, get_dataset_info, playback_dataset, run_trained_agent, train
from seqrl.training.experiment import Experiment

SETTINGS = [
    "env.kwargs.corridor_length=3", "train.window_steps=4", "train.data.0.episodes=12", "train.num_epochs=4",
    "train.steps_per_epoch=4", "algo.sequence_encoder.type=feedforward", "algo.sequence_encoder.d_model=8",
    "experiment.evaluation.episodes=4", "experiment.evaluation.num_envs=2", "experiment.logging.tensorboard=false",
]  # fmt: skip

NO_REPORT = "experiment.report.enabled=false"


def trained(*settings, name="r"):
    pairs = [a for s in (*SETTINGS, *settings) for a in ("--set", s)]
    return train.main(["--config", "bc.json", *pairs, "--name", name])


def videos(*settings, **options):
    return trained("experiment.rendering.enabled=true", "experiment.rendering.every_n_epochs=2", *settings, **options)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder):
    return sorted(p.name for p in folder.iterdir())


# ------------------------------------------------------------------------------------------ in a run
def test_a_run_films_its_evaluation_and_learns_the_same(folder):
    assert trained(NO_REPORT, name="without") == 0
    assert videos(NO_REPORT, name="with") == 0
    assert names(folder / "runs/with/videos") == ["epoch_000002.gif", "epoch_000004.gif"]
    assert not (folder / "runs/without/videos").exists()
    weights = [p / "checkpoints/epoch_000004/model.safetensors" for p in (folder / "runs").iterdir()]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    lines = [(p / "metrics.jsonl").read_text().splitlines() for p in (folder / "runs").iterdir()]
    rows = [[json.loads(line) for line in part] for part in lines]
    assert all("optim/learning_rate" in row for row in rows[0] if "loss/total" in row)
    plain = [
        [{k: v for k, v in row.items() if not k.startswith(("time/", "system/"))} for row in part] for part in rows
    ]
    assert plain[0] == plain[1]


def test_what_does_not_render_is_one_warning(folder, capsys, monkeypatch):
    def broken(self):
        raise RuntimeError("no EGL here")

    monkeypatch.setattr("seqrl.envs.builtin.tmaze._TMaze.render", broken)
    assert videos("experiment.rendering.every_n_epochs=1") == 0
    err = capsys.readouterr().err
    assert (
        " ".join(err.split()).count(
            "warning: no video: EnvError: the environment cannot be drawn: RuntimeError: no EGL"
        )
        == 1
    )
    assert "no EGL here" in (folder / "runs/r/report.html").read_text()
    log = (folder / "runs/r/log.txt").read_text()
    assert log.count("in broken") == 1  # where it failed, for who has to mend it
    assert "Traceback" not in err
    assert not (folder / "runs/r/videos").exists() or names(folder / "runs/r/videos") == []


def test_only_the_best_video_is_kept(folder, monkeypatch):
    scores = iter([0.0, 0.5, 0.9, 0.9, 0.1])  # before the first epoch, and after each
    evaluate = Experiment.evaluate_val

    def with_score(self):
        metrics, episodes = evaluate(self)
        return {**metrics, "eval/success_mean": next(scores)}, episodes

    monkeypatch.setattr(Experiment, "evaluate_val", with_score)
    assert videos("experiment.rendering.every_n_epochs=1", "experiment.rendering.keep=best", NO_REPORT) == 0
    assert names(folder / "runs/r/videos") == ["epoch_000003.gif"]


def test_mp4_without_its_extra_is_refused_before_anything_is_made(folder, capsys, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if "ffmpeg" in name else real(name, *a))
    assert videos("experiment.rendering.format=mp4") == 2
    assert "seqrl[video]" in capsys.readouterr().err
    assert not (folder / "runs").exists()


# ----------------------------------------------------------------------------------- from a checkpoint
@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    where = tmp_path_factory.mktemp("agent")
    assert trained(f"experiment.output_dir={where}", NO_REPORT) == 0
    return str(where / "r")


def test_a_checkpoint_is_filmed_and_its_episodes_stored(agent, folder, capsys):
    base = ["--agent", agent, "--episodes", "4", "--num-envs", "4"]
    assert run_trained_agent.main([*base, "--video", "a.gif", "--video-every", "100", "--video-episodes", "2"]) == 0
    with open("a.gif", "rb") as file:
        assert 3 <= len(imageio.imread(file.read(), extension=".gif", index=None)) <= 4  # the start, and two ends
    assert run_trained_agent.main([*base, "--dataset_path", "store"]) == 0
    assert run_trained_agent.main([*base, "--horizon", "0"]) == 2
    assert run_trained_agent.main([*base, "--dataset-path", "store"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run_trained_agent.main([*base, "--dataset-path", "store", "--overwrite"]) == 0
    capsys.readouterr()
    assert get_dataset_info.main(["--dataset", "store", "--json", "--verify"]) == 0
    assert json.loads(capsys.readouterr().out)["trajectories"] == 4
    (folder / "precious").mkdir()
    assert run_trained_agent.main([*base, "--dataset-path", "precious", "--overwrite"]) == 2


def test_a_window_needs_a_display(agent, folder, capsys, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert run_trained_agent.main(["--agent", agent, "--render"]) == 2
    assert "--render needs a display" in capsys.readouterr().err


# --------------------------------------------------------------------------------------- of a dataset
def play(*arguments):
    return playback_dataset.main([str(a) for a in arguments])


def test_a_dataset_is_played_back_with_what_differs(folder, capsys):
    collect = ["--env", "seqrl/TMazePixels-v0", "--env-kwargs", '{"corridor_length": 2}', "--episodes", "6"]
    assert collect_dataset.main([*collect, "--output", "d.hdf5", "--valid-fraction", "0.5"]) == 0
    capsys.readouterr()
    assert play("--dataset", "d.hdf5", "--json", "--output", "a.gif", "--episodes", 6) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    starts = [e["first_step"] for e in report["episodes"]]
    assert set(starts) <= {None, 0}
    assert [e["num_steps"] for e in report["episodes"]] == [3] * 6
    assert report["as_stored"] == starts.count(None)
    assert ("holds actions, not the state" in err) == (0 in starts)
    assert len(imageio.imread("a.gif", index=None)) > 6
    assert play("--dataset", "d.hdf5", "--obs", "obs", "--output", "b.gif", "--filter-key", "valid", "--first") == 0
    assert 1 <= len(imageio.imread("b.gif", index=None)) <= 3
    assert "3 frames to b.gif" in capsys.readouterr().err


def test_seeds_that_fit_give_what_is_stored(folder, capsys):
    from seqrl.core.spaces import flatten_obs
    from seqrl.envs.make import make_env

    kwargs = {"corridor_length": 2}
    env = make_env("seqrl/TMazePassive-v0", kwargs)
    with h5py.File("d.hdf5", "w") as file:
        file.create_group("data").attrs["env_args"] = json.dumps(
            {"env_name": "seqrl/TMazePassive-v0", "type": 2, "env_kwargs": kwargs}
        )
        for k in range(4):
            obs = [flatten_obs(env.observation_space, env.reset(seed=70 + k)[0])["obs"]]
            obs += [env.step(action)[0] for action in (0, 0, 1)]
            demo = file["data"].create_group(f"demo_{k}")
            demo["obs/obs"], demo["next_obs/obs"] = np.stack(obs)[:-1], np.stack(obs)[1:]
            demo["actions"], demo["dones"] = np.array([0, 0, 1]), np.array([0, 0, 1])
    assert play("--dataset", "d.hdf5", "--seed", 70) == 0
    out = capsys.readouterr().out
    assert out.count("observations as stored (largest difference 0)") == 4
    assert play("--dataset", "d.hdf5", "--seed", 70, "--env-kwargs", '{"corridor_length": 1}') == 0
    out = capsys.readouterr().out
    assert "0 of 4 episodes as stored" in out
    assert out.count("2 of 3 steps (the environment ended there)") == 4


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--obs", "obs"], "--obs needs --output"),
        (["--obs", "obs", "--output", "a.gif"], "'obs' has shape (2,) and is no image; image-like entries: none"),
        (["--obs", "obz", "--output", "a.gif"], "no observation 'obz'"),
        (["--output", "a.avi"], ".gif or .mp4"),
        (["--filter-key", "best"], "no filter key 'best'"),
        (["--every", "0"], "at least 1"),
        ([], "names no environment; give one (--env ID)"),
        (["--env", "NoSuch-v0"], "NoSuch"),
        (["--env", "seqrl/TMazePassive-v0"], "takes Discrete(4)"),
    ],
)
def test_mistakes_are_messages(arguments, expected, folder, capsys):
    with h5py.File("d.hdf5", "w") as file:
        file["data/demo_0/obs/obs"] = np.zeros((3, 2), np.float32)
        file["data/demo_0/actions"] = np.zeros((3, 1), np.float32)
    assert play("--dataset", "d.hdf5", *arguments) == 2
    assert expected in capsys.readouterr().err
    assert not list(folder.glob("a.*"))
