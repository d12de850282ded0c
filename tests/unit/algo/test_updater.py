"""The optimiser's step by hand, and the course of its learning rate over a run and over a resumed one."""

import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from seqrl.algo.finite_guard import NonFiniteError
from seqrl.algo.updater import Updater
from tests.helpers import ACTION_SPACES, random_batch, small_algo

RATE = 0.01
SPACE = ACTION_SPACES["discrete"]
COURSES = {
    "constant": ({}, [0.5, 1, 1, 1, 1, 1, 1, 1]),
    "linear": ({"final_factor": 0.1}, [0.5, 1, 1, 0.85, 0.7, 0.55, 0.4, 0.25]),
    "cosine": ({}, [0.5, 1, *((1 + math.cos(math.pi * k / 6)) / 2 for k in range(6))]),
    "multistep": ({"milestones": [3, 5], "milestone_factor": 0.5}, [0.5, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25]),
}
"""Schedule -> its options, and the factors of eight steps, the first two of which warm up."""


def agent(seed=0, **optimizer):
    """Return behaviour cloning for a run of eight gradient steps: four epochs, of which the first two learn nothing."""
    algo = small_algo(seed=seed, optimizer={"learning_rate": RATE, "warmup_steps": 2, **optimizer})
    algo.config.train.num_epochs, algo.config.train.start_epoch, algo.config.train.steps_per_epoch = 4, 2, 4
    return algo


def trained(algo, steps, first=0):
    """Take steps, and return the learning rate of each."""
    algo.set_train()
    batch, rates = algo.process_batch_for_training(random_batch(SPACE)), []
    for step in range(first, first + steps):
        torch.manual_seed(step)
        rates.append(algo.log_info(algo.train_on_batch(batch))["optim/learning_rate"])
    return rates


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("schedule", sorted(COURSES))
def test_course_of_the_learning_rate(schedule):
    options, factors = COURSES[schedule]
    assert trained(agent(schedule=schedule, **options), 8) == pytest.approx([RATE * f for f in factors])


def test_decay_steps_may_be_shorter_than_the_run_and_nothing_moves_at_zero():
    algo = agent(schedule="linear", decay_steps=2)
    assert trained(algo, 4) == pytest.approx([RATE / 2, RATE, RATE, RATE / 2])
    before = {k: v.detach().clone() for k, v in algo.nets.named_parameters() if v.requires_grad}
    assert trained(algo, 2) == [0.0, 0.0]
    assert all(torch.equal(v, before[k]) for k, v in algo.nets.named_parameters() if v.requires_grad)


@pytest.mark.parametrize("schedule", sorted(COURSES))
@pytest.mark.parametrize("method", ["adam", "adamw"])
def test_a_resumed_run_has_the_same_course(schedule, method):
    options = {"schedule": schedule, "method": method, **COURSES[schedule][0]}
    straight, first, second, forgetful = agent(**options), agent(**options), agent(5, **options), agent(5, **options)
    rates = trained(straight, 7)
    assert trained(first, 4) == rates[:4]
    for algo, num_steps in ((second, 4), (forgetful, 0)):
        algo.deserialize(first.serialize())
        algo.updater.load_state(first.updater.state_tensors(), num_steps)
    assert trained(second, 3, first=4) == rates[4:]
    assert same(straight.serialize(), second.serialize())
    trained(forgetful, 3, first=4)
    assert not same(straight.serialize(), forgetful.serialize())


def test_the_learning_rate_is_logged_on_logging_steps_only():
    algo = agent()
    algo.wants_metrics = False
    assert "optim/learning_rate" not in algo.train_on_batch(algo.process_batch_for_training(random_batch(SPACE)))


@pytest.mark.parametrize("method", ["adam", "adamw"])
def test_the_first_step_by_hand(method):
    """Bias correction makes the first step ``g / |g|``; adam's g has the decay in it, adamw's does not."""
    decay, rate = 0.3, 0.02
    algo = agent(method=method, learning_rate=rate, warmup_steps=0, weight_decay=decay, grad_clip=None)
    batch = algo.process_batch_for_training(random_batch(SPACE))
    algo.set_eval()  # no dropout, so that both passes agree
    algo.compute_losses(batch).total.backward()
    parameters = {k: v for k, v in algo.nets.named_parameters() if v.requires_grad}
    before = {k: v.detach().double().numpy().copy() for k, v in parameters.items()}
    gradients = {k: v.grad.double().numpy().copy() for k, v in parameters.items()}
    algo.nets.zero_grad()
    algo.train_on_batch(batch)
    for name in ("actor.mlp.0.weight", "actor.mlp.0.bias", "actor.mlp.4.weight"):
        w, g = before[name], gradients[name]
        lost = decay * w if w.ndim == 2 else np.zeros_like(w)
        g, kept = (g + lost, w) if method == "adam" else (g, w - rate * lost)
        expected = kept - rate * g / (np.abs(g) + 1e-8)
        np.testing.assert_allclose(parameters[name].detach().numpy(), expected, atol=2e-5, err_msg=name)


def scaled_agent(seed=0):
    """Return behaviour cloning whose loss is scaled, as in float16."""
    algo = agent(seed)
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    algo.updater = Updater(algo, accelerator)
    return algo


def test_the_scale_of_losses_is_resumed():
    first, second = scaled_agent(), scaled_agent(5)
    trained(first, 4)
    assert first.updater.state_tensors()["scaler.scale"] == 16.0
    second.deserialize(first.serialize())
    second.updater.load_state(first.updater.state_tensors(), 4)
    for algo in (first, second):
        trained(algo, 3, first=4)
    assert same(first.serialize(), second.serialize())
    assert same(first.updater.state_tensors(), second.updater.state_tensors())


def test_a_loss_that_is_not_finite_is_told_whatever_scales_it():
    algo = scaled_agent()
    batch = algo.process_batch_for_training(random_batch(SPACE))
    batch.inputs.obs["state"][0, 0, 0] = torch.nan
    algo.train_on_batch(batch)
    with pytest.raises(NonFiniteError, match=r"^not finite at gradient step 0: loss/nll; the update"):
        algo.updater.guard.check(wait=True)
