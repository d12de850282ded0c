"""What holds on a CPU holds on an NVIDIA GPU; all of it is skipped without one.

Kernels of other packages are compared with their twins where those are tested.
"""

import copy
import itertools
import json
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch

import seqrl
from seqrl.algo import ALGOS
from seqrl.algo.acting import VectorPolicy
from seqrl.algo.checkpoint import resolve_device
from seqrl.conformance.algorithms import CHECKS, AlgoCase, algo_class, spaces_of
from seqrl.conformance.memories import MemoryCase
from seqrl.core.errors import ConfigError
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders import GRU, LSTM

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

MEMORIES = SEQUENCE_ENCODERS.names()
SMALL = {
    "experiment": {
        "evaluation": {"episodes": 4, "num_envs": 2},
        "logging": {"every_n_steps": 2, "tensorboard": False, "progress_bar": False},
        "report": {"enabled": False},
    },
    "env": {"id": "seqrl/TMazeActive-v0", "kwargs": {"corridor_length": 4}},
    "train": {"window_steps": 6, "batch_size": 4, "num_epochs": 2, "steps_per_epoch": 4, "device": "cuda"},
    "collect": {"num_envs": 3, "steps_per_epoch": 20},
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 16, "d_output": 16}},
    "algo": {"sequence_encoder": {"type": "transformer", "d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 2}},
}


@pytest.fixture(autouse=True)
def _exact(monkeypatch):
    """Convolutions and recurrent layers without rounding inputs to 10 bits, and mamba-ssm without random sums."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setenv("MAMBA_DETERMINISTIC", "1")


def first_space(name, among=("box", "discrete", "multi_discrete", "multi_binary", "hybrid")):
    return spaces_of(name, among)[0]


def fitting(name, check, memory):
    """Return a case of the first action space that a check fits, or None."""
    made = (AlgoCase(name, memory, space, device="cuda") for space in spaces_of(name))
    return next((case for case in made if CHECKS[check].fits(case)), None)


def cases():
    """Every algorithm meets every check that fits it, with three memories in turn where it varies them."""
    for name in ALGOS.names():
        memories = itertools.cycle(MEMORIES)
        for check in CHECKS:
            found = [case for m in itertools.islice(memories, 3) if (case := fitting(name, check, m))]
            found = found or [case for case in [fitting(name, check, "transformer")] if case]
            yield from (pytest.param(case, check, id=f"{name}-{check}-{case.memory}") for case in found)


@pytest.mark.parametrize(("case", "check"), list(cases()))
def test_algorithms_conform(case, check):
    CHECKS[check](case)


@pytest.mark.parametrize("name", [name for name in ALGOS.names() if algo_class(name).acts])
def test_greedy_actions_are_those_of_the_cpu(name):
    case = AlgoCase(name, "gru", first_space(name))
    algo = case.build()
    other = AlgoCase(name, "gru", first_space(name), device="cuda").build(seed=1)
    other.deserialize(algo.serialize())
    rng = np.random.default_rng(0)
    obs, rewards = case.obs(rng, 8, 3), rng.normal(size=(8, 3)).astype(np.float32)
    acted = []
    for each in (algo, other):
        each.set_eval()
        torch.manual_seed(0)
        policy = VectorPolicy(each, 3, deterministic=True)
        acted.append([policy.act({k: v[t] for k, v in obs.items()}, rewards[t]) for t in range(8)])
    np.testing.assert_allclose(acted[0], acted[1], atol=1e-3)


@pytest.mark.parametrize("name", [name for name in MEMORIES if name != "identity"])
def test_memories_are_those_of_the_cpu(name):
    """Outputs and gradients: equal in float64, and in float32 no further from that than on the CPU, ten times over."""
    encoder = MemoryCase(name).build(window=16)
    exact, copied, plain = (passed(encoder, torch.device(d), t) for d, t in PLACES)
    fast, stepped = passed(encoder, torch.device("cuda"), torch.float32), stepped_through(encoder)
    for key, value in exact.items():
        scale = float(value.abs().max())
        torch.testing.assert_close(copied[key], value, rtol=0.0, atol=1e-6 * scale, msg=key)  # angles are in float32
        allowed = 10 * float((plain[key] - value).abs().max()) + (2e-2 if name in ROUGH else 1e-5) * scale
        assert float((fast[key] - value).abs().max()) <= allowed, key
    allowed = 10 * float((plain["output"] - exact["output"]).abs().max()) + 1e-4 * float(exact["output"].abs().max())
    assert float((stepped - exact["output"]).abs().max()) <= allowed


ROUGH = ("mamba2", "hybrid")
"""Memories for which mamba-ssm's kernel rounds the inputs of its products to 10 bits."""
PLACES = (("cpu", torch.float64), ("cuda", torch.float64), ("cpu", torch.float32))


def inputs_of(device, dtype):
    x = torch.randn(3, 40, 6, generator=torch.Generator().manual_seed(0))
    return x.to(device, dtype), torch.arange(40, device=device).expand(3, -1)


def passed(encoder, device, dtype):
    """Return the outputs of a copy and the gradients of its weights, in float64 on the CPU."""
    encoder = copy.deepcopy(encoder).to(device, dtype).train(isinstance(encoder, GRU | LSTM))  # as cuDNN wants it
    y, _ = encoder(*inputs_of(device, dtype))
    y.square().mean().backward()
    found = {"output": y.detach(), **{k: p.grad for k, p in encoder.named_parameters() if p.grad is not None}}
    return {key: value.double().cpu() for key, value in found.items()}


def stepped_through(encoder):
    encoder = copy.deepcopy(encoder).cuda()
    x, step = inputs_of("cuda", torch.float32)
    state, out = encoder.init_state(3, device="cuda", dtype=torch.float32), []
    with torch.no_grad():
        for t in range(40):
            y, state = encoder(x[:, t : t + 1], step[:, t : t + 1], state)
            out.append(y)
    return torch.cat(out, 1).double().cpu()


@pytest.mark.parametrize(
    ("name", "memory"),
    [*((name, "transformer") for name in ALGOS.names()), *(("actor_critic", name) for name in MEMORIES)],
)
def test_a_step_between_logs_never_waits_for_the_gpu(name, memory):
    case = AlgoCase(name, memory, first_space(name), device="cuda")
    algo = case.build()
    algo.set_train()
    algo.wants_metrics = False
    batch = case.batch().map(lambda x: x.pin_memory())
    for _ in range(3):
        algo.train_on_batch(algo.process_batch_for_training(batch))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        algo.train_on_batch(algo.process_batch_for_training(batch))
    finally:
        torch.cuda.set_sync_debug_mode("default")


OFFLINE = {
    "train": {"data": [{"scripted": "seqrl/TMazeActive-v0", "episodes": 10, "noise": 0.5}]},
    "collect": {"steps_per_epoch": 0},
}


def trained(folder, name, resume=False, algo="actor_critic", more=None, **train):
    values = copy.deepcopy(SMALL)
    values["experiment"] |= {"output_dir": str(folder), "name": name}
    values["train"] |= train
    for section, changes in (more or {}).items():
        values[section] |= changes
    experiment = seqrl.Experiment(seqrl.config_factory(algo, values), resume=resume)
    experiment.start()
    experiment.learn()
    return experiment


def metrics(folder, name):
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "system/"))} for row in rows]


