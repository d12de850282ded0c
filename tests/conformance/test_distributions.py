"""What every registered action distribution has to do, in every action space that it can represent."""

import numpy as np
import pytest
import torch

from seqrl.core.registry import DISTRIBUTIONS
from seqrl.core.spaces import ActionCodec
from seqrl.models.distributions import build_head
from tests.helpers import ACTION_SPACES, random_batch, small_algo

CODECS = {name: ActionCodec(space) for name, space in ACTION_SPACES.items()}
PAIRS = [
    (head, space)
    for head in DISTRIBUTIONS.names()
    for space, codec in CODECS.items()
    if head != "auto" and codec.kind in DISTRIBUTIONS.get(head).kinds
]
each_pair = pytest.mark.parametrize(("name", "space"), PAIRS)
LEAD = (3, 5, 2)


@pytest.fixture
def distribution(name, space):
    torch.manual_seed(0)
    head = build_head(name, {}, CODECS[space])
    parameters = torch.randn(*LEAD, head.num_parameters).requires_grad_()
    return head, head(parameters, None), parameters


def test_every_kind_of_action_has_a_distribution():
    assert {space for _, space in PAIRS} == set(ACTION_SPACES)


@each_pair
def test_shapes_and_actions_that_can_be_executed(distribution, space):
    _, dist, _ = distribution
    codec = CODECS[space]
    for draw in (dist, dist.low_noise()):
        for action in (draw.sample(), draw.mode()):
            assert action.shape == (*LEAD, codec.dim)
            assert action.dtype == torch.float32
            executed = codec.decode(action.detach().numpy()).reshape(-1, *codec.shape)
            assert all(codec.space.contains(codec.dtype.type(a)) for a in executed)
            assert draw.log_prob(action).shape == draw.entropy().shape == LEAD
        assert not draw.sample().requires_grad
        assert torch.equal(draw.mode(), dist.mode())


@each_pair
def test_gradients_reach_every_parameter(distribution, name, space):
    head, dist, parameters = distribution
    action = torch.from_numpy(CODECS[space].random(np.random.default_rng(0), 30)).reshape(*LEAD, -1)
    values = [dist.log_prob(action)]
    if head.has_rsample:
        values.append(dist.rsample() * torch.randn(CODECS[space].dim))
    else:
        with pytest.raises(NotImplementedError):
            dist.rsample()
    for value in values:
        (gradient,) = torch.autograd.grad(value.sum(), parameters, retain_graph=True)
        assert torch.isfinite(gradient).all()
        assert (gradient != 0).any(0).all()


@each_pair
def test_saturated_parameters_give_finite_gradients(name, space):
    head = build_head(name, {}, CODECS[space])
    parameters = torch.cat([50 * torch.randn(200, head.num_parameters), torch.zeros(1, head.num_parameters)])
    parameters.requires_grad_()
    action = torch.from_numpy(CODECS[space].random(np.random.default_rng(0), 201))
    head(parameters, None).log_prob(action).sum().backward()
    assert torch.isfinite(parameters.grad).all()


@each_pair
def test_imitation_learns_through_it(name, space):
    algo = small_algo("bc", "gru", ACTION_SPACES[space], distribution={"type": name})
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES[space]))
    algo.set_train()
    losses = [float(algo.train_on_batch(batch)["loss/total"]) for _ in range(40)]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0] - 0.05


@each_pair
def test_the_policy_gradient_reaches_the_actor_through_its_samples(name, space):
    if not DISTRIBUTIONS.get(name).has_rsample:
        pytest.skip("no reparametrised sample")
    values = {"distribution": {"type": name}, "offline_coeff": 0.0}
    algo = small_algo("actor_critic", "gru", ACTION_SPACES[space], **values)
    batch = algo.process_batch_for_training(random_batch(ACTION_SPACES[space]))
    algo.compute_losses(batch).total.backward()
    gradient = algo.actor.mlp[-1].weight.grad
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0
