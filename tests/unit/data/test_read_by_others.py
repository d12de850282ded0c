"""What seqrl writes, read by the programs that own the formats; skipped without them (last run: tests/data/README)."""

import numpy as np
import pytest

from seqrl.data.convert import convert
from seqrl.data.ingest import open_store
from seqrl.scripts import convert_dataset
from tests.unit.data.test_convert import robosuite_file
from tests.unit.data.test_other_formats import WRITTEN


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


def test_robomimic_reads_its_file_after_there_and_back(tmp_path):
    dataset = pytest.importorskip("robomimic.utils.dataset")
    file_utils = pytest.importorskip("robomimic.utils.file_utils")
    source, back = tmp_path / "lift.hdf5", tmp_path / "back.hdf5"
    robosuite_file(source)
    convert(source, tmp_path / "store")
    convert(tmp_path / "store", back)
    meta = [file_utils.get_env_metadata_from_dataset(str(path)) for path in (source, back)]
    assert meta[0] == meta[1]
    names = sorted(open_store(str(back)).trajectory(0).obs)
    options = {
        "obs_keys": names, "dataset_keys": ["actions", "rewards", "dones"], "frame_stack": 1, "seq_length": 3,
        "pad_seq_length": True, "hdf5_cache_mode": None, "hdf5_use_swmr": False, "filter_by_attribute": "train",
        "load_next_obs": True,
    }  # fmt: skip
    one, other = (dataset.SequenceDataset(hdf5_path=str(path), **options) for path in (source, back))
    assert len(one) == len(other) > 2
    for k in range(len(one)):
        a, b = one[k], other[k]
        for key in ("actions", "dones"):
            assert np.array_equal(a[key], b[key])
        assert np.array_equal(np.float32(a["rewards"]), b["rewards"])
        for kind in ("obs", "next_obs"):
            assert all(np.array_equal(a[kind][name], b[kind][name]) for name in names)


@pytest.mark.parametrize("name", ["cart-v0", "nested-v0", "mixed-hdf5-v0"])
def test_minari_loads_what_is_written_for_it(tmp_path, monkeypatch, name):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "local"))
    assert convert_dataset.main([str(WRITTEN / name), "mine/again-v3", "--to", "minari"]) == 0
    loaded = minari.load_dataset("mine/again-v3")
    store = open_store(str(WRITTEN / name))
    assert loaded.total_episodes == len(store)
    assert str(loaded.action_space) == str(store.info.action_space)
    for episode, wanted in zip(loaded.iterate_episodes(), store.trajectories(), strict=True):
        for key, there in (("rewards", "rewards"), ("terminations", "terminated"), ("truncations", "truncated")):
            assert np.array_equal(getattr(episode, key), getattr(wanted, there))
        if not isinstance(episode.observations, dict):
            assert np.array_equal(episode.observations, wanted.obs["obs"])
