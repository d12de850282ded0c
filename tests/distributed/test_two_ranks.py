"""Two processes on the CPU: the same step as one process on all the data, and one writer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from seqrl.algo import ALGOS
from seqrl.configs.base_config import template_names
from seqrl.conformance.algorithms import spaces_of
from tests.helpers import ACTION_SPACES, random_batch, small_algo

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.distributed

WITHOUT_CHANCE = {"actor_critic": {"num_critics_td": 4}}
"""Settings under which an algorithm draws nothing at random in its losses, so that runs can be compared."""

ALWAYS_RANDOM = {
    *("act", "bc_vae", "diffusion_policy", "edac", "flow_matching", "fql", "gl", "hbc", "iris", "multitask", "td3_bc")
}
"""Algorithms that always sample in their losses, or (td3_bc) take a unit from their own batch: their ranks have to
agree with one another only."""

WORKER = """
import sys, torch
torch.set_num_threads(1)
from tests.distributed.test_two_ranks import full_batch, train_steps
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
out, *names = sys.argv[1:]
for name in names:
    share = lambda name, step: full_batch(name, step).map(lambda x: x[accelerator.process_index::2])
    algo = train_steps(name, share, accelerator)
    torch.save(algo.serialize(), f"{out}/{name}_{accelerator.process_index}.pt")
"""


def space_of(name):
    """Return discrete actions, or continuous ones for an algorithm that takes no others."""
    return ACTION_SPACES[spaces_of(name, ("discrete", "box"))[0]]


def full_batch(name, step):
    """Return a batch without padding, so that a mean over ranks is the mean over all."""
    batch = random_batch(space_of(name), num=8, seed=step)
    return type(batch)(**{**vars(batch), "mask": torch.ones_like(batch.mask)})


def train_steps(name, batch_of, accelerator=None):
    from seqrl.algo.updater import Updater

    algo = small_algo(name, "gru", space_of(name), **WITHOUT_CHANCE.get(name, {}))
    algo.updater = Updater(algo, accelerator)
    algo.set_train()
    for step in range(3):
        algo.train_on_batch(algo.process_batch_for_training(batch_of(name, step)))
    return algo


def torchrun(arguments, cwd):
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=cwd, env=environment)


@pytest.fixture(scope="module")
def trained_on_two_ranks(tmp_path_factory):
    """Return a folder with the weights of every algorithm on either rank, and what the processes said."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "worker.py").write_text(WORKER)
    done = torchrun([str(folder / "worker.py"), str(folder), *ALGOS.names()], folder)
    return folder, done.stderr


@pytest.mark.parametrize("name", ALGOS.names())
def test_two_ranks_step_like_one_process(name, trained_on_two_ranks):
    """Weights, optimiser and input statistics: everything that a checkpoint holds agrees."""
    folder, said = trained_on_two_ranks
    files = [folder / f"{name}_{i}.pt" for i in range(2)]
    assert all(file.exists() for file in files), said
    ranks = [torch.load(file, weights_only=True) for file in files]
    assert all(torch.equal(ranks[0][k], ranks[1][k]) for k in ranks[0])
    if name in ALWAYS_RANDOM:
        return
    alone = train_steps(name, full_batch).serialize()
    untrained = small_algo(name, "gru", space_of(name), **WITHOUT_CHANCE.get(name, {})).serialize()
    assert any(not torch.allclose(alone[k], untrained[k], atol=1e-3) for k in alone)
    for key, value in alone.items():
        torch.testing.assert_close(ranks[0][key], value, atol=1e-4, rtol=1e-3)


