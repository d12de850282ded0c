"""Online learning by the packaged run files, seed 0, one thread each, with controls that must fail.

CartPole-v1 without memory has to reach a mean return of 475 (the task's own threshold; a random policy gets about 22)
within 100,000 environment steps; T-Maze with a corridor of 20, which only memory solves, 200 of 200 successes within
15,000 (chance is 0.5). Runs end there; benchmarks/stability.py shows what becomes of longer ones. A corridor of 10 has
to be learned by a run that was killed and resumed, and by a learner whose collectors come and go.
"""

import json
import random
import signal
import time

import pytest

import seqrl
from seqrl.configs import read_config_values
from seqrl.scripts import train
from seqrl.training.weights import reported_progress
from tests.regression.test_online import seqrl_process

pytestmark = [pytest.mark.learning, pytest.mark.slow, pytest.mark.timeout(900)]
SHORT = ("env.kwargs.corridor_length=10", "train.window_steps=11", "collect.exploration.rollout_steps=10")
"""A corridor that all seeds learn."""
QUIET = ["experiment.report.enabled=false", "experiment.logging.tensorboard=false"]


def arguments(template, folder, *settings):
    chosen = [*QUIET, f"experiment.output_dir={folder}", *settings]
    return ["--config", template, "--name", "run", *(a for s in chosen for a in ("--set", s))]


def metrics(folder):
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def epochs_ended(folder):
    path = folder / "run" / "metrics.jsonl"
    return path.read_text().count('"collect/episodes"') if path.exists() else 0


def last_evaluation(folder):
    return [row for row in metrics(folder) if "eval/return_mean" in row][-1]


class Until(seqrl.Callback):
    """End a run whose evaluation reaches a target."""

    def __init__(self, metric, target):
        self.metric, self.target = metric, target

    def on_evaluation(self, experiment, metrics):
        if metrics[self.metric] >= self.target:
            experiment.stop("the target is reached")


def trained(template, folder, *settings, callbacks=()):
    config, _ = train.resolve_config(train.parser().parse_args(arguments(template, folder, *settings)))
    experiment = seqrl.Experiment(config, callbacks=callbacks)
    experiment.start()
    experiment.learn()
    return last_evaluation(folder)


def test_cartpole_is_balanced_within_100k_steps(tmp_path):
    last = trained("cartpole.json", tmp_path, callbacks=[Until("eval/return_mean", 475)])
    assert last["progress/env_steps"] <= 100_000
    assert last["eval/return_mean"] >= 475


def test_cartpole_without_its_rewards_is_not_learned(tmp_path):
    zero = 'collect.replay.relabel={"type": "scale_rewards", "scale": 0.0}'
    last = trained("cartpole.json", tmp_path, zero, "train.num_epochs=10")
    assert last["eval/return_mean"] < 150


def test_tmaze_is_solved_within_15k_steps(tmp_path):
    last = trained("tmaze_online.json", tmp_path, callbacks=[Until("eval/success_mean", 1.0)])
    assert last["progress/env_steps"] <= 15_000
    assert (last["eval/episodes"], last["eval/success_mean"]) == (200, 1.0)


def test_tmaze_without_memory_stays_at_chance(tmp_path):
    last = trained("tmaze_online.json", tmp_path, "algo.sequence_encoder.type=feedforward", "train.num_epochs=12")
    assert last["eval/success_mean"] <= 0.65


def test_tmaze_is_solved_by_a_run_that_was_killed_at_random(tmp_path):
    """After a kill a run goes on with other episodes, like another seed."""
    command = arguments("tmaze_online.json", tmp_path, *SHORT)
    process = seqrl_process(tmp_path, *command)
    steps = read_config_values("tmaze_online.json")["collect"]
    epoch_steps = steps["steps_per_epoch"] * steps["num_envs"]
    draw = random.Random(0)
    for epoch in (draw.randint(5, 15), draw.randint(20, 30)):
        while epochs_ended(tmp_path) < epoch:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        time.sleep(draw.random())
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.stderr.read()
        process = seqrl_process(tmp_path, *command, "--resume")
    _, text = process.communicate(timeout=600)
    assert process.returncode == 0, text
    last = last_evaluation(tmp_path)
    assert last["eval/success_mean"] >= 0.98
    assert last["progress/env_steps"] == last["progress/epoch"] * epoch_steps
    epochs = [row["progress/epoch"] for row in metrics(tmp_path) if "collect/episodes" in row]
    assert epochs == [float(e + 1) for e in range(len(epochs))]


def test_tmaze_is_solved_by_a_learner_with_collectors_that_come_and_go(tmp_path):
    """Two collectors, of which one is killed and started again.

    What the learner gets depends on how busy the machine is.
    """
    command = arguments("tmaze_online.json", tmp_path, *SHORT, "train.num_epochs=20")
    collectors = [seqrl_process(tmp_path, *command, "--role", "collect") for _ in range(2)]
    learner = seqrl_process(tmp_path, *command, "--role", "learn")
    while len(reported_progress(tmp_path / "run")) < 2:
        assert learner.poll() is None, learner.stderr.read()
        time.sleep(0.1)
    time.sleep(1)
    collectors[0].send_signal(signal.SIGKILL)
    collectors[0].wait()
    restarted = seqrl_process(tmp_path, *command, "--role", "collect")
    for process in (learner, collectors[1], restarted):
        _, text = process.communicate(timeout=800)
        assert process.returncode == 0, text
    assert last_evaluation(tmp_path)["eval/success_mean"] >= 0.98
    assert len(reported_progress(tmp_path / "run")) == 3
