"""Old import paths still lead to what they led to, and say where it is now."""

import importlib
import subprocess
import sys

import pytest

from seqrl.moved import MOVED


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_path_warns_and_is_the_new_module(old):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=rf"{old} is now {MOVED[old]}"):
        assert importlib.import_module(old) is importlib.import_module(MOVED[old])
    assert importlib.import_module(MOVED[old]).__spec__.name == MOVED[old]


def test_from_imports_work_in_a_fresh_process():
    code = "from seqrl.training.rollouts import AlgoPolicy; import seqrl.training.spaces as s; print(s.__name__)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout == "seqrl.rollout.agreement\n", done.stderr


NAMES = {
    "seqrl.algo.checkpoint": ("find_checkpoint", "seqrl.core.checkpoint_card"),
    "seqrl.core.seeding": ("seed_everything", "seqrl.core.generators"),
    "seqrl.envs.check": ("check_environment", "seqrl.envs.check.environment"),
    "seqrl.training.rendering": ("Film", "seqrl.rollout.filming"),
    "seqrl.training.statistics": ("summarize_episodes", "seqrl.rollout.evaluator"),
}


@pytest.mark.filterwarnings("ignore:seqrl.training.statistics is now")
@pytest.mark.parametrize("old", NAMES)
def test_a_name_that_left_its_module_warns_and_is_the_same(old):
    name, home = NAMES[old]
    module = importlib.import_module(old)
    with pytest.warns(DeprecationWarning, match=rf"{name} is now in {home}"):
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_an_unknown_module_is_still_unknown():
    with pytest.raises(ModuleNotFoundError, match=r"seqrl\.training\.nothing"):
        importlib.import_module("seqrl.training.nothing")
