"""The command line as a user meets it: every mistake ends in a message and exit 2, and loses nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from seqrl.scripts import collect_dataset, doctor, generate_config_templates, get_dataset_info, run_trained_agent, train

ROOT = Path(__file__).parents[2]
PLUGIN = str(ROOT / "examples" / "filtered_bc_plugin.py")
TINY = [
    "--debug",
    "--set", "env.kwargs.corridor_length=4",
    "--set", "train.window_steps=5",
    "--set", "train.data.0.episodes=12",
    "--set", "algo.sequence_encoder.d_model=16", "--set", "algo.sequence_encoder.d_ff=16",
    "--set", "experiment.report.enabled=false",
]  # fmt: skip
REPORT = ["--set", "experiment.report.enabled=true", "--set", "experiment.report.animation_episodes=1"]


def run(main, arguments, capsys):
    """Return exit code, stdout and stderr of a script, called in this process."""
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One tiny run that several tests read."""
    where = tmp_path_factory.mktemp("trained")
    arguments = [*TINY, *REPORT, "--set", f"experiment.output_dir={where}", "--name", "r"]
    assert train.main(["--config", "bc.json", *arguments]) == 0
    return where / "r"


def test_a_run_leaves_what_it_promises(trained):
    assert {p.name for p in trained.iterdir()} >= {"config.json", "metrics.jsonl", "tb", "checkpoints", "report.html"}
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    names = {name for row in rows for name in row}
    assert {"loss/total", "valid/total", "eval/success_mean", "eval/success_mean_low", "time/data_wait_share"} <= names
    assert (trained / "checkpoints" / "last").read_text().strip() == "epoch_000002"
    assert "data:image/gif;base64" in (trained / "report.html").read_text()
    assert not list(trained.rglob("*.tmp"))
    assert not list(trained.rglob("*.pkl"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["train.batchsize=3"], [r"train.batchsize", "did you mean 'batch_size'?"]),
        (["train.batch_size=many"], ["train.batch_size", "got 'many'"]),
        (["train.batch_size=0"], ["train.batch_size", "must be > 0, got 0"]),
        (["algo.optimizer.learning_rate=-1", "trian.seed=1"], ["2 problems", "must be > 0", "did you mean 'train'?"]),
        (["algo.sequence_encoder.type=gruu"], ["unknown memory 'gruu'", "did you mean 'gru'?"]),
        (["algo.sequence_encoder.num_heads=7"], ["num_heads 7 does not divide d_model 16"]),
        (["algo_name=bcc"], ["unknown algorithm 'bcc'", "did you mean 'bc'?"]),
        (["train.seed"], ["must have the form key.subkey=value"]),
        (["train.data.5.episodes=3"], ["'5' is not a valid index; the list has length 1"]),
        (["algo.distribution.type=tanh_gaussian"], ["cannot represent Discrete(4)", "categorical"]),
        (["env.id=seqrl/TMazePasive-v0"], ["did you mean 'seqrl/TMazePassive-v0'?"]),
        (["observation.keys=[\"ob\"]"], ["observation.keys: ob not in the data, which has obs"]),
        (["train.device=cuda:77"], ["train.device"]),
        (["train.data=[]"], ["train.data: is required"]),
        (["train.data=[{\"path\":\"a\",\"scripted\":\"b\"}]"], ["exactly one of 'path' and 'scripted'"]),
        (["env.kwargs={}", "train.data=[{\"scripted\":\"CartPole-v1\"}]"], ["no scripted expert", "TMazePassive"]),
    ],
)  # fmt: skip
def test_bad_settings(settings, expected, folder, capsys):
    arguments = [a for s in settings for a in ("--set", s)]
    code, _, err = run(train.main, ["--config", "bc.json", *TINY, *arguments], capsys)
    assert code == 2
    for text in expected:
        assert text in err
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "give --config FILE"),
        (["--config", "bcc.json"], "did you mean 'bc.json'?"),
        (["--algo", "bear"], "unknown algorithm 'bear'"),
        (["--config", "bc.json", "--dataset", "nowhere.hdf5"], "'nowhere.hdf5' does not exist"),
        (["--config", "bc.json", "--plugin", "nowhere.py"], "'nowhere.py' does not exist"),
        (["--config", "bc.json", "--plugin", "no_such_module"], "neither a .py file nor an importable module"),
        (["--config", "bc.json", "--set", 'plugins=["a.py"]'], "plugins: pass --plugin FILE instead of --set"),
        (["--config", "bc.json", "--resume"], "nothing to resume"),
    ],
)
def test_bad_arguments(arguments, expected, folder, capsys):
    code, _, err = run(train.main, arguments, capsys)
    assert code == 2
    assert expected in err


