"""gymnax and XLand-MiniGrid: vectors that are one compiled step; skipped without the packages."""

from itertools import pairwise

import numpy as np
import pytest

from seqrl.core.errors import EnvError
from seqrl.envs.make import make_env, make_vector_env
from seqrl.envs.vector import BatchedEnv
from tests.regression.test_online import run, small


@pytest.fixture(scope="module")
def compiled():
    """Return how many steps were compiled so far."""
    return pytest.importorskip("seqrl.envs.suites.jax_vector", exc_type=ImportError)._step._cache_size


def played(env_id, num_envs, steps, kwargs, seed=0):
    """Return the time steps of random play."""
    env = BatchedEnv(make_vector_env(env_id, num_envs, kwargs))
    rng = np.random.default_rng(1)
    return [env.reset(seed), *(env.step(env.codec.random(rng, num_envs)) for _ in range(steps))]


# ------------------------------------------------------------------------------------------------ gymnax
def test_rows_are_single_environments_of_the_next_seeds_with_their_own_last_observation(compiled):
    pytest.importorskip("gymnax")
    rows = played("gymnax/CartPole-v1", 2, 5, {"max_episode_steps": 5}, seed=7)
    assert rows[-1].truncated.all()
    assert not any(step.terminated.any() for step in rows)
    assert all(step.is_first.all() == (number in (0, 5)) for number, step in enumerate(rows))
    rng = np.random.default_rng(1)
    actions = [rng.random((2, 2)).argmax(-1) for _ in range(5)]
    for row in range(2):
        env = make_env("gymnax/CartPole-v1", max_episode_steps=5)
        seen = [env.reset(seed=7 + row)[0], *(env.step(both[row])[0] for both in actions)]
        theirs = [step.obs["obs"][row] for step in rows[:-1]] + [rows[-1].final_obs["obs"][row]]
        np.testing.assert_array_equal(seen, theirs)
    assert not np.array_equal(rows[-1].obs["obs"], rows[-1].final_obs["obs"])
    assert (abs(rows[-1].obs["obs"]) <= 0.05).all()  # of a beginning
    before = compiled()
    again = played("gymnax/CartPole-v1", 2, 5, {"max_episode_steps": 5}, seed=7)
    assert all(np.array_equal(a.obs["obs"], b.obs["obs"]) for a, b in zip(rows, again, strict=True))
    assert compiled() == before
    other = played("gymnax/CartPole-v1", 2, 0, {"max_episode_steps": 5}, seed=9)
    assert not np.array_equal(other[0].obs["obs"], rows[0].obs["obs"])


def test_options_of_gymnax_are_parameters_or_arguments():
    pytest.importorskip("gymnax")
    assert make_env("gymnax/MemoryChain-bsuite", {"num_bits": 3}).observation_space.shape == (5,)
    assert make_env("gymnax/CartPole-v1", {"max_steps_in_episode": 9}).spec.max_episode_steps == 9
    with pytest.raises(EnvError, match="gymnax has no environment 'CartPol-v1'; did you mean 'CartPole-v1'"):
        make_env("gymnax/CartPol-v1")
    with pytest.raises(EnvError, match=r"'gymnax/CartPole-v1' with arguments .*argument 'bits'"):
        make_env("gymnax/CartPole-v1", {"bits": 1})