PRESETS_WORKER = """
import sys, torch
torch.set_num_threads(1)
from accelerate import Accelerator
from gymnasium import spaces
from seqrl.algo import algo_factory
from seqrl.algo.updater import Updater
from seqrl.configs.base_config import config_factory, read_config_values
from seqrl.core.spaces import ActionCodec
from tests.helpers import OBS, random_batch
accelerator = Accelerator(cpu=True)
CATEGORIES = {"actor_critic": 4, "multitask": 4, "bc": 4, "cartpole": 2, "tmaze_online": 4, "rlpd": 4}
for template in sys.argv[2:]:
    space = spaces.Discrete(CATEGORIES[template]) if template in CATEGORIES else spaces.Box(-1.0, 1.0, (2,))
    values = read_config_values(f"{template}.json")
    values["algo"].get("planner", {}).pop("subgoal_keys", None)  # the environment's; OBS has others
    values["train"].pop("normalize_obs", None)  # there is no data to measure
    if template == "diffusion_policy_paper":
        values["algo"]["denoiser"]["widths"] = [32, 64]  # the paper's have 65 million weights
    config = config_factory(values.pop("algo_name"), values)
    torch.manual_seed(0)
    algo = algo_factory(config.algo_name, config, OBS, ActionCodec(space).dim, "cpu", space)
    algo.updater = Updater(algo, accelerator)
    before = algo.serialize()
    algo.set_train()
    for step in range(3):
        torch.manual_seed(2 * step + accelerator.process_index)
        batch = random_batch(space, seed=2 * step + accelerator.process_index)
        algo.train_on_batch(algo.process_batch_for_training(batch))
    after = algo.serialize()
    assert all(torch.isfinite(v).all() for v in after.values()), template
    assert any(not torch.equal(before[k], after[k]) for k in after), template
    torch.save(after, f"{sys.argv[1]}/{template}_{accelerator.process_index}.pt")
"""


@pytest.mark.slow
def test_every_preset_takes_three_steps_on_two_ranks(tmp_path):
    """The ranks see other data and draw other samples, and end with the same weights."""
    (tmp_path / "worker.py").write_text(PRESETS_WORKER)
    of_images = ("act_images.json", "diffusion_images.json")  # they name entries of observations, which OBS has not
    presets = [name.removesuffix(".json") for name in template_names() if name not in of_images]
    done = torchrun([str(tmp_path / "worker.py"), str(tmp_path), *presets], tmp_path)
    assert done.returncode == 0, done.stderr[-6000:]
    assert {file.name for file in tmp_path.glob("*_0.pt")} == {f"{name}_0.pt" for name in presets}
    for file in tmp_path.glob("*_0.pt"):
        first = torch.load(file, weights_only=True)
        second = torch.load(file.with_name(file.name.replace("_0.pt", "_1.pt")), weights_only=True)
        assert all(torch.equal(first[k], second[k]) for k in first), file.name


RESTING_WORKER = """
import sys, torch
torch.set_num_threads(1)
from seqrl.algo.updater import Updater
from seqrl.training.setup import open_processes
from tests.helpers import ACTION_SPACES, random_batch, small_algo
box = ACTION_SPACES["box"]
algo = small_algo("td3_bc", "gru", box, policy_delay=3)
processes = open_processes(algo.config)
algo.updater = Updater(algo, processes.accelerator)
algo.set_train()
policies = []
for step in range(4):
    algo.train_on_batch(algo.process_batch_for_training(random_batch(box, seed=2 * step + processes.rank)))
    policies.append(torch.cat([w.detach().flatten() for w in algo.actor.parameters()]))
torch.save({**algo.serialize(), "policies": torch.stack(policies)}, f"{sys.argv[1]}/{processes.rank}.pt")
"""


