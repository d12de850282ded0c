"""What an algorithm may ask for, and what is done for it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from seqrl.algo import ALGOS, BC, ChunkPolicy, Terms, algo_factory
from seqrl.algo.acting import VectorPolicy
from seqrl.algo.algo import Algo
from seqrl.algo.ema import AveragedNets
from seqrl.algo.states import nest, split_state
from seqrl.algo.targets import follow, frozen_copy
from seqrl.algo.updater import build_optimizer
from seqrl.core.errors import ConfigError, DataError, PluginError
from seqrl.core.spaces import ObsSpec
from seqrl.core.types import ColumnStats
from seqrl.models.sigma_linear import SigmaLinear
from tests.helpers import ACTION_SPACES, OBS, random_batch, random_obs, small_algo, small_config


def test_an_unfit_action_space_is_refused_by_its_kind(monkeypatch):
    monkeypatch.setattr(BC, "action_kinds", frozenset({"continuous", "binary"}))
    with pytest.raises(ConfigError, match=r"'bc' takes actions that are binary or continuous; .* are multi_discrete"):
        small_algo("bc", action_space=ACTION_SPACES["multi_discrete"])
    small_algo("bc", action_space=ACTION_SPACES["box"])


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda loss: Terms({"a": (1.0, loss[..., None])}), r"IQL: loss 'a' has shape \(4, 6, 1\); expected \(4, 6\)"),
        (lambda loss: Terms({"a": (1.0, loss[:, :-1])}), r"IQL: loss 'a' has shape \(4, 5\); expected \(4, 6\)"),
        (lambda loss: None, "IQL: critic_terms and actor_terms have to return Terms, one returned None"),
    ],
)  # fmt: skip
def test_a_loss_of_another_shape_is_named(given, told, monkeypatch):
    algo, batch = small_algo("iql", action_space=ACTION_SPACES["box"]), random_batch(ACTION_SPACES["box"])
    monkeypatch.setattr(algo, "actor_terms", lambda p: given(algo.log_prob_of_data(p).mean(-1)))
    with pytest.raises(PluginError, match=told):
        algo.compute_losses(algo.process_batch_for_training(batch))


def test_a_policy_that_counts_its_rewards_refuses_to_go_without():
    class Counting(BC):
        needs_reward = True

    config = small_config("bc")
    algo = Counting(config, OBS, small_algo("bc").codec, "cpu")
    policy = VectorPolicy(algo, 1, deterministic=True)
    obs = {"image": np.zeros((1, 2, 2), np.uint8), "room": np.zeros(1, np.int64), "state": np.zeros((1, 3), np.float32)}
    policy.act(obs)
    with pytest.raises(DataError, match="counts its rewards, and none was given"):
        policy.act(obs)
    policy.act(obs, np.zeros(1, np.float32))


def test_what_the_memory_reads_beside_the_environment_is_neither_asked_for_nor_scaled():
    class Told(BC):
        @property
        def trunk_obs(self):
            return {"goal_return": ObsSpec((1,))}

        def with_told(self, inputs):
            told = torch.full((*inputs.step.shape, 1), 100.0)
            return type(inputs)(**{**vars_of(inputs), "obs": {**inputs.obs, "goal_return": told}})

        def compute_losses(self, batch):
            return super().compute_losses(batch.with_inputs(self.with_told(batch.inputs)))

        def act(self, inputs, state, deterministic):
            return super().act(self.with_told(inputs), state, deterministic)

    def vars_of(inputs):
        names = ("obs", "prev_action", "prev_reward", "step", "action_mask", "goal")
        return {name: getattr(inputs, name) for name in names}

    plain = small_algo("bc")
    algo = Told(plain.config, OBS, plain.codec, "cpu")
    assert sum(p.numel() for p in algo.trunk.parameters()) > sum(p.numel() for p in plain.trunk.parameters())
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    algo.train_on_batch(batch)
    obs = {"image": np.zeros((1, 2, 2), np.uint8), "room": np.zeros(1, np.int64), "state": np.zeros((1, 3), np.float32)}
    assert VectorPolicy(algo, 1, deterministic=True).act(obs).shape == (1, 5)


@pytest.mark.parametrize("need", ["return_to_go", "mc_return", "next_action"])
def test_a_batch_without_what_is_needed_is_refused(need):
    algo = small_algo("bc")
    algo.needs = frozenset({need})
    batch = random_batch(ACTION_SPACES["discrete"])
    assert need in algo.process_batch_for_training(batch).extras
    with pytest.raises(DataError, match=rf"bc needs .*{need} in the batch's extras"):
        algo.process_batch_for_training(replace(batch, extras={}))


def test_next_actions_are_scaled_as_actions_are():
    """Where nothing follows they stay zeros."""
    box = spaces.Box(-1, 1, (2,))
    config = small_config("bc")
    config.train.normalize_actions = "min_max"
    algo = algo_factory("bc", config, OBS, 2, "cpu", box)
    low, high = np.array([-0.5, 0.0], np.float32), np.array([0.25, 1.0], np.float32)
    algo.use_statistics({}, ColumnStats(mean=(low + high) / 2, std=high - low, min=low, max=high))
    given = random_batch(box)
    batch = algo.process_batch_for_training(given)
    assert not torch.allclose(batch.actions, given.actions)
    has_next = batch.extras["has_next_action"] > 0
    torch.testing.assert_close(batch.extras["next_action"][:, :-1][batch.mask], batch.actions[batch.mask])
    assert not batch.extras["next_action"][~has_next].any()
    assert (~has_next).any()


def test_states_nest():
    inner, other = {"memory": torch.ones(2)}, {"memory": torch.zeros(2), "plan": torch.ones(1)}
    state = {**nest("planner", inner), **nest("actor", other), "left": torch.zeros(1)}
    planner, actor, rest = split_state(state, "planner", "actor")
    assert planner["memory"] is inner["memory"]
    assert actor.keys() == other.keys()
    assert list(rest) == ["left"]


def test_targets_and_averages_follow():
    nets = nn.ModuleDict({"head": nn.Linear(1, 1, bias=False)})
    target, averaged = frozen_copy(nets["head"]), AveragedNets(nets, max_decay=0.9999)
    first = nets["head"].weight.item()
    assert not any(p.requires_grad for p in (*target.parameters(), *averaged.parameters()))
    expected = first
    for n in range(1, 6):
        with torch.no_grad():
            nets["head"].weight += 1.0
        averaged.move(nets)
        expected += (1 + n) ** -0.75 * (nets["head"].weight.item() - expected)
    assert averaged.averages["head"].weight.item() == pytest.approx(expected, rel=1e-5)
    follow(target, nets["head"], 0.25)
    assert target.weight.item() == pytest.approx(first + 0.25 * 5)
    again = AveragedNets(nets, max_decay=0.9999)
    again.load_state_dict(averaged.state_dict())
    assert again.num_steps == 5


def test_an_average_is_divided_by_its_own_spectral_norm():
    torch.manual_seed(0)
    nets = nn.ModuleDict({"head": SigmaLinear(6, 6, bias=False)})
    averaged = AveragedNets(nets, max_decay=0.9)
    average = averaged.averages["head"]
    for _ in range(100):
        with torch.no_grad():
            nets["head"].weight += torch.randn(6, 6)
        averaged.move(nets)
        for part in (nets["head"], average):
            part.power_iteration()
    for _ in range(100):
        averaged.move(nets)
        average.power_iteration()
    sigma = torch.linalg.matrix_norm(average(torch.eye(6)).T, 2)
    assert sigma.item() == pytest.approx(1.0, rel=1e-3)


def test_rates_multiply_the_learning_rate_of_their_networks():
    optimizer = {"learning_rate": 1e-3, "rates": {"trunk": 0.1, "actor": 2.0}}
    algo = small_algo("actor_critic", optimizer=optimizer)
    built = build_optimizer(algo.nets, algo.config.algo.optimizer)
    rate_of = {id(p): group["lr"] for group in built.param_groups for p in group["params"]}
    for name, parameter in algo.nets.named_parameters():
        if parameter.requires_grad:
            factor = {"trunk": 0.1, "actor": 2.0}.get(name.split(".")[0], 1.0)
            assert rate_of[id(parameter)] == pytest.approx(1e-3 * factor), name
    with pytest.raises(ConfigError, match=r"no network 'aktor' learns; did you mean 'actor'\? there are: trunk"):
        small_algo("actor_critic", optimizer={"rates": {"aktor": 0.5}}).updater  # noqa: B018


def test_rates_change_no_order_so_a_run_may_resume_with_others():
    """Optimiser state is saved by the position of its parameter."""
    orders = []
    for rates in ({}, {"actor": 0.5}, {"trunk": 0.1, "critic": 2.0}, {"trunk": 0.1, "actor": 0.1, "critic": 0.1}):
        algo = small_algo("actor_critic", optimizer={"rates": rates})
        names = {id(p): n for n, p in algo.nets.named_parameters()}
        built = build_optimizer(algo.nets, algo.config.algo.optimizer)
        orders.append([names[id(p)] for group in built.param_groups for p in group["params"]])
        assert algo.updater.learning_rate == pytest.approx(algo.config.algo.optimizer.learning_rate), "without factors"
    assert all(order == orders[0] for order in orders)


def gradient_norms(algo):
    return {
        name: torch.stack([p.grad.norm() for p in net.parameters() if p.grad is not None]).norm().item()
        for name, net in algo.nets.items()
        if any(p.grad is not None for p in net.parameters())
    }


@pytest.mark.parametrize("clip", ["global", "per_group"])
def test_each_network_is_clipped_alone_if_asked(clip, monkeypatch):
    algo = small_algo("actor_critic", optimizer={"clip": clip, "grad_clip": 0.01})
    seen = {}
    step = torch.optim.AdamW.step

    def watched(self, closure=None):
        seen.update(gradient_norms(algo))
        return step(self, closure)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    info = algo.train_on_batch(algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"])))
    limits = {n: min(0.01, info[f"optim/grad_norm_{n}"].item()) for n in seen}
    total = sum(n**2 for n in seen.values()) ** 0.5
    if clip == "per_group":
        assert seen == pytest.approx(limits, rel=1e-3)
        assert total > 0.01
    else:
        assert total == pytest.approx(0.01, rel=1e-3)
    before = sum(info[f"optim/grad_norm_{n}"].item() ** 2 for n in seen) ** 0.5
    assert info["optim/grad_norm"].item() == pytest.approx(before, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "values"), [("bc", {}), ("bc", {"chunk_steps": 3}), ("bc_vae", {}), ("actor_critic", {})]
)
def test_actions_over_a_window_are_those_of_acting(name, values, monkeypatch):
    """As often as in stepping through the window; a policy that is a head needs one pass."""
    algo = small_algo(name, "gru", spaces.Discrete(3), **values)
    algo.set_eval()
    batch = algo.process_batch_for_training(random_batch(spaces.Discrete(3), num=2))
    torch.manual_seed(0)
    stepped = Algo.policy_over(algo, batch.inputs, 2000)
    if not values:
        monkeypatch.setattr(algo, "act", None)
    drawn = algo.policy_over(batch.inputs, 2000)
    assert drawn.shape == (2000, 2, batch.num_transitions + 1, 3)
    torch.testing.assert_close(drawn.mean(0), stepped.mean(0), atol=0.06, rtol=0.0)


# ----------------------------------------------------------------------------------------- ensembling
@pytest.mark.parametrize("decay", [0.0, 1e-6, 0.3, 30.0])
def test_ensembled_actions_are_the_weighted_mean_of_all_chunks(decay):
    """Streamed, per row, across a reset: the oldest chunk weighs 1, the i-th after it ``exp(-decay i)``."""
    box, steps, chunk = spaces.Box(-1, 1, (2,)), 12, 4
    algo = small_algo(
        "bc", "gru", box, distribution={"type": "deterministic"},
        chunk_steps=chunk, execute_steps=1, ensemble_decay=decay,
    )  # fmt: skip
    algo.set_eval()
    answers = torch.rand(steps, 2, chunk, 2) * 2 - 1
    given = iter(answers)
    algo._choose = lambda hidden, inputs, deterministic: next(given).unsqueeze(1)
    inputs = random_batch(box, num=2, window=steps).inputs
    state, begin = algo.init_state(2), [0, 0]
    for t in range(steps):
        if t == 5:
            state, begin[1] = algo.reset_rows(state, torch.tensor([False, True])), 5
        action, state = algo.act(inputs.map(lambda x, t=t: x[:, t : t + 1]), state, True)
        for row in range(2):
            speaking = range(max(begin[row], t - chunk + 1), t + 1)
            weights = np.exp(-decay * np.arange(len(speaking)))
            expected = sum(w * answers[s, row, t - s].numpy() for w, s in zip(weights, speaking, strict=True))
            np.testing.assert_allclose(action[row], expected / weights.sum(), rtol=1e-4, atol=1e-5)


def test_ensembling_needs_chunks_that_are_asked_for_at_every_step():
    with pytest.raises(ConfigError, match="set chunk_steps above 1 and execute_steps 1"):
        small_config("bc", chunk_steps=4, ensemble_decay=0.1)
    with pytest.raises(ConfigError, match="averages actions, so it needs continuous ones"):
        small_algo("bc", chunk_steps=4, execute_steps=1, ensemble_decay=0.1)
    assert issubclass(BC, ChunkPolicy)
    config = small_config("bc", chunk_steps=4, execute_steps=1, ensemble_decay=0.1)
    algo_factory("bc", config, OBS, 2, "cpu")


def test_an_episode_as_long_as_the_table_of_positions_is_imitated_and_a_longer_one_refused():
    memory = {"type": "transformer", "positions": "learned", "d_model": 16, "num_heads": 2, "max_steps": 6}
    batch = random_batch(ACTION_SPACES["discrete"], window=6)
    batch.inputs.step.copy_(torch.arange(7))
    algo = small_algo("bc", sequence_encoder=memory)
    algo.train_on_batch(algo.process_batch_for_training(batch))
    agent = small_algo("actor_critic", sequence_encoder=memory)
    with pytest.raises(DataError, match=r"step 6 is beyond the table of learned positions \(max_steps 6\)"):
        agent.process_batch_for_training(batch)  # it reads the last observation too
    batch.inputs.step.add_(1)
    with pytest.raises(DataError, match="step 6 is beyond"):
        algo.process_batch_for_training(batch)


def seen(num_rows, seed=0):
    return {k: v.numpy() for k, v in random_obs(np.random.default_rng(seed), OBS, num_rows).items()}


STEPS = {
    "no state": (
        lambda a, s: (a, None),
        r"Odd.act has to return \(actions, next state\): the state is NoneType, expected",
    ),
    "another state": (lambda a, s: (a, {"mine": a}), r"the state is \['mine'\], expected a dict with \["),
    "actions alone": (lambda a, s: a, "it returned Tensor"),
    "an array": (lambda a, s: (a.numpy(), s), "the actions are a ndarray"),
    "a step too many": (lambda a, s: (a[:, None], s), r"the actions are of shape \(2, 1, \d\), expected .* \(2, \d\)"),
}


@pytest.mark.parametrize(("changed", "message"), STEPS.values(), ids=STEPS)
def test_a_step_returns_actions_and_the_next_state(changed, message):
    class Odd(BC):
        def act(self, inputs, state, deterministic):
            return changed(*super().act(inputs, state, deterministic))

    policy = VectorPolicy(Odd(small_config("bc"), OBS, small_algo("bc").codec, "cpu"), 2, deterministic=True)
    with pytest.raises(PluginError, match=message):
        policy.act(seen(2))


def test_no_action_that_is_not_finite_is_executed():
    class Odd(BC):
        is_broken = False

        def act(self, inputs, state, deterministic):
            action, state = super().act(inputs, state, deterministic)
            return (action.index_fill(0, torch.tensor([1]), torch.nan) if self.is_broken else action), state

    algo = Odd(small_config("bc"), OBS, small_algo("bc", action_space=ACTION_SPACES["box"]).codec, "cpu")
    algo.set_eval()
    policy = VectorPolicy(algo, 2, deterministic=True)
    first = policy.act(seen(2))
    algo.is_broken = True
    with pytest.raises(DataError, match=r"the policy's action is \[nan.*\] in row 1, which is not finite"):
        policy.act(seen(2))
    algo.is_broken = False
    policy.reset(np.ones(2, bool))
    np.testing.assert_array_equal(policy.act(seen(2)), first)


LOSSES = {
    "a tensor": (lambda losses: losses.total, "the losses of a batch have to be seqrl.algo.Losses, not Tensor"),
    "a number": (lambda losses: replace(losses, total=0.0), "Losses.total has to be a tensor, it is a float"),
    "one per step": (lambda losses: replace(losses, total=losses.total.expand(3)), r"it has shape \(3,\)"),
    "no gradient": (lambda losses: replace(losses, total=losses.total.detach()), "it has no gradient"),
}


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(("changed", "message"), LOSSES.values(), ids=LOSSES)
def test_losses_are_a_scalar_that_depends_on_the_weights(changed, message):
    class Odd(BC):
        def compute_losses(self, batch):
            return changed(super().compute_losses(batch))

    algo = Odd(small_config("bc"), OBS, small_algo("bc").codec, "cpu")
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    with pytest.raises(PluginError, match=message):
        algo.train_on_batch(batch)


@pytest.mark.parametrize("made", [BC, None, ("bc", {}), (BC, None)])
def test_a_factory_returns_a_class_and_its_arguments(made, monkeypatch):
    monkeypatch.setitem(ALGOS._entries, "bc", lambda section: made)
    with pytest.raises(PluginError, match="has to return \\(a subclass of Algo, its arguments\\), it returned"):
        small_algo("bc")
