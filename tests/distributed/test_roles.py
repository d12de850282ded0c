"""Several processes: learners under torchrun, and a learner with collectors that come and go."""

import errno
import json
import signal
import time

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.algo.checkpoint import read_checkpoint
from seqrl.core.errors import ConfigError, TrainingError
from seqrl.core.files import FileLock
from seqrl.core.types import Trajectory
from seqrl.data import Budget, Store, StoreInfo, StoreWriter
from seqrl.data.store import SHARDS_PER_BUDGET
from seqrl.training.experiment import Experiment
from seqrl.training.progress import Progress
from seqrl.training.run_folder import join_run
from seqrl.training.weights import CollectorSlot, Publisher, Subscriber, collected_progress, reported_progress
from tests.distributed.test_two_ranks import torchrun
from tests.helpers import small_algo
from tests.regression.test_online import rows, seqrl_process, small

pytestmark = pytest.mark.distributed


# -------------------------------------------------------------------------------------- weights, by file
def test_weights_are_seen_once_and_whole(tmp_path):
    algo = small_algo()
    publisher, subscriber = Publisher(tmp_path), Subscriber(tmp_path)
    assert subscriber.poll() is None
    publisher.publish(algo.serialize(), 3)
    seen = subscriber.poll()
    assert seen.version == 3
    small_algo(seed=1).deserialize(seen.tensors)
    assert subscriber.poll() is None
    publisher.publish(algo.serialize(), 4)
    assert subscriber.poll().version == 4
    assert not subscriber.is_finished
    publisher.finish()
    assert subscriber.is_finished
    assert not (Publisher(tmp_path), subscriber.is_finished)[1]  # a resumed learner goes on


def test_on_a_full_disk_collectors_keep_the_weights_they_have(tmp_path, monkeypatch, caplog):
    algo, publisher = small_algo(), Publisher(tmp_path)
    publisher.publish(algo.serialize(), 3)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        publisher.publish(algo.serialize(), 4)
    assert "the new weights were not published: No space left on device" in caplog.text
    assert Subscriber(tmp_path).poll().version == 3


def test_broken_weights_are_an_error(tmp_path):
    Publisher(tmp_path)
    (tmp_path / "published" / "weights.safetensors").write_bytes(b"nonsense")
    with pytest.raises(TrainingError, match="cannot be read"):
        Subscriber(tmp_path).poll()


def test_every_collector_has_a_place_of_its_own(tmp_path):
    slots = [CollectorSlot(tmp_path) for _ in range(3)]
    assert [s.number for s in slots] == [0, 1, 2]
    slots[1].report({"env_steps": {"a": 5}})
    (slots[2].path / "progress.json").write_text("{torn")
    assert reported_progress(tmp_path) == [{"env_steps": {"a": 5}}]


def steps(num, name="a"):
    ends = np.arange(num) == num - 1
    obs = {"obs": np.zeros((num + 1, 1), np.float32)}
    return Trajectory(obs, np.zeros(num, np.int64), np.zeros(num, np.float32), ends, ends & False, env_name=name)


def test_steps_that_a_killed_collector_had_not_reported_are_counted_from_the_replay(tmp_path):
    info, budget = StoreInfo(spaces.Box(0, 1, (1,)), spaces.Discrete(2)), Budget(trajectories=4 * SHARDS_PER_BUDGET)
    slots, progress = [CollectorSlot(tmp_path) for _ in range(3)], Progress()
    writers = [StoreWriter(tmp_path / "replay", info, "fifo", budget, slot.begin_shard) for slot in slots]

    def collect(k, trajectory):
        writers[k].append(trajectory)
        slots[k].count_stored(trajectory)

    def counted():
        replay = Store(tmp_path / "replay")
        progress.take_reports(collected_progress(tmp_path, replay))
        return dict(progress.env_steps)

    for k in range(10):  # into three shards
        collect(0, steps(5, "ab"[k % 2]))
    assert counted() == {"a": 25, "b": 25}
    slots[0].report({"env_steps": {"a": 25, "b": 27}, "episodes": 10, "faults": 0})  # two steps are not stored yet
    assert counted() == {"a": 25, "b": 27}
    collect(0, steps(3, "b"))
    writers[1].append(steps(7))  # killed before it could count
    assert counted() == {"a": 32, "b": 28}
    writers[0].close()
    writers[1].close()
    collect(2, steps(2))
    Store(tmp_path / "replay").evict(Budget(trajectories=1))
    assert counted() == {"a": 34, "b": 28}
    assert (progress.num_episodes, len(reported_progress(tmp_path))) == (10, 1)


