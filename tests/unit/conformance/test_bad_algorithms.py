"""Algorithms that break their contract are caught, and told in words; those that keep it in other ways are not."""

import re
from dataclasses import replace
from functools import partial

import pytest
import torch

from seqrl.algo import ALGOS, BC, ActorCritic, Losses, MultiTask, PolicyAlgo, masked_mean
from seqrl.algo.trunk import build_trunk
from seqrl.configs import BCConfig, register_config
from seqrl.configs.actor_critic_config import ActorCriticConfig
from seqrl.configs.multitask_config import MultiTaskConfig
from seqrl.conformance import ConformanceError
from seqrl.conformance.algorithms import CHECKS, AlgoCase, spaces_of
from seqrl.core.errors import RegistryError
from seqrl.models.actors import Actor
from seqrl.models.distributions import build_head

pytestmark = pytest.mark.usefixtures("registries_as_before")


def registered(cls, config=BCConfig):
    """Return the name under which a class is registered, with the settings of another algorithm."""
    name = f"test_{cls.__name__.lower()}"
    if name not in ALGOS:
        register_config(name)(type(f"{cls.__name__}Config", (config,), {"__doc__": "For tests."}))
        ALGOS.register(name)(lambda algo_config: (cls, {}))
    return name


def fails(cls, check, match, config=BCConfig, **case):
    with pytest.raises(ConformanceError, match=match):
        CHECKS[check](AlgoCase(registered(cls, config), **case))


def passes(cls, check, config=BCConfig, **case):
    CHECKS[check](AlgoCase(registered(cls, config), **case))


class Counting(BC):
    """Writes a buffer in the forward pass."""

    def _create_networks(self):
        super()._create_networks()
        self.nets.register_buffer("count", torch.zeros(()))

    def compute_losses(self, batch):
        if torch.is_grad_enabled():
            self.nets.count += 1
        return super().compute_losses(batch)


def test_a_buffer_that_is_written_in_compute_losses():
    fails(Counting, "compute_losses_writes_nothing", r"compute_losses writes 'count': put sums into Losses\.stats")
    passes(Counting, "validation_changes_nothing")


class CountingAlways(Counting):
    """Also in validation."""

    def compute_losses(self, batch):
        self.nets.count += 1
        return BC.compute_losses(self, batch)


def test_a_validation_that_changes_something():
    fails(CountingAlways, "validation_changes_nothing", "validation changes 'count'")


class Leaky(BC):
    """Forgets the mask."""

    def compute_losses(self, batch):
        return super().compute_losses(replace(batch, mask=torch.ones_like(batch.mask)))


def test_padding_that_leaks():
    fails(Leaky, "padding_has_no_influence", "padding leaks: after 3 steps '.+' is different where only padding")


class ToldReturns(BC):
    """Weighs what it imitates by the return that follows, which the data has to tell."""

    needs = frozenset({"return_to_go"})

    def weights(self, batch):
        return batch.extras["return_to_go"][:, :-1].sigmoid()


class LeakyReturns(ToldReturns):
    """Weighs by the mean of all of them, padding included."""

    def weights(self, batch):
        return super().weights(batch) * batch.extras["return_to_go"].mean().sigmoid()


def test_what_an_algorithm_needs_is_there_and_padded_too():
    passes(ToldReturns, "padding_has_no_influence")
    passes(ToldReturns, "learns_by_heart")
    fails(LeakyReturns, "padding_has_no_influence", "padding leaks")


class Idle(BC):
    """Has a weight that nothing moves."""

    def _create_networks(self):
        super()._create_networks()
        self.nets.register_parameter("extra", torch.nn.Parameter(torch.zeros(3)))


def test_a_weight_that_does_not_learn():
    fails(Idle, "every_weight_learns", "'extra' never moved in 3 steps")


class Forgetful(BC):
    """Keeps a number outside of its networks, on which its loss depends."""

    steps = 0

    def compute_losses(self, batch):
        losses = super().compute_losses(batch)
        return Losses(losses.total * (1 + self.steps) ** 2, losses.metrics, losses.stats)

    def on_gradient_step(self, stats):
        super().on_gradient_step(stats)
        self.steps += 1


