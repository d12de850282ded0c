"""The agents' settings, hooks and metrics, one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils._python_dispatch import TorchDispatchMode

from seqrl.algo.finite_guard import FiniteGuard
from seqrl.algo.losses import MaskEdits
from seqrl.algo.updater import Updater
from seqrl.configs import config_factory
from seqrl.configs.sections.run import TrainSection
from seqrl.core.errors import ConfigError, DataError
from seqrl.models.mlp import ResidualMLP
from tests.helpers import ACTION_SPACES, OBS, random_batch, small_algo

AGENTS = ["actor_critic", "multitask"]


def stepped(algo, batch, steps=2):
    algo.set_train()
    for _ in range(steps):
        info = algo.train_on_batch(algo.process_batch_for_training(batch))
    return algo.log_info(info)


# ------------------------------------------------------------------------------------- heads and actors
@pytest.mark.parametrize("name", AGENTS)
def test_a_mixture_is_for_imitation_only(name):
    box = ACTION_SPACES["box"]
    with pytest.raises(ConfigError, match=r"'gmm' has no reparametrised sample.*online_coeff to 0"):
        small_algo(name, action_space=box, distribution={"type": "gmm"}, online_coeff=1.0)
    if name == "multitask":  # whose values are means over plain samples
        algo = small_algo(name, action_space=box, distribution={"type": "gmm"})
        assert np.isfinite(stepped(algo, random_batch(box))["Loss"])


@pytest.mark.parametrize("name", AGENTS)
def test_critics_judge_actions_as_they_are_executed(name):
    """Samples of a Gaussian may leave [-1, 1], but no critic learns what would lie there."""
    box = ACTION_SPACES["box"]
    wide = {"type": "gaussian", "is_bounded": False, "fixed_std": 3.0}
    algo = small_algo(name, action_space=box, distribution=wide, online_coeff=1.0)
    seen = []
    for critic in (algo.critic, algo.target_critic):
        critic.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1].detach()))
    stepped(algo, random_batch(box))
    assert len(seen) >= 3
    assert max(actions.abs().max() for actions in seen) == 1.0


@pytest.mark.parametrize("is_residual", [False, True])
def test_dropout_in_the_actor_works_in_training_only(is_residual):
    box = ACTION_SPACES["box"]
    sizes = {"is_residual": is_residual, "d_hidden": 32}
    plain, algo = (small_algo("bc", "gru", box, actor={**sizes, "dropout": p}) for p in (0.0, 0.5))
    assert plain.serialize().keys() == algo.serialize().keys()
    algo.deserialize(plain.serialize())
    batch = algo.process_batch_for_training(random_batch(box))
    algo.set_train(), plain.set_train()
    kept = plain.compute_losses(batch).total.item()
    assert len({algo.compute_losses(batch).total.item() for _ in range(3)} - {kept}) == 3
    algo.set_eval(), plain.set_eval()
    assert torch.equal(algo.compute_losses(batch).total, plain.compute_losses(batch).total)


@pytest.mark.parametrize("distribution", ["beta", "deterministic", "gaussian", "tanh_gaussian"])
@pytest.mark.parametrize("name", AGENTS)
def test_continuous_policies_with_both_losses(name, distribution):
    box = ACTION_SPACES["box"]
    algo = small_algo(name, action_space=box, distribution={"type": distribution}, online_coeff=1.0, offline_coeff=1.0)
    before = algo.serialize()
    assert np.isfinite(stepped(algo, random_batch(box))["Loss"])
    assert not torch.equal(before["actor.mlp.0.weight"], algo.serialize()["actor.mlp.0.weight"])


def test_residual_actor_is_its_formula():
    net = ResidualMLP(3, 4, 2, 5, "leaky_relu").double()
    x = torch.randn(6, 3, dtype=torch.float64)
    y = x @ net.input.weight.T + net.input.bias
    for block in net.blocks:
        h = y @ block[0].weight.T + block[0].bias
        assert h.shape[-1] == 8
        h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        h = torch.where(h > 0, h, 0.01 * h) @ block[3].weight.T + block[3].bias
        y = y + (h - h.mean(-1, keepdim=True)) / (h.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(net(x), y @ net.output.weight.T + net.output.bias)


@pytest.mark.parametrize("name", ["bc", *AGENTS])
def test_observations_reach_the_actor_past_the_memory(name):
    algo = small_algo(name, actor={"d_hidden": 16, "is_residual": True, "obs_keys": ["state", "room"]})
    assert algo.actor.mlp.input.in_features == algo.trunk.d_output + 3 + 3
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    state = torch.zeros(4, 7, algo.trunk.d_output)
    first = algo.actor.parameters_of(state, batch.inputs)
    batch.inputs.obs["state"][0, 0] += 1.0
    second = algo.actor.parameters_of(state, batch.inputs)
    changed = (first != second).flatten(2).any(-1)
    assert changed[0, 0]
    assert changed.sum() == 1
    stepped(algo, batch)
    with pytest.raises(ConfigError, match=r"algo.actor.obs_keys: lidar not among the observations image, room, state"):
        small_algo(name, actor={"obs_keys": ["lidar"]})


def test_labels_that_would_make_values_run_away_are_refused():
    """An even label in symlog space has a mean after symexp that is 1 % too large: more than a discount takes off."""
    pair = {"label": "hl_gauss", "value_space": "return"}
    with pytest.raises(ConfigError, match=r"algo.returns\s+.*would make values grow without bound.*use_symlog false"):
        config_factory("multitask", {"algo": {"returns": pair}})
    config_factory("multitask", {"algo": {"returns": {**pair, "use_symlog": False}}})
    with pytest.raises(ConfigError, match=r"low 3.0 must be below high 1.0"):
        config_factory("multitask", {"algo": {"returns": {"low": 3.0, "high": 1.0}}})


def test_actions_of_other_spaces_are_refused_with_what_is_supported():
    from seqrl.core.errors import EnvError

    for space in (spaces.Dict({"a": spaces.Text(2)}), spaces.Sequence(spaces.Discrete(2))):
        with pytest.raises(
            EnvError, match="supported are Discrete, MultiDiscrete, MultiBinary, Box, and Dict and Tuple"
        ):
            small_algo("actor_critic", action_space=space)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["actor_critic", "multitask"])
def test_thousands_of_actions_with_masks(name):
    space = spaces.Discrete(3000)
    batch = random_batch(space, num=2, window=3)
    mask = torch.rand(2, 4, 3000) < 0.5
    mask[:, :-1] |= batch.actions > 0.5
    batch = replace(batch, inputs=replace(batch.inputs, action_mask=mask))
    algo = small_algo(name, action_space=space, window=3)
    before = algo.train_on_batch(algo.process_batch_for_training(batch), validate=True)["loss/total"]
    stepped(algo, batch, 20)
    assert algo.train_on_batch(algo.process_batch_for_training(batch), validate=True)["loss/total"] < before


# ---------------------------------------------------------------------------------------------- masks
def test_masked_values_are_expectations_over_legal_actions():
    space = ACTION_SPACES["discrete"]
    algo = small_algo("actor_critic", action_space=space)
    algo.popart.reward_square.fill_(4.0)
    algo.popart.reward_share.fill_(0.5)
    batch = algo.process_batch_for_training(random_batch(space))
    mask = torch.rand(*batch.inputs.step.shape, 5) < 0.5
    mask[..., 2] = True
    state, _ = algo.trunk(batch.inputs)
    parameters = algo.actor.parameters_of(state, batch.inputs)
    got = algo._policy_values(algo.critic, algo.critic.share(state), algo.actor, parameters, mask, 1)
    table = algo.critic.share(state).double()
    for b, t, g in ((0, 0, 0), (1, 3, 6), (3, 6, 2)):
        legal = mask[b, t].double()
        p = torch.softmax(parameters[b, t, g].double().masked_fill(~mask[b, t], -torch.inf), -1)
        p = 0.999 * p + 0.001 * legal / legal.sum()
        expected = (table[b, t, g] * (p * legal)[:, None]).sum(0) * algo.popart.scale[g].double()
        torch.testing.assert_close(got[b, t, g].double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("agent", ["actor_critic", "multitask"])
@pytest.mark.parametrize("space", ["discrete", "multi_discrete"])
def test_a_policy_that_does_what_the_data_did_has_no_advantage_over_it(agent, space):
    """Rounding would decide the ties of a filter."""
    algo = small_algo(agent, action_space=ACTION_SPACES[space], num_actions_for_value_in_actor_loss=3)
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES[space]))
    batch = replace(batch, actions=batch.actions[:1, :1].expand_as(batch.actions).contiguous())
    only = torch.cat([batch.actions, batch.actions[:, -1:]], 1) > 0.5  # the one legal action, everywhere the same
    values = algo.get_values(replace(batch, inputs=replace(batch.inputs, action_mask=only)))
    assert (values["advantage"] == 0).all()
    assert (values["filter_weight"] == 0).all()


# ---------------------------------------------------------------------------------------------- hooks
@pytest.mark.parametrize("name", [*AGENTS, "iql", "bc", "bc_vae"])
def test_edited_masks_leave_transitions_out(name):
    """What an edit leaves out has no part in the loss, whatever it holds, and the edit sees batch, loss and mask."""
    algo = small_algo(name).__class__(small_algo(name).config, OBS, small_algo(name).codec, "cpu")
    algo.set_eval()
    seen = []

    def first_two(batch, loss, mask):
        seen.append((batch, loss, mask))
        return mask & (torch.arange(mask.shape[1]) < 2)

    algo.mask_edits.actor = algo.mask_edits.critic = first_two
    batch = random_batch(ACTION_SPACES["discrete"])
    short = replace(batch, mask=batch.mask & (torch.arange(batch.mask.shape[1]) < 2))
    edited, whole = (algo.compute_losses(algo.process_batch_for_training(b)) for b in (batch, batch))
    assert seen
    for given, loss, mask in seen:
        assert given.rewards.shape == loss.shape == mask.shape
        assert not loss.requires_grad
        assert loss[mask].abs().max() > 0
    del algo.mask_edits
    algo.mask_edits = MaskEdits()
    plain = algo.compute_losses(algo.process_batch_for_training(batch))
    assert plain.total != edited.total
    assert whole.metrics.keys() == plain.metrics.keys()
    if name == "bc":  # nothing but the mask of its loss depends on padding: leaving out is padding
        torch.testing.assert_close(edited.total, algo.compute_losses(algo.process_batch_for_training(short)).total)


def test_a_mask_edit_can_choose_by_the_loss():
    algo = small_algo("bc")
    algo.set_eval()
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    plain = algo.compute_losses(batch).total
    algo.mask_edits.actor = lambda _, loss, mask: mask & (loss > loss[mask].median())
    assert algo.compute_losses(batch).total > plain


# -------------------------------------------------------------------------------------------- metrics
@pytest.mark.parametrize("name", AGENTS)
def test_logging_steps_bring_all_metrics(name):
    algo = small_algo(name)
    info = stepped(algo, random_batch(ACTION_SPACES["discrete"]))
    for gamma in ("0.1", "0.9", "0.95", "0.97", "0.99", "0.995", "0.999"):
        names = ("q/mean", "q/ensemble_std", "popart/mean", "popart/std")
        assert {f"{name}_{gamma}" for name in names} <= set(info)
    expected = {
        "loss/critic", "loss/actor_offline", "target/min", "target/max", "target/mean", "filter/share", "filter/q10",
        "filter/q50", "filter/q90", "policy/entropy", "data/padded_share", "optim/grad_norm", "optim/grad_norm_trunk",
        "optim/grad_norm_actor", "optim/grad_norm_critic", "optim/learning_rate",
    }  # fmt: skip
    assert expected <= set(info)
    assert info["target/min"] <= info["target/mean"] <= info["target/max"]
    nets = [info[f"optim/grad_norm_{net}"] for net in ("trunk", "actor", "critic")]
    assert np.sqrt(np.sum(np.square(nets))) == pytest.approx(info["optim/grad_norm"], rel=1e-4)
    assert all(np.isfinite(v) for v in info.values())


class HostReads(TorchDispatchMode):
    """Counts the operations that make the host wait for a device."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "item")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in self.WAITING:
            self.found.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("memory", ["gru", "transformer"])