def differing(run, other):
    weights = run.algo.serialize()
    return [key for key, value in other.algo.serialize().items() if not torch.equal(value, weights[key])]


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_one_seed_gives_one_run(precision, tmp_path):
    run, again = (trained(tmp_path, name, precision=precision) for name in ("run", "again"))
    assert not differing(run, again)
    assert metrics(tmp_path, "run") == metrics(tmp_path, "again")
    assert all(value.is_cuda for value in run.algo.nets.parameters())


@pytest.mark.parametrize("algo", ["bc", "iql", "cql"])
def test_a_resumed_run_is_the_run_that_never_stopped(algo, tmp_path):
    straight = trained(tmp_path, "straight", algo=algo, more=OFFLINE)
    trained(tmp_path, "stopped", algo=algo, more=OFFLINE, num_epochs=1)
    assert not differing(straight, trained(tmp_path, "stopped", resume=True, algo=algo, more=OFFLINE))


@pytest.mark.slow
def test_a_compiled_run_learns(tmp_path):
    run = trained(tmp_path, "compiled", compile=True)
    assert run.num_steps == 8
    assert all(torch.isfinite(value).all() for value in run.algo.nets.parameters())


def test_a_policy_of_a_gpu_acts_on_a_cpu(tmp_path):
    trained(tmp_path, "moved")
    acted = []
    for device in ("cuda", "cpu", "cuda:0"):
        policy, _ = seqrl.policy_from_checkpoint(tmp_path / "moved", device=device)
        env = gym.make("seqrl/TMazeActive-v0", corridor_length=4)
        policy.start_episode()
        (obs, _), reward, ended, actions = env.reset(seed=0), 0.0, False, []
        while not ended and len(actions) < 6:
            actions.append(int(policy(obs, reward=reward)))
            obs, reward, terminated, truncated, _ = env.step(actions[-1])
            ended = terminated or truncated
        acted.append(actions)
    assert acted[0] == acted[1] == acted[2]


def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"train.device: 'cuda:77' .* the last GPU that torch sees is 'cuda:\d+'"):
        resolve_device("cuda:77")


def test_two_memories_may_clip_their_scores_differently():
    """The compiled flex_attention computes them, and nothing of ours in it is deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*create_block_mask")
        for clip in (3.0, 5.0):
            options = {"type": "transformer", "d_model": 32, "num_heads": 2, "d_ff": 32, "num_layers": 1}
            values = {"sequence_encoder": {**options, "logit_clip": clip}}
            case = AlgoCase("bc", "transformer", "discrete", values=values, device="cuda")
            algo = case.build()
            algo.set_train()
            algo.train_on_batch(algo.process_batch_for_training(case.batch()))
