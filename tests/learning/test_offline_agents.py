"""From demonstrators of whom half err, the agents learn the task, where cloning learns the mixture.

Two tasks that need a memory: a gridworld (T-Maze whose hint has to be fetched) and a continuous one (PointRecall). Half
of the demonstrators do the right thing, half remember the wrong goal; one action in ten is random. All act by sampling.
Three seeds, 200 episodes each, CPU, one thread. The intervals are Wilson's at 95 % over the 600 episodes.
"""

import json

import numpy as np
import pytest

from seqrl.core.seeding import generator
from seqrl.data.store import StoreInfo
from seqrl.data.writers.robomimic import write_robomimic
from seqrl.envs import make_batched_env
from seqrl.envs.make import env_maker
from seqrl.reports.statistics import wilson_interval
from seqrl.rollout.rollouts import ScriptedPolicy, collect_episodes
from seqrl.scripts import train

SEEDS = (0, 1, 2)
NUM_EPISODES = 600
TASKS = {
    "grid": ("seqrl/TMazeActive-v0", {"corridor_length": 5, "oracle_distance": 1, "slack_steps": 6}),
    "point": ("seqrl/PointRecall-v0", {"delay_steps": 3}),
}
OF_TASK = {
    "grid": {"train.window_steps": 14, "algo.tau": 0.05},
    "point": {"train.window_steps": 11, "algo.tau": 0.01},
}
COMMON = {
    "observation.use_prev_action": "false",
    "observation.use_prev_reward": "false",
    "observation.timestep_encoder.d_hidden": 64,
    "observation.timestep_encoder.d_output": 64,
    "algo.sequence_encoder.type": "gru",
    "algo.sequence_encoder.d_hidden": 64,
    "algo.sequence_encoder.num_layers": 1,
    "algo.sequence_encoder.d_output": 64,
    "algo.optimizer.learning_rate": 0.002,
    "algo.optimizer.warmup_steps": 50,
    "algo.actor.d_hidden": 64,
    "train.num_epochs": 1,
    "experiment.evaluation.episodes": 200,
    "experiment.evaluation.deterministic": "false",
    "experiment.report.enabled": "false",
    "experiment.logging.tensorboard": "false",
}
AGENT = {
    "algo.critic.d_hidden": 64,
    "algo.extra_gammas": "[0.1,0.9]",
    "algo.gamma": 0.97,
    "algo.online_coeff": 0.0,
    "algo.offline_coeff": 1.0,
    "algo.critic_loss_weight": 1.0,
}
ALGOS = {
    "bc": {"train.steps_per_epoch": 500},
    "actor_critic": {**AGENT, "train.steps_per_epoch": 1000},
    "multitask": {
        **AGENT,
        "train.steps_per_epoch": 1000,
        "algo.filter.type": "exponential",
        "algo.returns.low": -20.0,
        "algo.returns.high": 20.0,
        "algo.returns.num_bins": 64,
        "algo.returns.use_symlog": "false",
    },
}


class Mistaken(ScriptedPolicy):
    """Experts of whom half take the hint for its opposite, and who slip in one step of ten."""

    def __init__(self, env_id, env, hint, seed):
        super().__init__(env_id, env, noise=0.1, seed=seed)
        self._is_mistaken = np.arange(env.num_envs) % 2 == 1
        self._hint = hint

    def __call__(self, step):
        obs = step.obs["obs"].copy()
        obs[:, self._hint] *= np.where(self._is_mistaken, -1, 1)[:, None]
        return super().__call__(type(step)(**{**vars(step), "obs": {"obs": obs}}))


def write_demonstrations(task, file, seed=0):
    """Write the episodes of the mixed demonstrators, and return the number of successes."""
    env_id, kwargs = TASKS[task]
    hint = [3] if task == "grid" else [2, 3]
    env = make_batched_env(env_maker(env_id, kwargs), 20)
    info = StoreInfo(env.observation_space, env.codec.space, env_id=env_id, env_kwargs=kwargs)
    found = list(collect_episodes(env, Mistaken(env_id, env, hint, seed), NUM_EPISODES, seed=seed))
    env.close()
    order = generator(seed, "order").permutation(len(found))
    write_robomimic(file, info, [found[i] for i in order])
    return sum(t.total_reward > 0.9 for t in found)


def final_success(algo, task, data, folder, seed, **more):
    """Train through the script, and return the successes of the last evaluation's 200 episodes."""
    of_task = {k: v for k, v in OF_TASK[task].items() if algo != "bc" or not k.startswith("algo.")}
    settings = {**COMMON, **ALGOS[algo], **of_task, "train.seed": seed, **more}
    settings |= {"experiment.output_dir": folder, "experiment.evaluation.every_n_epochs": 100}
    arguments = [a for k, v in settings.items() for a in ("--set", f"{k}={v}")]
    name = f"{algo}_{task}_{seed}"
    assert train.main(["--algo", algo, "--dataset", str(data), "--name", name, *arguments]) == 0
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "eval/success_mean" in row][-1]
    assert last["eval/episodes"] == 200
    return round(200 * last["eval/success_mean"])


@pytest.mark.learning
@pytest.mark.timeout(900)
@pytest.mark.parametrize("task", sorted(TASKS))
def test_the_agents_beat_cloning(task, tmp_path):
    good = write_demonstrations(task, tmp_path / "mixed.hdf5")
    assert 0.2 * NUM_EPISODES < good < 0.6 * NUM_EPISODES
    successes = {a: [final_success(a, task, tmp_path / "mixed.hdf5", tmp_path, s) for s in SEEDS] for a in ALGOS}
    interval = {a: wilson_interval(sum(n), 200 * len(SEEDS)) for a, n in successes.items()}
    for agent in ("actor_critic", "multitask"):
        assert interval[agent].low > interval["bc"].high, successes
        assert min(successes[agent]) > max(successes["bc"]), successes
