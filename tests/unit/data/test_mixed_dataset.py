"""Custom datasets beside files and the replay, and samplers of plug-ins."""

import numpy as np
import pytest
import torch

import seqrl
from seqrl.core.errors import ConfigError, DataError
from seqrl.core.registry import SAMPLERS
from seqrl.data import MixedDataset, NoData, SequenceDataset, Source, Store, TrainingDataset
from tests.regression.test_online import run, small
from tests.unit.data.test_sequence_dataset import ACTION_SPACES, make_trajectory, whole, write

MARK = 77.0


def make_store(path, lengths):
    space = ACTION_SPACES["discrete"]
    return write(path, [make_trajectory(i, n, space) for i, n in enumerate(lengths)], space)


class Marked(TrainingDataset):
    """Windows of another dataset, with rewards that tell where they come from."""

    def __init__(self, of=None, weight=1.0, window=None):
        self.of, self.weight, self.window, self.paths = of, weight, window, []

    def batch(self, batch_size, *, seed, path):
        self.paths.append(path)
        batch = self.of.batch(batch_size, seed=seed, path=path)
        batch = batch.map(lambda x: x.clone())
        batch.rewards[:] = MARK
        return batch

    def state(self):
        return {"drawn": len(self.paths)}

    def load_state(self, state):
        self.restored = state["drawn"]


@pytest.fixture
def windows(tmp_path):
    return SequenceDataset([whole(make_store(tmp_path / "store", [5, 9, 3]))], 4)


def test_each_part_has_its_share_of_every_batch(windows):
    mixed = MixedDataset([Marked(windows, weight=3.0), windows])
    mixed.refresh(0)
    batch = mixed.batch(4000, seed=0, path=("train", 0, 0, 0))
    assert batch.rewards.shape[0] == 4000
    share = (batch.rewards[:, 0] == MARK).float().mean()
    assert abs(share - 0.75) < 0.03
    assert mixed.metrics() == {"data/Marked/share": 0.75, "data/SequenceDataset/share": 0.25}
    again = mixed.batch(4000, seed=0, path=("train", 0, 0, 0))
    assert torch.equal(batch.rewards, again.rewards)
    assert not torch.equal(batch.rewards, mixed.batch(4000, seed=0, path=("train", 0, 0, 1)).rewards)


def test_a_part_that_is_not_ready_has_no_share(windows):
    class Late(Marked):
        is_ready = False

    late = Late(windows)
    mixed = MixedDataset([late, windows])
    assert mixed.is_ready
    assert not (mixed.batch(64, seed=0, path=()).rewards == MARK).any()
    late.is_ready = True
    assert not (mixed.batch(64, seed=0, path=()).rewards == MARK).any(), "shares change at a refresh only"
    mixed.refresh(1)
    assert (mixed.batch(64, seed=0, path=()).rewards == MARK).any()


@pytest.mark.parametrize("change", ["length", "entry", "dtype"])
def test_windows_that_do_not_fit_are_an_error(tmp_path, windows, change):
    class Other(Marked):
        def batch(self, batch_size, *, seed, path):
            batch = super().batch(batch_size, seed=seed, path=path)
            if change == "length":
                return SequenceDataset(windows.sources, 3).batch(batch_size, seed=seed, path=path)
            obs = dict(batch.inputs.obs)
            if change == "entry":
                obs["more"] = obs["id"]
            else:
                obs["id"] = obs["id"].double()
            return batch.with_inputs(type(batch.inputs)(**{**vars(batch.inputs), "obs": obs}))

    with pytest.raises(DataError, match=r"windows of Other and SequenceDataset cannot share a batch: .*"):
        MixedDataset([Other(windows), windows]).batch(64, seed=0, path=())


def test_windows_of_ones_own_without_burn_in_share_batches_with_others(tmp_path, windows):
    store = make_store(tmp_path / "other", [5, 9, 3])
    burnt = SequenceDataset([whole(store)], 4, burn_in=2)
    batch = MixedDataset([Marked(windows), burnt]).batch(40, seed=0, path=("train", 0, 0, 0))
    own = batch.rewards[:, 0] == MARK
    leads = batch.before.step[:, 0] + 2 == batch.inputs.step[:, 0]
    assert 0 < own.sum() < 40
    assert batch.before.step.shape == (40, 2)
    assert not leads[own].any()
    assert leads[~own].any()


