"""From ids and callables to environments, and what is said when that fails."""

import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from seqrl.core.errors import EnvError, RegistryError, SeqrlError
from seqrl.envs import BatchedEnv, make_batched_env, make_env, make_expert, register_expert
from seqrl.envs.builtin import builtin_env_ids, register_builtin_envs
from seqrl.envs.make import env_maker

PASSIVE = "seqrl/TMazePassive-v0"


def test_arguments_reach_the_environment():
    env = make_env(PASSIVE, {"corridor_length": 9})
    assert env.unwrapped.time_limit == 10
    assert make_env(PASSIVE, render_mode="rgb_array").render_mode == "rgb_array"


@pytest.mark.parametrize("where", ["beside", "among the arguments"])
def test_max_episode_steps_truncates(where):
    limit = {"max_episode_steps": 3}
    kwargs = {"corridor_length": 9}
    env = make_env(PASSIVE, kwargs, **limit) if where == "beside" else make_env(PASSIVE, kwargs | limit)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize("wrong", ["seqrl/TMazePasive-v0", "seqrl/TMazepassive-v0"])
def test_unknown_id_names_the_nearest(wrong):
    with pytest.raises(EnvError, match=r"did you mean 'seqrl/TMazePassive-v0'\?") as caught:
        make_env(wrong)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("env_id", ["not_installed_anywhere:Maze-v0", "gym_of_nothing/Thing-v0", "", "a/b/c"])
def test_id_that_leads_nowhere_is_an_env_error(env_id):
    with pytest.raises(EnvError, match="environment"):
        make_env(env_id)


def test_unknown_argument_is_an_env_error_that_names_it():
    with pytest.raises(EnvError, match="corridor_lenght") as caught:
        make_env(PASSIVE, {"corridor_lenght": 3})
    assert PASSIVE in str(caught.value)
    assert isinstance(caught.value, SeqrlError)


def test_argument_of_the_wrong_type_is_an_env_error():
    with pytest.raises(EnvError, match="corridor_length"):
        make_env(PASSIVE, {"corridor_length": "long"})


def test_maker_survives_pickling():
    maker = pickle.loads(pickle.dumps(env_maker(PASSIVE, {"corridor_length": 4}, max_episode_steps=2)))
    assert maker().unwrapped.time_limit == 5


def test_maker_does_not_share_its_arguments():
    kwargs = {"corridor_length": 4}
    maker = env_maker(PASSIVE, kwargs)
    kwargs["corridor_length"] = 40
    assert maker().unwrapped.time_limit == 5


def test_callable_that_makes_one_environment_is_called_per_row():
    made = []

    def maker():
        made.append(gym.make(PASSIVE, corridor_length=2))
        return made[-1]

    env = make_batched_env(maker, 3)
    assert env.num_envs == 3
    assert len({id(e) for e in env.env.envs}) == 3


def test_list_of_callables_makes_different_rows():
    env = make_batched_env([env_maker(PASSIVE, {"corridor_length": n}) for n in (2, 5)], 2)
    env.reset(seed=0)
    right = np.eye(4, dtype=np.float32)[[0, 0]]
    steps = [env.step(right) for _ in range(3)]
    assert [s.done.tolist() for s in steps] == [[False, False], [False, False], [True, False]]


def test_callable_that_makes_a_vector_environment_is_used_as_it_is():
    native = SyncVectorEnv([env_maker(PASSIVE)] * 5)
    env = make_batched_env(lambda: native, 2)
    assert isinstance(env, BatchedEnv)
    assert env.env is native
    assert env.num_envs == 5


def test_builtin_environments_are_registered_once():
    register_builtin_envs()
    ids = builtin_env_ids()
    assert ids == sorted(set(ids))
    assert {"seqrl/MetaFrozenLake-v0", "seqrl/PointRecall-v0", "seqrl/TMazePassive-v0"} <= set(ids)
    assert all(env_id in gym.registry for env_id in builtin_env_ids())


def test_expert_of_an_environment_without_one():
    with pytest.raises(EnvError, match=r"CartPole-v1.*seqrl/TMazeActive-v0, seqrl/TMazePassive-v0"):
        make_expert("CartPole-v1")


def test_expert_of_an_id_with_its_module():
    assert make_expert(f"seqrl.envs:{PASSIVE}")(np.array([1, 0, 0, -1], np.float32)) == 0


def test_experts_are_known_before_their_modules_are_imported():
    code = "import sys; from seqrl.envs import EXPERTS, make_expert; print(*EXPERTS.names()); "
    code += "print('seqrl.envs.builtin.tmaze' in sys.modules); "
    code += "print(type(make_expert('seqrl/TMazeActive-v0')).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, *rest = done.stdout.splitlines()
    assert {"seqrl/TMazeActive-v0", "seqrl/TMazePassive-v0", "seqrl/PointRecall-v0"} <= set(names.split())
    assert rest == ["False", "TMazeExpert"]


def test_a_builtin_expert_keeps_its_name():
    with pytest.raises(RegistryError, match=r"'seqrl/TMazeActive-v0' is already registered, by seqrl\.envs\.builtin"):
        register_expert("seqrl/TMazeActive-v0")(dict)


class Unusable(gym.Env):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, what, render_mode=None):
        self.render_mode = render_mode
        if what == "init":
            raise RuntimeError("no licence")

    def render(self):
        raise KeyError("pygame")


@pytest.mark.parametrize(
    ("entry", "kwargs", "message"),
    [
        (Unusable, {"what": "init"}, r"RuntimeError: no licence \(raised in .*test_make\.py, line \d+\)"),
        (Unusable, {}, "missing 1 required positional argument: 'what'"),
        ("not_there_at_all:X", {}, "No module named 'not_there_at_all'"),
        ("broken_module:X", {}, r"OSError: broken \(raised in .*broken_module\.py, line 1\)"),
        (Unusable, {"what": "", "render_mode": 3}, "AttributeError"),
    ],
)
def test_an_environment_that_cannot_be_made_is_an_error(tmp_path, monkeypatch, entry, kwargs, message):
    (tmp_path / "broken_module.py").write_text("raise OSError('broken')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(gym.envs.registration, "registry", {**gym.registry})
    gym.register("Unusable-v0", entry_point=entry)
    with pytest.raises(EnvError, match=f"environment 'Unusable-v0' with arguments .*{message}"):
        make_env("Unusable-v0", kwargs)


def test_gymnasiums_own_environments_name_the_extra_that_they_need(monkeypatch):
    def missing():
        raise gym.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`')

    monkeypatch.setattr(gym.envs.registration, "registry", {**gym.registry})
    gym.register("Lander-v0", entry_point=missing)
    with pytest.raises(EnvError, match=r"'Lander-v0' needs more: pip install 'seqrl\[box2d\]'"):
        make_env("Lander-v0")


def test_an_environment_that_cannot_be_drawn_is_an_error():
    env = make_batched_env(lambda: Unusable("", "rgb_array"), 1)
    with pytest.raises(EnvError, match=r"cannot be drawn: KeyError: 'pygame' \(raised in .*test_make\.py, line \d+\)$"):
        env.render()


def test_drawing_without_a_display_tells_what_to_set(monkeypatch):
    def without_a_display(self):
        raise RuntimeError("an OpenGL platform library has not been loaded")

    monkeypatch.setattr(Unusable, "render", without_a_display)
    with pytest.raises(EnvError, match=r"OpenGL .*; for MuJoCo without a display, set MUJOCO_GL=egl"):
        make_batched_env(lambda: Unusable("", "rgb_array"), 1).render()