def test_a_resumed_run_that_is_another():
    fails(Forgetful, "resumed_equals_uninterrupted", "a resumed run continues differently in '")


def test_a_seed_that_is_not_everything():
    rng = torch.Generator()
    rng.seed()

    class Restless(BC):
        def weights(self, batch):
            return 1 + torch.rand(batch.rewards.shape, generator=rng)

    fails(Restless, "seeded_runs_are_equal", "two runs of the same seed differ in '")


class Poisoned(BC):
    """Averages what it has seen, whatever it was."""

    def _create_networks(self):
        super()._create_networks()
        self.nets.register_buffer("mean", torch.zeros(()))

    def train_on_batch(self, batch, epoch=0, validate=False):
        info = super().train_on_batch(batch, epoch, validate)
        self.nets.mean.lerp_(batch.inputs.obs["state"].mean(), 0.1)
        return info


def test_a_buffer_that_takes_a_nan():
    fails(Poisoned, "nonfinite_batch_moves_nothing", "a batch with a NaN moves 'mean'", actions="box")


class Deaf(BC):
    """Never empties its memory."""

    def reset_rows(self, state, rows):
        return state


def test_rows_that_are_not_reset_on_their_own():
    fails(Deaf, "acting_resets_rows_alone", "0 steps after reset_rows of one row", memory="gru", actions="box")


class Mixing(BC):
    """Adds up its rows."""

    def act(self, inputs, state, deterministic):
        action, state = super().act(inputs, state, deterministic)
        return action + action.sum(0), state


def test_rows_that_mix():
    fails(Mixing, "acting_does_not_mix_rows", "acting mixes rows: row 0 differs at step 0", actions="box")


# ---------------------------------------------------------------------------------------------- learning
class Stubborn(BC):
    """Learns the wrong way round."""

    def compute_losses(self, batch):
        losses = super().compute_losses(batch)
        return Losses(2 * losses.total.detach() - losses.total, losses.metrics, losses.stats)


def test_a_loss_that_rises():
    fails(Stubborn, "learns_by_heart", r"after 60 steps loss/total was 1\.\d+ and is 1\.\d+ at best")


class Maximising(BC):
    """Its total goes up as it fits."""

    fitted = ("loss/nll",)

    def compute_losses(self, batch):
        losses = super().compute_losses(batch)
        return Losses(losses.total + 100 * losses.total.detach().neg(), losses.metrics, losses.stats)


class Misnamed(BC):
    fitted = ("loss/critic",)


def test_what_has_to_fall_is_what_the_algorithm_names():
    passes(Maximising, "learns_by_heart")
    passes(Maximising, "works_as_in_robomimic")
    match = re.escape("`fitted` names loss/critic, but its metrics are ")
    fails(Misnamed, "learns_by_heart", match)


class Continuous(BC):
    action_kinds = frozenset({"continuous"})


def test_an_algorithm_is_asked_about_the_actions_that_it_takes(monkeypatch):
    name = registered(Continuous)
    assert spaces_of(name) == ["box"]
    fitting = {
        check for check in CHECKS for space in ("discrete", "box") if CHECKS[check].fits(AlgoCase(name, actions=space))
    }
    assert fitting == {check for check in CHECKS if "illegal" not in check and "mask_that" not in check}
    assert not any(check.fits(AlgoCase(name, actions="discrete")) for check in CHECKS.values())
    passes(Continuous, "refuses_other_actions", actions="box")
    case = AlgoCase(name, actions="box")
    monkeypatch.setattr(AlgoCase, "build", lambda self: None)
    with pytest.raises(
        ConformanceError, match=r"action_kinds is \['continuous'\], but discrete actions are not refused"
    ):
        CHECKS["refuses_other_actions"](case)


