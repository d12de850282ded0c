"""Every file in examples/ runs as it says, on a tiny setting, in this process."""

import ast
import importlib.util
import json
import math
import re
import shlex
from importlib import import_module
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import seqrl
from seqrl.__main__ import module_of
from seqrl.configs import config_factory, read_config_values
from seqrl.conformance.memories import CHECKS as MEMORY_CHECKS
from seqrl.conformance.memories import MemoryCase
from seqrl.core.plugins import load_plugins
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.scripts import check_env, check_plugin, train

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FILES = sorted(p.name for p in EXAMPLES.glob("*.py"))
BRIEF = [
    "train.steps_per_epoch=2", "train.batch_size=4", "train.device=cpu", "collect.num_envs=2",
    "collect.steps_per_epoch=30", "experiment.evaluation.episodes=4", "experiment.evaluation.num_envs=2",
    "experiment.logging.every_n_steps=1", "experiment.logging.tensorboard=false",
    "experiment.report.animation_episodes=0",
]  # fmt: skip
BRIEF = ["--epochs", "1", *(a for setting in BRIEF for a in ("--set", setting))]
ONLINE = {
    "00_meta_frozen_lake.py": (
        "--size 2 --attempts 2 --hard --recover --slip-chance 0.1 --hide-progress --memory lstm --seed 3 --name r",
        {
            "env.kwargs.size": 2, "env.kwargs.is_hard": True, "env.kwargs.recover_mode": True,
            "env.kwargs.slip_chance": 0.1, "env.kwargs.hide_progress": True, "train.window_steps": 16,
            "algo.sequence_encoder.type": "lstm", "train.seed": 3, "experiment.name": "r",
        },
    ),
    "01_basic_gym.py": (
        "--env seqrl/Bandit-v0 --memory gru --window 8 --set env.kwargs.horizon=10",
        {"env.id": "seqrl/Bandit-v0", "observation.use_prev_reward": True, "env.kwargs.horizon": 10},
    ),
    "02_gymnax.py": ("--num-bits 2 --window 8", {"env.kwargs.num_bits": 2, "env.vectorization": "native"}),
    "03_popgym_suite.py": (
        "--window 8 --memory feedforward --gamma 0.9 --set collect.steps_per_epoch=60",
        {"algo.gamma": 0.9, "algo.sequence_encoder.type": "feedforward"},
    ),
    "04_tmaze.py": (
        "--corridor 3 --exploration corridor",
        {"collect.exploration.type": "corridor", "collect.exploration.corridor_length": 3, "train.window_steps": 4},
    ),
    "05_dark_key_door.py": (
        "--size 2 --horizon 12 --attempt-steps 6 --light --shuffled-actions",
        {"env.kwargs.attempt_steps": 6, "env.kwargs.is_light": True, "train.window_steps": 12},
    ),
    "07_metaworld.py": (
        "--attempts 2 --attempt-steps 8 --window 16 --set env.vectorization=sync",
        {"env.kwargs.env_kwargs.env_name": "reach-v3", "env.kwargs.attempts": 2, "env.kwargs.attempt_steps": 8},
    ),
    "08_atari.py": (
        "--games Pong --core drq --window 8 --memory feedforward --set env.vectorization=sync "
        "--set collect.trajectory_steps=10 --set experiment.evaluation.max_steps=10",
        {"env.tasks.0.id": "ALE/Pong-v5", "observation.timestep_encoder.core.type": "drq"},
    ),
    "10_babyai.py": (
        "--tasks GoToObj OpenDoor --window 8 --set collect.trajectory_steps=10 "
        "--set experiment.evaluation.max_steps=20",
        {"env.tasks.1.id": "BabyAI-OpenDoor-v0", "observation.timestep_encoder.modalities.mission.type": "tokens"},
    ),
    "11_xland_minigrid.py": (
        "--attempts 2 --attempt-steps 6 --window 12 --set env.kwargs.height=5 --set env.kwargs.width=5",
        {"env.kwargs.max_episode_steps": 12, "env.eval_kwargs.split": "test"},
    ),
    "12_half_cheetah_vel.py": ("--episode-steps 10 --max-velocity 1.5", {"env.kwargs.max_velocity": 1.5}),
    "13_mazerunner_relabeling.py": (
        "--size 5 --goals 2 --time-limit 12 --shuffled-actions",
        {"env.kwargs.num_goals": 2, "env.kwargs.time_limit": 12, "collect.replay.relabel.type": "hindsight_sequence"},
    ),
    "14_offline_to_online.py": (
        "--episodes 6 --noise 0.9 --online-after-epoch 1 --epochs 2",
        {"collect.start_epoch": 1, "train.data.0.noise": 0.9, "train.data.1.noise": 1.0},
    ),
    "train_bc_rnn.py": (
        "--memory gru --window 6 --distribution gmm --episodes 2",
        {"algo.sequence_encoder.type": "gru", "algo.distribution.type": "gmm", "train.window_steps": 6},
    ),
}  # fmt: skip
"""File -> tiny arguments, and what they have to come to in the run file. What is in BRIEF is added before them."""
BY_HAND = {"simple_config.py", "simple_obs_nets.py", "simple_train_loop.py"}
PLUGINS = {
    "corridor_exploration_plugin.py": "its own example, 04_tmaze.py",
    "flat_hdf5_plugin.py": "test_format_plugins.py",
    "environment_plugin.py": "below",
    "filtered_bc_plugin.py": "test_train_script.py",
    "memory_plugin.py": "below",
    "npz_folder_plugin.py": "test_format_plugins.py",
    "offline_metric_plugin.py": "test_offline_metric_plugin.py",
    "touch_modality_plugin.py": "test_modality_plugin.py",
}
"""Plug-in -> what runs it."""
NEEDS = {
    "02_gymnax.py": "gymnax",
    "03_popgym_suite.py": "popgym",
    "07_metaworld.py": "metaworld",
    "08_atari.py": "ale_py",
    "10_babyai.py": "minigrid",
    "11_xland_minigrid.py": "xminigrid",
    "12_half_cheetah_vel.py": "mujoco",
}
EXTRAS = {"ale_py": "atari", "xminigrid": "xland"}
"""Package -> the extra that brings it, where that is called otherwise."""
FIGURES = {
    "00_meta_frozen_lake.py": "lake.json",
    "01_basic_gym.py": "cartpole.json",
    "03_popgym_suite.py": "repeat_first_gru.json",
    "04_tmaze.py": "tmaze_20.json",
    "05_dark_key_door.py": "key_door.json",
    "13_mazerunner_relabeling.py": "maze.json",
}
"""Example -> run file of the figures in benchmarks/ that its defaults are those of."""