@pytest.mark.parametrize("content", ["{", "[]", '{"algo_name": "bc", "train": 3}', "{}", "\ufeff{}"])
def test_bad_config_files(content, folder, capsys):
    (folder / "c.json").write_text(content)
    code, _, err = run(train.main, ["--config", "c.json"], capsys)
    assert code == 2
    assert "c.json" in err


@pytest.mark.parametrize("damage", ["not hdf5", "truncated", "no data", "no actions", "lengths", "nan"])
def test_broken_datasets(damage, folder, capsys):
    file = folder / "d.hdf5"
    with h5py.File(file, "w") as f:
        demo = f.create_group("data/demo_0" if damage != "no data" else "dta/demo_0")
        demo["obs/x"] = np.zeros((5, 2), np.float32)
        if damage != "no actions":
            demo["actions"] = np.zeros((4 if damage == "lengths" else 5, 1), np.float32)
        demo["rewards"] = np.full(5, np.nan if damage == "nan" else 0.0, np.float32)
    if damage == "not hdf5":
        file.write_bytes(b"not hdf5 at all" * 10)
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    code, _, err = run(train.main, ["--algo", "bc", "--dataset", file, "--debug"], capsys)
    assert code == 2
    assert "d.hdf5" in err or "non-finite" in err
    assert not (folder / "runs").exists()


def test_an_existing_folder_is_kept(trained, capsys):
    where = ["--set", f"experiment.output_dir={trained.parent}", "--name", trained.name]
    before = sorted((p, p.stat().st_mtime_ns) for p in trained.rglob("*"))
    code, _, err = run(train.main, ["--config", "bc.json", *TINY, *where], capsys)
    assert code == 2
    assert all(word in err for word in ("exists", "--resume", "--overwrite", "--name"))
    assert sorted((p, p.stat().st_mtime_ns) for p in trained.rglob("*")) == before


@pytest.mark.parametrize(
    "wrong", [["--set", 'algo.optimizer.rates={"actr": 0.1}'], ["--set", "algo.sequence_encoder.dropuot=1"]]
)
def test_a_run_that_cannot_start_overwrites_nothing_and_leaves_nothing(wrong, trained, folder, capsys):
    where = ["--set", f"experiment.output_dir={trained.parent}", "--name", trained.name, "--overwrite"]
    before = sorted((p, p.stat().st_mtime_ns) for p in trained.rglob("*"))
    assert run(train.main, ["--config", "bc.json", *TINY, *where, *wrong], capsys)[0] == 2
    assert sorted((p, p.stat().st_mtime_ns) for p in trained.rglob("*")) == before
    assert run(train.main, ["--config", "bc.json", *TINY, "--name", "new", *wrong], capsys)[0] == 2
    assert not (folder / "runs" / "new").exists()


def test_a_folder_that_is_no_run_is_never_overwritten(folder, capsys):
    (folder / "runs" / "precious").mkdir(parents=True)
    (folder / "runs" / "precious" / "thesis.txt").write_text("years")
    code, _, err = run(train.main, ["--config", "bc.json", *TINY, "--name", "precious", "--overwrite"], capsys)
    assert code == 2
    assert "not the folder of a run" in err
    assert (folder / "runs" / "precious" / "thesis.txt").read_text() == "years"


def test_print_config_round_trip(folder, capsys):
    code, out, _ = run(train.main, ["--config", "bc.json", "--set", "train.seed=7", "--print-config"], capsys)
    assert code == 0
    (folder / "again.json").write_text(out)
    _, again, _ = run(train.main, ["--config", "again.json", "--print-config"], capsys)
    assert json.loads(again) == json.loads(out)
    assert json.loads(out)["train"]["seed"] == 7


