"""`seqrl check-plugin` names what a plug-in breaks, and a run refuses a memory that looks ahead before it begins."""

import re
from pathlib import Path

import pytest

from seqrl.scripts import check_plugin, train

pytestmark = pytest.mark.usefixtures("registries_as_before")

EMA = """
import torch
from torch import nn
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders import SequenceEncoder


@SEQUENCE_ENCODERS.register("{name}")
class Ema(SequenceEncoder):
    def __init__(self, d_input, window_steps, *, d_model: int = 8):
        super().__init__(d_input, window_steps)
        self.d_output = d_model
        self.layer = nn.Linear(d_input, d_model)

    def forward(self, x, step, state=None):
        y = self.layer(x)
        if state is None:
            return {whole} / (step.unsqueeze(-1) + 1), None
        total = state["total"] + y
        return total / (step.unsqueeze(-1) + 1), {{"total": total}}

    def init_state(self, num_rows, *, device, dtype=torch.float32):
        {broken}return {{"total": torch.zeros({shape}, self.d_output, device=device, dtype=dtype)}}
"""


def write(folder, name, whole="y.cumsum(1)", shape="num_rows, 1", broken=""):
    file = folder / f"{name}_plugin.py"
    file.write_text(EMA.format(name=name, whole=whole, shape=shape, broken=broken))
    return str(file)


def check(capsys, file):
    code = check_plugin.main([file])
    return code, capsys.readouterr().out.splitlines()


def test_a_sound_memory(tmp_path, capsys):
    code, lines = check(capsys, write(tmp_path, "sum_of_all"))
    assert code == 0
    assert any(line.startswith("ok    memory 'sum_of_all': is causal (0.") for line in lines)
    assert lines[-1] == "14 of 14 checks passed"


def test_a_memory_that_looks_ahead(tmp_path, capsys):
    code, lines = check(capsys, write(tmp_path, "ahead", whole="y.sum(1, keepdim=True).expand_as(y)"))
    assert code == 1
    assert "FAIL  memory 'ahead': looks ahead: output 0 changes when input 1 changes" in lines


def test_a_run_refuses_it_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, "ahead_too", whole="y.sum(1, keepdim=True).expand_as(y)")
    arguments = ["--config", "bc.json", "--plugin", file, "--set", "algo.sequence_encoder.type=ahead_too"]
    assert train.main(arguments) == 2
    message = "algo.sequence_encoder.type: memory 'ahead_too': looks ahead: output 0 changes when input 1 changes"
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_rows_that_are_not_first(tmp_path, capsys):
    code, lines = check(capsys, write(tmp_path, "sideways", shape="1, num_rows"))
    assert code == 1
    message = "init_state(num_rows=3)['total'] has shape (1, 3, 8): rows must come first"
    assert f"FAIL  memory 'sideways': {message}" in lines


def test_any_other_exception_is_a_failure_with_its_place(tmp_path, capsys):
    file = write(tmp_path, "broken", broken="return 1 / 0\n        ")
    code, lines = check(capsys, file)
    assert code == 1
    problem = "is causal? It raised"
    assert not any(problem in line for line in lines)  # that one needs no state
    line = next(line for line in lines if "gives step by step what" in line)
    number = 1 + Path(file).read_text().splitlines().index("        return 1 / 0")
    assert line.endswith(f"It raised ZeroDivisionError: division by zero (broken_plugin.py:{number})")


LOSSES = '''
from seqrl.algo import BC, register_algo_factory_func
from seqrl.configs import BCConfig, register_config
from seqrl.core.registry import LOGGERS
import torch


@register_config("writing_bc")
class WritingConfig(BCConfig):
    """Run file."""


class WritingBC(BC):
    action_kinds = frozenset({"continuous"})

    def _create_networks(self):
        super()._create_networks()
        self.nets.register_buffer("count", torch.zeros(()))

    def compute_losses(self, batch):
        self.nets.count += 1
        return super().compute_losses(batch)


@register_algo_factory_func("writing_bc")
def factory(algo_config):
    return WritingBC, {}


@LOGGERS.register("nothing_at_all")
def log_nothing(folder):
    raise NotImplementedError
'''


