"""From demonstrators of whom half err, the agents learn the task, where cloning learns the mixture.

The runs are those of benchmarks/offline_agents.py, which tells the tasks; here seed 0 of each agent on one of them, 200
episodes, CPU, one thread. Its results on both with three seeds are held by tests/docs/test_offline_agents.py.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from offline_agents import ALGOS, NUM_DEMONSTRATIONS, NUM_EPISODES, successes, write_demonstrations

from seqrl.reports.intervals import share_interval

POINT = {"multitask", "td3_bc", "edac", "fql"}
AGENTS = [("point" if algo in POINT else "grid", algo) for algo in sorted(ALGOS.keys() - {"bc"})]


@pytest.fixture(scope="module")
def cloned(tmp_path_factory):
    """Return a task's demonstrations and the control's result on them; each is made once."""
    made = {}

    def make(task):
        if task not in made:
            folder = tmp_path_factory.mktemp(task)
            write_demonstrations(task, folder / "shuffled.hdf5", rewards_of_others=True)
            good = write_demonstrations(task, folder / "mixed.hdf5")
            assert 0.2 * NUM_DEMONSTRATIONS < good < 0.6 * NUM_DEMONSTRATIONS
            made[task] = folder / "mixed.hdf5", trained(task, "bc", folder / "mixed.hdf5", folder)
        return made[task]

    return make


def trained(task, algo, data, folder):
    return share_interval(successes(task, algo, 0, data, folder), NUM_EPISODES)


@pytest.mark.learning
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("task", "algo"), AGENTS)
def test_an_agent_beats_cloning(task, algo, cloned, tmp_path):
    data, control = cloned(task)
    agent = trained(task, algo, data, tmp_path)
    assert agent.low > control.high, (agent, control)


@pytest.mark.learning
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("task", "algo"), [*(("grid", a) for a in ("iql", "cql", "bcq")), *(("point", a) for a in ("td3_bc", "edac"))]
)
def test_with_rewards_of_other_episodes_it_does_no_better_than_cloning(task, algo, cloned, tmp_path):
    data, control = cloned(task)
    agent = trained(task, algo, data.with_name("shuffled.hdf5"), tmp_path)
    assert agent.low <= control.high, (agent, control)