@pytest.mark.slow
def test_all_that_a_killed_collector_has_stored_is_counted(tmp_path):
    """Epochs so long that nothing is reported; the learner is halted until both collectors are dead."""
    changes = {"train": {"num_epochs": 3}, "collect": {"replay": {"min_transitions": 100}, "trajectory_steps": 5}}
    (tmp_path / "run.json").write_text(json.dumps(small(tmp_path, **changes).to_json()))
    learner, run = seqrl_process(tmp_path, "--config", "run.json", "--role", "learn"), tmp_path / "run"
    wait_for(lambda: (run / "published/weights.safetensors").exists(), "weights", processes=[learner])
    learner.send_signal(signal.SIGSTOP)
    collect = ["--config", "run.json", "--role", "collect", "--set", "collect.steps_per_epoch=100000000"]
    for k in (1, 2):
        collector = seqrl_process(tmp_path, *collect)
        slot = run / f"collectors/{k - 1:04d}/shard.json"
        wait_for(lambda slot=slot: slot.exists(), "a shard", processes=[collector])
        wait_for(lambda k=k: Store(run / "replay").num_transitions > 200 * k, "data", processes=[collector])
        collector.kill()
        collector.wait(60)
    stored = Store(run / "replay").num_transitions
    learner.send_signal(signal.SIGCONT)
    assert learner.wait(120) == 0, learner.stderr.read()
    assert reported_progress(run) == []
    assert rows(tmp_path)[-1]["progress/env_steps"] == Store(run / "replay").num_transitions == stored


def test_a_collector_needs_a_learner_and_its_policy(tmp_path):
    config = small(tmp_path)
    with pytest.raises(ConfigError, match="no learner has published weights"):
        join_run(tmp_path / "run", config, timeout_s=0.2)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(config.to_json()))
    Publisher(tmp_path / "run").publish(small_algo().serialize(), 0)
    with pytest.raises(ConfigError, match="no learner has published weights"):
        join_run(tmp_path / "run", config, timeout_s=0.2)  # nobody learns there now
    learner = FileLock(tmp_path / "run" / "lock")
    assert join_run(tmp_path / "run", config).path == tmp_path / "run"
    Publisher(tmp_path / "run").finish()
    with pytest.raises(ConfigError, match="the run there has ended"):
        join_run(tmp_path / "run", config, timeout_s=0.2)
    Publisher(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"collect\.replay\.max_transitions  is None there, and 5 here"):
        join_run(tmp_path / "run", small(tmp_path, collect={"replay": {"max_transitions": 5}}))
    other = small(tmp_path, algo={"sequence_encoder": {"type": "gru", "d_hidden": 32}})
    with pytest.raises(ConfigError, match=r"another policy:\n  algo\.sequence_encoder\.d_hidden  is 16 there, and 32"):
        join_run(tmp_path / "run", other)
    learner.release()


def test_a_run_belongs_to_one_learner(tmp_path):
    config = small(tmp_path, train={"num_epochs": 1})
    first = Experiment(config)
    first.start()
    for options in ({"resume": True}, {"overwrite": True}, {}):
        with pytest.raises(ConfigError, match=r"an Experiment of this process has .* open"):
            Experiment(config, **options).start()
    first.learn()
    Experiment(config, overwrite=True).start()


