"""Environments of other packages by their own ids; skipped without the packages."""

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import EnvError
from seqrl.core.spaces import obs_specs
from seqrl.envs.make import make_env, make_vector_env
from seqrl.envs.suites import SUITES
from seqrl.envs.vector import BatchedEnv
from seqrl.scripts.list_ import envs
from tests.regression.test_online import run, small


def played(env, steps, seed=0):
    """Return everything that random actions lead to, from a seeded reset."""
    observation, info = env.reset(seed=seed)
    env.action_space.seed(seed)
    rows = [(observation, 0.0, False, False, info)]
    while len(rows) <= steps and not (rows[-1][2] or rows[-1][3]):
        rows.append(env.step(env.action_space.sample()))
    return rows


def equal(a, b):
    return all(np.array_equal(a[k], b[k]) for k in a) if isinstance(a, dict) else np.array_equal(a, b)


@pytest.mark.parametrize(
    ("package", "env_id", "kwargs"),
    [
        ("crafter", "Crafter-v1", {}),
        ("crafter", "CrafterNoReward-v1", {"size": 32, "max_episode_steps": 15}),
        ("envpool", "envpool/CartPole-v1", {}),
        ("envpool", "envpool/Ant-v4", {}),
        ("ale_py", "ALE/Pong-v5", {}),
        ("ale_py", "ALE/Breakout-v5", {"all_actions": True, "grayscale": False, "screen_size": None}),
        ("gymnasium_robotics", "FetchReach-v4", {}),
        ("gymnasium_robotics", "PointMaze_UMaze-v3", {}),
        ("shimmy", "dm_control/cartpole-swingup-v0", {}),
        ("gym", "gym/CartPole-v1", {}),
        ("mo_gymnasium", "mo-mountaincar-v0", {"weights": [1.0, 0.5, 0.0]}),
        ("metaworld", "Meta-World/reach-v3", {}),
        ("metaworld", "Meta-World/ML1", {"env_name": "push-v3"}),
    ],
)
def test_one_seed_plays_one_episode_in_its_spaces(package, env_id, kwargs):
    pytest.importorskip(package)
    episodes = []
    for _ in range(2):
        env = make_env(env_id, kwargs)
        assert obs_specs(env.observation_space)
        episodes.append(played(env, 20, seed=3))
        assert all(env.observation_space.contains(row[0]) for row in episodes[-1])
        env.close()
    for one, other in zip(*episodes, strict=True):
        assert equal(one[0], other[0])
        assert one[1:4] == other[1:4]


def test_atari_repeats_actions_and_tells_those_of_the_game():
    pytest.importorskip("ale_py")
    env = make_env("ALE/Breakout-v5", {"all_actions": True, "repeat_action_probability": 0.0, "end_at_life_loss": True})
    observation, _ = env.reset(seed=0)
    assert env.action_space.n == 18
    assert observation["screen"].shape == (84, 84, 1)
    assert observation["action_mask"].nonzero()[0].tolist() == [0, 1, 3, 4]  # noop, fire, right, left
    info = env.step(1)[4]
    assert info["frame_number"] == 4
    terminated = False
    while not terminated:
        _, _, terminated, _, info = env.step(1)
    assert info["lives"] == 4
    limited = make_env("ALE/Breakout-v5", max_episode_steps=10)
    limited.reset(seed=0)
    assert [limited.step(0)[3] for _ in range(10)] == [False] * 9 + [True]  # of actions, not of frames


