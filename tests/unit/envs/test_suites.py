"""POPGym and MiniGrid by their ids; what needs the packages is skipped without them."""

import importlib.util

import gymnasium as gym
import numpy as np
import pytest

from seqrl.core.errors import EnvError
from seqrl.core.spaces import flatten_obs, obs_specs
from seqrl.envs import make_batched_env
from seqrl.envs.make import env_maker, make_env

needs_popgym = pytest.mark.skipif(importlib.util.find_spec("popgym") is None, reason="popgym is not installed")
needs_minigrid = pytest.mark.skipif(importlib.util.find_spec("minigrid") is None, reason="minigrid is not installed")


@pytest.mark.parametrize(
    ("env_id", "name"), [("popgym-RepeatFirstEasy-v0", "popgym"), ("BabyAI-GoToObj-v0", "minigrid")]
)
def test_a_missing_package_is_named_with_its_extra(env_id, name, monkeypatch):
    def missing(module):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("seqrl.envs.suites.import_module", missing)
    with pytest.raises(EnvError, match=rf"{name} is not installed: pip install 'seqrl\[{name}\]'"):
        make_env(env_id)


def played(env_id, num_steps=30, **kwargs):
    """Return an environment's time steps under random actions, two rows."""
    env = make_batched_env(env_maker(env_id, kwargs), 2)
    rng = np.random.default_rng(0)
    steps = [env.reset(seed=0)]
    steps += [env.step(env.codec.random(rng, 2)) for _ in range(num_steps)]
    env.close()
    return env, steps


@needs_popgym
@pytest.mark.parametrize("kind", ["RepeatFirst", "HigherLower", "MineSweeper", "PositionOnlyCartPole", "Concentration"])
def test_popgym_plays(kind):
    env, steps = played(f"popgym-{kind}Easy-v0")
    specs = obs_specs(env.observation_space)
    for step in steps:
        assert {k: v.shape[1:] for k, v in step.obs.items()} == {k: s.shape for k, s in specs.items()}


@needs_minigrid
@pytest.mark.parametrize("env_id", ["MiniGrid-MemoryS7-v0", "BabyAI-GoToLocal-v0", "MiniGrid-DoorKey-5x5-v0"])
def test_minigrid_plays_in_categories(env_id):
    from seqrl.envs.suites.minigrid import WORDS

    env, steps = played(env_id)
    specs = obs_specs(env.observation_space)
    assert specs["image"].nvec[:3] == (11, 6, 4)
    assert specs["mission"].nvec == (len(WORDS) + 2,) * 40
    for step in steps:
        for name, spec in specs.items():
            flat = step.obs[name].reshape(2, -1)
            assert (flat >= 0).all()
            assert (flat < np.array(spec.nvec)).all()
    words = [WORDS[n - 1] for n in steps[0].obs["mission"][0] if n]
    assert "unknown" not in words
    assert set(words) & {"go", "get", "use", "open"}


@needs_minigrid
def test_what_minigrid_shows_is_what_is_seen():
    raw, ours = gym.make("MiniGrid-DoorKey-5x5-v0"), make_env("MiniGrid-DoorKey-5x5-v0", {"mission": "none"})
    seen, _ = raw.reset(seed=3)
    wrapped, _ = ours.reset(seed=3)
    assert np.array_equal(flatten_obs(ours.observation_space, wrapped)["image"], seen["image"])
    assert "mission" not in wrapped


@needs_minigrid
def test_success_is_told_at_the_end():
    env = make_env("MiniGrid-Empty-5x5-v0")
    env.reset(seed=0)
    for action in (2, 2, 1, 2):
        assert "success" not in env.step(action)[4]
    *_, terminated, _, info = env.step(2)
    assert terminated
    assert info["success"] is True
