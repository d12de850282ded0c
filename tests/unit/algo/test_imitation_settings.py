"""Settings of imitation: what they change in losses, draws and evaluations."""

import gymnasium as gym
import pytest
import torch

from seqrl.configs import config_factory
from seqrl.conformance.algorithms import AlgoCase, train
from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ActionCodec
from seqrl.envs.make import EndAtSuccess
from seqrl.models.distributions import build_head
from seqrl.models.latents import GaussianLatent, MixtureLatent


def losses(name, decay, **values):
    case = AlgoCase(name, "gru", "box", values={"chunk_steps": 3, "chunk_decay": decay, **values})
    algo = case.build()
    return algo, algo.process_batch_for_training(case.batch())


def test_later_actions_of_a_chunk_count_less():
    algo, batch = losses("bc", 0.5, distribution={"type": "deterministic"})
    found = algo.compute_losses(batch).total.item()
    hidden, _ = algo.trunk(batch.inputs.first(6))
    given = algo.actor(hidden, batch.inputs.first(6)).action
    errors = [
        0.5**k * 0.5 * (given[row, t, k] - batch.actions[row, t + k]).square().sum().item()
        for row in range(4)
        for t in range(int(batch.mask[row].sum()))
        for k in range(3)
        if t + k < int(batch.mask[row].sum())
    ]
    assert found == pytest.approx(sum(errors) / len(errors), rel=1e-5)


def test_values_and_choices_of_an_action_are_logged_on_their_own():
    case = AlgoCase("bc", "gru", "hybrid")
    algo = case.build()
    batch = algo.process_batch_for_training(case.batch())
    algo.set_eval()
    algo.wants_metrics = True
    found = algo.compute_losses(batch).metrics
    both = found["loss/nll_values"] + found["loss/nll_choices"]
    torch.testing.assert_close(both, found["loss/nll"])
    algo.wants_metrics = False
    assert "loss/nll_values" not in algo.compute_losses(batch).metrics


@pytest.mark.parametrize("name", ["bc_vae", "act", "flow_matching"])
def test_every_policy_of_chunks_weighs_them(name):
    denoiser = {"denoiser": {"type": "mlp", "d_hidden": 16}} if name == "flow_matching" else {}
    found = []
    for decay in (1.0, 1e-6):
        algo, batch = losses(name, decay, **denoiser)
        torch.manual_seed(0)
        found.append(algo.compute_losses(batch).total.item())
    assert found[0] != pytest.approx(found[1], rel=1e-3)


def test_a_decoder_of_the_latent_alone_does_not_see_the_history():
    case = AlgoCase("bc_vae", "gru", "box", values={"decoder_sees_history": False})
    algo, batch = case.build(), case.batch()
    train(algo, batch, 2)
    assert algo.actor.mlp[0].in_features == algo.latent.width
    inputs = algo.process_batch_for_training(batch).inputs
    z = torch.zeros(4, 7, algo.latent.width)
    one, other = (algo._decoded(torch.randn(4, 7, algo.trunk.d_output), z, inputs).mode() for _ in range(2))
    assert torch.equal(one, other)


def test_the_mean_error_of_a_chunk_is_its_sum_over_its_length():
    found = []
    for kind in ("sum", "mean"):
        algo, batch = losses("bc_vae", 1.0, reconstruction=kind, latent={"kl_weight": 0.0})
        batch.mask.fill_(True)
        batch = batch.map(lambda x: x[:, :4] if x.dim() > 1 and x.shape[1] == 7 else x[:, :3] if x.dim() > 1 else x)
        algo.algo_config.supervise_all_steps = False  # the first step alone, whose chunk is whole
        torch.manual_seed(0)
        found.append(algo.compute_losses(batch).total.item())
    assert found[0] == pytest.approx(3 * found[1], rel=1e-4)


def test_draws_from_a_prior_are_clipped_and_modes_may_be_all_alike():
    torch.manual_seed(0)
    prior = torch.zeros(5000, 0)
    assert GaussianLatent(3, is_learned=False, clip=0.5).from_prior(prior, is_greedy=False).abs().max() <= 0.5
    assert GaussianLatent(3, is_learned=False).from_prior(prior, is_greedy=False).abs().max() > 3.0
    latent = MixtureLatent(1, 2, learns_weights=False, clip=0.1)
    parameters = torch.tensor([9.0, -9.0, 5.0, -5.0, -9.0, -9.0]).expand(4000, -1)  # logits, means, raw deviations
    drawn = latent.from_prior(parameters, is_greedy=False)
    assert (drawn > 0).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert (MixtureLatent(1, 2).from_prior(parameters, is_greedy=False) > 0).all()


@pytest.mark.parametrize("kind", ["gaussian", "gmm"])
def test_deviations_are_positive_by_exp_or_softplus_and_at_least_the_least(kind):
    codec = ActionCodec(gym.spaces.Box(-1.0, 1.0, (2,)))
    for activation, of_large in (("softplus", 20.0), ("exp", 20.0**7)):
        head = build_head(kind, {"std_activation": activation, "min_std": 0.2}, codec)
        low, high = (head(torch.full((1, head.num_parameters), raw), None).log_std.exp() for raw in (-200.0, 24.0))
        assert low.min().item() == pytest.approx(0.2, rel=1e-4)
        assert high.max().item() > of_large


def test_a_memory_that_reads_the_future_is_refused():
    with pytest.raises(ConfigError, match=r"bidirectional +is not possible: a policy cannot see the future"):
        config_factory("bc", {"algo": {"sequence_encoder": {"type": "lstm", "bidirectional": True}}})


class Goes(gym.Env):
    """Tells its success at step 2, and goes on to step 5."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.observation_space.low, {}

    def step(self, action):
        self.time += 1
        return self.observation_space.low, 0.0, self.time == 5, False, {"success": self.time == 2}


def test_an_episode_may_end_at_its_first_success():
    for env, length in ((Goes(), 5), (EndAtSuccess(Goes()), 2)):
        env.reset()
        ends = [env.step(0)[2] for _ in range(length)]
        assert ends == [False] * (length - 1) + [True]
