"""BCQ: candidates, targets and what moves what, against loops written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from seqrl.core.errors import ConfigError
from tests.helpers import ACTION_SPACES, random_batch, small_algo

BOX, DISCRETE = ACTION_SPACES["box"], ACTION_SPACES["discrete"]


def built(space=BOX, **values):
    algo = small_algo("bcq", "gru", space, **values)
    algo.set_eval()
    with torch.no_grad():  # targets of their own
        for weight in algo.target_critic.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return algo, algo.process_batch_for_training(random_batch(space))


def best_of(values, weight):
    """Return the largest over candidates of the mix over critics, in NumPy; values are (K, C)."""
    return max(weight * row.min() + (1 - weight) * row.max() for row in values)


@pytest.mark.parametrize("proposals", ["vae", "gmm"])
def test_the_value_of_an_input_is_that_of_its_best_proposal(proposals):
    algo, batch = built(proposals=proposals, num_candidates=5, min_weight=0.6, critic={"num_critics": 3})
    seen = []
    algo.target_critic.register_forward_hook(lambda module, args, output: seen.append(output))
    got = algo.next_values(algo.look(batch))
    assert seen[0].shape[0] == 5
    q = seen[0][:, :, :, 0, :, 0].detach().numpy().astype(np.float64)
    for b, t in np.ndindex(*batch.mask.shape):
        assert got[b, t, 0].item() == pytest.approx(best_of(q[:, b, t], 0.6), rel=1e-5, abs=1e-6)


def test_the_mix_is_taken_before_the_best_is_chosen():
    """Two candidates, two critics: (0, 10) mixes to 2.5, (4, 4) to 4; best of each first would be 0.75 * 4 + 2.5."""
    assert best_of(np.array([[0.0, 10.0], [4.0, 4.0]]), 0.75) == 4.0


@pytest.mark.parametrize("threshold", [0.4, 0.0])
def test_discrete_candidates_are_likely_enough_and_legal(threshold):
    algo, batch = built(DISCRETE, threshold=threshold)
    with torch.no_grad():
        last = list(algo.actor.mlp.modules())[-1]
        last.weight.mul_(3.0)  # a model with an opinion
        for critic in (algo.critic, algo.target_critic):
            critic.last.bias[..., 0] += 10.0  # the action that may be illegal would be the best
    mask = torch.ones(*batch.inputs.step.shape, DISCRETE.n, dtype=torch.bool)
    mask[::2, :, 0] = False
    batch = replace(batch, inputs=replace(batch.inputs, action_mask=mask))
    p = algo.look(batch)
    got = algo.next_values(p)
    probs = algo.actor(p.state, batch.inputs).probs[:, 1:, 0].detach().numpy()
    q = algo.target_critic.share(p.state)[:, 1:, 0].detach().numpy().astype(np.float64)  # (B, L, A, C)
    counts = set()
    for b, t in np.ndindex(*batch.mask.shape):
        chosen = [a for a in range(DISCRETE.n) if mask[b, t + 1, a] and probs[b, t, a] >= threshold * probs[b, t].max()]
        counts.add(len(chosen))
        assert got[b, t, 0].item() == pytest.approx(best_of(q[b, t, chosen], 0.75), rel=1e-4, abs=1e-5)
    assert len(counts) > 1
    for _ in range(3):
        action = algo.policy_over(batch.inputs, 1)[0]
        assert mask[action.bool()].all()


@pytest.mark.parametrize("proposals", ["vae", "gmm"])
def test_greedy_acting_draws_nothing_and_sampling_does(proposals):
    algo, batch = built(proposals=proposals)
    first = batch.inputs.map(lambda x: x[:, :1])
    with torch.no_grad():
        greedy = [algo.act(first, algo.init_state(len(batch.mask)), True)[0] for _ in range(2)]
        drawn = [algo.act(first, algo.init_state(len(batch.mask)), False)[0] for _ in range(2)]
    assert torch.equal(*greedy)
    assert not torch.equal(*drawn)


def test_acting_takes_the_candidate_that_the_first_critic_likes_best():
    algo, batch = built(num_acting_candidates=7)
    seen = []
    algo.critic.register_forward_hook(lambda module, args, output: seen.append((args[1], output)))
    first = batch.inputs.map(lambda x: x[:, :1])
    with torch.no_grad():
        action = algo.act(first, algo.init_state(len(batch.mask)), True)[0]
    candidates, q = seen[0]
    assert len(candidates) == 7
    for b in range(len(action)):
        torch.testing.assert_close(action[b], candidates[q[:, b, 0, 0, 0, 0].argmax(), b, 0, 0])


def moved_by(algo, batch, name):
    terms = algo.actor_terms(algo.look(batch)).losses
    algo.nets.zero_grad()
    terms[name][1].sum().backward()
    return {n for n, net in algo.nets.items() if any(q.grad is not None and q.grad.any() for q in net.parameters())}


def test_the_model_moves_no_critic_and_the_perturbation_itself_alone():
    algo, batch = built(perturbation=0.05)
    assert moved_by(algo, batch, "actor") == {"trunk", "actor", "vae"}
    assert moved_by(algo, batch, "divergence") == {"trunk", "vae"}
    assert moved_by(algo, batch, "perturbation") == {"perturbation"}
    assert moved_by(*built(DISCRETE), "actor") == {"trunk", "actor"}


def test_a_perturbation_stays_small_and_its_copy_follows():
    algo, batch = built(perturbation=0.05, num_candidates=3)
    plain, moved = [], []
    for mover, found in ((None, plain), (algo.perturbation, moved)):
        torch.manual_seed(0)
        found.append(algo.proposals(algo.look(batch).state, batch.inputs, 3, mover, False))
    gap = (plain[0] - moved[0]).abs().max().item()
    assert 0.0 < gap <= 0.05 + 1e-6
    before = [w.clone() for w in algo.target_perturbation.parameters()]
    algo.train_on_batch(batch)
    assert any(not torch.equal(a, b) for a, b in zip(before, algo.target_perturbation.parameters(), strict=True))


@pytest.mark.parametrize(("space", "proposals"), [(DISCRETE, "vae"), (BOX, "gmm"), (BOX, "vae")])
def test_more_discounts_share_one_model_of_actions(space, proposals):
    values = {"proposals": proposals} if space is BOX else {}
    one, batch = built(space, **values)
    more, _ = built(space, extra_gammas=[0.5], **values)
    for part in ("actor", "trunk"):
        more.nets[part].load_state_dict(one.nets[part].state_dict())
    if proposals == "gmm" or space is DISCRETE:
        losses = [a.actor_terms(a.look(batch)).losses["actor"][1] for a in (one, more)]
        torch.testing.assert_close(*losses)
    more.set_train()
    assert torch.isfinite(more.train_on_batch(batch)["loss/total"])


def test_what_cannot_propose_is_refused():
    with pytest.raises(ConfigError, match="proposals 'gmm' need auto or gmm"):
        built(proposals="gmm", distribution={"type": "gaussian"})
    with pytest.raises(ConfigError, match=r"'bcq' takes actions that are continuous or discrete"):
        small_algo("bcq", "gru", ACTION_SPACES["multi_discrete"])


def test_a_perturbation_climbs_the_first_critic():
    algo, batch = built(perturbation=0.05, critic={"num_critics": 3}, kl_weight=0.3)
    seen = []
    algo.perturbation.register_forward_hook(lambda module, args, output: seen.append(output))
    p = algo.look(batch)
    losses = algo.actor_terms(p).losses
    with torch.no_grad():
        q = algo.critic(p.share, seen[0])[0, :, :, 0, 0, 0]
    torch.testing.assert_close(losses["perturbation"][1], -q)
    assert {k: w for k, (w, _) in losses.items()} == {"actor": 1.0, "divergence": 0.3, "perturbation": 1.0}


def test_targets_move_proposals_by_the_following_perturbation():
    algo, batch = built(perturbation=0.5, num_candidates=3, tau=0.25)
    with torch.no_grad():
        for w in algo.perturbation.parameters():
            w.add_(0.5)
    seen = []
    algo.target_perturbation.register_forward_hook(lambda module, args, output: seen.append(output))
    algo.next_values(algo.look(batch))
    assert len(seen) == 1
    before = [w.clone() for w in algo.target_perturbation.parameters()]
    algo.train_on_batch(batch)
    for old, now, w in zip(before, algo.target_perturbation.parameters(), algo.perturbation.parameters(), strict=True):
        torch.testing.assert_close(now, old + 0.25 * (w - old))


def test_moved_actions_stay_legal():
    algo, _ = built(perturbation=0.5)
    with torch.no_grad():
        for w in algo.perturbation.parameters():
            w.fill_(1.0)
        moved = algo.perturbation(torch.ones(2, 3, algo.trunk.d_output), torch.full((1, 2, 3, 1, algo.codec.dim), 0.9))
    assert (moved == 1.0).all()


def test_latents_of_proposals_stay_near_the_middle(monkeypatch):
    algo, batch = built()
    seen = []
    algo.actor.mlp.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    monkeypatch.setattr(torch, "randn", lambda *size, **_: torch.full(size, 9.0))
    state = torch.zeros(4, 7, algo.trunk.d_output)
    algo.proposals(state, batch.inputs, 2, None, is_greedy=False)
    assert (seen[0][..., algo.trunk.d_output :] == 0.5).all()


def test_the_auto_encoder_learns_from_draws_of_its_posterior():
    algo, batch = built()
    told = []
    for _ in range(2):
        terms = algo.actor_terms(algo.look(batch)).losses
        told.append((terms["actor"][1], terms["divergence"][1]))
    assert not torch.equal(told[0][0], told[1][0])
    assert torch.equal(told[0][1], told[1][1])


def test_an_input_without_a_legal_action_has_a_value():
    """As at a time limit whose mask the data does not have; an infinite target would end the run."""
    algo, batch = built(DISCRETE)
    legal = torch.ones(*batch.inputs.step.shape, algo.codec.dim, dtype=torch.bool)
    legal[:, -1] = False
    batch = replace(batch, inputs=replace(batch.inputs, action_mask=legal))
    assert torch.isfinite(algo.next_values(algo.look(batch))).all()
    assert torch.isfinite(algo.compute_losses(batch).total)