@pytest.mark.parametrize("space", sorted(ACTION_SPACES))
@pytest.mark.parametrize("name", ["bc", *AGENTS])
def test_a_step_that_does_not_log_never_makes_the_host_wait(name, space, memory, monkeypatch):
    """Left out: the guard, whose flag arrives a step later; one_hot's check of categories, which only a CPU has."""
    monkeypatch.setattr(FiniteGuard, "check", lambda self, **_: None)
    monkeypatch.setattr(torch.nn.functional, "one_hot", lambda x, n: (x[..., None] == torch.arange(n)).long())
    algo = small_algo(name, memory, ACTION_SPACES[space])
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES[space]))
    stepped(algo, batch)
    algo.wants_metrics = False
    with HostReads() as reads:
        algo.train_on_batch(batch)
    assert reads.found == []
    with HostReads() as reads:
        float(torch.ones(()))
    assert reads.found


def test_a_compiled_step_can_be_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda f, **_: asked.append(f) or f)
    algo = small_algo("actor_critic")
    algo.updater = Updater(algo, is_compiled=True)
    stepped(algo, random_batch(ACTION_SPACES["discrete"]), 1)
    assert asked == [algo.compute_losses]
    assert TrainSection().compile is False


@pytest.mark.parametrize("name", AGENTS)
def test_how_often_is_logged_changes_no_run(name):
    """The entropy of a continuous policy is estimated by a sample, which must not move the run's generator."""
    weights = []
    for every in (1, 4):
        algo = small_algo(name, action_space=ACTION_SPACES["box"])
        batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["box"]))
        algo.set_train()
        torch.manual_seed(5)
        for step in range(4):
            algo.wants_metrics = (step + 1) % every == 0
            algo.train_on_batch(batch)
        weights.append(algo.serialize())
    assert all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])


