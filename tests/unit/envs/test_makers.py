"""Ids of environments that are given as a class or function."""

from functools import partial

import gymnasium as gym
import pytest

from seqrl.core.errors import ConfigError
from seqrl.envs.makers import id_of_maker


class Lamp(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, num_steps=5):
        self.num_steps = num_steps


@pytest.fixture(autouse=True)
def _registry():
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)


def test_the_same_function_is_the_same_task_in_each_turn_of_a_loop():
    made = [lambda: Lamp() for _ in range(2)]
    assert id_of_maker(made[0]) == id_of_maker(made[1])
    sizes = [lambda size=size: Lamp(size) for size in (3, 4, 3)]
    ids = [id_of_maker(each) for each in (*sizes, partial(Lamp, 3), partial(Lamp, 3), partial(Lamp, num_steps=3))]
    assert ids[0] == ids[2] != ids[1]
    assert ids[3] == ids[4] != ids[5]

    def closed(size):
        return lambda: Lamp(size)

    assert id_of_maker(closed(3)) == id_of_maker(closed(3)) != id_of_maker(closed(5))
    scope = {"Lamp": Lamp, "size": 3}
    for size, is_new in ((3, True), (3, False), (4, True)):
        before = len(gym.registry)
        scope["size"] = size
        exec("make = lambda: Lamp(size)" if "make" not in scope else "", scope)
        id_of_maker(scope["make"])
        assert (len(gym.registry) > before) is is_new


def test_the_id_makes_what_the_function_makes():
    assert gym.make(id_of_maker(partial(Lamp, 7))).unwrapped.num_steps == 7
    assert gym.make(id_of_maker(Lamp)).unwrapped.num_steps == 5
    gym.register("Mine-v0", entry_point=lambda: Lamp(2))
    mine = gym.registry["Mine-v0"].entry_point
    mine.__name__ = "Mine"
    assert id_of_maker(mine) == "Mine-v0"
    with pytest.raises(ConfigError, match="give a gymnasium id, or a class or function"):
        id_of_maker(Lamp())


def test_an_id_that_someone_else_took_since_is_theirs():
    theirs = id_of_maker(Lamp)
    del gym.registry[theirs]
    gym.register(theirs, entry_point=lambda: Lamp(2))
    mine = id_of_maker(Lamp)
    assert mine != theirs
    assert gym.make(mine).unwrapped.num_steps == 5