@pytest.mark.slow
def test_a_run_of_both_takes_in_what_collectors_bring(tmp_path):
    config = small(tmp_path, train={"num_epochs": 60})
    (tmp_path / "run.json").write_text(json.dumps(config.to_json()))
    learner = seqrl_process(tmp_path, "--config", "run.json")
    collector = seqrl_process(tmp_path, "--config", "run.json", "--role", "collect")
    texts = [p.communicate(timeout=200)[1] for p in (learner, collector)]
    assert (learner.returncode, collector.returncode) == (0, 0), texts
    assert rows(tmp_path)[-1]["progress/env_steps"] > 60 * 60
    assert Store(tmp_path / "run/replay").verify() == []


# ------------------------------------------------------------------------------------------ torchrun
@pytest.mark.slow
def test_two_learners_collect_other_episodes_and_count_together(tmp_path):
    config = small(tmp_path, train={"num_epochs": 3})
    (tmp_path / "run.json").write_text(json.dumps(config.to_json()))
    done = torchrun(["-m", "seqrl", "train", "--config", "run.json"], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    last = rows(tmp_path)[-1]
    assert last["progress/env_steps"] == 2 * 3 * 60
    shards = [s for s in (tmp_path / "run/replay/fifo").iterdir() if s.name.startswith("shard_")]
    assert len(shards) == 2
    contents = [(s / "obs%2Fobs.bin").read_bytes() if (s / "obs%2Fobs.bin").exists() else b"" for s in shards]
    assert contents[0] != contents[1]
    values = read_checkpoint(tmp_path / "run").training_state().values
    assert values["num_processes"] == 2
    generators = [state["generator"] for state in values["explorations"]]
    assert generators[0] != generators[1]
    assert len([p for p in (tmp_path / "run/checkpoints").iterdir() if p.is_dir()]) <= 3
    resumed = torchrun(
        ["-m", "seqrl", "train", "--config", "run.json", "--resume", "--set", "train.num_epochs=4"], tmp_path
    )
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert rows(tmp_path)[-1]["progress/env_steps"] == 2 * 4 * 60
    assert Store(tmp_path / "run/replay").verify() == []


# --------------------------------------------------------------------------------------------- roles
def wait_for(condition, what, timeout_s=120.0, processes=()):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        for process in processes:
            assert process.poll() in (None, 0), process.stderr.read()
        time.sleep(0.05)


@pytest.mark.slow
def test_collectors_come_and_go(tmp_path):
    """Started before the learner, killed, started again: the learner goes on, and what was collected counts."""
    config = small(tmp_path, train={"num_epochs": 150}, collect={"replay": {"max_transitions": 4000}})
    (tmp_path / "run.json").write_text(json.dumps(config.to_json()))
    run = tmp_path / "run"

    def start(role):
        return seqrl_process(tmp_path, "--config", "run.json", "--role", role)

    first = start("collect")
    learner = start("learn")
    second = start("collect")
    wait_for(lambda: len(reported_progress(run)) == 2, "two collectors", processes=(first, learner, second))
    second.send_signal(signal.SIGKILL)
    third = start("collect")
    wait_for(lambda: len(reported_progress(run)) == 3, "the third collector", processes=(first, learner, third))
    assert learner.poll() is None
    texts = [p.communicate(timeout=200)[1] for p in (learner, first, third)]
    assert [p.returncode for p in (learner, first, third)] == [0, 0, 0], texts
    reports = reported_progress(run)
    total = sum(sum(r["env_steps"].values()) for r in reports)
    assert 0 < rows(tmp_path)[-1]["progress/env_steps"] <= total
    assert max(r["weights"] for r in reports) > 0
    replay = Store(run / "replay")
    assert replay.verify() == []
    assert replay.num_transitions <= 4000 + 3 * 4000 // 16 + 3 * 8
    assert not [p for p in (run / "replay" / "fifo").iterdir() if p.name.startswith(".")]


@pytest.mark.slow
def test_a_learner_without_collectors_says_what_it_waits_for(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(small(tmp_path).to_json()))
    learner = seqrl_process(tmp_path, "--config", "run.json", "--role", "learn")
    lines = []
    for line in learner.stderr:
        lines.append(line)
        if "waiting for collectors" in line:
            break
    learner.send_signal(signal.SIGINT)
    assert learner.wait(60) == 130, lines
    assert "the same command with --role collect" in lines[-1]
