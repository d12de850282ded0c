"""An array of jobs, handed to programs that stand for SLURM's."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from seqrl.scripts import sweep
from seqrl.sweeps import slurm

RATE = "algo.optimizer.learning_rate"
SBATCH = """#!{python}
import os, re, subprocess, sys
from pathlib import Path
here = Path({here!r})
if (here / "refuses").exists():
    sys.exit("sbatch: error: invalid partition specified")
number = 100 + len(list(here.glob("job_*")))
text = Path(sys.argv[1]).read_text()
(here / f"job_{{number}}").write_text(text)
print(f"Submitted batch job {{number}}")
array = re.search(r"--array=0-([0-9]+)", text)
for task in range(int(array[1]) + 1 if array else 1):
    job = f"{{number}}_{{task}}" if array else str(number)
    own = {{"SLURM_JOB_ID": job, "SLURM_ARRAY_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": str(task)}}
    own |= {{"SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}}
    own |= {{"SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "here", "PATH": f"{here}:{{os.environ['PATH']}}"}}
    if not array:
        own = {{k: v for k, v in own.items() if "ARRAY" not in k}}
    said = open(here / f"said_{{job}}", "w")
    (here / "queue" / job).touch()
    does = f"bash {{here}}/job_{{number}}; rm {{here}}/queue/{{job}}"
    own = {{**os.environ, **own}}
    subprocess.Popen(["bash", "-c", does], env=own, stdout=said, stderr=said, start_new_session=True)
"""
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do case "$1" in --output|--error) shift 2;; *) shift;; esac; done
exec "$@"
"""
SITE = """
import os, sys
if "submitit.core._submit" in sys.orig_argv:
    import seqrl.sweeps.pool as pool
    train = pool.train_command
    pool.train_command = lambda *arguments: [sys.executable, {stand_in!r}, *train(*arguments)[3:]]
"""
SQUEUE = "#!/bin/bash\nls {here}/queue\n"


@pytest.fixture
def submitit():
    return pytest.importorskip("submitit", reason="pip install 'seqrl[slurm]'")


@pytest.fixture
def cluster(tmp_path, monkeypatch, submitit):
    """Put programs of SLURM's names on the path; jobs run stand-ins at once, on this machine."""
    here = tmp_path / "cluster"
    (here / "queue").mkdir(parents=True)
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("squeue", SQUEUE)):
        filled = text if name == "srun" else text.format(python=sys.executable, here=str(here))
        (here / name).write_text(filled)
        (here / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}:{os.environ['PATH']}")
    stand_in = str(Path(__file__).with_name("stand_in.py"))
    (here / "sitecustomize.py").write_text(SITE.format(stand_in=stand_in))
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here), str(root), *filter(None, sys.path)]))
    return here


def until_empty(cluster):
    end = time.monotonic() + 60
    while list((cluster / "queue").iterdir()):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_without_submitit_a_message_says_what_to_install(stand_in, monkeypatch, capsys):
    stand_in(grid={RATE: [0.1]})
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert sweep.main(["mine.json", "--backend", "slurm"]) == 2
    assert "pip install 'seqrl[slurm]'" in capsys.readouterr().err