def test_metrics_of_nothing_but_padding_are_finite():
    algo = small_algo("actor_critic")
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
    losses = algo.compute_losses(replace(batch, mask=torch.zeros_like(batch.mask)))
    assert float(losses.metrics["filter/q50"]) == float(losses.total.detach()) == 0.0
    assert float(losses.metrics["data/padded_share"]) == 1.0


# ------------------------------------------------------------------------------------------- optimiser
@pytest.mark.parametrize("name", ["bc", *AGENTS])
@pytest.mark.parametrize("memory", ["gru", "transformer"])
def test_only_matrices_decay(name, memory):
    algo = small_algo(name, memory, ACTION_SPACES["box"])
    named = {id(p): n for n, p in algo.nets.named_parameters()}
    decayed, plain = ([named[id(p)] for p in g["params"]] for g in algo.updater._raw_optimizer.param_groups)
    assert not [n for n in decayed if n.endswith("bias") or "norm" in n or n.endswith("scale")]
    assert not [n for n in plain if n.endswith("weight") and "norm" not in n and "positions" not in n]
    assert name == "bc" or {"critic.last.bias", "critic.first_state.bias"} <= set(plain)


# --------------------------------------------------------------------------------------------- critics
@pytest.mark.parametrize("space", ["discrete", "multi_discrete", "multi_binary"])
def test_the_chosen_discrete_action_gets_a_gradient_too(space):
    """A clip at 0.999 would cut off exactly what was chosen, and leave an estimate that hangs on Q's offset."""
    algo = small_algo("multitask", action_space=ACTION_SPACES[space], online_coeff=1.0)
    share = algo.critic.share(torch.randn(2, 3, algo.trunk.d_output))
    width = algo.codec.dim
    action = torch.ones(1, 2, 3, 7, width, requires_grad=True)
    algo.values_of(algo.critic(share, action)).sum().backward()
    assert (action.grad != 0).all()


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("space", sorted(ACTION_SPACES))
def test_values_are_float32_under_mixed_precision(name, space):
    """Differences of large values, which filters look at, would drown in bfloat16."""
    algo = small_algo(name, action_space=ACTION_SPACES[space])
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES[space]))
    with torch.autocast("cpu", torch.bfloat16):
        values = algo.get_values(batch)
        losses = algo.compute_losses(batch)
    assert {v.dtype for v in values.values()} == {torch.float32}
    assert losses.stats["popart"].dtype == torch.float32


