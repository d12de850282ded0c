"""What is said where the environment of a checkpoint cannot be made."""

from types import SimpleNamespace

import pytest

from seqrl.core.errors import CheckpointError, EnvError
from seqrl.rollout.from_checkpoint import env_maker_from_checkpoint


def checkpoint(plugins, env_id="nobody/Knows-v0"):
    return SimpleNamespace(path="runs/x/last", card={"env": {"id": env_id}, "plugins": plugins})


def test_the_plug_ins_of_an_unknown_environment_are_named():
    told = "'nobody/Knows-v0' is not registered; runs/x/last was trained with plug-ins, .*: mine.py. If you trust them"
    with pytest.raises(CheckpointError, match=told):
        env_maker_from_checkpoint(checkpoint(["mine.py"]))()
    with pytest.raises(EnvError, match="name the file that registers one of your own"):
        env_maker_from_checkpoint(checkpoint([]))()
    env_maker_from_checkpoint(checkpoint(["mine.py"], "CartPole"))().close()  # one that is known without them
