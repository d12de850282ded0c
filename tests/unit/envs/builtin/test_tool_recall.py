"""ToolRecall by hand."""

import numpy as np
import pytest

from seqrl.envs.builtin.tool_recall import ToolRecall


def begun(**options):
    """Return an environment, and the tool and the distance that it shows."""
    env = ToolRecall(**options)
    obs, _ = env.reset(seed=0)
    assert obs[:-2].sum() == 1
    assert obs[-1] == 0
    return env, int(obs[:-2].argmax()), float(obs[-2])


def test_the_right_answer_is_a_success_and_early_ones_are_ignored():
    env, tool, distance = begun(delay_steps=2)
    seen = [env.step({"tool": tool, "distance": distance}) for _ in range(2)]
    assert [step[0].tolist() for step in seen] == [[0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert [step[1:] for step in seen] == [(0.0, False, False, {})] * 2
    _, reward, *rest = env.step({"tool": tool, "distance": distance})
    assert rest == [True, False, {"success": True, "log/right_tool": 1.0, "log/error": pytest.approx(0.0, abs=1e-6)}]
    assert reward == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("off", "wrong", "reward", "success"), [(0.1, 0, 0.9, True), (0.3, 0, 0.7, False), (0, 1, 0, False)]
)
def test_both_parts_count(off, wrong, reward, success):
    env, tool, distance = begun(delay_steps=1)
    idle = {"tool": 0, "distance": 0.0}
    env.step(idle)
    towards = distance - off * np.sign(distance)
    _, earned, terminated, _, info = env.step({"tool": (tool + wrong) % 3, "distance": towards})
    assert terminated
    assert earned == pytest.approx(reward)
    assert info["success"] is success


@pytest.mark.parametrize("options", [{"delay_steps": 0}, {"num_tools": 1}])
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ToolRecall(**options)


def test_the_picture_shows_goal_and_answer():
    env, tool, distance = begun(delay_steps=1, render_mode="rgb_array")
    side = env.render().shape[0] // 3
    row, column = side * tool + side // 2, side * round(10 + 10 * distance) + side // 2
    assert env.render()[row, column].tolist() == [70, 180, 90]
    for _ in range(2):
        env.step({"tool": tool, "distance": distance})
    assert env.render()[row, column].tolist() == [50, 90, 220]
    assert ToolRecall().render() is None