def test_the_ensemble_judges_by_its_minimum_or_its_mean():
    losses = {}
    for how in ("min", "mean"):
        algo = small_algo("actor_critic", online_value=how)
        algo.set_eval()
        batch = algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"]))
        losses[how] = algo.compute_losses(batch).metrics["loss/actor_online"]
    assert losses["min"] > losses["mean"]


def test_without_critics_no_next_observation_is_needed():
    assert not small_algo("actor_critic", online_coeff=0.0, filter={"type": "none"}).needs
    assert small_algo("actor_critic").needs == {"next_obs"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"extra_gammas": [0.9, 0.99, 0.9]}, "name a discount twice"),
        ({"gamma": 0.9, "extra_gammas": [0.9]}, "name a discount twice"),
        ({"gamma": 0.99999999}, "gamma"),
        ({"filter": {"type": "exponential", "clip_low": 3.0, "clip_high": 1.0}}, "clip_low 3.0 must be below"),
        ({"distribution": {"type": "tanh_gaussian", "min_log_std": 3.0}}, "min_log_std 3.0 must be below"),
    ],
)
def test_settings_out_of_order_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        config_factory("actor_critic", {"algo": values})


# ------------------------------------------------------------------------------------- masks in batches
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda mask: mask[:, :-1], r"action_mask has shape \(4, 6, 5\), not \(B, T \+ 1, A\) with T = 6"),
        (lambda mask: mask[..., :3], "needs 5 flags"),
        (lambda mask: mask & False, "row 0 leaves no legal action at step 0"),
        (lambda mask: mask & (torch.arange(5) == 0), "row 0 forbids the action at step"),
    ],
)
def test_dict_batches_with_wrong_masks_are_refused(change, message):
    algo = small_algo("actor_critic")
    batch = random_batch(ACTION_SPACES["discrete"]).to_mapping()
    batch["action_mask"] = change(torch.ones(4, 7, 5, dtype=torch.bool))
    with pytest.raises(DataError, match=message):
        algo.process_batch_for_training(batch)


