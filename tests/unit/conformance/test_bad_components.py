"""Timestep encoders, distributions, environments and sections that break their contract are told in words."""

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pydantic import Field
from torch import nn

from seqrl.configs import Section
from seqrl.configs.building import build_section
from seqrl.configs.section import Component
from seqrl.conformance import ConformanceError, components, distributions, environments, explorations, timestep_encoders
from seqrl.conformance.cases import ACTION_SPACES, OBS
from seqrl.core.errors import ConfigError
from seqrl.core.registry import DISTRIBUTIONS, EXPLORATIONS, FILTERS, MODALITIES, TIMESTEP_ENCODERS
from seqrl.core.spaces import ObsSpec
from seqrl.envs.exploration import Exploration
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


def with_default(value, kind):
    def filtering(advantage, *, odd=value):
        return advantage > 0

    filtering.__annotations__["odd"] = kind
    FILTERS.register("test_odd")(filtering)
    return components.ComponentCase(FILTERS, "test_odd")


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (None, int, "odd  must be a valid integer, got None"),
        (float("inf"), float, "odd  must be a valid number, got None"),
        (float("inf"), Any, "saved and read again, odd: inf becomes None"),
        (Path("a"), Path, "odd  must be an instance of Path, got 'a'"),
        (int, type, "Unable to serialize unknown type: <class 'type'>"),
    ],
)
def test_options_that_do_not_survive_a_run_file(value, kind, message):
    fails(components.CHECKS, "survives_json", with_default(value, kind), message)


def test_tuples_survive_as_lists():
    components.CHECKS["survives_json"](with_default((3, 4), tuple[int, ...]))
    section = Component(FILTERS).section("test_odd")
    assert build_section(section, {"odd": [1, 2, 3]}, "test").odd == (1, 2, 3)


class Fading(Exploration):
    """Fades with every step; an option keeps that in its state."""

    def __init__(self, codec, num_envs, seed, *, fault: str = "forgets"):
        super().__init__(codec, num_envs, seed)
        self.share, self.fault = np.ones(num_envs), fault

    def schedule(self, step):
        self.share = self.share * 0.9
        return self.share

    def __call__(self, actions, step):
        if self.fault == "in_place":
            actions[:] = self.codec.random(self._rng, len(actions))
            return actions
        return super().__call__(actions, step) + (np.nan if self.fault == "illegal" else 0.0)

    def state(self):
        return {**super().state(), "share": self.share.tolist()}

    def load_state(self, state):
        super().load_state(state)
        if self.fault != "forgets":
            self.share = np.asarray(state["share"])


@pytest.mark.parametrize(
    ("fault", "check", "message"),
    [
        ("forgets", "goes_on_after_a_resume", "goes on differently after a resume"),
        ("in_place", "actions_can_be_executed", "changes the array of the policy's actions"),
        ("illegal", "actions_can_be_executed", "gives actions outside Box"),
    ],
)
def test_explorations(fault, check, message):
    EXPLORATIONS.register("test_fading")(Fading)
    assert {case.actions for case in explorations.cases("test_fading")} == set(ACTION_SPACES)
    explorations.CHECKS[check](explorations.ExplorationCase("test_fading", "box", {"fault": "none"}))
    fails(explorations.CHECKS, check, explorations.ExplorationCase("test_fading", "box", {"fault": fault}), message)


def test_unknown_kinds_of_actions(monkeypatch):
    monkeypatch.setattr(CategoricalHead, "kinds", ("box",))
    with pytest.raises(ConformanceError, match="kinds: 'box' is no kind of actions; they are categorical, binary"):
        distributions.cases("categorical")


class Choosy(Fading):
    """Takes Box actions only."""

    def __init__(self, codec, num_envs, seed):
        if codec.kind != "continuous":
            raise ConfigError("takes Box actions")
        super().__init__(codec, num_envs, seed, fault="none")


class Looking(Fading):
    """Reads an observation that only its own environment has."""

    def schedule(self, step):
        return step.obs["position"][:, 0]


def test_explorations_are_asked_about_what_they_take():
    EXPLORATIONS.register("test_choosy")(Choosy)
    EXPLORATIONS.register("test_looking")(Looking)
    assert [case.actions for case in explorations.cases("test_choosy")] == ["box"]
    assert explorations.cases("test_looking") == []
