"""Exploration: schedules by hand, all kinds of actions, masks, state."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import PluginError
from seqrl.core.registry import EXPLORATIONS
from seqrl.core.seeding import seed_sequence
from seqrl.core.spaces import ActionCodec
from seqrl.core.types import TimeStep
from seqrl.envs.exploration import Bilevel, EpsilonGreedy, Exploration, NoExploration

SPACES = {
    "discrete": spaces.Discrete(5, start=2),
    "multi_discrete": spaces.MultiDiscrete([3, 2]),
    "multi_binary": spaces.MultiBinary(4),
    "box": spaces.Box(-2.0, 3.0, (2, 2)),
    "integer_box": spaces.Box(0, 10, (3,), np.int32),
}


def time_step(num, *, first=False, step=0, mask=None, done=False):
    flags = np.zeros(num, bool)
    return TimeStep(
        obs={"obs": np.zeros((num, 1), np.float32)},
        final_obs={},
        reward=np.zeros(num, np.float32),
        terminated=np.full(num, done),
        truncated=flags,
        is_first=np.full(num, first),
        step=np.broadcast_to(np.asarray(step, np.int64), num).copy(),
        env_name=("x",) * num,
        success=flags,
        success_known=flags,
        action_mask=mask,
    )


def make(cls=EpsilonGreedy, space="discrete", num=4, seed=0, **options):
    return cls(ActionCodec(SPACES[space]), num, seed_sequence(seed), **options)


def greedy(exploration):
    """Return the same legal action for every row."""
    one = exploration.codec.random(np.random.default_rng(1), 1)
    return np.repeat(one, exploration.num_envs, axis=0)


def test_epsilon_falls_linearly_in_the_steps_of_each_environment():
    explore = make(start=1.0, end=0.2, anneal_steps=4, randomize=False)
    seen = []
    for _ in range(6):
        explore(greedy(explore), time_step(4))
        seen.append(explore.epsilon.tolist())
    np.testing.assert_allclose(seen, np.repeat([[1.0], [0.8], [0.6], [0.4], [0.2], [0.2]], 4, axis=1))


def test_bilevel_is_linear_in_both_directions():
    options = {"start": 1.0, "end": 0.2, "late_start": 0.5, "late_end": 0.1}
    explore = make(Bilevel, num=3, rollout_steps=10, anneal_steps=2, randomize=False, **options)
    steps = np.array([0, 5, 20])
    explore(greedy(explore), time_step(3, step=steps))
    np.testing.assert_allclose(explore.epsilon, [1.0, 0.75, 0.5])
    explore(greedy(explore), time_step(3, step=steps))
    np.testing.assert_allclose(explore.epsilon, [0.6, 0.45, 0.3])
    for _ in range(3):
        explore(greedy(explore), time_step(3, step=steps))
    np.testing.assert_allclose(explore.epsilon, [0.2, 0.15, 0.1])


def test_each_environment_draws_its_factor_at_its_reset():
    explore = make(num=1000, start=1.0, end=1.0)
    explore(greedy(explore), time_step(1000, first=True))
    first = explore.factor.copy()
    assert 0 <= first.min() < 0.05
    assert 0.95 < first.max() < 1
    assert abs(first.mean() - 0.5) < 0.05
    np.testing.assert_array_equal(explore.epsilon, first)
    explore(greedy(explore), time_step(1000))
    np.testing.assert_array_equal(explore.factor, first)
    explore(greedy(explore), time_step(1000, first=True))
    assert (explore.factor != first).all()


@pytest.mark.parametrize("space", ["discrete", "multi_discrete", "multi_binary"])
def test_a_discrete_action_is_uniform_with_probability_epsilon(space):
    num, epsilon = 40_000, 0.3
    explore = make(space=space, num=num, start=epsilon, end=epsilon, randomize=False)
    chosen = greedy(explore)
    before = chosen.copy()
    executed = explore(chosen, time_step(num))
    np.testing.assert_array_equal(chosen, before)
    combinations, counts = np.unique(executed, axis=0, return_counts=True)
    total = {"discrete": 5, "multi_discrete": 6, "multi_binary": 16}[space]
    assert len(combinations) == total
    for combination, count in zip(combinations, counts, strict=True):
        wanted = epsilon / total + (1 - epsilon) * bool((combination == chosen[0]).all())
        assert abs(count / num - wanted) < 0.01


def test_continuous_noise_has_epsilon_as_its_standard_deviation_and_is_clipped():
    num = 20_000
    explore = make(space="box", num=num, start=0.1, end=0.1, randomize=False)
    executed = explore(np.zeros((num, 4), np.float32), time_step(num))
    assert executed.dtype == np.float32
    assert abs(executed.std() - 0.1) < 0.002
    assert abs(executed.mean()) < 0.002
    edge = explore(np.ones((num, 4), np.float32), time_step(num))
    assert edge.max() == 1.0
    assert abs((edge == 1.0).mean() - 0.5) < 0.02


def test_actions_of_integer_boxes_are_executed_as_integers():
    explore = make(space="integer_box", num=50, start=0.5, end=0.5, randomize=False)
    executed = explore(np.zeros((50, 3), np.float32), time_step(50))
    whole = explore.codec.encode(explore.codec.decode(executed))
    np.testing.assert_array_equal(executed, whole)


@pytest.mark.parametrize("space", ["discrete", "multi_discrete", "multi_binary"])
def test_random_actions_obey_the_mask(space):
    num = 5_000
    explore = make(space=space, num=num, start=1.0, end=1.0, randomize=False)
    rng = np.random.default_rng(0)
    mask = rng.random((num, explore.codec.dim)) < 0.5
    mask[explore.codec.stuck(mask)] = True
    executed = explore(explore.codec.random(rng, num, mask), time_step(num, mask=mask))
    assert not (executed.astype(bool) & ~mask).any()
    if space == "multi_binary":
        assert (executed.astype(bool) & mask).any()


def repeated(num, steps, **options):
    """Return which of 1,000 actions were executed, ``(steps, num)``; the policy's own is the last one."""
    codec = ActionCodec(spaces.Discrete(1000))
    explore = EpsilonGreedy(codec, num, seed_sequence(0), randomize=False, **options)
    own = codec.encode(np.full(num, 999))
    return np.stack([codec.decode(explore(own, time_step(num, first=t == 0))) for t in range(steps)])