# --------------------------------------------------------------------------------------------- values
@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("space", sorted(ACTION_SPACES))
def test_get_values(name, space):
    algo = small_algo(name, action_space=ACTION_SPACES[space])
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES[space]))
    algo.set_eval()
    values = algo.get_values(batch)
    assert set(values) == {"q", "v", "advantage", "filter_weight", "ensemble_std"}
    assert all(v.shape == (4, 6, 7) and torch.isfinite(v).all() for v in values.values())
    assert ((values["filter_weight"] > 0) == (values["advantage"] > 0)).all()
    scale = 1.0 if name == "actor_critic" else 10.0  # raw critic outputs, or multiplied reward units
    torch.testing.assert_close(values["advantage"], scale * (values["q"] - values["v"]), rtol=1e-3, atol=1e-4)
    assert algo.get_state_value(batch).shape == algo.get_state_action_value(batch).shape == (4, 6)


@pytest.mark.parametrize("name", AGENTS)
def test_one_pass_of_the_trunk_serves_all(name):
    algo = small_algo(name, online_coeff=1.0, offline_coeff=1.0)
    passes = []
    algo.trunk.register_forward_hook(lambda *_: passes.append(1))
    algo.compute_losses(algo.process_batch_for_training(random_batch(ACTION_SPACES["discrete"])))
    assert len(passes) == 1