def test_gymnax_draws_what_it_can():
    pytest.importorskip("gymnax")
    env = make_env("gymnax/Catch-bsuite", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (500, 600, 3)
    blind = make_env("gymnax/MemoryChain-bsuite", render_mode="rgb_array")
    blind.reset(seed=0)
    assert blind.render() is None
    assert blind.metadata["render_modes"] == []


@pytest.mark.slow
def test_gymnax_trains(tmp_path):
    pytest.importorskip("gymnax")
    env = {"id": "gymnax/CartPole-v1", "kwargs": {}, "vectorization": "native"}
    _, stats = run(small(tmp_path, env=env, train={"num_epochs": 1}))
    assert 50 <= stats.env_steps <= 60


# ------------------------------------------------------------------------------------- XLand-MiniGrid
SMALL = {"height": 5, "width": 5, "max_episode_steps": 16}


@pytest.mark.slow
def test_attempts_are_at_the_same_ruleset_and_told(compiled):
    pytest.importorskip("xminigrid")
    rows = played("XLand-MiniGrid-R1-9x9", 4, 48, {**SMALL, "attempts": 2})
    assert {name: x.shape for name, x in rows[0].obs.items()} == {"obs": (4, 5, 5, 2), "attempt": (4, 2)}
    assert rows[0].obs["attempt"].tolist() == [[1, 0]] * 4
    scores = {1: 0.0, 2: 0.0}
    for before, step in pairwise(rows):
        for number in scores:
            value, told = step.log.get(f"log/attempt_{number}_return", (np.zeros(4), np.zeros(4, bool)))
            scores[number] += value[told].sum()
            assert np.array_equal(told & step.terminated, told if number == 2 else np.zeros(4, bool))
        began = step.obs["attempt"][:, 0] == 1
        assert np.array_equal(began & ~step.terminated, (step.obs["attempt"][:, 1] > before.obs["attempt"][:, 1]))
        assert not step.truncated.any()
        assert np.array_equal(step.success_known, step.terminated)
        assert (step.final_obs["attempt"][step.terminated] == [0, 1]).all()
    assert scores[1] > 0
    assert sum(scores.values()) <= sum(step.reward.sum() for step in rows) + 1e-4
    assert sum(step.terminated.sum() for step in rows) >= 12


def test_a_ruleset_stays_for_an_episode():
    pytest.importorskip("xminigrid")
    import jax

    from seqrl.envs.suites.xminigrid import XLandRules

    rules = XLandRules(
        "XLand-MiniGrid-R1-9x9", attempts=2, max_steps=16, benchmark=None, split="all", params={"height": 5, "width": 5}
    )
    begin = jax.jit(rules.begin)
    first, _ = begin(rules.data, jax.random.key(0), None, True)
    again, _ = begin(rules.data, jax.random.key(1), first, False)
    new, _ = begin(rules.data, jax.random.key(1), first, True)
    same = [np.array_equal(first.ruleset.init_tiles, other.ruleset.init_tiles) for other in (again, new)]
    assert same == [True, False]
    assert not np.array_equal(first.timestep.state.grid, again.timestep.state.grid)


def test_rulesets_come_from_files_and_are_split(tmp_path, monkeypatch):
    pytest.importorskip("xminigrid")
    from xminigrid import benchmarks

    from seqrl.envs.suites.xminigrid import own_rulesets, rulesets

    own = own_rulesets()
    assert {int(kind) for kind in own.goals[:, 0]} == {1, 3, 4}
    assert [rulesets(None, split).num_rulesets() for split in ("all", "train", "test")] == [1000, 900, 100]
    arrays = {name: np.asarray(getattr(own, name))[:20] for name in ("goals", "rules", "init_tiles", "num_rules")}
    np.savez(tmp_path / "mine.npz", **arrays)
    found = rulesets(str(tmp_path / "mine.npz"), "test")
    assert np.array_equal(found.goals, own.goals[18:20])
    monkeypatch.setattr(benchmarks, "DATA_PATH", str(tmp_path))
    benchmarks.save_bz2_pickle(arrays, str(tmp_path / "trivial_21k"))  # as if it had been downloaded
    assert rulesets("trivial-21k", "all").num_rulesets() == 20
    np.savez(tmp_path / "part.npz", goals=arrays["goals"])
    with pytest.raises(EnvError, match=r"part\.npz' has no array 'rules'; it holds goals"):
        rulesets(str(tmp_path / "part.npz"), "all")
    with pytest.raises(EnvError, match=r"'trivial' is neither one of trivial-21k, .* nor an \.npz file"):
        make_env("XLand-MiniGrid-R1-9x9", {"benchmark": "trivial"})
    with pytest.raises(EnvError, match="XLand-MiniGrid has no environment 'MiniGrid-DoorKee-5x5'; did you mean"):
        make_env("XLand/MiniGrid-DoorKee-5x5")
    with pytest.raises(EnvError, match="MiniGrid-DoorKey-5x5 has its own task"):
        make_env("XLand/MiniGrid-DoorKey-5x5", {"split": "test"})


@pytest.mark.slow
def test_one_goal_is_found_by_a_single_row_which_is_drawn():
    pytest.importorskip("xminigrid")
    env = make_env("XLand/MiniGrid-Empty-5x5", render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    assert env.render().shape == (160, 160, 3)
    rng = np.random.default_rng(0)
    while True:
        _, reward, terminated, truncated, info = env.step(rng.integers(3))
        if terminated or truncated:
            break
    assert info["success"] == terminated == (reward > 0)