def test_random_actions_last_by_one_over_n_squared_and_their_share_stays_epsilon():
    chosen = repeated(500, 600, start=0.3, end=0.3, max_repeat=20)
    assert abs((chosen != 999).mean() - 0.3) < 0.01
    begins = (chosen[1:-20] != 999) & (chosen[1:-20] != chosen[:-21])
    held = [(chosen[k : k + len(begins)] == chosen[1 : 1 + len(begins)])[begins] for k in range(1, 21)]
    lengths = np.cumprod(held, axis=0).sum(0)
    wanted = 1 / np.arange(1, 21) ** 2
    found = np.bincount(lengths, minlength=21)[1:21] / len(lengths)
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=0.01)


@pytest.mark.parametrize(
    "options",
    [
        {"start": 1.0, "end": 1.0, "max_repeat": 1000},
        {"start": 1.0, "end": 1.0, "max_repeat": 1000, "by_episode": True},
    ],
)
def test_a_repeated_action_ends_with_its_episode_and_where_it_is_not_legal(options):
    explore = make(num=2000, randomize=False, **options)
    first = explore(greedy(explore), time_step(2000, first=True))
    mask = first == 0
    second = explore(greedy(explore), time_step(2000, mask=mask))
    assert not (second.astype(bool) & ~mask).any()
    again = explore(greedy(explore), time_step(2000, first=True))
    assert abs((again == second).all(-1).mean() - 1 / 5) < 0.05


def test_a_share_of_the_episodes_is_random_and_its_actions_are_held():
    chosen = repeated(1000, 300, start=0.3, end=0.3, by_episode=True, max_repeat=32)
    is_random = (chosen != 999).any(0)
    assert abs(is_random.mean() - 0.3) < 0.05
    played = chosen[:, is_random]
    assert (played != 999).mean() > 0.99  # 999 is one of the 1,000 random actions, too
    begins = played[1:-32] != played[:-33]
    held = [(played[k : k + len(begins)] == played[1 : 1 + len(begins)])[begins] for k in range(1, 33)]
    lengths = np.cumprod(held, axis=0).sum(0)
    wanted = 1 / np.arange(1, 33)
    found = np.bincount(lengths, minlength=33)[1:33] / len(lengths)
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=0.02)


def test_which_episodes_are_random_is_drawn_when_they_begin():
    explore = make(num=2000, start=0.5, end=0.5, randomize=False, by_episode=True)
    own = greedy(explore)
    rounds = []
    for _ in range(2):
        steps = [explore(own, time_step(2000, first=t == 0)) for t in range(40)]
        rounds.append((np.stack(steps) != own).any((0, 2)))
    assert [abs(r.mean() - 0.5) < 0.05 for r in rounds] == [True, True]
    assert abs((rounds[0] & rounds[1]).mean() - 0.25) < 0.05


def test_a_row_keeps_its_kind_of_episode_while_others_begin():
    explore = make(num=400, start=0.5, end=0.5, randomize=False, by_episode=True)
    explore(greedy(explore), time_step(400, first=True))
    before = np.array(explore.state()["is_random"])
    step = time_step(400)
    step.is_first[:200] = True
    explore(greedy(explore), step)
    after = np.array(explore.state()["is_random"])
    assert (after[200:] == before[200:]).all()
    assert (after[:200] != before[:200]).any()


def test_the_share_of_random_episodes_falls():
    explore = make(num=50, start=1.0, end=0.0, anneal_steps=1, randomize=False, by_episode=True)
    for is_random in (True, False):
        explore(greedy(explore), time_step(50, first=True))
        assert explore.state()["is_random"] == [is_random] * 50