def test_another_component_type_says_what_it_drops(folder, capsys):
    arguments = ["--config", "bc.json", "--set", "algo.sequence_encoder.type=gru", "--print-config"]
    code, out, err = run(train.main, arguments, capsys)
    assert code == 0
    assert "drops algo.sequence_encoder.{d_ff, d_model, num_heads, num_layers}" in err
    assert json.loads(out)["algo"]["sequence_encoder"]["d_hidden"] == 256


def test_resume_equals_the_uninterrupted_run(folder, capsys):
    """Two epochs and two more give the weights, metrics and scores of four, bit for bit."""
    base = ["--config", "bc.json", *TINY]
    assert train.main([*base, "--set", "train.num_epochs=4", "--name", "whole"]) == 0
    assert train.main([*base, "--set", "train.num_epochs=2", "--name", "parts"]) == 0
    assert train.main([*base, "--set", "train.num_epochs=4", "--name", "parts", "--resume"]) == 0
    whole, parts = (folder / "runs" / name for name in ("whole", "parts"))
    for name in ("model.safetensors", "training_state/optimizer.safetensors"):
        both = [(p / "checkpoints" / "epoch_000004" / name).read_bytes() for p in (whole, parts)]
        assert both[0] == both[1]

    def rows(path):
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in row.items() if not k.startswith(("time/", "system/"))} for row in lines]

    assert rows(whole) == rows(parts)
    code, _, err = run(train.main, [*base, "--name", "parts", "--resume", "--set", "train.batch_size=3"], capsys)
    assert code == 2
    assert "train.batch_size  was 2, now 3" in err


def test_plugin_algorithm_trains_resumes_and_deploys(folder, capsys, registries_as_before):
    base = ["--config", "bc.json", *TINY, "--plugin", PLUGIN, "--set", "algo_name=filtered_bc", "--name", "f"]
    assert train.main(base) == 0
    assert train.main([*base, "--resume", "--set", "train.num_epochs=3"]) == 0
    agent = folder / "runs" / "f"
    code, out, _ = run(run_trained_agent.main, ["--agent", agent, "--n-rollouts", 4, "--plugin", PLUGIN], capsys)
    assert code == 0
    assert "eval/success_mean" in out


