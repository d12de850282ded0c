"""Ray actors that collect: what they bring is stored once, whoever dies."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from seqrl.core.errors import ConfigError, TrainingError
from seqrl.data import Store
from seqrl.training.ending import Ending
from seqrl.training.experiment import Experiment
from seqrl.training.ray_process import RayProcess
from seqrl.training.weights import collected_progress, reported_progress
from tests.distributed.numbered_episodes import LENGTH
from tests.distributed.test_roles import wait_for
from tests.distributed.test_two_ranks import torchrun
from tests.regression.test_online import rows, seqrl_process, small

pytest.importorskip("ray")
pytestmark = [pytest.mark.distributed, pytest.mark.timeout(600)]
STARTS = (
    "import ray; ray.init(address='local', num_cpus=1, include_dashboard=False, log_to_driver=False); ray.shutdown()"
)
PLUGIN = str(Path(__file__).with_name("numbered_episodes.py"))
NUM_ENVS = 3


@pytest.fixture(scope="module")
def cluster():
    """Skip where Ray itself cannot start, for instance without shared memory."""
    try:
        subprocess.run([sys.executable, "-c", STARTS], check=True, capture_output=True, text=True, timeout=200)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Ray does not start here: {error.stderr}")


def numbered(folder, *, actors=2, sleep_s=0.0, **changes):
    """Return a run file of numbered episodes, collected by actors."""
    config = small(
        folder,
        env={"id": "NumberedEpisodes-v0", "kwargs": {"sleep_s": sleep_s}},
        collect={"collectors": "ray", "ray": {"num_actors": actors}, "num_envs": NUM_ENVS},
        plugins=[PLUGIN],
        **changes,
    )
    (folder / "run.json").write_text(json.dumps(config.to_json()))
    return config


def descendants(pid):
    """Return the processes that a process has started, and those that these have."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(tuple(map(int, line.split())) for line in listed.splitlines())
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def actors_of(pid):
    """Return the processes of the actors that work for a learner."""
    return [p for p in descendants(pid) if is_alive(p) and "_Remote" in command_of(p)]


def check_store(run, progress, lives):
    """Hold that no piece of an episode is there twice, none was changed, and steps are counted."""
    store = Store(run / "replay")
    seen = set()
    for number in range(len(store)):
        piece = store.trajectory(number)
        obs = piece.obs["obs"]
        assert (obs[:, :3] == obs[0, :3]).all()
        assert np.array_equal(obs[:, 3], piece.start_step + np.arange(len(piece) + 1))
        key = (*obs[0, :3], piece.start_step)
        assert key not in seen
        seen.add(key)
    unfinished = lives * NUM_ENVS * LENGTH
    assert store.num_transitions <= progress <= store.num_transitions + unfinished
    return store.num_transitions


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_actors_collect_for_a_learner_and_all_end(tmp_path):
    numbered(tmp_path, train={"num_epochs": 3})
    run, learner = tmp_path / "run", seqrl_process(tmp_path, "--config", "run.json")
    wait_for(lambda: len(actors_of(learner.pid)) == 2, "actors", processes=[learner], timeout_s=300)
    mine = descendants(learner.pid)
    assert learner.wait(300) == 0, learner.stderr.read()
    wait_for(lambda: not any(map(is_alive, mine)), "the end of all processes", timeout_s=10)
    metrics = [json.loads(line) for line in (run / "collectors/0000/metrics.jsonl").read_text().splitlines()]
    assert {"actor_0/env_steps", "actor_1/weights_behind", "actor_1/restarts"} <= metrics[-1].keys()
    steps = sum(report["env_steps"]["NumberedEpisodes-v0"] for report in reported_progress(run))
    assert metrics[-1]["actor_0/env_steps"] + metrics[-1]["actor_1/env_steps"] == steps
    assert check_store(run, steps, lives=2) > 0
    assert max(row["progress/epoch"] for row in rows(tmp_path)) == 3


def test_what_actors_cannot_do_is_refused_at_once(tmp_path, monkeypatch):
    config = numbered(tmp_path)
    with pytest.raises(ConfigError, match=r"make_train_env cannot reach the actors"):
        Experiment(config, make_train_env=lambda: None)

    class Own(Experiment):
        def init_model(self):
            return super().init_model()

    with pytest.raises(ConfigError, match=r"init_model\(\) cannot reach the actors"):
        Own(config)
    config.collect.steps_per_epoch = 0
    with pytest.raises(ConfigError, match="needs a run that collects"):
        Experiment(config)
    config.collect.steps_per_epoch = 1
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install 'seqrl\\[ray\\]'"):
        Experiment(config)


