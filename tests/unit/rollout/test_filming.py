"""What is filmed is what was played: the last frame too, each task, and without a trace in the run."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import torch

from seqrl.algo import algo_factory
from seqrl.core.errors import EnvError
from seqrl.core.spaces import ObsSpec
from seqrl.envs.make import env_maker, make_batched_env
from seqrl.rollout import filming
from seqrl.rollout.filming import Film, record_episodes, rendering_env
from seqrl.rollout.rollouts import evaluate_episodes
from tests.helpers import small_config

AGENT = (50, 90, 220)
ACTIONS = gym.spaces.Discrete(4)
MAZE = functools.partial(env_maker, "seqrl/TMazePassive-v0")


class Video:
    """Keeps the pictures."""

    def __init__(self):
        self.pictures = []

    def add(self, picture):
        self.pictures.append(picture)

    @property
    def num_frames(self):
        return len(self.pictures)


class RightThenUp:
    """Walks to the end of a corridor and turns up."""

    def __init__(self, length):
        self.length = length

    def __call__(self, step):
        return np.eye(4, dtype=np.float32)[np.where(step.step < self.length, 0, 1)]


@pytest.fixture
def captions(monkeypatch):
    """Texts below the pictures, as they are drawn."""
    seen = []
    real = filming.captioned
    monkeypatch.setattr(filming, "captioned", lambda picture, lines: (seen.append(lines), real(picture, lines))[1])
    return seen


def film(makers, num_episodes, length, video, **options):
    env = rendering_env(makers)
    try:
        hook = Film(env, video, num_episodes, **options)
        return evaluate_episodes(env, RightThenUp(length), num_episodes, seed=0, on_step=hook)
    finally:
        env.close()


def test_the_last_frame_of_an_episode_is_shown(captions):
    video = Video()
    (episode,) = film(MAZE({"corridor_length": 1}), 1, 1, video)
    assert episode.length == 2
    agent = [np.argwhere((p == AGENT).all(-1)).mean(0) for p in video.pictures]
    assert len(agent) == 3
    assert agent[-1][0] < agent[-2][0]
    outcome = "success" if episode.success else "failure"
    assert captions == [
        ("episode 1", "step 0, return 0"),
        ("episode 1", "step 1, return 0"),
        (f"episode 1: {outcome}", f"step 2, return {episode.total_reward:.4g}"),
    ]


def test_every_nth_step_and_every_last_one_is_drawn(captions):
    video = Video()
    film(MAZE({"corridor_length": 5}), 2, 5, video, every=4)
    steps = [(first.split(":")[0], int(second.split()[1].strip(","))) for first, second in captions]
    # the reset into episode 2 is input 7 of the film; inputs 8 and 12 are drawn
    assert steps == [("episode 1", 0), ("episode 1", 4), ("episode 1", 6), ("episode 2", 1), ("episode 2", 5),
                     ("episode 2", 6)]  # fmt: skip


def test_what_a_policy_is_on_its_way_to_is_drawn_where_the_environment_can():
    place, red = np.array([[3.5, 1.5]]), (200, 60, 60)

    def pictures(env_id):
        video = Video()
        film(env_maker(env_id, {}), 1, 2, video, subgoals=lambda: {"achieved_goal": place}, max_frames=3)
        return video.pictures

    first, second, *_ = pictures("seqrl/MazeRunner-v0")
    assert not (first == red).all(-1).any()  # nothing was done yet
    (row, column), scale = np.argwhere((second == red).all(-1)).mean(0), 2 * (240 // 7 // 2 * 2)  # enlarged twice
    assert (row, column) == pytest.approx((3.5 * scale, 1.5 * scale), abs=1)
    assert not any((picture == red).all(-1).any() for picture in pictures("seqrl/TMazePassive-v0"))


def test_tasks_stand_side_by_side_and_wait_for_the_slowest(captions):
    video = Video()
    makers = [MAZE({"corridor_length": n}) for n in (1, 6)]
    env = rendering_env(makers)
    hook = Film(env, video, 2)

    class Turns(RightThenUp):
        def __call__(self, step):
            return np.eye(4, dtype=np.float32)[[int(step.step[0] >= 1), int(step.step[1] >= 6)]]

    episodes = evaluate_episodes(env, Turns(0), 2, seed=0, on_step=hook)
    env.close()
    assert [e.length for e in episodes] == [2, 7]
    assert len({p.shape for p in video.pictures}) == 1
    first_row = [lines for lines in captions if lines[1].startswith("step 2") and ": " in lines[0]]
    assert len(first_row) == 1  # it is drawn once, and stands still while the other goes on
    assert all(lines[0].startswith("seqrl/TMazePassive-v0, episode 1") for lines in captions)


def test_a_video_ends_after_its_last_frame():
    video = Video()
    film(MAZE({"corridor_length": 9}), 1, 9, video, max_frames=4)
    assert video.num_frames == 4


def test_what_does_not_render_is_an_error():
    with pytest.raises(EnvError, match="render_mode='rgb_array'"):
        film(lambda: gym.make("seqrl/TMazePassive-v0"), 1, 1, Video())


def test_positions_that_end_with_the_episode_can_be_filmed():
    """The camera also asks for an action at an episode's end, one step beyond the last position."""
    maker = MAZE({"corridor_length": 5})
    memory = {"type": "transformer", "positions": "learned", "max_steps": 6}
    algo = algo_factory("bc", small_config(sequence_encoder=memory), {"obs": ObsSpec((4,))}, 4, "cpu", ACTIONS)
    assert len(record_episodes(algo, maker, Video(), 3, seed=5, policy_seed=1)) == 3


def test_filming_plays_the_episodes_of_an_evaluation_and_leaves_no_trace():
    maker = MAZE({"corridor_length": 4, "slack_steps": 3})
    algo = algo_factory("bc", small_config(), {"obs": ObsSpec((4,))}, 4, "cpu", gym.spaces.Discrete(4))
    algo.set_train()
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    filmed = record_episodes(algo, maker, Video(), 3, seed=5, policy_seed=1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    assert algo.nets.training
    env = make_batched_env(maker, 1)
    with filming.evaluation_mode(algo, 0):
        played = evaluate_episodes(env, filming.AlgoPolicy(algo, 1, deterministic=True), 3, seed=5)
    assert len(filmed) == 3
    assert [(e.length, e.total_reward) for e in filmed] == [(e.length, e.total_reward) for e in played]


def test_a_robomimic_success_of_false_is_a_failure():
    class Fails(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 1, (1,)), ACTIONS
        render_mode = "rgb_array"

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), 0.0, True, False, {"is_success": {"task": False}}

        def render(self):
            return np.zeros((4, 4, 3), np.uint8)

    assert [e.success for e in film(Fails, 2, 1, Video())] == [False, False]
