"""What looks wrong in a plan is said before it costs anything, with the key to set."""

import pytest

from seqrl.configs import config_factory
from seqrl.core.spaces import ObsSpec
from seqrl.rollout.environments import Task
from seqrl.training.plan_warnings import plan_warnings
from seqrl.training.sources import burn_in_steps

GOOD = {
    "collect": {"steps_per_epoch": 500, "exploration": {"anneal_steps": 5_000}},
    "algo": {"optimizer": {"warmup_steps": 100}, "gamma": 0.99, "extra_gammas": []},
}


def warnings_of(*changes, env="CartPole-v1", gradient_steps=2_000, steps_per_env=10_000):
    config = config_factory("actor_critic", GOOD)
    for path, value in changes:
        *where, last = path.split(".")
        section = config
        for name in where:
            section = getattr(section, name)
        setattr(section, last, value)
    return plan_warnings(config, {}, [Task(env, {})], gradient_steps, steps_per_env)


def test_a_good_plan_has_no_warning():
    assert warnings_of() == []
    assert plan_warnings(config_factory("bc", {}), {}, [], 50_000, 0) == []


def test_an_image_that_is_flattened_is_told():
    obs = {"camera": ObsSpec((84, 84, 3), "uint8"), "grid": ObsSpec((4, 4, 3), "float32")}
    for encoder, is_told in (("mlp", True), ("auto", False)):
        config = config_factory("bc", {"observation": {"timestep_encoder": {"type": encoder}}})
        found = plan_warnings(config, obs, [], 50_000, 0)
        assert [("'camera'" in text, "21168 numbers" in text) for text in found] == [(True, True)] * is_told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("collect.exploration.anneal_steps", 1_000_000), ["from 1 to 0.99", "anneal_steps=5000"]),
        (("algo.optimizer.warmup_steps", 500), ["500 of 2000 gradient steps", "warmup_steps=100"]),
        (
            ("collect.steps_per_epoch", 100),
            ["episodes may take 500 steps", "an epoch has 100", "trajectory_steps=256 stores"],
        ),
        (("algo.gamma", 0.999), ["a discount of 0.999", "time limit"]),
    ],
)
def test_what_looks_wrong_is_told(change, told):
    (text,) = warnings_of(change)
    assert all(part in text for part in told), text


@pytest.mark.parametrize(("memory", "is_told"), [("transformer", True), ("gru", False)])
def test_a_burn_in_that_no_memory_reads_is_told(memory, is_told):
    values = {"train": {"burn_in_steps": 8}, "algo": {"sequence_encoder": {"type": memory}}}
    found = plan_warnings(config_factory("bc", values), {}, [], 50_000, 0)
    assert ["train.burn_in_steps has no effect" in text for text in found] == [True] * is_told


def test_pieces_and_environments_without_a_limit_need_no_warning():
    assert warnings_of(("collect.steps_per_epoch", 100), ("collect.trajectory_steps", 200)) == []
    assert warnings_of(("algo.gamma", 0.999), env="seqrl/TMazePassive-v0") == []
    assert warnings_of(("algo.gamma", 0.999), ("algo.time_limits", "end")) == []


def test_a_limit_among_the_arguments_of_an_environment_counts():
    config = config_factory("actor_critic", GOOD)
    config.collect.steps_per_epoch = 100
    for env, limit, is_told in (("CartPole-v1", 80, False), ("CartPole-v1", -1, False), ("seqrl/Bandit-v0", 900, True)):
        found = plan_warnings(config, {}, [Task(env, {"max_episode_steps": limit})], 2_000, 10_000)
        assert [f"episodes may take {limit} steps" in text for text in found] == [True] * is_told


@pytest.mark.parametrize(
    ("limits", "steps", "pieces", "is_told"),
    [([100], 80, None, True), ([100], 80, 40, False), ([100], 100, None, False), ([100, 10], 80, None, False),
     ([100, -1], 80, None, False)],
)  # fmt: skip
def test_environments_that_never_end_an_episode_are_told(limits, steps, pieces, is_told):
    config = config_factory("actor_critic", GOOD)
    config.collect.steps_per_epoch, config.collect.trajectory_steps = 2, pieces
    tasks = [Task("seqrl/Bandit-v0", {"max_episode_steps": limit}) for limit in limits]
    found = plan_warnings(config, {}, tasks, 2_000, steps)
    assert ["nothing may be stored" in text for text in found].count(True) == is_told


@pytest.mark.parametrize(("name", "steps", "is_told"), [("gl", 10, True), ("hbc", 8, True), ("iris", 7, False)])
def test_subgoals_that_windows_hardly_show_are_told(name, steps, is_told):
    values = {"train": {"window_steps": 8}, "algo": {"planner": {"subgoal_steps": steps}}}
    found = [text for text in plan_warnings(config_factory(name, values), {}, [], 50_000, 0) if "planner" in text]
    assert [f"train.window_steps={2 * steps}" in text for text in found] == [True] * is_told


@pytest.mark.parametrize(
    ("steps", "frames", "memory", "read"),
    [(2, 4, "gru", 3), (8, 4, "gru", 8), (0, 4, "gru", 0), (8, 4, "transformer", 0)],
)
def test_a_burn_in_has_the_frames_that_a_windows_first_input_is_read_beside(steps, frames, memory, read):
    section = {"type": memory, "num_frames": frames}
    values = {"train": {"burn_in_steps": steps}, "algo": {"sequence_encoder": section}}
    assert burn_in_steps(config_factory("bc", values)) == read
