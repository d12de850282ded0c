"""Dataset commands with robomimic's options, and the page about a dataset."""

import base64
import io
import json
import re
import shutil
from html.parser import HTMLParser

import gymnasium as gym
import h5py
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image, ImageSequence

from seqrl.core.spaces import space_to_json
from seqrl.data.ingest import open_store
from seqrl.scripts import (
    convert_dataset,
    dataset_states_to_obs,
    filter_dataset_size,
    get_dataset_info,
    playback_dataset,
    split_train_val,
)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A robomimic file of five episodes with an image."""
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    path, rng = tmp_path / "pick.hdf5", np.random.default_rng(0)
    with h5py.File(path, "w") as f:
        for k in range(5):
            demo, steps = f.create_group(f"data/demo_{k}"), 4 + k
            demo["obs/camera"] = rng.integers(0, 256, (steps, 8, 6, 3), dtype=np.uint8)
            demo["obs/pos"] = rng.random((steps, 2)).astype(np.float32)
            demo["actions"] = rng.uniform(-1, 1, (steps, 3)).astype(np.float32)
            demo["rewards"] = np.full(steps, k, np.float32)
            demo["dones"] = np.arange(steps) == steps - 1
        f["mask/good"] = np.array([b"demo_1", b"demo_3"])
    return path


def masks(path):
    with h5py.File(path) as f:
        return {k: sorted(n.decode() for n in v[()]) for k, v in f["mask"].items()}


def test_robomimics_split_and_subset(file):
    assert split_train_val.main(["--dataset", str(file), "--ratio", "0.4"]) == 0
    assert len(masks(file)["valid"]) == 2
    assert filter_dataset_size.main(["--dataset", str(file), "--num_demos", "1", "--input_filter_key", "good"]) == 0
    assert set(masks(file)["good_1_demos"]) < set(masks(file)["good"])
    assert split_train_val.main([str(file), "--filter_key", "good", "--ratio", "0.5"]) == 0
    assert sorted(masks(file)["good_train"] + masks(file)["good_valid"]) == ["demo_1", "demo_3"]


def test_options_are_taken_with_either_stroke(file, tmp_path):
    subset = ["--num-demos=2", "--input-filter-key", "good", "--output_filter_key", "both"]
    assert filter_dataset_size.main(["--dataset", str(file), *subset]) == 0
    assert masks(file) == {"good": ["demo_1", "demo_3"], "both": ["demo_1", "demo_3"]}
    assert split_train_val.main(["--dataset", str(file), "--valid_fraction=0.4", "--filter-key", "both"]) == 0
    assert get_dataset_info.main(["--dataset", str(file), "--dones_mean", "truncated"]) == 0
    video = tmp_path / "v.gif"
    words = [
        "--video-path",
        str(video),
        "--use_obs",
        "--video-skip",
        "3",
        "--n",
        "1",
        "--filter-key",
        "good",
        "--first",
    ]
    assert playback_dataset.main(["--dataset", str(file), *words]) == 0
    assert Image.open(video).n_frames == 1
    with h5py.File(file, "r+") as f:
        for demo in f["data"].values():
            demo["obs/depth"] = demo["obs/camera"][..., :1] / np.float32(255)
    words = [
        "--video_path",
        str(video),
        "--overwrite",
        "--render_image_names",
        "camera",
        "--render-depth-names",
        "depth",
    ]
    width = Image.open(video).width
    assert playback_dataset.main(["--dataset", str(file), *words]) == 0
    assert Image.open(video).width > 1.5 * width
    with pytest.raises(SystemExit):
        split_train_val.main(["--dataset", str(file), "--no_such_option"])


@pytest.mark.parametrize("command", [split_train_val, get_dataset_info, playback_dataset])
def test_the_dataset_is_asked_for(command, capsys):
    with pytest.raises(SystemExit) as error:
        command.main([])
    assert error.value.code == 2
    assert "required: dataset" in capsys.readouterr().err


def test_info_of_a_filter_lists_its_episodes(file, capsys):
    assert get_dataset_info.main(["--dataset", str(file), "--filter_key", "good", "--verbose"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"(demo_\d): (\d+) steps, return (\S+)", out) == [("demo_1", "5", "5"), ("demo_3", "7", "21")]
    assert re.search(r"trajectories +2\n", out)
    assert get_dataset_info.main([str(file), "--filter-key", "good", "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["transitions"] == 12
    assert info["return"] == {"min": 5, "mean": 13, "max": 21}


def test_stored_images_with_robomimics_options(file, tmp_path):
    for name, options in {"all.gif": ["--use-obs"], "one.gif": ["--render_image_names", "camera"]}.items():
        assert playback_dataset.main(["--dataset", str(file), "--video_path", str(tmp_path / name), *options]) == 0
    assert (tmp_path / "all.gif").read_bytes() == (tmp_path / "one.gif").read_bytes()
    video = ["--video_path", str(tmp_path / "x.gif")]
    assert playback_dataset.main(["--dataset", str(file), *video, "--use-obs", "--use-actions"]) == 2
    with h5py.File(file, "r+") as f:
        for demo in f["data"].values():
            del demo["obs/camera"]
    assert playback_dataset.main(["--dataset", str(file), *video, "--use-obs"]) == 2


class Page(HTMLParser):
    """Tables and images of a page; what is open at its end."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.images, self.cells = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.cells = self.rows[-1]
        if tag == "img":
            self.images.append(dict(attrs)["src"])

    def handle_data(self, data):
        if self.cells is not None:
            self.cells[-1] += data

    def handle_endtag(self, tag):
        if tag in ("tr", "table"):
            self.cells = None


