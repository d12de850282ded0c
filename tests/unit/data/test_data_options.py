"""The options of ``train.data``: which episodes of a source, under which name, and how often."""

import os

import numpy as np
import pytest

from seqrl.configs import config_factory
from seqrl.configs.sections.run import DataSection
from seqrl.core.errors import ConfigError
from seqrl.core.registry import RELABELERS
from seqrl.data import SequenceDataset, Source
from seqrl.data.episodes import split_by_episode
from seqrl.data.relabel import Relabeler
from seqrl.training.sources import build_relabeler, split_sources
from tests.unit.data.test_sequence_dataset import ACTION_SPACES, make_trajectory, whole, write

SPACE = ACTION_SPACES["discrete"]


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def store_of(path, lengths, first=0, **info):
    return write(path, [make_trajectory(first + i, n, SPACE) for i, n in enumerate(lengths)], SPACE, **info)


@pytest.fixture
def two(tmp_path):
    """Two long episodes, numbered 0 and 1, and six short ones, numbered 2 to 7."""
    return store_of(tmp_path / "a", [30, 30]), store_of(tmp_path / "b", [5] * 6, first=2)


def config_of(data, **train):
    return config_factory("bc", {"train": {"data": data, "valid_fraction": 0.0, **train}})


def drawn(dataset, num=20_000):
    """Share of the windows of one step that come from each episode."""
    ids = dataset.batch(num, seed=0, path=()).inputs.obs["id"][:, 0, 0].long().numpy()
    return np.bincount(ids, minlength=8) / num


# ---------------------------------------------------------------------------------------------- weights
@pytest.mark.parametrize(
    ("sample_by", "wanted"),
    [("trajectory", [1 / 8] * 8), ("transition", [1 / 3] * 2 + [1 / 18] * 6)],
)
def test_by_size_equal_weights_draw_as_from_one_source(two, sample_by, wanted):
    dataset = SequenceDataset([whole(s) for s in two], 1, sample_by=sample_by, weigh_by="size")
    np.testing.assert_allclose(drawn(dataset), wanted, atol=0.015)


def test_by_share_a_weight_is_the_share(two):
    dataset = SequenceDataset([whole(two[0], 3.0), whole(two[1], 1.0)], 1)
    np.testing.assert_allclose(drawn(dataset), [3 / 8] * 2 + [1 / 24] * 6, atol=0.015)


def test_by_size_weights_multiply_and_are_annealed(two):
    sources = [whole(two[0]), Source(two[1], np.arange(6), 2.0, initial_weight=0.0, anneal_epochs=4, name="b")]
    dataset = SequenceDataset(sources, 1, sample_by="transition", weigh_by="size")

    def share(epoch):
        dataset.refresh(epoch)
        return dataset.metrics()["data/b/share"]

    # 60 transitions against 30 of weight 0.5, 1, 1.5, 2, 2
    np.testing.assert_allclose([share(e) for e in range(5)], [15 / 75, 30 / 90, 45 / 105, 60 / 120, 60 / 120])
    assert dataset.describe()["b"].endswith("weight 0.5")


def test_the_run_file_says_how_data_is_weighed():
    assert config_of([]).train.weigh_data_by == "share"
    assert config_of([], weigh_data_by="size").train.weigh_data_by == "size"
    with pytest.raises(ConfigError, match="weigh_data_by"):
        config_of([], weigh_data_by="length")


# ------------------------------------------------------------------------------------------ max_episodes
def test_max_episodes_takes_the_first_of_the_filter(tmp_path):
    names = [f"demo_{i}" for i in range(10)]
    store = store_of(tmp_path, [3] * 10, filters={"odd": names[1::2], "valid": names[:3]})
    train, valid = split_by_episode(store, 0.0, 0, train_key="odd", max_episodes=3)
    assert (train.tolist(), valid.tolist()) == ([1, 3, 5], [])
    train, valid = split_by_episode(store, 0.25, 0, max_episodes=4)
    assert sorted([*train, *valid]) == [0, 1, 2, 3]
    assert len(valid) == 1
    train, valid = split_by_episode(store, 0.25, 0, valid_key="valid", max_episodes=2)
    assert (train.tolist(), valid.tolist()) == ([3, 4], [0, 1, 2])
    assert len(split_by_episode(store, 0.0, 0, max_episodes=99)[0]) == 10


def test_max_episodes_reaches_the_sources(two):
    section = DataSection(path="b", max_episodes=2)
    train, _ = split_sources(config_of([{"path": "b", "max_episodes": 2}]), [(section, two[1])])
    assert train[0].num_trajectories == 2


# ----------------------------------------------------------------------------------------------- names
def labels(config, store):
    return [s.name for s in split_sources(config, [(section, store) for section in config.train.data])[0]]


def test_names_are_given_or_found_and_never_shared(two):
    data = [
        {"path": "x/can.hdf5"},
        {"path": "y/can.hdf5", "name": "lift"},
        {"path": "z/lift.hdf5"},
        {"path": "w/can.h5"},
    ]
    assert labels(config_of(data), two[0]) == ["can", "lift", "lift_2", "can_3"]
    assert labels(config_of([{"scripted": "seqrl/TMazePassive-v0"}]), two[0]) == ["TMazePassive-v0"]
    online = config_factory(
        "actor_critic", {"train": {"data": [{"path": "run/replay"}]}, "collect": {"steps_per_epoch": 1}}
    )
    assert labels(online, two[0]) == ["replay_0"]


def test_two_sources_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two entries of 'data' have the name 'a'"):
        config_of([{"path": "x", "name": "a"}, {"path": "y", "name": "a"}])


@pytest.mark.parametrize("needs", [None, "trajectories"])
def test_a_relabeler_says_what_it_needs(needs, registries_as_before):
    class Vague(Relabeler):
        """Says something else."""

    if needs is not None:
        Vague.needs = needs
    RELABELERS.register("test_vague")(Vague)
    section = config_factory("bc", {"train": {"data": [{"path": "a", "relabel": {"type": "test_vague"}}]}}).train.data[
        0
    ]
    with pytest.raises(ConfigError, match=rf"'test_vague': Vague.needs is {needs!r}, not 'window' or 'trajectory'"):
        build_relabeler(section)