def doc(name):
    """Return a file's docstring; plug-ins register what they hold, so only load_plugins may import them."""
    return ast.get_docstring(ast.parse((EXAMPLES / name).read_text()))


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{Path(name).stem}", EXAMPLES / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def at(values, path):
    for key in path.split("."):
        values = values[int(key)] if isinstance(values, list) else values[key]
    return values


def test_every_file_is_listed_here():
    assert set(FILES) == {*ONLINE, *BY_HAND, *PLUGINS}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_short_and_says_how_to_run_it(name):
    text = (EXAMPLES / name).read_text()
    assert text.count("\n") < 80
    assert re.search(rf"^(python examples/{name}|seqrl .*{name})", doc(name), re.MULTILINE)
    assert name in PLUGINS or '\nif __name__ == "__main__":\n    sys.exit(main())\n' in text


@pytest.mark.parametrize("name", sorted({*ONLINE, *BY_HAND}))
def test_help_tells_all_options(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        load(name).main(["--help"])
    assert "examples/" in capsys.readouterr().out
    assert all(action.help for action in load(name).parser()._actions)


def test_the_commands_parse():
    pages = [doc(name).replace("\\\n", "") for name in FILES]
    pages.append((EXAMPLES / "README.md").read_text().replace("`", "\n"))
    commands = [
        line for page in pages for line in page.splitlines() if re.match(r"python examples/|seqrl [a-z-]+ -?", line)
    ]
    assert len(commands) > 2 * len(FILES)
    for command in commands:
        program, name, *arguments = shlex.split(command, comments=True)
        script = load(Path(name).name) if program == "python" else import_module(module_of(name))
        script.parser().parse_args(arguments)


def test_the_page_lists_every_file():
    listed = re.findall(r"^\| \[(\w+\.py)\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(a for a, b in listed if a == b) == FILES


SLOW = {"01_basic_gym.py", "05_dark_key_door.py"}
"""Their paths are those of the other examples."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in sorted(ONLINE)])
def test_it_trains(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("seqrl.reports.curves.curve_svg", lambda *_, **__: "<svg></svg>")  # drawn by other tests
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    arguments, expected = ONLINE[name]
    assert load(name).main([*BRIEF, *shlex.split(arguments)]) == 0
    report = Path(capsys.readouterr().out.splitlines()[-1].split("look at ")[1])
    assert report.is_file()
    config = json.loads((report.parent / "config.json").read_text())
    assert {key: at(config, key) for key in expected} == expected
    rows = [json.loads(line) for line in (report.parent / "metrics.jsonl").read_text().splitlines()]
    names = {name for row in rows for name in row}
    assert {"loss/total", "eval/return_mean"} <= names
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert seqrl.policy_from_checkpoint(report.parent / "last")


def test_a_run_that_exists_is_kept(tmp_path, capsys):
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "config.json").write_text("{}")
    assert load("04_tmaze.py").main([*BRIEF, "--corridor", "3", "--name", "r"]) == 2
    assert re.search(r"error: the run folder runs/r exists; .*--overwrite", capsys.readouterr().err)


@pytest.mark.parametrize(("name", "extra"), sorted((n, EXTRAS.get(p, p)) for n, p in NEEDS.items()))
def test_a_missing_package_is_named_with_its_extra(name, extra, monkeypatch, capsys):
    make = gym.make

    def missing(what, *args, **options):
        if what == "HalfCheetah-v5":
            raise gym.error.DependencyNotInstalled("MuJoCo is not installed")
        if what.startswith("seqrl.envs.suites."):
            raise ModuleNotFoundError(f"No module named {extra!r}", name=extra)
        return make(what, *args, **options)

    monkeypatch.setattr("seqrl.envs.suites.import_module", missing)
    monkeypatch.setattr(gym, "make", missing)
    assert load(name).main([]) == 2
    assert re.search(rf"error: .*pip install 'seqrl\[{extra}\]'", capsys.readouterr().err)


@pytest.mark.parametrize(("name", "file"), sorted(FIGURES.items()))
def test_the_defaults_are_those_of_the_figures(name, file):
    example = load(name)
    ours = config_factory("actor_critic", example.settings(example.parser().parse_args([]))).to_json()
    theirs = config_factory("actor_critic", read_config_values(str(ROOT / "benchmarks" / "learning" / file))).to_json()
    for section in ("train", "collect", "observation", "algo"):
        assert ours[section] == theirs[section]
    kwargs = theirs["env"]["kwargs"]
    assert {k: ours["env"]["kwargs"][k] for k in kwargs} == kwargs
    assert ours["env"]["id"] == theirs["env"]["id"]


def test_the_config_goes_there_and_back(tmp_path, capsys):
    assert load("simple_config.py").main(["--set", "train.seed=7", "--output", "c.json"]) == 0
    out = capsys.readouterr().out
    assert "wrong.json: 3 problems" in out
    assert "did you mean 'batch_size'?" in out
    assert "the same after reading it again: True" in out
    config = config_factory("bc", read_config_values("c.json"))
    assert (config.train.seed, config.train.batch_size) == (7, 8)
    for command in re.findall(
        r"^python examples/simple_config.py(.*)$", load("simple_config.py").__doc__, re.MULTILINE
    ):
        assert load("simple_config.py").main(command.split()) == 0
    capsys.readouterr()
    assert load("simple_config.py").main(["--set", "train.sed=7"]) == 2
    assert "unknown key" in capsys.readouterr().err


def test_nets_by_hand_read_observations(capsys):
    assert load("simple_obs_nets.py").main(["--core", "drq", "--size", "36", "--set", "d_output=24"]) == 0
    text = capsys.readouterr().out
    assert "embeddings: (2, 5, 24)" in text
    assert "in training: False" in text
    assert "in evaluation: True" in text


def test_the_loop_by_hand_learns(tmp_path, capsys):
    arguments = ["--corridor", "3", "--memory", "lstm", "--epochs", "2", "--episodes", "12", "--output", "loop"]
    assert load("simple_train_loop.py").main(arguments) == 0
    text = capsys.readouterr().out
    losses = [float(n) for n in re.findall(r"loss ([\d.]+)", text)]
    assert losses[-1] < 0.1
    assert "success 1.000" in text
    assert {p.name for p in (tmp_path / "loop").iterdir()} >= {"demos.hdf5", "weights.safetensors"}


# ------------------------------------------------------------------------------------------------ plug-ins
MEMORY, ENVIRONMENT = str(EXAMPLES / "memory_plugin.py"), str(EXAMPLES / "environment_plugin.py")
ALL_PLUGINS = [str(EXAMPLES / name) for name in FILES if name.endswith("_plugin.py")]


@pytest.mark.slow
@pytest.mark.usefixtures("registries_as_before")
@pytest.mark.parametrize("plugin", ALL_PLUGINS, ids=lambda p: Path(p).stem)
def test_every_plugin_keeps_the_contracts(plugin, capsys):
    assert check_plugin.main([plugin]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("check", list(MEMORY_CHECKS))
def test_the_memory_keeps_the_contract(check):
    load_plugins([MEMORY])
    assert "gated_average" in SEQUENCE_ENCODERS
    MEMORY_CHECKS[check](MemoryCase("gated_average", {"d_model": 16}))


def test_the_environment_is_sound(capsys):
    assert check_env.main(["examples/Lock-v0", "--plugin", ENVIRONMENT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_the_environment_asks_for_a_memory():
    """Who remembers what was wrong opens every lock; random presses seldom do."""
    load_plugins([ENVIRONMENT])
    env = gym.make("examples/Lock-v0")
    opened = {True: 0, False: 0}
    for seed in range(60):
        for remembers in opened:
            env.reset(seed=seed)
            env.action_space.seed(1000 + seed)  # with the code's own seed it would draw the code
            known, guess, place, info = [], 0, 0, {}
            while not info:
                searched = known[place] if place < len(known) else guess
                press = searched if remembers else int(env.action_space.sample())
                obs, _, _, _, info = env.step(np.int64(press))
                guess += bool(obs[1])
                place = round(3 * float(obs[0]))
                if place > len(known):
                    known, guess = [*known, press], 0
            opened[remembers] += info["success"]
    assert opened[True] == 60
    assert opened[False] < 30


def test_both_plugins_train_and_deploy(tmp_path):
    plugins = ["--plugin", MEMORY, "--plugin", ENVIRONMENT, "--name", "lock", "--debug"]
    settings = [
        "env.id=examples/Lock-v0", "env.kwargs={}", "env.eval_kwargs={}", "train.window_steps=8",
        "algo.sequence_encoder.type=gated_average", "algo.sequence_encoder.d_model=16",
        "experiment.report.enabled=false", "experiment.evaluation.max_steps=null",
    ]  # fmt: skip
    assert train.main(["--config", "tmaze_online.json", *plugins, *(a for s in settings for a in ("--set", s))]) == 0
    last = [json.loads(line) for line in (tmp_path / "runs/lock/metrics.jsonl").read_text().splitlines()][-1]
    assert last["eval/log/wrong"] >= 0
    policy, _ = seqrl.policy_from_checkpoint("runs/lock/last")
    env = seqrl.env_from_checkpoint("runs/lock/last")
    assert env.action_space.contains(policy(env.reset(seed=0)[0], reward=0.0))
