"""Timestep encoders, distributions, environments and sections that break their contract are told in words."""

import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from pydantic import Field
from torch import nn

from seqrl.configs import Section
from seqrl.conformance import ConformanceError, components, distributions, environments, timestep_encoders
from seqrl.conformance.cases import OBS
from seqrl.core.registry import DISTRIBUTIONS, FILTERS, MODALITIES, TIMESTEP_ENCODERS
from seqrl.core.spaces import ObsSpec
from seqrl.models.distributions.discrete import Categorical, CategoricalHead
from seqrl.models.timestep_encoders import Modality, TimestepEncoder

pytestmark = pytest.mark.usefixtures("registries_as_before")


def fails(checks, check, case, message):
    with pytest.raises(ConformanceError, match=re.escape(message)):
        checks[check](case)


class Plain(TimestepEncoder):
    """A linear layer over the state and the side input; an option breaks it."""

    def __init__(self, obs, d_action, d_reward, *, fault: str = "none") -> None:
        super().__init__(obs, d_action, d_reward)
        self.fault = fault
        self.d_output = 9 if fault == "width" else 8
        self.layer = nn.Linear(12 + 1 + 3 + self.d_side, 8)
        self.register_buffer("count", torch.zeros(()))
        if fault == "idle":
            self.spare = nn.Linear(2, 2)

    def forward(self, inputs):
        if self.fault == "writes" and self.training:
            self.count += 1
        obs = [inputs.obs[k].float().flatten(2) for k in ("image", "state")] + [
            inputs.obs["room"].float().unsqueeze(-1)
        ]
        parts = [torch.cat(obs, -1) / 9, *self.side_inputs(inputs)]
        x = torch.cat(parts, -1)
        x = nn.functional.pad(x, (0, self.layer.in_features - x.shape[-1]))
        if self.fault == "no_reward" and self.d_reward:
            x = x.index_fill(-1, torch.tensor([obs_width()]), 0.0)
        y = self.layer(x)
        if self.fault == "mixes":
            y = y + y.mean(1, keepdim=True)
        return y + torch.rand_like(y) if self.fault == "random" else y

    def stats(self, inputs, mask):
        seen = inputs.obs["state"].sum() if self.fault == "padding" else (inputs.obs["state"].sum(-1) * mask).sum()
        return {"sum": seen}

    def update(self, stats):
        if self.fault != "still":
            self.count += stats["sum"]


def obs_width():
    return sum(int(np.prod(spec.shape)) for spec in OBS.values())


@pytest.mark.parametrize(
    ("fault", "check", "message"),
    [
        (
            "width",
            "width_and_dtype",
            "with d_action 0 and d_reward 0 it gives (3, 4, 8), expected (3, 4, 9) (d_output)",
        ),
        (
            "mixes",
            "rows_and_positions_do_not_mix",
            "mixes rows or positions: other outputs change with one observation",
        ),
        ("no_reward", "rows_and_positions_do_not_mix", "does not read the prev_reward"),
        ("mixes", "alone_as_within_a_sequence", "input 0 by itself is encoded differently than within a sequence"),
        ("writes", "forward_writes_nothing", "forward or stats write count"),
        ("padding", "statistics_are_of_real_inputs", "stats sum change with inputs that the mask leaves out"),
        ("still", "statistics_are_of_real_inputs", "stats are given but update moves nothing"),
        ("idle", "every_weight_gets_a_gradient", "no gradient reaches spare.weight, spare.bias"),
        ("random", "deterministic_in_evaluation", "in evaluation the same inputs give different outputs"),
    ],
)
def test_timestep_encoders(fault, check, message):
    TIMESTEP_ENCODERS.register("test_plain")(Plain)
    checks = timestep_encoders.CHECKS
    checks[check](timestep_encoders.EncoderCase({"type": "test_plain"}, OBS))
    fails(checks, check, timestep_encoders.EncoderCase({"type": "test_plain", "fault": fault}, OBS), message)


def test_a_modality_is_offered_what_it_can_read():
    class Cube(Modality):
        def __init__(self, name: str, spec: ObsSpec) -> None:
            super().__init__(name, spec)
            self.d_output = 4
            if spec.shape != (3, 8, 8):
                raise self.problem("type", "is no cube")
            self.layer = nn.Linear(192, 5)

        def forward(self, x):
            return self.layer(x.flatten(2))

    MODALITIES.register("test_cube")(Cube)
    (case,) = timestep_encoders.modality_cases("test_cube")
    assert case.obs == {"entry": ObsSpec((3, 8, 8))}
    fails(timestep_encoders.CHECKS, "modality_width", case, "entry 'entry' becomes (3, 4, 5), expected (3, 4, 4)")


class Mute(Categorical):
    """Its log-probability has a gradient of zero."""

    def log_prob(self, action):
        return super().log_prob(action).detach() + (0 * self.probs).sum(-1)


class MuteHead(CategoricalHead):
    def forward(self, parameters, action_mask):
        return Mute(parameters, self.factors, self.min_mass, action_mask)


def test_distributions():
    DISTRIBUTIONS.register("test_mute")(MuteHead)
    case = distributions.cases("test_mute")[0]
    assert case.actions == "discrete"
    checks = distributions.CHECKS
    fails(checks, "gradients_reach_every_parameter", case, "no gradient of log_prob reaches parameter [0, 1, 2, 3, 4]")
    fails(checks, "imitation_learns_through_it", case, "does not overfit a batch")


class Coin(gym.Env):
    """An episode of five steps; options break it."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault="none"):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._see(), {}

    def step(self, action):
        self.time += 1
        return self._see(), 0.0, self.time == 5, False, {}

    def _see(self):
        rng = np.random.default_rng() if self.fault == "unseeded" else self.np_random
        value = 0.5 if self.fault == "same" else rng.random()
        return np.full(1, 3.0 if self.fault == "outside" else value, np.float32)


@pytest.mark.parametrize(
    ("fault", "check", "message"),
    [
        ("unseeded", "one_seed_gives_one_course", "two rollouts with the same seed and the same actions differ"),
        ("same", "one_seed_gives_one_course", "two seeds give the same rollout"),
        ("outside", "plays_without_problems", "3"),
        ("outside", "is_clean_for_gymnasium", "gymnasium's check_env: "),
    ],
)
def test_environments(fault, check, message, monkeypatch):
    for name, kwargs in {"sound": {}, "bad": {"fault": fault}}.items():
        spec = gym.envs.registration.EnvSpec(f"test/{name}-v0", entry_point=lambda **kw: Coin(**kw), kwargs=kwargs)
        monkeypatch.setitem(gym.registry, spec.id, spec)
    environments.CHECKS[check](environments.EnvCase("test/sound-v0"))
    fails(environments.CHECKS, check, environments.EnvCase("test/bad-v0"), message)


class SharpSection(Section):
    """Keeps the best."""

    type: str = "test_sharp"
    share: float = Field(0.5, description="Of what is kept.")


def sharp(advantage, *, share=0.25):
    return (advantage > share).float()


def test_sections():
    FILTERS.register("test_sharp", section=SharpSection)(sharp)
    case = components.ComponentCase(FILTERS, "test_sharp")
    message = "option 'share': SharpSection has the default 0.5, and the component itself the default 0.25"
    fails(components.CHECKS, "section_matches", case, message)
