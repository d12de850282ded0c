"""POPGym and MiniGrid by their ids; what needs the packages is skipped without them."""

import importlib.util
import sys

import gymnasium as gym
import numpy as np
import pytest

from seqrl.core.errors import EnvError
from seqrl.core.spaces import flatten_obs, obs_specs
from seqrl.envs import make_batched_env, make_expert
from seqrl.envs.make import env_maker, make_env
from seqrl.envs.suites import SUITES, Suite

needs_popgym = pytest.mark.skipif(importlib.util.find_spec("popgym") is None, reason="popgym is not installed")
needs_pusht = pytest.mark.skipif(importlib.util.find_spec("gym_pusht") is None, reason="gym-pusht is not installed")
needs_minigrid = pytest.mark.skipif(importlib.util.find_spec("minigrid") is None, reason="minigrid is not installed")


@pytest.mark.parametrize(
    ("env_id", "name"),
    [("popgym-RepeatFirstEasy-v0", "popgym"), ("BabyAI-GoToObj-v0", "minigrid"), ("gym_pusht/PushT-v0", "gym_pusht")],
)
def test_a_missing_package_is_named_with_its_extra(env_id, name, monkeypatch):
    def missing(module):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("seqrl.envs.suites.import_module", missing)
    with pytest.raises(EnvError, match=rf"{name} is not installed: pip install 'seqrl\[{name.removeprefix('gym_')}\]'"):
        make_env(env_id)


# --------------------------------------------------------------------------------------------- of plug-ins
@pytest.fixture
def suites(monkeypatch):
    """Let a test add suites of its own."""
    monkeypatch.setattr(SUITES, "_entries", dict(SUITES._entries))
    return SUITES


PLUGIN = """
import gymnasium as gym
from seqrl.envs.suites import SUITES, Suite

def make(env_id, *, flavour="plain", **options):
    env = gym.make("CartPole-v1", **options)
    env.unwrapped.flavour = f"{flavour} {env_id}"
    return env

SUITES.register("corner")(Suite(("corner-",), make))
"""


@pytest.mark.parametrize("env_id", ["rooms/a-v0", "rooms/a/b-v0", "rooms/big room", "rooms/x+y"])
def test_an_environment_without_a_spec_is_named_by_its_id(env_id, suites):
    class Room(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

    suites.register("rooms")(Suite(("rooms/",), lambda env_id, **options: Room()))
    assert make_env(env_id).spec.id == env_id


def test_a_plugin_brings_ids_also_to_other_processes(tmp_path):
    file = tmp_path / "corner_plugin.py"
    file.write_text(PLUGIN)
    env = make_env("corner-Shop-v0", {"flavour": "sweet"}, plugins=[str(file)], max_episode_steps=7)
    assert env.unwrapped.flavour == "sweet corner-Shop-v0"
    assert env.spec.max_episode_steps == 7
    make = env_maker("corner-Shop-v0", plugins=[str(file)])
    rows = make_batched_env(make, 2, vectorization="async")
    assert rows.num_envs == 2
    rows.close()
    SUITES._entries.pop("corner")
    sys.modules.pop(next(name for name in sys.modules if name.startswith("seqrl_plugin_corner_plugin")))


def test_nothing_is_imported_before_an_id_is_asked_for(tmp_path, monkeypatch, suites):
    (tmp_path / "lazy_suite.py").write_text("def make(env_id, **options):\n    return env_id, options\n")
    monkeypatch.syspath_prepend(tmp_path)
    suites.register("lazy")(Suite(("Lazy-",), "lazy_suite:make"))
    make_env("CartPole-v1").close()
    with pytest.raises(EnvError):
        make_env("Lzy-Nothing-v0")
    assert "lazy_suite" not in sys.modules
    assert make_env("Lazy-One-v0", {"size": 3})[0] == "Lazy-One-v0"
    sys.modules.pop("lazy_suite")


def test_an_installed_package_brings_ids_by_its_entry_point(monkeypatch, suites):
    def install():
        suites.register("installed")(Suite(("Installed-",), lambda env_id, **options: gym.make("CartPole-v1")))

    class Entry:
        load = staticmethod(install)

    monkeypatch.setattr("seqrl.core.plugins.entry_points", lambda group: [Entry] if group == "seqrl.plugins" else [])
    assert make_env("Installed-One-v0").spec.id == "CartPole-v1"


def test_a_missing_package_of_a_plugin_is_named(suites):
    suites.register("far")(Suite(("Far-",), "no_such_package.envs:make", "pip install far"))
    suites.register("near")(Suite(("Near-",), "no_such_package.envs:make"))
    with pytest.raises(
        EnvError, match=r"'Far-A-v0' belongs to .* far, but no_such_package is not installed: pip install"
    ):
        make_env("Far-A-v0")
    with pytest.raises(EnvError, match=r"belongs to the package near, but no_such_package is not installed$"):
        make_env("Near-A-v0")


def test_the_longest_beginning_decides(suites):
    def maker(name):
        return lambda env_id, **options: name

    suites.register("a")(Suite(("Big-", "Other-"), maker("a")))
    suites.register("b")(Suite(("B", "Big-Small-"), maker("b")))
    assert make_env("Big-One-v0") == "a"
    assert make_env("Big-Small-One-v0") == "b"
    suites.register("c")(Suite(("Big-",), maker("c")))
    with pytest.raises(EnvError, match="'Big-One-v0' belongs to the suite a, and to c as well"):
        make_env("Big-One-v0")


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", r"'CartPol-v1' is not registered; did you mean 'CartPole-v1'\? name the file"),
        ("seqrl/TMazPassive-v0", r"is not registered; did you mean 'seqrl/TMazePassive-v0'\?"),
        ("seqr/Fork-v0", r"is not registered; did you mean 'seqrl/Fork-v0'\?"),
        ("mine/Forks-v0", "'mine/Forks-v0' is not registered; name the file that registers one of your own"),
        ("CartPole-v7", "CartPole"),
    ],
)
def test_unknown_ids_are_told(env_id, message):
    with pytest.raises(EnvError, match=message):
        make_env(env_id)