def test_an_algorithm_that_writes_and_a_logger_without_checks(tmp_path, capsys):
    file = tmp_path / "writing_plugin.py"
    file.write_text(LOSSES)
    code, lines = check(capsys, str(file))
    assert code == 1
    failed = [line for line in lines if line.startswith("FAIL")]
    assert len(failed) == 3
    assert failed[0].startswith(
        "FAIL  algorithm 'writing_bc': compute_losses writes 'count': put sums into Losses.stats"
    )
    assert failed[0].endswith("[algorithm writing_bc, memory transformer, actions box]")
    assert any(line.startswith("FAIL  algorithm 'writing_bc': validation changes 'count'") for line in failed)
    assert any(line.startswith("FAIL  algorithm 'writing_bc': a batch with a NaN moves 'count'") for line in failed)
    assert "      logger 'nothing_at_all': registered, no checks" in lines


def test_an_algorithm_without_a_config(tmp_path, capsys):
    file = tmp_path / "bare_plugin.py"
    file.write_text(
        LOSSES.replace('@register_config("writing_bc")', "")
        .replace("writing_bc", "bare_bc")
        .replace("nothing_at_all", "bare_log")
    )
    assert check_plugin.main([str(file)]) == 1
    expected = "algorithm 'bare_bc' has no config class: derive one from BaseConfig"
    assert f"FAIL  algorithm 'bare_bc': {expected}" in capsys.readouterr().out
    assert train.main(["--algo", "bare_bc", "--plugin", str(file)]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(("text", "code"), [("x = 1", 2), ("x = 1 / 0", 1), (None, 2)])
def test_nothing_to_check(tmp_path, capsys, text, code):
    file = tmp_path / "empty_plugin.py"
    if text is not None:
        file.write_text(text)
    assert check_plugin.main([str(file)]) == code
    said = capsys.readouterr()
    expected = {"x = 1": "registers nothing", "x = 1 / 0": "ZeroDivisionError: division by zero (empty_plugin.py:1)"}
    assert expected.get(text, "does not exist") in said.out + said.err


ROOT = Path(__file__).parents[2]
SHOWN = {
    name: code
    for page in (ROOT / "README.md", ROOT / "docs/memories.md", *sorted((ROOT / "docs/tutorials").glob("*.md")))
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    for name in re.findall(r"@(?:\w+\.)?register\w*\(\"(\w+)\"\)", code)
}


def test_what_the_pages_show_is_found():
    assert set(SHOWN) == {"soft_bc", "moving_average", "every_nth", "my_iql", "my_regression"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_what_the_pages_show_keeps_the_contracts(tmp_path, capsys, name):
    file = tmp_path / "shown_plugin.py"
    file.write_text(SHOWN[name].replace(name, f"shown_{name}"))
    assert check_plugin.main([str(file)]) == 0, capsys.readouterr().out


ENV = """
import gymnasium as gym
import numpy as np


class Coin(gym.Env):
    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(1, np.float32), {}

    def step(self, action):
        return self.np_random.random(1, np.float32), 0.0, True, False, {}


gym.register("foreign/Coin-v0", entry_point="foreign_envs:Coin")
"""


def test_environments_of_what_a_plugin_imports_are_not_its_own(tmp_path, capsys, monkeypatch):
    (tmp_path / "foreign_envs.py").write_text(ENV)
    (tmp_path / "importing_plugin.py").write_text("import foreign_envs")
    monkeypatch.syspath_prepend(tmp_path)
    code, lines = check(capsys, str(tmp_path / "importing_plugin.py"))
    assert (code, lines[-1]) == (0, "nothing to check")
    assert "      environments of other modules (1, such as 'foreign/Coin-v0'): see seqrl check-env" in lines
    code, lines = check(capsys, "foreign_envs")
    assert (code, lines[-1]) == (0, "4 of 4 checks passed")


def test_an_environment_may_refuse_what_its_mask_forbids(tmp_path, capsys):
    """Gymnasium's own checker draws actions without the mask."""
    right, wrong = tmp_path / "masked_plugin.py", tmp_path / "wrong_plugin.py"
    right.write_text(MASKED)
    wrong.write_text(MASKED.replace("tests/Masked", "tests/Wrong").replace("assert self.mask[action]", "assert False"))
    assert check(capsys, str(right))[0] == 0
    assert check(capsys, str(wrong))[0] == 1


MASKED = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Masked(gym.Env):
    action_space = spaces.Discrete(5)
    observation_space = spaces.Dict({"x": spaces.Box(0, 1, (2,)), "action_mask": spaces.MultiBinary(5)})

    def seen(self):
        self.mask = np.eye(5, dtype=np.int8)[self.np_random.integers(5)]
        return {"x": self.np_random.random(2).astype(np.float32), "action_mask": self.mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action):
        assert self.mask[action], "masked action"
        self.time += 1
        return self.seen(), 1.0, self.time == 9, False, {}


gym.register("tests/Masked-v0", entry_point=Masked)
"""
