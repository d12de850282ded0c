"""Three nodes with addresses of their own, in network namespaces: a learner, and two with an actor each."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqrl.training.weights import reported_progress
from tests.distributed.test_ray import NUM_ENVS, PLUGIN, check_store, cluster  # noqa: F401  (a fixture)
from tests.distributed.test_roles import wait_for
from tests.regression.test_online import ROOT, small

pytest.importorskip("ray")
HEAD, NODES = "seqrlh", ("seqrla", "seqrlb")
ADDRESS = {HEAD: "10.213.7.1", "seqrla": "10.213.7.2", "seqrlb": "10.213.7.3"}
BRIDGE = "seqrlbr"
PORT = 6399
NODE_LOOP = """
mount -t tmpfs none /tmp/ray && mount -t tmpfs none "$HIDDEN" && mount -t tmpfs none /dev/shm
cd /
while true; do
    "$RAY" start --address={head}:{port} --node-ip-address={own} --num-cpus=1 --object-store-memory=200000000 --block
    sleep 1
done
"""
"""A node sees neither Ray's files of the others, nor the folder of the run; when it is cut off, it begins anew."""


def can_make_namespaces():
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("unshare")):
        return False
    made = subprocess.run(["ip", "netns", "add", "seqrltry"], capture_output=True, check=False).returncode == 0
    mounts = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    mounted = subprocess.run(mounts, capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "delete", "seqrltry"], capture_output=True, check=False)
    return made and mounted


pytestmark = [
    pytest.mark.distributed,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not can_make_namespaces(), reason="needs root, iproute2, and the right to make namespaces"),
]


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def network():
    """Three namespaces on one bridge; what runs in them is killed at the end."""
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("link", "set", BRIDGE, "up")
    try:
        for name, address in ADDRESS.items():
            ip("netns", "add", name)
            ip("link", "add", f"{name}0", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{name}0", "master", BRIDGE, "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield
    finally:
        for name in ADDRESS:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
            for pid in pids.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "link", "delete", f"{name}0"], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)


def start(name, command, log, **variables):
    """Start a command in a namespace, with mounts of its own."""
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0",
        "RAY": str(Path(sys.executable).with_name("ray")), "RAY_AUTH_MODE": "disabled", **variables,
    }  # fmt: skip
    with open(log, "ab") as file:
        return subprocess.Popen(
            ["ip", "netns", "exec", name, "unshare", "-m", *command],
            env=environment, stdout=file, stderr=file, stdin=subprocess.DEVNULL, cwd=log.parent,
        )  # fmt: skip


def last_of(run):
    """Return the last metrics of the process that commands the actors."""
    file = run / "collectors" / "0000" / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return json.loads(lines[-1]) if lines else {}


@pytest.mark.usefixtures("cluster")
def test_a_node_that_is_cut_off_and_comes_back(network, tmp_path):
    hidden, logs = tmp_path / "hidden", tmp_path / "logs"
    hidden.mkdir()
    logs.mkdir()
    plugin = shutil.copy(PLUGIN, hidden)
    config = small(
        hidden,
        env={"id": "NumberedEpisodes-v0", "kwargs": {"sleep_s": 0.002}},
        collect={"collectors": "ray", "ray": {"address": f"{ADDRESS[HEAD]}:{PORT}"}, "num_envs": NUM_ENVS},
        train={"num_epochs": 1000000},
        plugins=[plugin],
    )
    (hidden / "run.json").write_text(json.dumps(config.to_json()))
    run = hidden / "run"
    Path("/tmp/ray").mkdir(exist_ok=True)
    head = ["start", "--head", f"--node-ip-address={ADDRESS[HEAD]}", f"--port={PORT}", "--num-cpus=0", "--block",
            "--include-dashboard=false", "--object-store-memory=200000000"]  # fmt: skip
    quick = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "2000",
             "RAY_health_check_failure_threshold": "4"}  # fmt: skip
    start(HEAD, [str(Path(sys.executable).with_name("ray")), *head], logs / "head.log", **quick)
    for name in NODES:
        loop = NODE_LOOP.format(head=ADDRESS[HEAD], port=PORT, own=ADDRESS[name])
        start(name, ["bash", "-c", loop], logs / f"{name}.log", HIDDEN=str(hidden))
    time.sleep(5)
    learner = start(
        HEAD, [sys.executable, "-m", "seqrl", "train", "--config", str(hidden / "run.json")], logs / "learner.log"
    )

    def steps(number):
        return last_of(run).get(f"actor_{number}/env_steps", 0)

    def is_well():
        assert learner.poll() is None, (logs / "learner.log").read_text()

    def wait(condition, what, timeout_s):
        def is_so():
            is_well()
            return condition()

        wait_for(is_so, what, timeout_s=timeout_s)

    wait(lambda: min(steps(0), steps(1)) > 300, "both nodes", 200)
    ip("link", "set", "seqrlb0", "down")
    said = run / "collectors" / "0000" / "log.txt"
    wait(lambda: "has delivered nothing for" in said.read_text(), "the silence to be noticed", 30)
    before = [steps(0), steps(1)]
    wait(lambda: max(steps(0) - before[0], steps(1) - before[1]) > 300, "the other node to go on", 60)
    assert min(steps(0) - before[0], steps(1) - before[1]) == 0
    ip("link", "set", "seqrlb0", "up")
    wait(lambda: min(steps(0) - before[0], steps(1) - before[1]) > 300, "the node to be used again", 200)
    assert "is back" in said.read_text()
    restarts = last_of(run)["actor_0/restarts"] + last_of(run)["actor_1/restarts"]
    assert restarts >= 1
    learner.send_signal(signal.SIGINT)
    learner.wait(60)
    counted = sum(sum(report["env_steps"].values()) for report in reported_progress(run))
    check_store(run, counted, lives=2 + int(restarts))
