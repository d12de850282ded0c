"""T-Maze through a camera: what each picture tells and what none of them does, the rules, and the expert."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from seqrl.core.errors import EnvError
from seqrl.envs import make_batched_env, make_env, make_expert
from seqrl.envs.builtin.tmaze import DOWN, LEFT, RIGHT, UP, TMazePassive
from seqrl.envs.builtin.tmaze_pixels import TMazePixels, paint_pictures
from tests.unit.envs.builtin.test_tmaze import _seed_with_goal, _walk

ENV_ID = "seqrl/TMazePixels-v0"
SIGN = slice(7, 25)
"""Rows and columns that hold the sign."""


def name_of(obs):
    """Return which of the pictures this is."""
    (name,) = [name for name, picture in paint_pictures().items() if np.array_equal(picture, obs)]
    return name


@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
def test_gymnasium_checker_is_content(render_mode):
    env = gym.make(ENV_ID, corridor_length=4, render_mode=render_mode)
    check_env(env.unwrapped, skip_render_check=render_mode is None)
    assert env.observation_space == gym.spaces.Box(0, 255, (32, 32, 3), np.uint8)
    assert env.action_space.n == 4
    assert gym.make(ENV_ID).unwrapped.time_limit == 21  # a corridor of 20


def test_pictures_are_bytes_and_differ_clearly():
    pictures = paint_pictures()
    assert len(pictures) == 4
    assert all(p.shape == (32, 32, 3) and p.dtype == np.uint8 for p in pictures.values())
    for a in pictures:
        for b in pictures:
            assert a == b or ((np.abs(pictures[a].astype(int) - pictures[b]) > 40).any(-1).mean() > 0.02), (a, b)


@pytest.mark.parametrize(("goal", "hint"), [(1, "goal up"), (-1, "goal down")])
def test_hint_is_seen_at_the_oracle_only(goal, hint):
    env = TMazePixels(corridor_length=3)
    observations, _ = _walk(env, [RIGHT, RIGHT, RIGHT, UP], seed=_seed_with_goal(env, goal))
    assert [name_of(o) for o in observations] == [hint, "corridor", "corridor", "junction", "junction"]


def test_goals_differ_at_the_oracle_only():
    """After the first step, two runs that differ in the goal show the same bytes."""
    env = TMazePixels(corridor_length=4, slack_steps=9)
    actions = [RIGHT, UP, RIGHT, DOWN, LEFT, RIGHT, RIGHT, RIGHT, RIGHT]
    (up, up_results), (down, down_results) = (_walk(env, actions, seed=_seed_with_goal(env, g)) for g in (1, -1))
    assert not np.array_equal(up[0], down[0])
    assert np.array_equal(up[1:], down[1:])
    assert up_results == down_results


@pytest.mark.parametrize("goal", [1, -1])
def test_pictures_do_not_tell_position_nor_time(goal):
    """Every cell between the ends looks the same, in mazes of any length, at first sight and on the way back."""
    seen = []
    for length in (2, 5, 30):
        env = TMazePixels(corridor_length=length, slack_steps=60)
        env.reset(seed=_seed_with_goal(env, goal))
        for action in [RIGHT] * (length - 1) + [LEFT] * (length - 2) + [UP, DOWN]:
            seen.append(env.step(action)[0])
    assert {o.tobytes() for o in seen} == {paint_pictures()["corridor"].tobytes()}
    assert len(seen) > 60


def test_hint_is_a_direction_and_not_a_colour():
    """The signs are each other's mirror image, so that they hold the same colours; around them all is the same."""
    up, down = (paint_pictures()[name].copy() for name in ("goal up", "goal down"))
    assert np.array_equal(up[SIGN, SIGN], down[SIGN, SIGN][::-1])
    assert np.array_equal(up.mean((0, 1)), down.mean((0, 1)))
    reds = (up[..., 0] > 150) & (up[..., 1] < 90)
    assert reds[:16].sum() > 1.3 * reds[16:].sum()  # an arrow up has its head, its wider part, above
    up[SIGN, SIGN] = down[SIGN, SIGN] = 0
    assert np.array_equal(up, down)