def test_an_environment_that_makes_an_unknown_one_is_not_blamed(monkeypatch):
    spec = gym.envs.registration.EnvSpec("tests/Outer-v0", entry_point=lambda: gym.make("Inner-v0"))
    monkeypatch.setitem(gym.registry, "tests/Outer-v0", spec)
    with pytest.raises(EnvError, match=r"'tests/Outer-v0' with arguments \{\}: Environment `Inner` doesn't exist"):
        make_env("tests/Outer-v0")


# ---------------------------------------------------------------------------------------------- built in
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


# ------------------------------------------------------------------------------------------------ PushT
@needs_pusht
def test_pusht_is_solved_by_its_demonstrator_and_tells_the_coverage():
    env = make_env("gym_pusht/PushT-v0")
    expert = make_expert("gym_pusht/PushT-v0")
    obs, _ = env.reset(seed=3)
    for _ in range(199):
        obs, reward, terminated, truncated, info = env.step(expert(obs))
        assert terminated or truncated or "log/coverage" not in info
        if terminated or truncated:
            break
    assert terminated
    assert info["is_success"]
    assert info["log/coverage"] > 0.95
    assert reward == 1.0


@needs_pusht
def test_pusht_shows_the_state_beside_images_if_asked():
    plain, seen = (
        make_env("gym_pusht/PushT-v0", {"obs_type": kind, "with_state": True})
        for kind in ("pixels_agent_pos", "pixels")
    )
    obs, _ = plain.reset(seed=0)
    assert {k: v.shape for k, v in obs.items()} == {"pixels": (96, 96, 3), "agent_pos": (2,), "state": (5,)}
    assert plain.observation_space.contains(obs)
    assert set(seen.reset(seed=0)[0]) == {"pixels", "state"}
    alone, _ = make_env("gym_pusht/PushT-v0").reset(seed=0)
    np.testing.assert_array_equal(obs["state"], alone)
    np.testing.assert_array_equal(make_expert("gym_pusht/PushT-v0")(obs), make_expert("gym_pusht/PushT-v0")(alone))


@needs_minigrid
@pytest.mark.parametrize(("size", "num_in_view"), [(7, 3), (9, 3), (11, 2)])
def test_small_memory_rooms_need_no_memory(size, num_in_view):
    """Looking back from the junction, the hint and both objects are in view at once, except in larger rooms."""
    env = make_env(f"MiniGrid-MemoryS{size}-v0").unwrapped
    env.reset(seed=0)
    env.agent_pos, env.agent_dir = (env.success_pos[0], size // 2), 2
    keys_and_balls = np.isin(env.gen_obs()["image"][..., 0], (5, 6))
    assert keys_and_balls.sum() == num_in_view


@pytest.mark.parametrize("prefixes", ["rooms-", ("",), ["rooms-"], (3,)])
def test_beginnings_that_would_take_the_ids_of_others_are_refused(prefixes):
    with pytest.raises(EnvError, match=r"must be a tuple of strings, such as \('rooms-',\), got"):
        Suite(prefixes, "module:make")


@pytest.mark.parametrize("env_id", ["FetchCoffee-v0", "CrafterLite-v0", "mo-gridworld-v0"])
def test_an_environment_of_ones_own_may_begin_like_those_of_a_package(env_id):
    """Its id is registered, by somebody else."""
    gym.register(env_id, entry_point="seqrl.envs.builtin.bandit:Bandit")
    try:
        assert type(make_env(env_id).unwrapped).__name__ == "Bandit"
    finally:
        gym.registry.pop(env_id)
