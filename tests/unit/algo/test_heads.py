"""Actors and critics of plug-ins, and what was a constant and is a setting."""

import math

import pytest
import torch
from gymnasium import spaces
from torch import nn

from seqrl.algo import ALGOS, BC
from seqrl.algo.objectives import exponential_filter
from seqrl.configs import BCConfig, register_config
from seqrl.configs.building import build_section
from seqrl.configs.sections.images import GridworldSection, NatureSection
from seqrl.conformance.cases import ACTION_SPACES, OBS, random_batch, small_algo
from seqrl.core.errors import ConfigError
from seqrl.core.registry import ACTORS, CRITICS
from seqrl.models.actors import Actor
from seqrl.models.critics import StateActionCritics, StateCritics
from seqrl.models.image_cores import build_image_core
from seqrl.models.timestep_encoders.auto import auto_encoder
from seqrl.models.timestep_encoders.mlp import MLPTimestepEncoder


@pytest.fixture
def _classes(monkeypatch):
    for registry in (ACTORS, CRITICS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    @ACTORS.register("shifted")
    class Shifted(Actor):
        def __init__(self, d_input, head, *, shift=0.0, **options):
            super().__init__(d_input, head, **options)
            self.shift = shift

        def parameters_of(self, state, inputs):
            return super().parameters_of(state, inputs) * 0.0 + self.shift

    @CRITICS.register("doubled")
    class Doubled(StateActionCritics):
        def forward(self, share, action):
            return 2.0 * super().forward(share, action)

    @CRITICS.register("table")
    class Table(StateCritics):
        """The plain one under another name."""


@pytest.mark.usefixtures("_classes")
@pytest.mark.parametrize("name", ["bc", "actor_critic", "iql"])
def test_an_actor_of_a_plugin_gives_the_parameters(name):
    actor = {"network": "shifted", "kwargs": {"shift": 0.3}}
    algo = small_algo(name, "gru", ACTION_SPACES["box"], 5, actor=actor, distribution={"type": "deterministic"})
    batch = random_batch(ACTION_SPACES["box"], window=5)
    algo.set_eval()
    action, _ = algo.act(batch.inputs.map(lambda x: x[:, :1]), algo.init_state(len(batch.mask)), True)
    torch.testing.assert_close(action, torch.full_like(action, math.tanh(0.3)))
    assert algo.compute_losses(algo.process_batch_for_training(batch)).total.isfinite()


@pytest.mark.usefixtures("_classes")
@pytest.mark.parametrize("name", ["actor_critic", "multitask", "iql"])
@pytest.mark.parametrize("kind", ["box", "discrete", "multi_discrete"])
def test_critics_of_a_plugin_judge(name, kind):
    algo = small_algo(name, "gru", ACTION_SPACES[kind], 5, critic={"network": "doubled"})
    assert type(algo.critic).__name__ == "Doubled"
    losses = algo.compute_losses(algo.process_batch_for_training(random_batch(ACTION_SPACES[kind], window=5)))
    losses.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in algo.critic.parameters())


@pytest.mark.usefixtures("_classes")
def test_critics_of_all_actions_need_one_discrete_factor():
    algo = small_algo("actor_critic", "gru", ACTION_SPACES["discrete"], 5, critic={"network": "table"})
    assert algo.sums_over_actions
    with pytest.raises(ConfigError, match=r"algo\.critic\.network: 'table' gives the values of all actions.*Box"):
        small_algo("actor_critic", "gru", ACTION_SPACES["box"], 5, critic={"network": "table"})
    with pytest.raises(ConfigError, match=r"algo\.critic\.network: 'table' has no bins"):
        small_algo("multitask", "gru", ACTION_SPACES["discrete"], 5, critic={"network": "table"})


