"""Sentences as bytes, the vectors of a table and of a function, and text from environment and file to the policy."""

import gymnasium as gym
import h5py
import numpy as np
import pytest
import torch
from gymnasium import spaces

import seqrl
from seqrl.algo.ema import AveragedNets
from seqrl.core.errors import ConfigError, DataError
from seqrl.core.spaces import ObsSpec
from seqrl.core.text import decode_text, encode_text, with_readable_text
from seqrl.data.ingest import open_store
from seqrl.models.timestep_encoders import TEXT_FUNCTIONS, TextModality, text

SPEC = ObsSpec((256,), "uint8")
TEXTS = ["open the drawer", "öffne die Schublade", ""]


def test_text_survives_as_bytes():
    rows = encode_text([TEXTS, TEXTS])
    assert rows.shape == (2, 3, 256)
    assert [decode_text(row) for row in rows[1]] == TEXTS
    np.testing.assert_array_equal(encode_text("ab")[:3], [97, 98, 0])
    with pytest.raises(DataError, match="300 bytes, more than 256: 'xxx"):
        encode_text("x" * 300)
    with pytest.raises(DataError, match="expected text, got 3"):
        encode_text(["a", 3])


@pytest.fixture
def table(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(3, 5))
    np.save(tmp_path / "vectors.npy", vectors)
    return {"texts": TEXTS, "vectors": str(tmp_path / "vectors.npy"), "d_vector": 5, "d_output": 4}, vectors


@pytest.mark.parametrize("given", [b"ab", "ab", np.array(b"ab"), np.array("ab"), np.array("ab", object)])
def test_text_is_read_in_all_its_forms(given):
    np.testing.assert_array_equal(with_readable_text({"say": given})["say"], encode_text("ab"))
    np.testing.assert_array_equal(with_readable_text(np.stack([given, given])), encode_text(["ab", "ab"]))
    numbers = np.zeros(3, object)
    assert with_readable_text(numbers) is numbers


def test_a_table_gives_each_sentence_its_row(table):
    options, vectors = table
    modality = TextModality("say", SPEC, **options)
    y = modality(torch.from_numpy(encode_text([TEXTS, TEXTS[::-1]])))
    expected = modality.linear(torch.from_numpy(vectors.astype(np.float32)))
    torch.testing.assert_close(y[0], expected)
    torch.testing.assert_close(y[1], expected.flip(0))
    with pytest.raises(DataError, match=r"say.texts: has no 'open the draw'; did you mean 'open the drawer'"):
        modality(torch.from_numpy(encode_text([["open the draw"]])))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"texts": []}, "needs both 'texts' and 'vectors'"),
        ({"vectors": None}, "needs both 'texts' and 'vectors'"),
        ({"d_vector": 6}, r"has the shape \(3, 5\), expected \(3, 6\)"),
        ({"vectors": "nowhere.npy"}, "'nowhere.npy' is no .npy file of numbers"),
    ],
)
def test_a_table_that_does_not_fit(table, change, expected):
    with pytest.raises(ConfigError, match=rf"modalities.say.*{expected}"):
        TextModality("say", SPEC, **{**table[0], **change})
    with pytest.raises(ConfigError, match=r"modalities.say.type: .*is not text"):
        TextModality("say", ObsSpec((20,), "uint8"))


@pytest.fixture
def asked(monkeypatch):
    """Return the sentences that the function ``length``, which counts letters, has been asked for."""
    found = []

    def length(texts, width):
        found.extend(texts)
        return np.array([[len(text)] * width for text in texts])

    monkeypatch.setitem(TEXT_FUNCTIONS._entries, "length", length)
    return found


def test_a_function_is_asked_for_each_sentence_once(asked):
    modality = TextModality("say", SPEC, function="length", d_vector=2, d_output=3)
    rows = torch.from_numpy(encode_text([["ab", "abcd"], ["ab", "x"]]))
    y = modality(rows)
    expected = modality.linear(torch.tensor([[[2.0, 2.0], [4.0, 4.0]], [[2.0, 2.0], [1.0, 1.0]]]))
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(modality(rows), y)
    assert sorted(asked) == ["ab", "abcd", "x"]
    assert set(modality.state_dict()) == {"linear.weight", "linear.bias"}


