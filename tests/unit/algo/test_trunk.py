"""What a memory reads, and what training hides from it so that it does not learn few episodes by heart."""

import gymnasium as gym
import pytest
import torch

from seqrl.algo import algo_factory
from seqrl.algo.trunk import Trunk
from seqrl.configs import config_factory
from seqrl.conformance.cases import small_algo
from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.sequence_encoders import SequenceEncoder
from seqrl.models.timestep_encoders import TimestepEncoder
from tests.helpers import random_batch

ACTIONS = gym.spaces.Discrete(4)


class Seen(TimestepEncoder):
    """Keeps what it was given."""

    d_output, value = 3, 0.0

    def forward(self, inputs):
        self.given = inputs
        return torch.full((*inputs.step.shape, 3), self.value)


class Ones(SequenceEncoder):
    """Remembers nothing."""

    d_output = 3

    def forward(self, x, step, state=None):
        return torch.ones_like(x), state

    def init_state(self, num_rows, *, device, dtype=torch.float32):
        return {}

    def reset_rows(self, state, rows):
        return state


def trunk_of(**options):
    return Trunk(Seen({}, 4, 1), Ones(3, 6), **options)


def inputs_of(num):
    inputs = random_batch(ACTIONS, num=num, window=6).inputs
    return SeqInputs(**{**vars(inputs), "prev_reward": torch.ones_like(inputs.prev_reward)})


def test_the_previous_action_and_reward_are_hidden_in_whole_windows():
    torch.manual_seed(0)
    trunk, inputs = trunk_of(prev_dropout=0.25), inputs_of(2000)
    trunk(inputs)
    seen = trunk.timestep_encoder.given
    hidden = (seen.prev_reward == 0).all(1)
    assert ((seen.prev_reward == 0) == hidden.unsqueeze(1)).all()
    assert 0.2 < hidden.float().mean() < 0.3
    assert (seen.prev_action[hidden] == 0).all()
    assert torch.equal(seen.prev_action[~hidden], inputs.prev_action[~hidden])
    assert all(torch.equal(seen.obs[k], inputs.obs[k]) for k in inputs.obs)
    trunk.eval()
    trunk(inputs)
    assert trunk.timestep_encoder.given is inputs


def test_outputs_of_the_memory_are_dropped_in_training_only():
    torch.manual_seed(0)
    trunk, inputs = trunk_of(memory_dropout=0.3), inputs_of(500)
    encoded, _ = trunk(inputs)
    assert 0.28 < (encoded == 0).float().mean() < 0.32
    torch.testing.assert_close(encoded[encoded != 0], torch.full_like(encoded[encoded != 0], 1 / 0.7))
    trunk.eval()
    assert (trunk(inputs)[0] == 1).all()


def test_the_memory_is_bypassed_in_whole_windows_of_training():
    torch.manual_seed(0)
    trunk, inputs = trunk_of(memory_bypass=0.25), inputs_of(2000)
    trunk.timestep_encoder.value = 7.0
    encoded, _ = trunk(inputs)
    remembered, seen = encoded.split(3, -1)
    assert trunk.d_output == 6
    assert (seen == 7).all()
    hidden = (remembered == 0).all((1, 2))
    assert ((remembered == 0) == hidden[:, None, None]).all()
    assert 0.2 < hidden.float().mean() < 0.3
    trunk.eval()
    assert (trunk(inputs)[0] == torch.tensor([1.0, 1, 1, 7, 7, 7])).all()


@pytest.mark.parametrize("encoder", ["auto", "mlp"])
@pytest.mark.parametrize(
    ("name", "observation", "own"),
    [
        ("decision_transformer", {}, "return_to_go"),
        ("hbc", {}, "subgoal"),
        ("bc", {"goal_keys": ["state"]}, "goal/state"),
    ],
)
def test_what_to_read_hides_entries_of_the_environment_only(name, observation, own, encoder):
    seen = {"timestep_encoder": {"type": encoder, "obs_keys": ["state"]}, **observation}
    config = config_factory(name, {"train": {"window_steps": 4}, "observation": seen})
    obs = {"state": ObsSpec((3,)), "other": ObsSpec((2,)), **({own: ObsSpec((3,))} if observation else {})}
    algo = algo_factory(name, config, obs, 2, "cpu", gym.spaces.Box(-1, 1, (2,)))
    trunk = algo.follower.trunk if name == "hbc" else algo.trunk
    assert trunk.timestep_encoder.obs.keys() == {"state", own}


def test_losses_without_statistics_of_the_inputs_are_told():
    trunk = small_algo("bc", "gru").trunk
    with pytest.raises(ConfigError, match=r"return Losses\(\.\.\., stats=self\.trunk\.stats"):
        trunk.update({})