@pytest.mark.usefixtures("_classes")
@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"actor": {"network": "shiftet"}}, r"algo\.actor\.network: unknown actor 'shiftet'; did you mean 'shifted'"),
        ({"critic": {"network": "double"}}, r"algo\.critic\.network: unknown critic 'double'; did you mean 'doubled'"),
        ({"critic": {"kwargs": {"depth": 3}}}, r"algo\.critic: StateActionCritics does not accept .*'depth'"),
        ({"actor": {"kwargs": {"depth": 3}}}, r"algo\.actor: Actor does not accept .*'depth'"),
        ({"actor": {"kwargs": {"obs": {}}}}, r"algo\.actor\.kwargs: obs cannot be set there"),
        ({"actor": {"kwargs": {"key": 3}}}, r"algo\.actor: Actor does not accept .*'key'"),
        (
            {"actor": {"network": "shifted", "kwargs": {"shifd": 1.0}}},
            r"algo\.actor: Shifted does not accept .*'shifd'",
        ),
        ({"critic": {"kwargs": {"d_out": 2, "num_active": 1}}}, r"algo\.critic\.kwargs: d_out, num_active cannot be"),
    ],
)
def test_mistakes_are_told(section, message):
    with pytest.raises(ConfigError, match=message):
        small_algo("actor_critic", "gru", ACTION_SPACES["box"], 5, **section)


@pytest.mark.usefixtures("_classes")
def test_an_algorithm_that_compares_all_actions_says_what_it_needs():
    with pytest.raises(ConfigError, match=r"'doubled' judges one action at a time.*derive it from StateCritics"):
        small_algo("bcq", "gru", ACTION_SPACES["discrete"], 5, critic={"network": "doubled"})


def test_statistics_move_by_the_rates_of_the_settings():
    algo = small_algo("actor_critic", "gru", spaces.Discrete(3), 5, popart_rate=0.25)
    assert algo.popart.beta == 0.25
    for encoder in (MLPTimestepEncoder, auto_encoder):
        assert encoder(OBS, 2, 1, normalizer_rate=0.5).normalizer.beta == 0.5


def test_a_filter_without_limits():
    advantage = torch.tensor([-20.0, 0.0, 20.0, 1000.0])
    expected = torch.tensor([math.exp(-16), 1.0, math.exp(20.0), math.exp(80.0)]).clamp(min=1e-7)
    torch.testing.assert_close(exponential_filter(advantage, clip_low=-16.0, clip_high=None), expected)
    assert exponential_filter(advantage, clip_low=None, clip_high=None)[0] == 1e-7


@pytest.mark.parametrize("name", ["nature", "gridworld"])
def test_convolutions_are_as_listed(name):
    options = {"channels": [4, 8], "kernels": [3, 2], "strides": [2, 1]}
    core = build_image_core(name, options, (3, 9, 9))
    assert [layer.weight.shape for layer in core.trunk[::2]] == [(4, 3, 3, 3), (8, 4, 2, 2)]
    assert core.d_output == 8 * 3 * 3
    assert core(torch.zeros(2, 3, 9, 9)).shape == (2, 72)
    with pytest.raises(ConfigError, match="at least 5 x 5, got 4 x 4"):
        build_image_core(name, options, (3, 4, 4))
    section = {"nature": NatureSection, "gridworld": GridworldSection}[name]
    with pytest.raises(ConfigError, match="must be equally many"):
        build_section(section, {"type": name, "channels": [4, 8]}, "core")


@pytest.mark.parametrize(
    "hold", [lambda net: net, lambda net: net.weight, lambda net: [net], lambda net: {"a": (net,)}]
)
def test_networks_that_nothing_would_train_or_save_are_refused(hold, registries_as_before):
    spare = nn.Linear(2, 2)

    class Forgetful(BC):
        def _create_networks(self):
            super()._create_networks()
            self.spare = hold(spare)

    ALGOS.register("test_forgetful")(lambda section: (Forgetful, {}))
    register_config("test_forgetful")(type("Config", (BCConfig,), {}))
    with pytest.raises(ConfigError, match=r"Forgetful\.spare is not in self\.nets"):
        small_algo("test_forgetful", "gru")
    spare.requires_grad_(False)  # somebody else's
    small_algo("test_forgetful", "gru")