def test_an_unknown_kind_of_actions_and_a_missing_factory_are_named():
    class Boxes(BC):
        action_kinds = frozenset({"box"})

    with pytest.raises(ConformanceError, match="action_kinds: 'box' is no kind of actions; they are continuous, "):
        spaces_of(registered(Boxes))
    name = registered(Continuous)
    del ALGOS._entries[name]
    with pytest.raises(RegistryError, match=f"algorithm '{name}' has a config but no factory"):
        spaces_of(name)


# ------------------------------------------------------------------------------------------------- masks
def unmasked(batch):
    return replace(batch, inputs=replace(batch.inputs, action_mask=None))


class Lawless(BC):
    """Ignores the mask in its loss."""

    def compute_losses(self, batch):
        return super().compute_losses(unmasked(batch))


class LawlessAgent(ActorCritic):
    def compute_losses(self, batch):
        return super().compute_losses(unmasked(batch))


class LawlessMultiTask(MultiTask):
    def compute_losses(self, batch):
        return super().compute_losses(unmasked(batch))


@pytest.mark.parametrize("actions", ["discrete", "multi_binary", "multi_discrete"])
def test_a_loss_that_ignores_the_mask(actions):
    check = partial(fails, check="illegal_actions_learn_nothing", actions=actions)
    check(Lawless, match="learns about illegal actions")
    check(LawlessAgent, match="learns about illegal actions", config=ActorCriticConfig)
    check(LawlessMultiTask, match="learns about illegal actions", config=MultiTaskConfig)


class TinyAgent(PolicyAlgo):
    """Imitates, and judges what it imitates: critics with an output for each action, and targets from its policy."""

    masks_imitation = masks_targets = True

    def _create_networks(self):
        self.trunk = build_trunk(self.config, self.algo_config.sequence_encoder, self.obs, self.codec)
        self.actor = Actor(self.trunk.d_output, build_head("auto", {}, self.codec), d_hidden=32)
        self.critic = torch.nn.Linear(self.trunk.d_output, self.codec.dim)
        self.nets.update({"trunk": self.trunk, "actor": self.actor, "critic": self.critic})

    def compute_losses(self, batch):
        hidden, _ = self.trunk(batch.inputs)
        free, now = unmasked(batch).inputs, batch.num_transitions
        policy = self.actor(hidden[:, :now], (batch.inputs if self.masks_imitation else free).first(now))
        q = self.critic(hidden)
        with torch.no_grad():
            v = (q * self.actor(hidden, batch.inputs if self.masks_targets else free).probs).sum(-1)
        targets = batch.rewards + 0.9 * v[:, 1:] * ~batch.terminated
        critic = masked_mean(((q[:, :now] * batch.actions).sum(-1) - targets).square(), batch.mask)
        imitation = masked_mean(-policy.log_prob(batch.actions), batch.mask)
        metrics = {"loss/critic": critic.detach(), "loss/imitation": imitation.detach()}
        return Losses(critic + imitation, metrics, self.trunk.stats(batch.inputs, batch.input_mask))

    def act(self, inputs, state, deterministic):
        hidden, state = self.trunk(inputs, state)
        policy = self.actor(hidden, inputs)
        return (policy.mode() if deterministic else policy.sample())[:, -1], state


class TinyLawlessImitation(TinyAgent):
    """Its critics' outputs for an action that nobody takes learn nothing, but these do not speak in its policy."""

    masks_imitation = False


class TinyLawlessTargets(TinyAgent):
    """No gradient shows what its targets read."""

    masks_targets = False


def test_one_of_several_losses_that_ignores_the_mask():
    passes(TinyAgent, "illegal_actions_learn_nothing")
    fails(TinyLawlessImitation, "illegal_actions_learn_nothing", "learns about illegal actions")
    match = "loss/critic depends on weights that affect only an action that is illegal everywhere"
    fails(TinyLawlessTargets, "illegal_actions_learn_nothing", match)


class Free(BC):
    def act(self, inputs, state, deterministic):
        return super().act(replace(inputs, action_mask=None), state, deterministic)


def test_acting_that_ignores_the_mask():
    fails(Free, "illegal_actions_are_never_taken", r"\d+ of 200 sampled actions are illegal")
