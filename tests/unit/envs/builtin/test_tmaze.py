"""T-Maze: the rules by hand, seeding, goal balance, the expert, and the picture."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from seqrl.core.errors import EnvError
from seqrl.envs import make_batched_env, make_env, make_expert
from seqrl.envs.builtin.tmaze import DOWN, LEFT, RIGHT, UP, TMazeActive, TMazePassive

ORACLE, CORRIDOR, JUNCTION = (1, 0, 0), (0, 1, 0), (0, 0, 1)
IDS = ["seqrl/TMazePassive-v0", "seqrl/TMazeActive-v0"]


def _goals(env, num, seed):
    """Return the hints of ``num`` passive episodes: +1 up, -1 down."""
    hints = [env.reset(seed=seed)[0][3]]
    hints += [env.reset()[0][3] for _ in range(num - 1)]
    return [int(h) for h in hints]


def _walk(env, actions, seed=0):
    """Return the observations, and what each action gave."""
    obs, _ = env.reset(seed=seed)
    observations, results = [obs], []
    for action in actions:
        obs, *rest = env.step(action)
        observations.append(obs)
        results.append(tuple(rest))
    return observations, results


def _seed_with_goal(env, goal):
    for seed in range(64):
        env.reset(seed=seed)
        if env.unwrapped._goal == goal:
            return seed
    raise AssertionError("no seed has this goal")


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
def test_gymnasium_checker_is_content(env_id, render_mode):
    env = gym.make(env_id, corridor_length=4, render_mode=render_mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=render_mode is None)
    assert env.observation_space.shape == (4,)
    assert env.action_space.n == 4


@pytest.mark.parametrize("balanced", [False, True])
def test_same_seed_gives_the_same_goals(balanced):
    runs = [_goals(TMazePassive(corridor_length=2, balanced_goals=balanced), 40, seed=7) for _ in range(2)]
    assert runs[0] == runs[1]
    env = TMazePassive(corridor_length=2, balanced_goals=balanced)
    _goals(env, 3, seed=1)  # leaves half a pair behind
    assert _goals(env, 40, seed=7) == runs[0]


def test_another_seed_gives_other_goals():
    runs = {tuple(_goals(TMazePassive(corridor_length=2), 40, seed=s)) for s in range(5)}
    assert len(runs) == 5


def test_goals_come_from_np_random():
    env = TMazePassive(corridor_length=2)
    env.reset(seed=3)
    reference = np.random.default_rng(11)
    env.np_random = np.random.default_rng(11)
    drawn = [int(env.reset()[0][3]) for _ in range(30)]
    assert drawn == [1 if reference.random() < 0.5 else -1 for _ in range(30)]


def test_unbalanced_goals_are_fair_and_independent():
    goals = np.array(_goals(TMazePassive(corridor_length=1), 4000, seed=0))
    assert abs(goals.mean()) < 4 / np.sqrt(4000)
    assert abs((goals[1:] * goals[:-1]).mean()) < 4 / np.sqrt(4000)


def test_balanced_goals_differ_within_every_pair():
    goals = np.array(_goals(TMazePassive(corridor_length=1, balanced_goals=True), 2000, seed=0)).reshape(-1, 2)
    assert (goals.sum(axis=1) == 0).all()
    firsts = goals[:, 0]
    assert abs(firsts.mean()) < 4 / np.sqrt(1000)  # which one comes first stays random


def test_passive_hint_is_seen_at_the_oracle_only():
    env = TMazePassive(corridor_length=3)
    for goal in (1, -1):
        observations, _ = _walk(env, [RIGHT, RIGHT, RIGHT], seed=_seed_with_goal(env, goal))
        assert [tuple(o) for o in observations] == [(*ORACLE, goal), (*CORRIDOR, 0), (*CORRIDOR, 0), (*JUNCTION, 0)]
        assert all(o.dtype == np.float32 for o in observations)


def test_active_start_does_not_show_the_hint_and_the_oracle_does():
    env = TMazeActive(corridor_length=2, oracle_distance=2)
    for goal in (1, -1):
        observations, _ = _walk(env, [LEFT, LEFT, RIGHT], seed=_seed_with_goal(env, goal))
        assert [tuple(o) for o in observations] == [(*CORRIDOR, 0), (*CORRIDOR, 0), (*ORACLE, goal), (*CORRIDOR, 0)]


def test_observation_tells_the_goal_nowhere_but_at_the_oracle():
    """Two runs that differ in the goal only look the same after the first step, and are rewarded the same up to it."""
    env = TMazePassive(corridor_length=3, slack_steps=5)
    actions = [RIGHT, UP, RIGHT, DOWN, RIGHT]
    runs = [_walk(env, actions, seed=_seed_with_goal(env, goal)) for goal in (1, -1)]
    (obs_up, results_up), (obs_down, results_down) = runs
    assert np.array_equal(obs_up[1:], obs_down[1:])
    assert results_up == results_down


@pytest.mark.parametrize(("goal", "turn", "reward"), [(1, UP, 1.0), (1, DOWN, 0.0), (-1, UP, 0.0), (-1, DOWN, 1.0)])
def test_turn_at_the_junction_ends_the_episode(goal, turn, reward):
    env = TMazePassive(corridor_length=2)
    _, results = _walk(env, [RIGHT, RIGHT, turn], seed=_seed_with_goal(env, goal))
    assert results == [
        (0.0, False, False, {}),
        (0.0, False, False, {}),
        (reward, True, False, {"success": reward == 1.0}),
    ]


def test_walls_hold_and_delay_is_punished():
    """Corridor 3: the direct way is R R R turn, the limit 4 + 2 slack = 6, so a step behind costs 1 / 5."""
    env = TMazePassive(corridor_length=3, slack_steps=2)
    observations, results = _walk(env, [LEFT, RIGHT, UP, RIGHT, LEFT, RIGHT])
    places = [tuple(o[:3]) for o in observations]
    assert places == [ORACLE, ORACLE, CORRIDOR, CORRIDOR, CORRIDOR, CORRIDOR, CORRIDOR]
    rewards = [r for r, *_ in results]
    assert rewards == pytest.approx([-0.2] * 6)


def test_no_penalty_on_schedule_nor_for_waiting_at_the_junction():
    env = TMazePassive(corridor_length=2, slack_steps=3)
    observations, results = _walk(env, [RIGHT, RIGHT, RIGHT, RIGHT])
    assert [r for r, *_ in results] == [0.0] * 4
    assert tuple(observations[-1][:3]) == JUNCTION  # a wall on the right


def test_one_lost_step_is_punished_until_the_junction():
    """After one lost step the agent stays one behind; at the junction nothing is left to lose."""
    env = TMazePassive(corridor_length=3, slack_steps=1, penalty=0.5)
    seed = _seed_with_goal(env, 1)
    _, results = _walk(env, [RIGHT, LEFT, RIGHT, RIGHT, RIGHT], seed=seed)
    assert [r for r, *_ in results] == pytest.approx([0.0, -0.5, -0.5, -0.5, 0.0])


def test_active_detour_is_on_schedule_and_a_wrong_start_is_not():
    """Oracle 2 away, corridor 1: L L R R R turn. Going right first is 1 + 1 + 2 steps further away than that."""
    env = TMazeActive(corridor_length=1, oracle_distance=2, slack_steps=2, penalty=0.25)
    _, results = _walk(env, [LEFT, LEFT, RIGHT, RIGHT, RIGHT])
    assert [r for r, *_ in results] == [0.0] * 5
    _, results = _walk(env, [RIGHT, LEFT])
    assert [r for r, *_ in results] == [-0.25, -0.25]


def test_penalty_zero_turns_it_off():
    env = TMazePassive(corridor_length=4, slack_steps=3, penalty=0.0)
    _, results = _walk(env, [LEFT] * env.time_limit)
    assert [r for r, *_ in results] == [0.0] * env.time_limit


@pytest.mark.parametrize("make", [lambda: TMazePassive(3, 2), lambda: TMazeActive(3, 2, 1)])
def test_time_limit_truncates_and_does_not_terminate(make):
    env = make()
    _, results = _walk(env, [LEFT] * env.time_limit)
    assert [(t, u) for _, t, u, _ in results] == [(False, False)] * (env.time_limit - 1) + [(False, True)]
    assert [i for *_, i in results] == [{}] * (env.time_limit - 1) + [{"success": False}]


def test_turn_in_the_last_step_terminates_and_does_not_truncate():
    env = TMazePassive(corridor_length=2)
    assert env.time_limit == 3
    _, results = _walk(env, [RIGHT, RIGHT, UP])
    assert results[-1][1:3] == (True, False)


def test_time_limits_are_the_shortest_ways_plus_slack():
    assert TMazePassive(corridor_length=7).time_limit == 8
    assert TMazePassive(corridor_length=7, slack_steps=4).time_limit == 12
    assert TMazeActive(corridor_length=7, oracle_distance=3).time_limit == 3 + 3 + 7 + 1


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("corridor_length", [1, 6])
def test_expert_always_succeeds_in_the_shortest_time(env_id, corridor_length):
    env = make_env(env_id, {"corridor_length": corridor_length})
    expert = make_expert(env_id)
    shortest = corridor_length + 1 + (2 if "Active" in env_id else 0)
    goals = set()
    for episode in range(40):
        obs, _ = env.reset(seed=0 if episode == 0 else None)
        expert.reset()
        goals.add(env.unwrapped._goal)
        total, steps, done, info = 0.0, 0, False, {}
        while not done:
            obs, reward, terminated, truncated, info = env.step(expert(obs))
            total, steps, done = total + reward, steps + 1, terminated or truncated
        assert (total, steps, terminated, info["success"]) == (1.0, shortest, True, True)
    assert goals == {1, -1}


@pytest.mark.parametrize("env_id", IDS)
def test_rendered_picture_shows_agent_and_goal(env_id):
    env = make_env(env_id, {"corridor_length": 5}, render_mode="rgb_array")
    frames = {}
    for goal in (1, -1):
        env.reset(seed=_seed_with_goal(env, goal))
        frames[goal] = [env.render()]
        env.step(RIGHT)
        frames[goal].append(env.render())
    first, moved = frames[1]
    assert first.dtype == np.uint8
    assert first.ndim == 3
    assert first.shape[2] == 3
    assert not np.array_equal(first, moved), "the agent's move is not visible"
    assert not np.array_equal(first, frames[-1][0]), "the goal's side is not visible"
    height = first.shape[0]
    differing = np.unique(np.argwhere((first != frames[-1][0]).any(-1))[:, 0])
    assert differing.min() < height / 2 < differing.max()  # a goal above, a goal below
    moved_rows = np.unique(np.argwhere((first != moved).any(-1))[:, 0])
    assert moved_rows.min() > height / 4
    assert moved_rows.max() < 3 * height / 4  # the agent walks in the middle


def test_no_picture_without_render_mode():
    env = TMazePassive(corridor_length=2)
    env.reset(seed=0)
    assert env.render() is None


@pytest.mark.parametrize(
    ("env_id", "kwargs", "name"),
    [
        ("seqrl/TMazePassive-v0", {"corridor_length": 0}, "corridor_length"),
        ("seqrl/TMazeActive-v0", {"corridor_length": -3}, "corridor_length"),
        ("seqrl/TMazeActive-v0", {"oracle_distance": 0}, "oracle_distance"),
        ("seqrl/TMazePassive-v0", {"slack_steps": -1}, "slack_steps"),
    ],
)
def test_impossible_mazes_are_refused(env_id, kwargs, name):
    with pytest.raises(EnvError, match=name):
        make_env(env_id, kwargs)


def test_batched_mazes_draw_their_own_goals():
    env = make_batched_env(lambda: make_env("seqrl/TMazePassive-v0", {"corridor_length": 2}), 16)
    first, again = env.reset(seed=5).obs["obs"], env.reset(seed=5).obs["obs"]
    assert np.array_equal(first, again)
    assert set(first[:, 3]) == {1.0, -1.0}
    assert not np.array_equal(first, env.reset(seed=1000).obs["obs"])
