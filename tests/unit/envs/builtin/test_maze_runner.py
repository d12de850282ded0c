"""MazeRunner by hand: mazes, walls, distances, goals; and the generic hindsight relabeler on what it gives."""

import copy

import numpy as np
import pytest

import seqrl.data.relabel  # noqa: F401  (registers)
from seqrl.core.registry import RELABELERS
from seqrl.core.types import Trajectory
from seqrl.envs.builtin.maze_runner import MazeRunner, draw_maze

RIGHT, UP, LEFT, DOWN = range(4)
ROOM = np.array(  # a corridor to the right, then down
    [
        [1, 1, 1, 1, 1],
        [1, 0, 0, 0, 1],
        [1, 1, 1, 0, 1],
        [1, 1, 1, 0, 1],
        [1, 1, 1, 1, 1],
    ],
    bool,
)


def made(goals=((3.5, 3.5),), start=(1.5, 1.5), **options):
    env = MazeRunner(size=5, num_goals=len(goals), **options)
    env.reset(seed=0)
    env._walls, env._position, env._goals = ROOM.copy(), np.array(start), np.array(goals)
    return env


@pytest.mark.parametrize("size", [5, 7, 11])
def test_mazes_are_trees_of_rooms(size):
    rng = np.random.default_rng(0)
    mazes = [draw_maze(size, rng) for _ in range(20)]
    for walls in mazes:
        rooms = (size // 2) ** 2
        assert (~walls).sum() == 2 * rooms - 1  # a tree has one passage less than rooms
        assert not walls[1::2, 1::2].any()
        assert walls[::2, ::2].all()
        assert walls[[0, -1]].all()
        assert walls[:, [0, -1]].all()
        assert flooded(walls) == 2 * rooms - 1
    assert len({walls.tobytes() for walls in mazes}) > (3 if size == 5 else 15)


def flooded(walls):
    todo, seen = [(1, 1)], {(1, 1)}
    while todo:
        row, column = todo.pop()
        for cell in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            if not walls[cell] and cell not in seen:
                seen.add(cell)
                todo.append(cell)
    return len(seen)


def test_the_way_to_the_goal_by_hand():
    env = made()
    steps = [env.step(a) for a in (UP, RIGHT, DOWN, RIGHT, DOWN, DOWN)]
    assert [s[0]["achieved_goal"].tolist() for s in steps] == [
        [1.5, 1.5], [1.5, 2.5], [1.5, 2.5], [1.5, 3.5], [2.5, 3.5], [3.5, 3.5]
    ]  # fmt: skip
    assert [s[1] for s in steps] == [0.0] * 5 + [1.0]
    assert [s[2] for s in steps] == [False] * 5 + [True]
    assert steps[-1][4] == {"success": True, "log/goals_reached": 1.0}
    assert all(s[4] == {} for s in steps[:-1])


def test_distances_to_walls():
    env = made(start=(1.25, 1.75))
    assert env._distances().tolist() == [2.25, 0.25, 0.75, 0.75]  # right, up, left, down
    env._position = np.array([2.5, 3.5])
    assert env._distances().tolist() == [0.5, 1.5, 0.5, 1.5]


def test_continuous_moves_stop_at_walls_axis_by_axis():
    env = made(is_continuous=True)
    obs, *_ = env.step(np.array([0.4, 1.0], np.float32))  # 0.2 down, half a cell to the right
    assert obs["achieved_goal"].tolist() == pytest.approx([1.7, 2.0])
    obs, *_ = env.step(np.array([1.0, -1.0], np.float32))  # down is wall
    assert obs["achieved_goal"].tolist() == pytest.approx([1.7, 1.5])
    obs, *_ = env.step(np.array([-9.0, 0.0], np.float32))  # clipped to half a cell
    assert obs["achieved_goal"].tolist() == pytest.approx([1.2, 1.5])


def test_goals_count_in_order_only():
    env = made(goals=((1.5, 3.5), (1.5, 2.5)))
    steps = [env.step(a) for a in (RIGHT, RIGHT, LEFT)]
    assert [s[1] for s in steps] == [0.0, 1.0, 1.0]
    assert [s[0]["goals_reached"].tolist() for s in steps] == [[0], [1], [2]]
    assert steps[0][0]["desired_goal"].tolist() == [[1.5, 3.5], [1.5, 2.5]]
    assert steps[-1][2]


def test_goals_that_lie_close_are_reached_together():
    env = made(goals=((1.5, 2.0), (1.5, 2.5)))
    _, reward, terminated, _, info = env.step(RIGHT)
    assert (reward, terminated, info["log/goals_reached"]) == (2.0, True, 2.0)


def test_the_time_limit_truncates():
    env = made(goals=((1.5, 2.5), (3.5, 3.5)), time_limit=2)
    env.step(RIGHT)
    *_, terminated, truncated, info = env.step(LEFT)
    assert (terminated, truncated) == (False, True)
    assert info == {"success": False, "log/goals_reached": 1.0}


def test_places_are_open_cells_apart():
    env = MazeRunner(size=7, num_goals=3)
    env.reset(seed=0)
    for _ in range(20):
        env.reset()
        places = np.array([env._position, *env._goals])
        assert len(np.unique(places, axis=0)) == 4
        assert not env._walls[tuple((places - 0.5).astype(int).T)].any()


@pytest.mark.parametrize("is_continuous", [False, True])
def test_shuffled_actions_move_along_the_axes_in_four_ways(is_continuous):
    env = MazeRunner(size=5, shuffled_actions=True, is_continuous=is_continuous)
    actions = np.array([[0, 1], [-1, 0], [0, -1], [1, 0]]) if is_continuous else range(4)
    tables = set()
    for seed in range(30):
        env.reset(seed=seed)
        ways = []
        for action in actions:
            env._walls, env._position = np.zeros((5, 5), bool), np.array([2.5, 2.5])
            env._goals = np.zeros((1, 2))
            env._walls[[0, -1]] = env._walls[:, [0, -1]] = True
            env.step(action)
            ways.append(tuple(np.sign(env._position - 2.5).astype(int)))
        assert sorted(ways) == [(-1, 0), (0, -1), (0, 1), (1, 0)]
        tables.add(tuple(ways))
    assert len(tables) > 5


@pytest.mark.parametrize("is_continuous", [False, True])
@pytest.mark.parametrize("num_goals", [1, 3])
def test_hindsight_sequence_gives_what_the_maze_would_have_given(num_goals, is_continuous):
    """Replay the same actions in the same maze with the relabeled goals: observations, rewards and end agree."""
    relabeler = RELABELERS.get("hindsight_sequence")(threshold=0.5, probability=1.0, progress_key="goals_reached")
    env = MazeRunner(size=5, num_goals=num_goals, time_limit=12, is_continuous=is_continuous)
    rng, lengths = np.random.default_rng(0), set()
    for seed in range(40):
        env.action_space.seed(seed)
        obs, _ = env.reset(seed=seed)
        env._goals[:] = 0.0  # out of reach
        start, rows, actions = copy.deepcopy(env), [obs], []
        for _ in range(12):
            actions.append(env.action_space.sample())
            rows.append(env.step(actions[-1])[0])
        ends = np.arange(12) == 11
        trajectory = Trajectory(
            obs={k: np.stack([row[k] for row in rows]) for k in obs}, actions=np.stack(actions),
            rewards=np.zeros(12, np.float32), terminated=~ends & ends, truncated=ends, env_name="maze",
        )  # fmt: skip
        new = relabeler.relabel_trajectory(trajectory.check(), rng).check()
        start._goals = new.obs["desired_goal"][0].astype(np.float64)
        replayed = [start.step(a) for a in actions[: len(new)]]
        assert [s[1] for s in replayed] == new.rewards.tolist()
        assert [s[2] for s in replayed] == new.terminated.tolist()
        for key in obs:
            assert np.array_equal([s[0][key] for s in replayed], new.obs[key][1:]), key
        lengths.add(len(new))
    assert len(lengths) > 3


@pytest.mark.parametrize(
    "options", [{"size": 6}, {"size": 3}, {"num_goals": 0}, {"size": 5, "num_goals": 7}, {"time_limit": 0}]
)
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValueError, match=list(options)[-1]):
        MazeRunner(**options)


def test_the_picture_shows_walls_goals_and_agent():
    env = made(goals=((1.5, 3.5), (3.5, 3.5)), render_mode="rgb_array")
    image = env.render()
    assert image.shape == (240, 240, 3)
    assert image[5, 5].tolist() == [45, 50, 60]
    assert image[72, 72].tolist() == [50, 90, 220]
    assert image[72, 168].tolist() == [70, 180, 90]
    assert image[168, 168].tolist() == [240, 170, 60]
    assert MazeRunner().render() is None
