"""Bandits by hand: what arms pay, regret, and arms that may not be pulled."""

import numpy as np
import pytest

from seqrl.envs.builtin.bandit import Bandit, MaskedBandit
from seqrl.envs.make import make_batched_env


def made(kind=Bandit, means=(0.0, 1.0, 0.25), **options):
    env = kind(num_arms=len(means), **options)
    env.reset(seed=0)
    env._means = np.array(means)
    return env


def test_regret_and_share_by_hand():
    env = made(horizon=4)
    steps = [env.step(a) for a in (1, 0, 2, 1)]
    assert [s[1] for s in steps[:2]] == [1.0, 0.0]  # means of one and zero leave nothing to chance
    assert [s[4]["log/regret"] for s in steps] == [0.0, 1.0, 1.75, 1.75]
    assert [s[4]["log/best_arm_share"] for s in steps] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 2])
    assert [s[0].tolist() for s in steps] == [[0.25], [0.5], [0.75], [1.0]]
    assert [s[2] for s in steps] == [False] * 3 + [True]
    assert not any(s[3] for s in steps)


def test_bernoulli_arms_pay_one_or_zero_with_their_mean():
    env = made(means=(0.3, 0.9), horizon=4000)
    rewards = np.array([env.step(0)[1] for _ in range(2000)])
    assert set(rewards) == {0.0, 1.0}
    assert rewards.mean() == pytest.approx(0.3, abs=0.04)


def test_gaussian_arms_pay_their_mean_and_noise():
    env = made(kind=Bandit, means=(-2.0, 3.0), horizon=4000)
    env.kind, env.noise_std = "gaussian", 0.5
    rewards = np.array([env.step(1)[1] for _ in range(2000)])
    assert rewards.mean() == pytest.approx(3.0, abs=0.05)
    assert rewards.std() == pytest.approx(0.5, abs=0.05)
    exact = Bandit(kind="gaussian", noise_std=0.0)
    exact.reset(seed=3)
    assert exact.step(2)[1] == exact._means[2]


@pytest.mark.parametrize(("kind", "low", "mean"), [("bernoulli", 0.0, 0.5), ("gaussian", -9.0, 0.0)])
def test_arms_are_drawn_by_episode(kind, low, mean):
    env = Bandit(num_arms=4, kind=kind)
    env.reset(seed=0)
    drawn = np.array([(env.reset(), env._means)[1] for _ in range(300)])
    assert drawn.min() >= low
    assert drawn.mean() == pytest.approx(mean, abs=0.1)
    assert (drawn.min() < 0) == (kind == "gaussian")
    assert len(np.unique(drawn)) == 1200


def test_the_mask_is_drawn_by_step_and_an_illegal_arm_pays_nothing():
    env = MaskedBandit(num_arms=4, num_legal=2, horizon=50)
    _, info = env.reset(seed=0)
    masks = set()
    for _ in range(50):
        assert info["action_mask"].sum() == 2
        masks.add(tuple(info["action_mask"]))
        env._means = np.array([1.0, 1.0, 1.0, 1.0])
        _, reward, done, _, info = env.step(int(np.argmin(info["action_mask"])))
        assert reward == 0.0
    assert done
    assert len(masks) == 6  # all pairs of four
    assert info["log/illegal"] == 50.0
    assert info["log/regret"] == 50.0
    assert info["log/best_arm_share"] == 0.0


def test_regret_is_against_the_best_legal_arm():
    env = made(MaskedBandit, (1.0, 0.5, 0.25), num_legal=2)
    env._legal = np.array([0, 1, 1], np.int8)
    assert env.step(1)[4]["log/regret"] == 0.0
    env._legal = np.array([0, 1, 1], np.int8)
    assert env.step(2)[4]["log/regret"] == 0.25
    env._legal = np.array([1, 0, 1], np.int8)
    info = env.step(0)[4]
    assert (info["log/regret"], info["log/illegal"]) == (0.25, 0.0)
    assert info["log/best_arm_share"] == pytest.approx(2 / 3)


def test_the_mask_reaches_the_policy():
    env = make_batched_env(MaskedBandit, 2)
    step = env.reset(seed=0)
    for _ in range(60):
        assert step.action_mask.shape == (2, 6)
        assert step.action_mask.sum(1).tolist() == [3, 3]
        step = env.step(env.codec.random(np.random.default_rng(0), 2, step.action_mask))
        assert not step.log["log/illegal"][0].any()


@pytest.mark.parametrize(
    ("kind", "options"),
    [(Bandit, {"num_arms": 1}), (Bandit, {"horizon": 0}), (Bandit, {"kind": "beta"}), (Bandit, {"noise_std": -1}),
     (MaskedBandit, {"num_legal": 0}), (MaskedBandit, {"num_legal": 7})],
)  # fmt: skip
def test_impossible_settings_are_refused(kind, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        kind(**options)


def test_the_picture_shows_shares():
    env = made(render_mode="rgb_array")
    env.step(1)
    image = env.render()
    assert image.shape == (120, 72, 3)
    assert image[2, 36].tolist() == [70, 180, 90]  # the best arm has all pulls
    assert image[2, 12].tolist() == [225, 235, 245]
    assert Bandit().render() is None