def test_continuous_actions_of_random_episodes_are_uniform_and_held():
    explore = make(space="box", num=3000, start=0.5, end=0.5, randomize=False, by_episode=True, max_repeat=32)
    own = np.full((3000, 4), 0.25, np.float32)
    seen = np.stack([explore(own, time_step(3000, first=t == 0)) for t in range(40)])
    is_random = (seen != own).any((0, 2))
    assert abs(is_random.mean() - 0.5) < 0.05
    played = seen[:, is_random]
    assert abs(played.std() - 1 / np.sqrt(3)) < 0.02
    assert abs(played.mean()) < 0.02
    assert 0.8 < (played[1:] == played[:-1]).all(-1).mean() < 0.95


def test_noise_lasts_too():
    explore = make(space="box", num=3000, start=0.1, end=0.1, randomize=False, max_repeat=50)
    seen = np.stack([explore(np.zeros((3000, 4), np.float32), time_step(3000)) for _ in range(40)])
    assert abs(seen.std() - 0.1) < 0.002
    assert 0.5 < (seen[1:] == seen[:-1]).all(-1).mean() < 0.9


@pytest.mark.parametrize("held", [{}, {"max_repeat": 5}, {"start": 0.5, "max_repeat": 5, "by_episode": True}])
@pytest.mark.parametrize("name", EXPLORATIONS.names())
@pytest.mark.parametrize("space", SPACES)
def test_a_restored_state_goes_on_alike(name, space, held):
    options = {"rollout_steps": 3} if name == "bilevel" else {}
    if name == "epsilon_greedy" or (name == "bilevel" and "by_episode" not in held):
        options |= held
    first, other = (make(EXPLORATIONS.get(name), space, **options) for _ in range(2))
    for t in range(5):
        first(greedy(first), time_step(4, first=t == 0))
    other.load_state(json.loads(json.dumps(first.state())))
    for t in range(5):
        a, b = (e(greedy(e), time_step(4, first=t == 2)) for e in (first, other))
        np.testing.assert_array_equal(a, b)
    assert other.num_steps.tolist() == [10] * 4


def test_a_state_of_before_there_were_random_episodes_is_loaded():
    first, other = (make(randomize=False, by_episode=True) for _ in range(2))
    first(greedy(first), time_step(4, first=True))
    state = first.state()
    assert state.pop("is_random") == [True] * 4
    other.load_state(state)
    assert other.state()["is_random"] == [False] * 4


def test_another_number_of_environments_keeps_how_far_the_schedule_has_come():
    first, other = make(num=4), make(num=2)
    for _ in range(7):
        first(greedy(first), time_step(4))
    other.load_state(first.state())
    assert other.num_steps.tolist() == [7, 7]


def test_an_ignored_action_is_no_step():
    explore = make(NoExploration)
    explore(greedy(explore), time_step(4, done=True))
    assert explore.num_steps.tolist() == [0] * 4


def test_a_schedule_of_ones_own_sees_observations():
    class WhereTheFirstFeatureIsOne(Exploration):
        def schedule(self, step):
            return step.obs["obs"][:, 0]

    explore = make(WhereTheFirstFeatureIsOne, num=2000, randomize=False)
    step = time_step(2000)
    step.obs["obs"][::2] = 1.0
    executed = explore(greedy(explore), step)
    changed = (executed != greedy(explore)).any(1)
    assert not changed[1::2].any()
    assert abs(changed[::2].mean() - 0.8) < 0.05


@pytest.mark.parametrize("space", ["discrete", "box"])
@pytest.mark.parametrize("epsilon", [[np.nan] * 3, [-1.0] * 3, [0.5], None, [np.inf] * 3])
def test_an_epsilon_that_is_none_is_refused(space, epsilon):
    class Odd(Exploration):
        def schedule(self, step):
            return epsilon

    codec = ActionCodec(SPACES[space])
    with pytest.raises(PluginError, match=r"Odd.schedule has to return one epsilon for each of 3 environments"):
        Odd(codec, 3, seed_sequence(0))(codec.zeros(3), time_step(3, first=True))


def test_noise_may_be_larger_than_one_but_no_probability():
    class Large(Exploration):
        def schedule(self, step):
            return np.full(3, 2.0)

    codec = ActionCodec(SPACES["box"])
    Large(codec, 3, seed_sequence(0))(codec.zeros(3), time_step(3))
    codec = ActionCodec(SPACES["discrete"])
    with pytest.raises(PluginError, match="from 0 to 1; it returned"):
        Large(codec, 3, seed_sequence(0))(codec.zeros(3), time_step(3))


@pytest.mark.parametrize(
    ("given", "taken"), [(0.3 - 0.1 * 3, 0.0), (np.float32(1 + 1e-7), 1.0), (True, 1.0), (0.5, 0.5)]
)
def test_an_epsilon_may_be_off_by_rounding_or_one_number_for_all(given, taken):
    class Rounded(Exploration):
        def schedule(self, step):
            return given

    codec = ActionCodec(SPACES["discrete"])
    explore = Rounded(codec, 3, seed_sequence(0), randomize=False)
    explore(codec.zeros(3), time_step(3))
    np.testing.assert_array_equal(explore.epsilon, np.full(3, taken))