def test_the_page_of_a_dataset(file, tmp_path):
    html = tmp_path / "pages" / "pick.html"
    assert get_dataset_info.main([str(file), "--html", str(html)]) == 0
    text = html.read_text()
    page = Page(text)
    assert not re.search(r"(?:src|href)=.https?:", text), "the page needs nothing beside it"
    assert ["demo_3", "7", "21", "termination", "good"] in page.rows
    assert next(row for row in page.rows if row[0] == "pos")[1] == "float32 [2]"
    assert text.count("<svg") == 2 + 3, "returns, lengths, three components of the action"
    assert len(page.images) == 5
    strip = Image.open(io.BytesIO(base64.b64decode(page.images[0].split(",")[1])))
    assert strip.size == (5 * (72 + 2), 96), "all five inputs of the first episode"
    assert get_dataset_info.main([str(file), "--html", str(html)]) == 2, "a page is replaced only when asked"
    assert get_dataset_info.main([str(file), "--html", str(html), "--overwrite", "--filter_key", "good"]) == 0
    assert "demo_0" not in html.read_text()


@pytest.mark.parametrize(
    ("actions", "charts"),
    [
        (np.arange(6) % 3, 1),
        (np.stack([np.arange(6) % 3, np.arange(6) % 2], 1), 2),
        (np.random.default_rng(0).random((6, 9)), 4),
    ],
    ids=["discrete", "multi_discrete", "many"],
)
def test_actions_of_any_kind_are_drawn(tmp_path, monkeypatch, actions, charts):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("seqrl.rollout.dataset_page.MOST_CHARTS", 4)
    with h5py.File(tmp_path / "d.hdf5", "w") as f:
        demo = f.create_group("data/demo_0")
        demo["obs/x"], demo["actions"] = np.zeros((6, 1), np.float32), actions
        if charts == 2:
            f["data"].attrs["action_space"] = json.dumps(space_to_json(spaces.MultiDiscrete([3, 2])))
    assert get_dataset_info.main([str(tmp_path / "d.hdf5"), "--html", str(tmp_path / "d.html")]) == 0
    assert (tmp_path / "d.html").read_text().count("<svg") == 2 + charts