def test_a_dry_run_prints_the_array(stand_in, submitit, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    options = {"timeout_min": 90, "partition": "gpu", "gpus_per_node": 1}
    mine = stand_in(grid={RATE: [0.1, 0.01]}, seeds=3, slurm=options)
    assert sweep.main(["mine.json", "--backend", "slurm", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    flags = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}
    assert {"--array=0-5%6", "--time=90", "--partition=gpu", "--gpus-per-node=1", "--job-name=mine"} <= flags
    assert any(line.startswith("srun ") and sys.executable in line for line in lines)
    assert not mine.path.exists()
    assert sweep.main(["mine.json", "--backend", "slurm"]) == 2
    assert "--dry-run prints the array without one" in capsys.readouterr().err


def test_what_slurm_does_not_know_is_told(stand_in, submitit, capsys):
    stand_in(grid={RATE: [0.1, 0.01]}, slurm={"partitoin": "gpu"})
    assert sweep.main(["mine.json", "--backend", "slurm", "--dry-run"]) == 2
    assert "slurm: Unavailable parameter(s): ['partitoin']" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_array_runs_and_only_what_is_left_is_handed_in_again(cluster, stand_in, capsys):
    values = {"cases": [{RATE: 0.01}, {RATE: 0.001, "env.kwargs.fail": "broken"}], "set": {"env.kwargs.epoch_s": 0.3}}
    mine = stand_in(**values)
    Path("broken").touch()
    assert sweep.main(["mine.json", "--backend", "slurm"]) == 0
    assert "0 finished, 0 in the queue, 2 submitted as 100 (scancel 100 cancels them)" in capsys.readouterr().out
    assert json.loads(mine.read("slurm/jobs.json")) == {
        "learning_rate=0.01_seed0": "100_0",
        "learning_rate=0.001_fail=broken_seed0": "100_1",
    }
    assert sweep.main(["mine.json", "--backend", "slurm"]) == 0
    assert "0 finished, 2 in the queue, 0 submitted" in capsys.readouterr().out
    until_empty(cluster)
    assert mine.epochs == {"learning_rate=0.01_seed0": [1, 2, 3]}, (cluster / "said_100_0").read_text()
    Path("broken").unlink()
    assert sweep.main(["mine.json", "--backend", "slurm"]) == 0
    assert "1 finished, 0 in the queue, 1 submitted as 101" in capsys.readouterr().out
    assert "--array" not in (cluster / "job_101").read_text()
    until_empty(cluster)
    assert sweep.main(["mine.json", "--backend", "slurm"]) == 0
    out = capsys.readouterr().out
    assert "2 finished, 0 in the queue, 0 submitted" in out
    assert "best: learning_rate=0.01" in out
    assert (mine.path / "best.json").is_file()


def test_an_array_that_is_refused_is_told(cluster, stand_in, capsys):
    stand_in(seeds=2)
    (cluster / "refuses").touch()
    assert sweep.main(["mine.json", "--backend", "slurm"]) == 2
    err = capsys.readouterr().err
    assert "SLURM refused the array" in err
    assert "invalid partition" in err


def test_a_job_that_is_to_end_saves_and_goes_on(stand_in, monkeypatch, submitit):
    """As submitit does it: the warning passes by the run, and interrupts what waits for it to let it save."""
    import signal
    import threading

    mine = stand_in(seeds=1, set={"env.kwargs.hangs_at": 1})
    from seqrl.sweeps.planning import Plan
    from seqrl.sweeps.pool import train_command  # the stand-in's
    from seqrl.sweeps.sweep_file import read_sweep
    from seqrl.sweeps.sweep_folder import SweepFolder

    monkeypatch.setattr(slurm, "train_command", train_command)
    plan = Plan(*read_sweep("mine.json"), "mine.json")
    folder = SweepFolder(plan)
    (run,) = plan.runs()
    with folder.opened():
        folder.write_run_files([run])
    job = slurm.TrainJob(folder.run_file(run), folder.run_path(run))
    delayed = None

    class Requeued(Exception):  # noqa: N818
        """What submitit does at the end of its handler: it leaves the job."""

    def on_signal(*_):
        nonlocal delayed
        delayed = job.checkpoint()
        raise Requeued

    def warn():
        end = time.monotonic() + 30
        while not mine.epochs and time.monotonic() < end:
            time.sleep(0.02)
        for pid in (job._process.pid, os.getpid()):  # SLURM signals all processes of a job
            os.kill(pid, signal.SIGUSR2)
            time.sleep(0.2)

    before = signal.signal(signal.SIGUSR2, on_signal)
    try:
        thread = threading.Thread(target=warn)
        thread.start()
        with pytest.raises(Requeued):
            job()
        thread.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert mine.epochs == {"base_seed0": [1]}
    config = json.loads(folder.run_file(run).read_text())
    config["env"]["kwargs"] = {}
    folder.run_file(run).write_text(json.dumps(config))
    assert delayed.function() == 0
    assert mine.epochs == {"base_seed0": [1, 2, 3]}
