"""train.compile gives the same steps, in one graph (around a GRU and Mamba's scan it breaks on purpose).

In a process of its own: the tests' checks of shapes cannot be compiled.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch
torch.set_num_threads(1)
from seqrl.algo.updater import Updater
from tests.helpers import ACTION_SPACES, random_batch, small_algo

space = ACTION_SPACES["discrete"]
batch = random_batch(space)
weights = []
for compiled in (False, True):
    memory = {"type": "transformer", "d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 2}
    memory |= {"dropout_embedding": 0.0, "dropout_ff": 0.0}
    algo = small_algo("actor_critic", "transformer", space, num_critics_td=4, sequence_encoder=memory)
    algo.updater = Updater(algo, is_compiled=compiled)
    algo.set_train()
    for _ in range(3):
        algo.train_on_batch(algo.process_batch_for_training(batch))
    weights.append(algo.serialize())
for key, value in weights[0].items():
    torch.testing.assert_close(value, weights[1][key], atol=1e-3, rtol=1e-3)  # three steps of up to 0.01 each
from torch._dynamo.utils import counters
assert counters["stats"]["unique_graphs"] >= 1, counters
assert not counters["graph_break"], counters["graph_break"]
"""


CONSTANT_CRITICS = """
import torch
torch.set_num_threads(1)
from seqrl.algo.updater import Updater
from tests.helpers import ACTION_SPACES, random_batch, small_algo

space = ACTION_SPACES["box"]
algo = small_algo("td3_bc", "transformer", space, policy_delay=2)
algo.updater = Updater(algo, is_compiled=True)
algo.set_train()
saved = [algo.serialize()]
algo.wants_metrics = False
for _ in range(2):
    info = algo.train_on_batch(algo.process_batch_for_training(random_batch(space)))
    assert torch.isfinite(info["loss/total"])
    saved.append(algo.serialize())
moved = [{k.split(".")[0] for k in a if not torch.equal(a[k], b[k])} for a, b in zip(saved, saved[1:])]
assert "critic" in moved[0] and "actor" not in moved[0], moved
assert {"critic", "actor"} <= moved[1], moved
from torch._dynamo.utils import counters
assert not counters["graph_break"], counters["graph_break"]
"""


BURN_IN = """
from dataclasses import replace
import torch
from seqrl.algo.updater import Updater
from tests.helpers import ACTION_SPACES, random_batch, small_algo

space = ACTION_SPACES["discrete"]
batch = random_batch(space)
batch = replace(batch, inputs=replace(batch.inputs, step=batch.inputs.step + 3), before=batch.inputs.first(3))
for memory in ("gru", "min_gru"):
    algo = small_algo("actor_critic", memory, space)
    algo.updater = Updater(algo, is_compiled=True)
    algo.set_train()
    for _ in range(2):
        info = algo.train_on_batch(algo.process_batch_for_training(batch))
    assert torch.isfinite(info["loss/total"])
"""


CLIPS = """
import torch
from seqrl.models.sequence_encoders.attention import Pattern, flex, make_attention

for pattern in (Pattern(70, logit_clip=3.0), Pattern(70, logit_clip=5.0), Pattern(70, num_sinks=2, sink_bias=1.0)):
    backend, qkv = make_attention("flex", pattern, 0.0), torch.randn(2, 200, 3, 2, 32)
    with torch.no_grad():
        compiled = backend.flex(*qkv.permute(2, 0, 3, 1, 4), flex._compiled()).transpose(1, 2)
    torch.testing.assert_close(compiled, backend.sequence(qkv, 0.0), atol=1e-4, rtol=1e-4)
"""


def ends_well(program):
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=280, check=False, cwd=root
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_flex_attention_is_compiled_for_more_than_one_clip():
    """As on a GPU; a CPU can compile what comes before gradients."""
    ends_well(CLIPS)


@pytest.mark.slow
def test_compiled_steps_equal_plain_ones():
    ends_well(PROGRAM)


@pytest.mark.slow
def test_critics_that_are_held_constant_make_no_second_graph():
    ends_well(CONSTANT_CRITICS)


def test_the_compiler_is_not_imported_before_it_is_needed():
    """It takes as long as the rest of torch, and every command would pay for it."""
    code = (
        "import sys, seqrl.training.experiment; from seqrl.models.sequence_encoders import GRU, Transformer; "
        "GRU(8, 4), Transformer(8, 4); assert 'torch._dynamo' not in sys.modules"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_memory_that_is_filled_before_a_window_is_compiled():
    ends_well(BURN_IN)