# ------------------------------------------------------------------------------------------ states
class Slider(gym.Env):
    """A point that is set anywhere, as a simulator is; a reset puts it at random, whatever the seed."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = spaces.Dict(x=spaces.Box(-9, 9, (1,), np.float32))
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode, self.models = render_mode, []

    def reset(self, *, seed=None, options=None):
        self.x = np.random.default_rng().random(1).astype(np.float32)
        return {"x": self.x.copy()}, {}

    def step(self, action):
        self.x = self.x + action
        return {"x": self.x.copy()}, 0.0, False, False, {}

    def reset_to(self, state):
        if "model" in state:
            assert state["model"] == "<slider/>"
        self.x = np.asarray(state["states"], np.float32)
        return {"x": self.x.copy()}

    def render(self):
        return np.full((240, 240, 3), int(self.x[0] * 10), np.uint8)


@pytest.fixture
def slid(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    path, rng = tmp_path / "slid.hdf5", np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        args = {"env_name": "tests/Slider-v0", "type": 2, "env_kwargs": {}}
        file.create_group("data").attrs["env_args"] = json.dumps(args)
        for k in range(2):
            actions = rng.uniform(0, 1, (5, 1)).astype(np.float32)
            x = k + np.concatenate([[[1.0]], 1 + np.cumsum(actions, 0)]).astype(np.float32)
            demo = file.create_group(f"data/demo_{k}")
            demo["obs/x"], demo["next_obs/x"], demo["actions"] = x[:-1], x[1:], actions
            demo["states"], demo.attrs["model_file"] = x[:-1].astype(np.float64), "<slider/>"
    gym.register("tests/Slider-v0", Slider)
    yield path
    del gym.registry["tests/Slider-v0"]


@pytest.mark.parametrize("kind", ["file", "store"])
def test_actions_are_played_from_the_stored_state(slid, tmp_path, kind, capsys):
    data = slid if kind == "file" else tmp_path / "store"
    if kind == "store":
        assert convert_dataset.main([str(slid), str(data)]) == 0
    assert playback_dataset.main(["--dataset", str(data), "--use-actions", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["as_stored"] == 2, "a reset alone leads somewhere else"


def test_states_are_drawn_one_after_the_other(slid, tmp_path, capsys):
    video = tmp_path / "states.gif"
    assert playback_dataset.main([str(slid), "--states", "--output", str(video)]) == 0
    with h5py.File(slid) as file:
        levels = np.concatenate([file[f"data/demo_{k}/states"][:, 0] for k in range(2)])
    frames = [np.asarray(f.convert("RGB")) for f in ImageSequence.Iterator(Image.open(video))]
    assert [int(f[5, 5, 0]) for f in frames] == pytest.approx([int(x * 10) for x in levels], abs=2)
    with h5py.File(slid, "r+") as file:
        del file["data/demo_1/states"]
    assert playback_dataset.main([str(slid), "--states", "--output", str(video), "--overwrite"]) == 2
    assert "demo_1 has no states; try --actions" in capsys.readouterr().err
    words = ["--env", "CartPole-v1", "--states", "--output", str(tmp_path / "no.gif")]
    assert playback_dataset.main([str(slid), *words]) == 2
    assert "has no reset_to(state)" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------ states to observations
SLIDER = """
import os
import gymnasium as gym
import numpy as np
from gymnasium import spaces

class Slider(gym.Env):
    observation_space = spaces.Dict(x=spaces.Box(-9, 9, (1,), np.float32), twice=spaces.Box(-99, 99, (1,), np.float32))
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    count = 0

    def __init__(self, gain=2.0):
        self.gain = gain

    def seen(self):
        return {"x": self.x.copy(), "twice": self.gain * self.x}

    def reset(self, *, seed=None, options=None):
        self.x = np.zeros(1, np.float32)
        return self.seen(), {}

    def step(self, action):
        self.x = (self.x + action).astype(np.float32)
        return self.seen(), self.get_reward(), False, False, {"success": self.is_success()}

    def get_reward(self):
        return 10 * float(self.x[0])

    def reset_to(self, state):
        if state["states"][0] < -5:
            os._exit(9)
        if state["states"][0] < 0:
            raise RuntimeError("the simulator broke")
        self.x = np.asarray(state["states"], np.float32)
        return self.seen()

    def is_success(self):
        return bool(self.x[0] > 3)