def test_a_process_that_fails_again_and_again_ends_the_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(RayProcess, "_command", lambda self: [sys.executable, "-c", "exit('the arm is loose')"])
    (tmp_path / "ray.log").write_text("error: of another day\n")
    ending = Ending()
    ray_process = RayProcess(tmp_path, ending)
    wait_for(lambda: ending._failed, "a failure")
    with pytest.raises(TrainingError, match="Ray's collectors ended with 1: the arm is loose"):
        ending.check()
    assert caplog.text.count("(the arm is loose) and is restarted") == 2
    ray_process.close()


def test_an_error_of_the_run_ends_it_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(RayProcess, "_command", lambda self: [sys.executable, "-c", "exit('error: no such env')"])
    monkeypatch.setenv("LOCAL_RANK", "1")
    ending = Ending()
    RayProcess(tmp_path, ending)
    wait_for(lambda: ending._failed, "a failure")
    with pytest.raises(TrainingError, match="ended with 1: no such env"):
        ending.check()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_two_ranks_learn_from_one_process_of_actors(tmp_path):
    numbered(tmp_path, train={"num_epochs": 3})
    done = torchrun(["-m", "seqrl", "train", "--config", "run.json"], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [p.name for p in (tmp_path / "run" / "collectors").iterdir()] == ["0000"]
    steps = sum(report["env_steps"]["NumberedEpisodes-v0"] for report in reported_progress(tmp_path / "run"))
    assert check_store(tmp_path / "run", steps, lives=2) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_ctrl_c_ends_all_processes_within_seconds(tmp_path):
    numbered(tmp_path, train={"num_epochs": 100000})
    learner = seqrl_process(tmp_path, "--config", "run.json")
    file = tmp_path / "run" / "metrics.jsonl"
    wait_for(lambda: file.exists() and len(rows(tmp_path)) > 3, "an epoch", processes=[learner], timeout_s=300)
    mine, begin = descendants(learner.pid), time.monotonic()
    learner.send_signal(signal.SIGINT)
    assert learner.wait(60) == 130
    wait_for(lambda: not any(map(is_alive, mine)), "the end of all processes", timeout_s=30)
    assert time.monotonic() - begin < 20  # three on an idle machine


def kill_at_random(folder, kills_of_actors):
    """Train with a learner for each number, killed (the last: interrupted) after so many kills of actors."""
    numbered(folder, sleep_s=0.001, train={"num_epochs": 100000})
    run, kills, options = folder / "run", 0, []
    for part, num_kills in enumerate(kills_of_actors, 1):
        learner = seqrl_process(folder, "--config", "run.json", *options)
        options = ["--resume"]

        def all_are_there(pid=learner.pid):
            return len(actors_of(pid)) == 2

        for _ in range(num_kills):
            wait_for(all_are_there, "actors", processes=[learner], timeout_s=300)
            time.sleep(random.uniform(0.0, 6.0))
            if alive := actors_of(learner.pid):
                os.kill(random.choice(alive), signal.SIGKILL)
                kills += 1
        wait_for(all_are_there, "actors", processes=[learner], timeout_s=300)
        lines = len(rows(folder))
        wait_for(lambda lines=lines: len(rows(folder)) > lines + 5, "epochs", processes=[learner], timeout_s=300)
        mine = {pid for pid in descendants(learner.pid) if "Agent" not in command_of(pid)}  # Ray's own last a minute
        learner.send_signal(signal.SIGINT if part == len(kills_of_actors) else signal.SIGKILL)
        learner.wait(60)
        wait_for(lambda mine=mine: not any(map(is_alive, mine)), "the end of all processes", timeout_s=30)
    slots = sorted((run / "collectors").iterdir())
    assert len(slots) == len(kills_of_actors)
    last = [json.loads((slot / "metrics.jsonl").read_text().splitlines()[-1]) for slot in slots]
    restarts = sum(line["actor_0/restarts"] + line["actor_1/restarts"] for line in last)
    reports = collected_progress(run, Store(run / "replay")).values()
    counted = sum(report["env_steps"].get("NumberedEpisodes-v0", 0) for report in reports)
    stored = check_store(run, counted, lives=2 * len(slots) + kills)
    return f"{kills} kills, {restarts:.0f} restarts seen, {stored} steps stored of {counted}"


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_killed_actors_and_learners_lose_nothing_that_was_stored(tmp_path):
    """``python -m tests.distributed.test_ray`` does it with twenty kills of actors and two of the learner."""
    random.seed(0)
    kill_at_random(tmp_path, (2, 1))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.stdout.write(kill_at_random(Path(made), (7, 7, 6)) + "\n")