def test_environments_of_gym_run_by_its_adapter(tmp_path):
    gym = pytest.importorskip("gym")

    class Plain(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 1, 0.0, False, False, {}

    gym.register("lab/Plain-v0", entry_point=Plain)
    assert make_env("gym/lab/Plain-v0").spec.id == "gym/lab/Plain-v0"
    env = make_env("gym/CartPole-v1", max_episode_steps=7)
    assert env.spec.max_episode_steps == 7
    env.reset(seed=0)
    assert [env.step(i % 2)[3] for i in range(7)] == [False] * 6 + [True]
    run(small(tmp_path, env={"id": "gym/CartPole-v1", "kwargs": {}}))


def test_rewards_of_several_parts_are_weighed():
    pytest.importorskip("mo_gymnasium")
    with pytest.raises(EnvError, match=r"gives 3 rewards per step: give as many weights .*\[0\.33, 0\.33, 0\.33\]$"):
        make_env("mo-mountaincar-v0")
    with pytest.raises(EnvError, match=r", not \[1\.0\]$"):
        make_env("mo-mountaincar-v0", {"weights": [1.0]})
    with pytest.raises(EnvError, match=r", not 1\.0$"):
        make_env("mo-mountaincar-v0", {"weights": 1.0})
    rows = played(make_env("mo-mountaincar-v0", {"weights": [2.0, 0.0, 0.0]}), 500)
    assert all(row[1] == -2.0 for row in rows[1:])
    assert rows[-1][3]
    assert rows[-1][4]["log/reward_0"] == 1.0 - len(rows)


def test_meta_world_hides_goals_and_draws_tasks():
    pytest.importorskip("metaworld")
    seen, hidden = (
        make_env("Meta-World/MT1", {"env_name": "reach-v3"}),
        make_env("Meta-World/ML1", {"env_name": "reach-v3"}),
    )
    goals = [tuple(seen.reset(seed=seed)[0][-3:]) for seed in range(6)]
    assert len(set(goals)) > 3
    assert not any(hidden.reset(seed=seed)[0][-3:].any() for seed in range(3))
    several = make_env("Meta-World/MT10", max_episode_steps=3)
    assert several.observation_space.shape == (49,)
    observation, info = several.reset(seed=0)
    assert observation[39:].sum() == 1
    log = [key for key in played(several, 5, seed=0)[-1][4] if key.startswith("log/")]
    assert log == [f"log/success_{info['environment']}"]
    with pytest.raises(EnvError, match=r"no 'reech-v3'; did you mean 'reach-v3'\?"):
        make_env("Meta-World/reech-v3")
    with pytest.raises(EnvError, match=r"'Meta-World/ML1' needs env\.kwargs\.env_name:"):
        make_env("Meta-World/ML1")


def test_tasks_of_meta_world_are_learned_together(tmp_path):
    pytest.importorskip("metaworld")
    env = {
        "id": None,
        "kwargs": {"max_episode_steps": 5},
        "tasks": [{"id": f"Meta-World/{name}-v3"} for name in ("reach", "push")],
    }
    experiment, _ = run(small(tmp_path, env=env, train={"num_epochs": 1}))
    for name in ("reach", "push"):
        assert f"eval/Meta-World/{name}-v3/success_mean" in experiment.metrics


def test_attempts_at_a_hidden_goal_are_at_the_same_one():
    pytest.importorskip("metaworld")
    kwargs = {"env_id": "Meta-World/ML1", "env_kwargs": {"env_name": "reach-v3"}, "attempts": 2, "attempt_steps": 4}
    env = make_env("seqrl/Attempts-v0", kwargs)
    env.reset(seed=0)
    rewards = []
    for _ in range(8):
        rewards.append(env.step(np.zeros(4, np.float32))[1])
    assert rewards[:4] == rewards[4:]  # rewards depend on the goal


def test_the_list_names_what_brings_each_suite():
    header, *rows = envs("")
    found = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert set(SUITES.names()) <= found.keys()
    assert found["metaworld"]["to install"] == "pip install 'seqrl[metaworld]'"
    for name in SUITES.names():
        suite = SUITES.get(name)
        assert suite.example == "" or suite.example.startswith(suite.prefixes)


def test_a_package_that_cannot_be_imported_is_told(monkeypatch):
    def failing(module):
        raise AttributeError("'NoneType' object has no attribute 'glGetError'")

    monkeypatch.setattr("seqrl.envs.suites.import_module", failing)
    with pytest.raises(EnvError, match=r"of the package metaworld, whose import failed: AttributeError: .*glGetError"):
        make_env("Meta-World/reach-v3")


def test_crafter_tells_achievements_and_death_from_the_time_limit():
    pytest.importorskip("crafter")
    env = make_env("Crafter-v1", {"max_episode_steps": 30}, render_mode="rgb_array")
    env.reset(seed=0)
    steps, info = 0, {}
    terminated = truncated = False
    while not (terminated or truncated):
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        steps += 1
    assert (terminated, truncated, steps) == (False, True, 30)
    assert len([k for k in info if k.startswith("log/achievement_")]) == 22
    assert 0 <= info["log/achievements"] <= 22
    assert env.render().shape == (256, 256, 3)
    with pytest.raises(EnvError, match="Crafter-v1 and CrafterNoReward-v1"):
        make_env("Crafter-v7")


def test_pools_of_envpool_are_native_vectors(tmp_path):
    pytest.importorskip("envpool")
    env = {"id": "envpool/CartPole-v1", "kwargs": {}, "vectorization": "native"}
    _, stats = run(small(tmp_path, env=env, train={"num_epochs": 1}))
    assert 50 <= stats.env_steps <= 60
    pool = BatchedEnv(make_vector_env("envpool/CartPole-v1", 3))
    first, again = pool.reset(7), pool.reset(7)
    assert equal(first.obs, again.obs)
    assert not equal(first.obs, pool.reset(8).obs)
    single = make_env("envpool/CartPole-v1").reset(seed=8)[0]
    assert np.array_equal(single, make_vector_env("envpool/CartPole-v1", 1).reset(seed=8)[0][0])
    shown = make_env("envpool/CartPole-v1", render_mode="rgb_array")
    shown.reset(seed=0)
    assert shown.render().shape == (400, 600, 3)
    assert make_env("envpool/CartPole-v1").render() is None
    with pytest.raises(EnvError, match="did you mean 'CartPole-v1'"):
        make_env("envpool/CartPol-v1")


def test_robosuite_has_robomimics_observations_and_states():
    pytest.importorskip("robosuite")
    env = make_env("robosuite/Lift", {"horizon": 5})
    first = env.reset(seed=3)[0]
    assert {"object", "robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos"} <= first.keys()
    assert not {"object-state", "robot0_proprio-state"} & first.keys()
    assert equal(first, env.reset(seed=3)[0])
    assert not np.array_equal(first["object"], env.reset(seed=4)[0]["object"])
    env.reset(seed=3)
    state = env.get_wrapper_attr("get_state")()
    ends = [env.step(env.action_space.sample()) for _ in range(5)]
    assert [row[3] for row in ends] == [False] * 4 + [True]
    assert ends[-1][4] == {"success": False}
    again = env.get_wrapper_attr("reset_to")(state)
    assert all(np.allclose(again[k], first[k], atol=1e-5) for k in first)
    assert env.get_wrapper_attr("get_reward")() == 0
    with pytest.raises(EnvError, match="did you mean 'Lift'"):
        make_env("robosuite/Lfit")


def test_controllers_of_robomimics_files_are_understood():
    pytest.importorskip("robosuite")
    old = {
        "type": "OSC_POSE", "input_max": 1, "input_min": -1, "output_max": [0.05] * 3 + [0.5] * 3,
        "output_min": [-0.05] * 3 + [-0.5] * 3, "kp": 150, "damping": 1, "impedance_mode": "fixed",
        "kp_limits": [0, 300], "damping_limits": [0, 10], "position_limits": None, "orientation_limits": None,
        "uncouple_pos_ori": True, "control_delta": True, "interpolation": None, "ramp_ratio": 0.2,
    }  # fmt: skip
    env = make_env("robosuite/Lift", {"robots": ["Panda"], "controller_configs": old, "ignore_done": True})
    env.reset(seed=0)
    assert np.isfinite(env.step(np.zeros(7, np.float32))[1])
    assert env.action_space.is_bounded()
    env = make_env("robosuite/Lift", {"robots": ["Panda"], "controller_configs": {**old, "control_delta": False}})
    assert not env.action_space.is_bounded()
    obs, _ = env.reset(seed=0)
    there = [-0.05, 0.1, 1.1]
    for _ in range(30):
        obs = env.step(np.array([*there, np.pi, 0.0, 0.0, -1.0], np.float32))[0]
    assert np.linalg.norm(obs["robot0_eef_pos"] - there) < 0.07  # it began at 0.13


def test_games_of_stable_retro_one_in_each_process(tmp_path):
    pytest.importorskip("stable_retro")
    env = make_env("retro/Airstriker-Genesis-v0", {"max_episode_steps": 6})
    try:
        first, _ = env.reset(seed=0)
        assert first.shape == (84, 84, 1)
        assert env.action_space.n == 12
        ends = [env.step(env.action_space.sample())[3] for _ in range(6)]
        assert ends == [False] * 5 + [True]
        assert env.render().shape == (224, 320, 3)
        with pytest.raises(EnvError, match=r"set env\.vectorization to async"):
            make_env("retro/Airstriker-Genesis-v0")
    finally:
        env.close()
    env = make_env("retro/Airstriker-Genesis-v0", {"actions": "discrete", "grayscale": False, "screen_size": None})
    assert env.observation_space.shape == (224, 320, 3)
    assert isinstance(env.action_space, spaces.Discrete)
    env.close()
    with pytest.raises(EnvError, match=r"its ROM is missing"):
        make_env("retro/1942-Nes-v0")
    with pytest.raises(EnvError, match="did you mean"):
        make_env("retro/Airstriker-Genesis")