gym.register("tests/Slid-v0", Slider)
"""


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """Demonstrations as a simulator records them: states and actions alone."""
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "slider.py").write_text(SLIDER)
    path, rng = tmp_path / "demo.hdf5", np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        args = {"env_name": "tests/Slid-v0", "type": 2, "env_version": "9", "env_kwargs": {}}
        file.create_group("data").attrs["env_args"] = json.dumps(args)
        for k in (1, 2, 10):
            demo = file.create_group(f"data/demo_{k}")
            actions = rng.uniform(0, 1, (8, 1)).astype(np.float32)
            x = np.concatenate([[[0.5]], 0.5 + np.cumsum(actions, 0)]).astype(np.float64)
            demo["states"], demo["actions"], demo["action_dict/dx"] = x[:-1], actions, actions
            demo["rewards"], demo.attrs["model_file"] = np.arange(8.0), "<slider/>"
        file["mask/some"] = np.array([b"demo_1", b"demo_10"])
    yield path
    gym.registry.pop("tests/Slid-v0", None)


def to_obs(raw, *words):
    plugin = ["--plugin", str(raw.parent / "slider.py")]
    return dataset_states_to_obs.main(["--dataset", str(raw), "--output_name", "out.hdf5", *plugin, *words])


@pytest.mark.usefixtures("registries_as_before")
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_states_become_observations(raw, workers):
    assert to_obs(raw, "--num_procs", workers, "--env-kwargs", '{"gain": 3.0}') == 0
    with h5py.File(raw) as given, h5py.File(raw.parent / "out.hdf5") as made:
        assert json.loads(made["data"].attrs["env_args"])["env_version"] == "9"
        assert sorted(made["data"]) == ["demo_1", "demo_10", "demo_2"]
        for name, demo in made["data"].items():
            states, actions = given[f"data/{name}/states"][()], given[f"data/{name}/actions"][()]
            after = np.concatenate([states[1:], states[-1:] + actions[-1:]])
            assert np.allclose(demo["obs/x"], states, atol=1e-6)
            assert np.allclose(demo["next_obs/twice"], 3 * after, atol=1e-5)
            assert demo["rewards"][()].tolist() == (after[:, 0] > 3).astype(float).tolist()
            assert demo["dones"][()].tolist() == (after[:, 0] > 3).astype(int).tolist()
            assert demo.attrs["model_file"] == "<slider/>"
            assert {"states", "actions", "action_dict"} <= set(demo)
        assert made["data"].attrs["total"] == 24
        assert "some" in made["mask"]
    assert len(open_store(str(raw.parent / "out.hdf5"))) == 3


@pytest.mark.usefixtures("registries_as_before")
def test_robomimics_options_of_states_to_obs(raw):
    words = ["--filter_key", "some", "--copy_rewards", "--done_mode", "1", "--exclude-next-obs", "--compress"]
    assert to_obs(raw, *words) == 0
    with h5py.File(raw.parent / "out.hdf5") as made:
        assert sorted(made["data"]) == ["demo_1", "demo_10"]
        demo = made["data/demo_10"]
        assert "next_obs" not in demo
        assert demo["rewards"][()].tolist() == list(range(8))
        assert demo["dones"][()].tolist() == [0] * 7 + [1]
        assert demo["obs/x"].compression == "gzip"
    assert to_obs(raw) == 2, "the file is there"
    assert to_obs(raw, "--overwrite", "--shaped") == 0
    with h5py.File(raw) as given, h5py.File(raw.parent / "out.hdf5") as made:
        demo = given["data/demo_2"]
        after = np.append(demo["states"][1:], demo["states"][-1:] + demo["actions"][-1:])
        assert np.allclose(made["data/demo_2/rewards"][()], 10 * after, atol=1e-5)
    assert to_obs(raw, "--overwrite", "--n", "1") == 0


@pytest.mark.usefixtures("registries_as_before")
def test_an_interrupted_run_goes_on_where_it_stood(raw, capsys):
    with h5py.File(raw, "r+") as file:
        file["data/demo_10/states"][3] = -1.0
    with pytest.raises(RuntimeError, match="the simulator broke"):
        to_obs(raw)
    assert not (raw.parent / "out.hdf5").exists()
    capsys.readouterr()
    with pytest.raises(RuntimeError, match="the simulator broke"):
        to_obs(raw)
    assert capsys.readouterr().err == "", "what was done is not done again"
    with h5py.File(raw, "r+") as file:
        file["data/demo_10/states"][3] = 2.0
    assert to_obs(raw) == 0
    done = capsys.readouterr().err.splitlines()
    assert done == ["1 of 3: demo_1", "2 of 3: demo_2", "3 of 3: demo_10"], "the data is another, so all is"
    assert sorted(p.name for p in raw.parent.iterdir() if "parts" in p.name) == []


@pytest.mark.usefixtures("registries_as_before")
def test_a_process_that_dies_is_told(raw, capsys):
    with h5py.File(raw, "r+") as file:
        file["data/demo_10/states"][3] = -9.0
    assert to_obs(raw, "--num_procs", "2") == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: a process that plays demonstrations died (out of memory?) after")
    assert said.endswith("of 3; the same command goes on from there, with fewer processes if need be")


@pytest.mark.usefixtures("registries_as_before")
def test_a_disk_without_room_for_the_whole_is_told_and_keeps_the_parts(raw, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 0))
        assert to_obs(raw) == 2
    assert f"error: {raw.parent}: No space left on device" in capsys.readouterr().err
    assert to_obs(raw) == 0
    assert capsys.readouterr().err == "", "nothing was played twice"


def test_what_states_to_obs_cannot_do_is_told(raw, slid, capsys):
    assert to_obs(raw, "--env", "CartPole-v1") == 2
    assert "has no reset_to(state)" in capsys.readouterr().err
    assert to_obs(raw, "--filter_key", "none") == 2
    assert "no filter key 'none'; it has: some" in capsys.readouterr().err
    with h5py.File(raw, "r+") as file:
        del file["data/demo_2/states"]
    assert to_obs(raw) == 2
    assert "demo_2 lacks states" in capsys.readouterr().err