def test_a_checkpoint_never_imports_its_plugins(folder, capsys, registries_as_before):
    """In a fresh process the plug-in that a checkpoint names is not imported; the message says how to allow it."""
    plugin = folder / "evil.py"
    plugin.write_text(Path(PLUGIN).read_text().replace("filtered_bc", "evil_bc"))
    base = ["--config", "bc.json", *TINY, "--plugin", str(plugin), "--set", "algo_name=evil_bc", "--name", "e"]
    assert train.main(base) == 0
    plugin.write_text(f"open({str(folder / 'executed')!r}, 'w').write('!')\n")
    command = [sys.executable, "-m", "seqrl", "run-trained-agent", "--agent", "runs/e"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "evil.py" in done.stderr
    assert "--plugin" in done.stderr
    assert not (folder / "executed").exists()


def test_run_trained_agent(trained, folder, capsys):
    arguments = ["--agent", trained, "--n-rollouts", 6, "--num-envs", 3, "--seed", 3, "--json"]
    code, out, _ = run(
        run_trained_agent.main, [*arguments, "--dataset-path", "d.hdf5", "--video-path", "v/x.gif"], capsys
    )
    assert code == 0
    assert json.loads(out)["eval/episodes"] == 6
    assert (folder / "v" / "x.gif").read_bytes()[:3] == b"GIF"
    assert json.loads(run(run_trained_agent.main, arguments[1:], capsys)[1]) == json.loads(out)
    code, out, _ = run(get_dataset_info.main, ["--dataset", "d.hdf5", "--json", "--verify"], capsys)
    assert code == 0
    assert json.loads(out)["trajectories"] == 6
    with h5py.File(folder / "d.hdf5") as f:
        assert f["data/demo_0/obs/obs"].shape[1:] == (4,)


@pytest.mark.parametrize("agent", ["nowhere", "checkpoints/best_nothing"])
def test_missing_checkpoint(agent, trained, capsys):
    code, _, err = run(run_trained_agent.main, ["--agent", trained / agent], capsys)
    assert code == 2
    assert "does not exist" in err


def test_collect_dataset_then_train_on_it(folder, capsys):
    collect = ["--env", "seqrl/TMazeActive-v0", "--env-kwargs", '{"corridor_length": 3}', "--episodes", 10]
    code, out, _ = run(collect_dataset.main, [*collect, "--output", "a.hdf5"], capsys)
    assert code == 0
    assert "wrote 10 episodes" in out
    code, _, err = run(collect_dataset.main, [*collect, "--output", "a.hdf5"], capsys)
    assert code == 2
    assert "--overwrite" in err
    filters = '[{"path": "a.hdf5", "filter_key": "train", "valid_filter_key": "valid"}]'
    settings = ["--set", f"train.data={filters}", "--set", "train.window_steps=8", "--set", "algo.actor.d_hidden=8"]
    assert train.main(["--algo", "bc", "--debug", *settings, "--name", "from_file"]) == 0
    rows = [json.loads(line) for line in (folder / "runs/from_file/metrics.jsonl").read_text().splitlines()]
    assert any("eval/success_mean" in row for row in rows)
    code, _, err = run(
        train.main, ["--algo", "bc", "--set", 'train.data=[{"path":"a.hdf5","filter_key":"tain"}]'], capsys
    )
    assert code == 2
    assert "no filter key 'tain'; it has: train, valid" in err


def test_data_of_another_task_takes_a_template_without_its_environment(folder, capsys):
    arguments = ["--env", "seqrl/PointRecall-v0", "--episodes", 6, "--output", "recall.hdf5"]
    assert run(collect_dataset.main, arguments, capsys)[0] == 0
    tiny = [*TINY[:1], *TINY[3:5], "--set", "experiment.report.enabled=false"]  # the data is not scripted
    code, _, err = run(train.main, ["--config", "bc.json", "--dataset", "recall.hdf5", *tiny, "--name", "a"], capsys)
    assert code == 0, err
    assert "note: --dataset replaces the data of bc.json, so its section env is ignored" in err
    config = json.loads((folder / "runs" / "a" / "config.json").read_text())
    assert config["env"]["kwargs"] == config["env"]["eval_kwargs"] == {}


def test_a_template_keeps_an_environment_that_it_names(folder, capsys):
    code, out, err = run(train.main, ["--config", "rlpd.json", "--dataset", "own.hdf5", "--print-config"], capsys)
    assert code == 0, err
    assert json.loads(out)["env"]["id"] == "seqrl/TMazePassive-v0"
    entry = '{"path": "own.npz", "columns": {"actions": "a"}}'
    code, out, err = run(train.main, ["--config", "iql.json", "--dataset", entry, "--print-config"], capsys)
    assert code == 0, err
    assert json.loads(out)["env"]["kwargs"] == {}
    assert json.loads(out)["train"]["data"][0]["columns"] == {"actions": "a"}


def test_without_evaluation_no_environment_is_needed(folder, capsys):
    arguments = ["--env", "seqrl/PointRecall-v0", "--episodes", 6, "--output", "recall.hdf5"]
    assert run(collect_dataset.main, arguments, capsys)[0] == 0
    given = ["--config", "bc.json", "--dataset", "recall.hdf5", *TINY[:1], *TINY[3:5]]
    given += ["--set", "env.kwargs.colour=3", "--set", "experiment.report.enabled=false"]
    code, _, err = run(train.main, [*given, "--name", "a"], capsys)
    assert code == 2
    assert "colour" in err
    assert "env.kwargs and env.eval_kwargs of the run file; to train without evaluation, set" in err
    code, _, err = run(train.main, [*given, "--name", "b", "--set", "experiment.evaluation.enabled=false"], capsys)
    assert code == 0, err
    assert "warning: the environment cannot be made, so the spaces are those of the data" in err


@pytest.mark.slow
def test_a_run_from_data_goes_on_online_by_a_budget(folder, capsys):
    arguments = ["--env", "seqrl/PointRecall-v0", "--episodes", 6, "--noise", 0.5, "--output", "recall.hdf5"]
    assert run(collect_dataset.main, arguments, capsys)[0] == 0
    quick = [x for key in ("evaluation", "report") for x in ("--set", f"experiment.{key}.enabled=false")]
    small = ["--memory", "gru", *quick, "--set", "algo.sequence_encoder.d_hidden=12"]
    offline = ["--algo", "iql", "--dataset", "recall.hdf5", "--gradient-steps", 3, *small, "--name", "offline"]
    assert run(train.main, offline, capsys)[0] == 0
    online = ["--env", "seqrl/PointRecall-v0", "--env-steps", 40, *quick, "--set", "train.init_from=runs/offline"]
    code, _, err = run(train.main, ["--algo", "iql", "--dataset", "recall.hdf5", *online, "--name", "a"], capsys)
    assert code == 0, err
    former, config = (json.loads((folder / "runs" / n / "config.json").read_text()) for n in ("offline", "a"))
    keys = "sequence_encoder", "actor", "critic", "gamma", "extra_gammas"
    assert {k: config["algo"][k] for k in keys} == {k: former["algo"][k] for k in keys}
    assert (former["algo"]["n_step"], config["algo"]["n_step"]) == (1, 5)  # of the budget
    assert (former["observation"]["prev_dropout"], config["observation"]["prev_dropout"]) == (0.0, 0.25)
    assert config["algo"]["sequence_encoder"]["d_hidden"] == 12
    gone = [
        "--algo",
        "iql",
        "--dataset",
        "recall.hdf5",
        *online[:-1],
        "train.init_from=gone",
        "--name",
        "a",
        "--resume",
    ]
    code, _, err = run(train.main, gone, capsys)
    assert code == 0, err  # it has its networks
    wrong = ["--algo", "iql", *online, "--set", "algo.critic.norm=layer", "--name", "b"]
    code, _, err = run(train.main, wrong, capsys)
    assert code == 2
    assert 'algo.critic.norm is "layer" (theirs: "none")' in err
    lstm = ["--config", "iql.json", "--dataset", "recall.hdf5", "--set", "algo.sequence_encoder.type=lstm"]
    code, _, err = run(train.main, [*lstm, "--set", "train.init_from=runs/offline", "--name", "b"], capsys)
    assert code == 2
    assert 'algo.sequence_encoder.type is "lstm" (theirs: "gru")' in err
    assert "memory_dropout" not in err
    code, _, err = run(train.main, ["--algo", "td3_bc", *online, "--name", "b"], capsys)
    assert code == 2
    assert "the weights are of iql, and the run is of td3_bc" in err


def test_a_relabeler_that_does_not_fit_is_told_before_anything_is_written(folder, capsys):
    arguments = ["--env", "seqrl/PointRecall-v0", "--episodes", 3, "--output", "recall.hdf5"]
    assert run(collect_dataset.main, arguments, capsys)[0] == 0
    relabel = {"type": "hindsight", "achieved_key": "obs", "goal_key": "goal", "threshold": 0.1}
    data = ["--set", "train.data=" + json.dumps([{"path": "recall.hdf5", "relabel": relabel}])]
    code, _, err = run(train.main, ["--algo", "iql", "--gradient-steps", 3, *data], capsys)
    assert code == 2
    assert "hindsight: goal_key" in err
    assert not (folder / "runs").exists()


def test_a_run_file_given_as_an_algorithm_is_named(folder, capsys):
    code, _, err = run(train.main, ["--algo", "rebrac", "--env", "seqrl/PointRecall-v0"], capsys)
    assert code == 2
    assert "rebrac is a run file, not an algorithm: --config rebrac.json" in err


def test_generate_config_templates(folder, capsys):
    code, _, _ = run(generate_config_templates.main, ["--output", "t"], capsys)
    assert code == 0
    defaults = json.loads((folder / "t" / "bc_defaults.json").read_text())
    assert defaults["algo"]["sequence_encoder"]["type"] == "transformer"
    assert json.loads((folder / "t" / "bc_schema.json").read_text())["properties"]["train"]
    assert (folder / "t" / "bc.json").exists()


def test_doctor(capsys):
    code, out, _ = run(doctor.main, ["--json"], capsys)
    report = json.loads(out)
    assert code == 0
    assert report["packages"]["torch"] != "MISSING"
    assert report["devices"]["cpu"]
    assert (
        report["extras"]["robosuite"] == "installed"
        or "&& pip install --no-deps robosuite==" in report["extras"]["robosuite"]
    )


def test_help_is_quick_and_lists_every_script():
    def run_once(*command):
        begin = cpu_seconds()
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
        return cpu_seconds() - begin, done

    helps, torches = [], []
    for _ in range(2):  # in turn, so that both meet the same neighbours
        helps.append(run_once("-X", "importtime", "-m", "seqrl", "train", "--help"))
        torches.append(run_once("-c", "import torch")[0])
    assert not re.search(r"\|\s+torch$", helps[0][1].stderr, re.MULTILINE)
    assert min(seconds for seconds, _ in helps) < min(torches)  # in seconds it would depend on the machine
    assert "--print-config" in helps[0][1].stdout
    text = run_once("-m", "seqrl")[1].stdout
    scripts = {p.stem.rstrip("_").replace("_", "-") for p in (ROOT / "seqrl" / "scripts").glob("[a-z]*.py")}
    assert all(f"  {name} " in text for name in scripts)
    assert len(scripts) >= 6


def cpu_seconds():
    """Return the processor time of finished child processes: a clock on the wall would depend on the neighbours."""
    spent = os.times()
    return spent.children_user + spent.children_system


def test_unknown_command(capsys):
    from seqrl.__main__ import main

    code, _, err = run(main, ["trian"], capsys)
    assert code == 2
    assert "did you mean 'train'?" in err
    assert "did you mean 'run-trained-agent'?" in run(main, ["evaluate", "runs/a"], capsys)[2]


@pytest.mark.parametrize(
    ("section", "option", "message"),
    [
        (
            {"train": {"data": [{"scripted": "seqrl/TMazePassive-v0", "episodes": "x"}]}},
            "--debug",
            "train.data.0.episodes",
        ),
        ({"train": {"data": 3}}, "--debug", "train.data "),
        ({"train": 3}, "--gradient-steps=5", "--gradient-steps is for fixed data"),
        ({"train": {"data": [3]}}, "--gradient-steps=5", "train.data.0 "),
        ({"collect": 3}, "--debug", "collect is a value, 3"),
        ({"env": 3}, "--env-steps=5", "env "),
    ],
)
def test_a_value_where_options_expect_a_section_is_named(section, option, message, folder, capsys):
    Path("wrong.json").write_text(json.dumps({"algo_name": "bc", **section}))
    code, _, err = run(train.main, ["--config", "wrong.json", option], capsys)
    assert code == 2
    assert message in err


def test_a_trial_of_environments_that_step_many_at_once(folder, capsys):
    settings = ["env.vectorization=native", "experiment.report.enabled=false", "algo.sequence_encoder.d_hidden=8"]
    words = [w for s in settings for w in ("--set", s)]
    command = ["--algo", "actor_critic", "--env", "CartPole-v1", "--memory", "gru", "--env-steps", "300", "--debug"]
    code, _, err = run(train.main, [*command, *words], capsys)
    assert code == 0, err


ALONE = """
import gymnasium as gym
from seqrl.envs.suites import SUITES, Suite

OPEN = []

class Alone(gym.Wrapper):
    def close(self):
        OPEN.clear()
        super().close()

def make(env_id, max_episode_steps=None, **options):
    if OPEN:
        raise RuntimeError("another is open in this process")
    OPEN.append(env_id)
    options.pop("disable_env_checker", None)
    return Alone(gym.make("CartPole-v1", max_episode_steps=max_episode_steps or 20, **options))

SUITES.register("alone")(Suite(("alone-",), make, one_per_process=True))
"""


@pytest.mark.usefixtures("registries_as_before")
def test_environments_of_which_a_process_holds_only_one_get_processes(folder, capsys):
    (folder / "alone.py").write_text(ALONE)
    settings = ["experiment.report.enabled=false", "algo.sequence_encoder.d_hidden=8", "env.start_method=spawn"]
    words = [w for s in settings for w in ("--set", s)]
    command = [
        "--algo",
        "actor_critic",
        "--env",
        "alone-v0",
        "--plugin",
        "alone.py",
        "--memory",
        "gru",
        "--name",
        "run",
    ]
    code, _, err = run(train.main, [*command, "--env-steps", "200", "--debug", *words], capsys)
    assert code == 0, err
    assert "a process can hold only one alone-v0" in err
    assert json.loads((folder / "runs/run/config.json").read_text())["env"]["vectorization"] == "async"