def test_a_dataset_that_wants_to_be_alone_is_not_mixed(windows):
    with pytest.raises(DataError, match="need"):
        MixedDataset([NoData(), windows])


# ------------------------------------------------------------------------------------------ in a run
def of_an_online_run(tmp_path):
    """Return windows of what a small run collected, to mix into others."""
    experiment, _ = run(small(tmp_path, "first"))
    return SequenceDataset([Source(Store(experiment.replay.path), np.arange(3))], experiment.config.train.window_steps)


def seen_rewards(monkeypatch):
    """Return a list that fills with the rewards of all batches that are learned from."""
    seen = []
    original = seqrl.Experiment.train_step

    def train_step(self, batch, step):
        seen.append(batch.rewards.clone())
        return original(self, batch, step)

    monkeypatch.setattr(seqrl.Experiment, "train_step", train_step)
    return seen


def test_what_is_collected_is_learned_from_beside_a_custom_dataset(tmp_path, monkeypatch):
    windows = of_an_online_run(tmp_path)
    seen = seen_rewards(monkeypatch)
    given = Marked(windows)
    experiment, _ = run(small(tmp_path, "second"), dataset=given)
    assert isinstance(experiment.learner.dataset, MixedDataset)
    marked = torch.cat([r[:, 0] == MARK for r in seen])
    assert marked.any()
    assert not marked.all(), "the replay is never drawn"
    more = Marked(windows)  # a resumed run gives the custom dataset its state back
    config = small(tmp_path, "second")
    config.train.num_epochs += 1
    resumed = seqrl.Experiment(config, dataset=more, resume=True)
    resumed.start()
    assert more.restored == len(given.paths)
    resumed.close()


def test_a_custom_dataset_that_is_alone_draws_nothing_of_the_replay(tmp_path, monkeypatch, caplog):
    windows = of_an_online_run(tmp_path)
    seen = seen_rewards(monkeypatch)
    run(small(tmp_path, "second"), dataset=Marked(windows, weight=None))
    assert all((r == MARK).all() for r in seen)
    assert "weight None, so it is trained on without collect.steps_per_epoch" in caplog.text


# ------------------------------------------------------------------------------------------ samplers
@pytest.mark.usefixtures("registries_as_before")
def test_a_sampler_of_a_plug_in_chooses_what_is_drawn(tmp_path):
    @SAMPLERS.register("best_half")
    def best_half(store, numbers):
        returns = store.total_reward[numbers]
        return (returns >= np.median(returns)).astype(float)

    store = make_store(tmp_path / "store", [5, 9, 3, 7])
    dataset = SequenceDataset([whole(store)], 1, sample_by="best_half", keys=["id"])
    drawn = set(dataset.batch(400, seed=0, path=()).inputs.obs["id"][:, 0, 0].int().tolist())
    assert drawn == set(np.flatnonzero(store.total_reward >= np.median(store.total_reward)))


@pytest.mark.parametrize(
    ("votes", "error"),
    [([1.0], "4 finite votes"), ([1, -1, 1, 1], "4 finite"), ([np.nan] * 4, "finite"), ([0] * 4, "no trajectory")],
)
def test_votes_that_cannot_be_drawn_by(tmp_path, votes, error, monkeypatch):
    monkeypatch.setitem(SAMPLERS._entries, "bad", lambda store, numbers: votes)
    with pytest.raises(DataError, match=error):
        SequenceDataset([whole(make_store(tmp_path / "store", [5, 9, 3, 7]))], 1, sample_by="bad")


def test_an_unknown_sampler_is_named_with_what_is_there(tmp_path):
    with pytest.raises(ConfigError, match=r"train.sample_by: unknown sampler 'transitoin'; did you mean 'transition'"):
        run(small(tmp_path, train={"sample_by": "transitoin"}))