def test_observations_may_be_written_to():
    env = TMazePixels(corridor_length=2)
    first, _ = env.reset(seed=0)
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(env.reset(seed=0)[0], kept)
    with pytest.raises(ValueError, match="read-only"):
        paint_pictures()["corridor"][:] = 0


def test_rules_are_those_of_the_passive_maze():
    """Same seed, same actions: same goals, rewards and ends, and pictures of what the vector says."""
    names = {(1, 0, 0, 1): "goal up", (1, 0, 0, -1): "goal down", (0, 1, 0, 0): "corridor", (0, 0, 1, 0): "junction"}
    envs = [cls(4, slack_steps=6, balanced_goals=True) for cls in (TMazePassive, TMazePixels)]
    rng = np.random.default_rng(0)
    for episode in range(100):
        (vector, _), (picture, _) = (env.reset(seed=3 if episode == 0 else None) for env in envs)
        done = False
        while not done:
            assert name_of(picture) == names[tuple(vector)]
            action = rng.choice(4, p=[0.6, 0.1, 0.2, 0.1])
            (vector, *expected), (picture, *given) = (env.step(action) for env in envs)
            assert given == expected
            done = given[1] or given[2]


def test_same_seed_gives_the_same_pictures_and_another_seed_others():
    def hints(seed):
        env = TMazePixels(corridor_length=2)
        return [name_of(env.reset(seed=seed if i == 0 else None)[0]) for i in range(40)]

    assert hints(7) == hints(7)
    assert len({tuple(hints(seed)) for seed in range(5)}) == 5
    assert set(hints(0)) == {"goal up", "goal down"}


@pytest.mark.parametrize("corridor_length", [1, 20])
@pytest.mark.parametrize("goal", [1, -1])
def test_expert_earns_one_in_the_shortest_time(goal, corridor_length):
    env, expert = make_env(ENV_ID, {"corridor_length": corridor_length}), make_expert(ENV_ID)
    for other in (-goal, goal):  # the hint of the last episode does not count
        obs, _ = env.reset(seed=_seed_with_goal(env, other))
        expert.reset()
        total, steps, done = 0.0, 0, False
        while not done:
            obs, reward, terminated, truncated, info = env.step(expert(obs))
            total, steps, done = total + reward, steps + 1, terminated or truncated
        assert (total, steps, terminated, info["success"]) == (1.0, corridor_length + 1, True, True)


def test_expert_reads_the_picture_through_noise():
    rng, expert = np.random.default_rng(0), make_expert(ENV_ID)
    for hint, turn in (("goal up", UP), ("goal down", DOWN)):
        expert.reset()
        shown = [paint_pictures()[name] for name in (hint, "corridor", "junction")]
        noisy = [np.clip(p + rng.normal(0, 30, p.shape), 0, 255).astype(np.uint8) for p in shown]
        assert [expert(picture) for picture in noisy] == [RIGHT, RIGHT, turn]


def test_rendered_picture_is_the_map_from_above():
    """It is for people: it shows the goal's side, which the observations hide."""
    frames = []
    for goal in (1, -1):
        env = make_env(ENV_ID, {"corridor_length": 5}, render_mode="rgb_array")
        seed = _seed_with_goal(env, goal)
        plain = TMazePassive(5, render_mode="rgb_array")
        plain.reset(seed=seed)
        frames.append(env.render())
        assert np.array_equal(frames[-1], plain.render())
    assert not np.array_equal(*frames)


def test_impossible_mazes_are_refused():
    with pytest.raises(EnvError, match="corridor_length"):
        make_env(ENV_ID, {"corridor_length": 0})


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_batched_mazes_keep_bytes(vectorization):
    maker = lambda: make_env(ENV_ID, {"corridor_length": 2})  # noqa: E731
    env = make_batched_env(maker, 4, vectorization=vectorization)
    obs = env.reset(seed=5).obs["obs"]
    assert (obs.shape, obs.dtype) == ((4, 32, 32, 3), np.uint8)
    assert {name_of(o) for o in obs} == {"goal up", "goal down"}
    env.close()