def test_vectors_of_many_sentences_are_forgotten_and_computed_again(asked, monkeypatch):
    monkeypatch.setattr(text, "MOST_KEPT", 3)
    modality = TextModality("say", SPEC, function="length", d_vector=2, d_output=3)
    for number in range(20):
        said = [["every time", "x" * (number + 1)]]
        expected = modality.linear(torch.tensor([[[10.0] * 2, [number + 1.0] * 2]]))
        torch.testing.assert_close(modality(torch.from_numpy(encode_text(said))), expected)
    assert asked.count("every time") == 1
    modality(torch.from_numpy(encode_text([["x"]])))
    assert asked.count("x") == 2


def test_what_a_function_gave_is_no_part_of_averaged_weights_nor_of_inference():
    modality = TextModality("say", SPEC, d_vector=8, d_output=3)
    nets = torch.nn.ModuleDict({"say": modality})
    averages = AveragedNets(nets, max_decay=0.99)
    rows = torch.from_numpy(encode_text([["one", "two", "three"]]))
    with torch.inference_mode():
        seen = modality(rows)
        averages.averages["say"](rows.flip(1))
    averages.move(nets)
    modality(rows).square().sum().backward()
    torch.testing.assert_close(modality(rows), seen)


def test_sentences_that_share_words_are_near():
    near, other, far = TEXT_FUNCTIONS.get("ngrams")(["open the drawer", "open the door", "push a button"], 256)
    assert near @ other > near @ far + 0.3
    assert near @ near == pytest.approx(1.0, abs=1e-5)


class Told(gym.Env):
    """Do what is said: one of two actions; that is all there is to see."""

    observation_space = spaces.Dict({"say": spaces.Text(20), "body": spaces.Box(-1, 1, (2,))})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wanted = int(self.np_random.integers(2))
        return self._seen(), {}

    def _seen(self):
        return {"say": ("go left", "go right")[self.wanted], "body": np.zeros(2, np.float32)}

    def step(self, action):
        reached = int(action) == self.wanted
        return self._seen(), float(reached), True, False, {"success": reached}


@pytest.mark.slow
def test_text_of_an_environment_is_learned_from_a_file(tmp_path):
    """Strings of a file become what the environment's Text is observed as; the table lies in the checkpoint."""
    gym.register("tests/Told-v0", Told)
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "told.hdf5", "w") as file:
        for k in range(40):
            demo, wanted = file.create_group(f"data/demo_{k}"), int(rng.integers(2))
            demo["obs/say"] = [("go left", "go right")[wanted]]
            demo["obs/body"] = np.zeros((1, 2), np.float32)
            demo["actions"], demo["rewards"], demo["dones"] = np.array([wanted]), np.ones(1), np.ones(1)
    store = open_store(str(tmp_path / "told.hdf5"))
    assert store.info.observation_space["say"] == spaces.Box(0, 255, (256,), np.uint8)
    np.save(tmp_path / "two.npy", np.eye(2))
    say = {"type": "text", "texts": ["go left", "go right"], "vectors": str(tmp_path / "two.npy"), "d_vector": 2}
    config = seqrl.config_factory(
        "bc",
        {
            "experiment": {"output_dir": str(tmp_path), "name": "run", "report": {"enabled": False}},
            "env": {"id": "tests/Told-v0"},
            "train": {
                "data": [{"path": str(tmp_path / "told.hdf5")}],
                "window_steps": 1,
                "num_epochs": 1,
                "steps_per_epoch": 150,
            },
            "observation": {"timestep_encoder": {"type": "multimodal", "modalities": {"say": say}, "d_hidden": 16}},
            "algo": {"sequence_encoder": {"type": "feedforward"}, "optimizer": {"warmup_steps": 5}},
        },
    )
    experiment = seqrl.Experiment(config)
    experiment.start()
    assert experiment.learn().metrics["eval/success_mean"] == 1.0
    (tmp_path / "two.npy").unlink()
    policy, _ = seqrl.policy_from_checkpoint(tmp_path / "run" / "last")
    env = seqrl.envs.make.make_env("tests/Told-v0")
    for seed in range(6):
        obs, _ = env.reset(seed=seed)
        policy.start_episode()
        assert env.step(policy(obs))[1] == 1.0
    gym.registry.pop("tests/Told-v0")