@pytest.mark.slow
def test_a_policy_may_rest_on_two_ranks(tmp_path):
    (tmp_path / "worker.py").write_text(RESTING_WORKER)
    done = torchrun([str(tmp_path / "worker.py"), str(tmp_path)], tmp_path)
    assert done.returncode == 0, done.stderr[-6000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert all(torch.equal(first[k], second[k]) for k in first)
    before, now = first["policies"][:-1], first["policies"][1:]
    assert (before != now).any(-1).tolist() == [False, True, False]


@pytest.mark.slow
def test_train_script_on_two_ranks(tmp_path):
    settings = ["env.kwargs.corridor_length=4", "train.window_steps=5", "train.data.0.episodes=12"]
    arguments = [a for s in settings for a in ("--set", s)]
    done = torchrun(["-m", "seqrl", "train", "--config", "bc.json", "--debug", "--name", "two", *arguments], tmp_path)
    assert done.returncode == 0, done.stderr[-6000:]
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["two"]
    rows = [json.loads(line) for line in (tmp_path / "runs/two/metrics.jsonl").read_text().splitlines()]
    assert sum("eval/success_mean" in row for row in rows) == 1
    resumed = torchrun(
        ["-m", "seqrl", "train", "--config", "bc.json", "--debug", "--name", "two", "--resume", *arguments,
         "--set", "train.num_epochs=3"], tmp_path,
    )  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert (tmp_path / "runs/two/checkpoints/last").read_text().strip() == "epoch_000003"
    whole = torchrun(
        ["-m", "seqrl", "train", "--config", "bc.json", "--debug", "--name", "whole", *arguments,
         "--set", "train.num_epochs=3"], tmp_path,
    )  # fmt: skip
    assert whole.returncode == 0, whole.stderr[-2000:]
    models = [
        (tmp_path / f"runs/{n}/checkpoints/epoch_000003/model.safetensors").read_bytes() for n in ("two", "whole")
    ]
    assert models[0] == models[1]


SIGNALLING = """
import os, signal, seqrl
from seqrl.training.learner import Learner

learn_epoch = Learner.learn_epoch


def signalled(self, epoch, *, on_step, **options):
    def step(number):
        if number == 4 and os.environ["RANK"] == "1" and "STOP" in os.environ:
            signal.raise_signal(signal.SIGTERM)
        on_step(number)

    return learn_epoch(self, epoch, on_step=step, **options)


Learner.learn_epoch = signalled
"""

SIGNALLING_IN_AGREEMENT = """
import os, signal
from seqrl.algo.processes import Processes

gather, once = Processes.gather, iter([signal.SIGTERM])


def signalled(self, value):
    known = gather(self, value)
    if isinstance(value, tuple) and not any(value) and os.environ["RANK"] == "1":
        for number in once:
            signal.raise_signal(number)
    return known


Processes.gather = signalled
"""


@pytest.mark.slow
def test_a_signal_to_one_rank_while_all_agree_is_not_lost(tmp_path):
    (tmp_path / "signalling.py").write_text(SIGNALLING_IN_AGREEMENT)
    settings = ["env.kwargs.corridor_length=4", "train.window_steps=5", "train.data.0.episodes=12",
                "train.steps_per_epoch=8", "experiment.logging.every_n_steps=2"]  # fmt: skip
    arguments = [a for s in settings for a in ("--set", s)]
    command = ["-m", "seqrl", "train", "--config", "bc.json", "--debug", "--name", "run", *arguments]
    stopped = torchrun([*command, "--plugin", str(tmp_path / "signalling.py")], tmp_path)
    assert stopped.returncode != 0
    assert stopped.stderr.count("saved at gradient step 2") == 1, stopped.stderr[-2000:]
    assert (tmp_path / "runs/run/checkpoints/last").read_text().strip() == "epoch_000000_step_000002"


@pytest.mark.slow
def test_all_ranks_end_after_the_same_step_when_one_gets_a_signal(tmp_path, monkeypatch):
    """With dropout, so that every rank's generator has to come back too."""
    (tmp_path / "signalling.py").write_text(SIGNALLING)
    settings = ["env.kwargs.corridor_length=4", "train.window_steps=5", "train.data.0.episodes=12",
                "train.steps_per_epoch=8", "experiment.logging.every_n_steps=2",
                "algo.sequence_encoder={\"type\": \"gru\", \"d_hidden\": 16, \"dropout\": 0.2}"]  # fmt: skip
    arguments = [a for s in settings for a in ("--set", s)]

    def train(name, *flags):
        command = ["-m", "seqrl", "train", "--config", "bc.json", "--debug", "--name", name, *arguments, *flags]
        return torchrun([*command, "--plugin", str(tmp_path / "signalling.py")], tmp_path)

    whole = train("whole")
    assert whole.returncode == 0, whole.stderr[-2000:]
    with monkeypatch.context() as patch:
        patch.setenv("STOP", "1")
        stopped = train("parts")
    assert stopped.returncode != 0
    assert stopped.stderr.count("saved at gradient step 4") == 1, stopped.stderr[-2000:]
    assert (tmp_path / "runs/parts/checkpoints/last").read_text().strip() == "epoch_000000_step_000004"
    resumed = train("parts", "--resume")
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    for file in ("model.safetensors", "training_state/optimizer.safetensors"):
        both = [(tmp_path / f"runs/{n}/checkpoints/epoch_000002/{file}").read_bytes() for n in ("parts", "whole")]
        assert both[0] == both[1]
