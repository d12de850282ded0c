"""The process that commands Ray's actors, with a stand-in for Ray; and what an actor does, without Ray."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from seqrl.configs import config_factory
from seqrl.core.errors import TrainingError
from seqrl.training import ray_collectors
from seqrl.training.collector import CollectStats
from seqrl.training.ray_actor import ActorBody, Batch
from seqrl.training.ray_collectors import RayCollectors
from seqrl.training.world import GivenMakers, find_world
from tests.distributed import numbered_episodes
from tests.regression.test_online import small

ERRORS = ("RayTaskError", "ActorDiedError", "UnserializableException", "RaySystemError")


class StandIn:
    """Answers each order by what the test lists for the actor: a batch, or an error."""

    def __init__(self, answers):
        self.RayError = type("RayError", (Exception,), {})
        made = {name: type(name, (self.RayError,), {"cause": None}) for name in ERRORS}
        self.exceptions = SimpleNamespace(RayError=self.RayError, **made)
        self._answers, self.orders, self._num = answers, [], 0

    def remote(self, cls):
        return self

    def options(self, **options):
        number = iter(range(100))

        def order(actor):
            return lambda *what: self.orders.append((actor, *what)) or len(self.orders) - 1

        return SimpleNamespace(remote=lambda *_: SimpleNamespace(collect=SimpleNamespace(remote=order(next(number)))))

    def wait(self, references, num_returns=1, timeout=None):
        assert references, "nothing is in flight"
        return references[:1], references[1:]

    def get(self, reference):
        answer = self._answers[self.orders[reference][0]].pop(0)
        if isinstance(answer, str):
            raise getattr(self.exceptions, answer, self.RayError)(f"what happened\n{answer}")
        return answer

    def put(self, value):
        return value

    def available_resources(self):
        return {"CPU": 0.0}


def batch(*trajectories, version=0, life="a", steps=5):
    stats = CollectStats(env_steps=Counter({"env": steps}))
    return Batch(list(trajectories), stats, version, life, 0.5, 10)


def collectors(monkeypatch, answers, **section):
    ray, written = StandIn(answers), []
    monkeypatch.setattr(ray_collectors, "_connected", lambda config: ray)
    values = {"collect": {"steps_per_epoch": 5, "ray": {"num_actors": len(answers), **section}}}
    made = RayCollectors(config_factory("actor_critic", values), None, 3, written.append, lambda: None)
    return made, written, ray


def test_each_batch_is_written_once_and_ordered_again(monkeypatch):
    made, written, ray = collectors(monkeypatch, [[batch("a", "b"), batch("c", version=2)], [batch("d")] * 9])
    stats = [made.collect() for _ in range(3)]
    assert [s.num_steps for s in stats] == [5, 5, 5]
    assert written == ["a", "b", "c", "d"]
    assert Counter(actor for actor, *_ in ray.orders) == {0: 4, 1: 3}  # two in flight of each
    numbers = made.metrics(stats[-1])
    assert (numbers["actor_0/env_steps"], numbers["actor_1/env_steps"], numbers["actor_0/restarts"]) == (10, 5, 0)


def test_a_restart_is_counted_and_weights_are_named(monkeypatch):
    made, _, ray = collectors(monkeypatch, [[batch(version=1), batch(version=4, life="b")]])
    made.take_weights(SimpleNamespace(tensors={}, version=4))
    made.collect()
    assert made.metrics(CollectStats())["actor_0/weights_behind"] == 3
    made.collect()
    numbers = made.metrics(CollectStats())
    assert (numbers["actor_0/restarts"], numbers["actor_0/weights_behind"]) == (1, 0)
    assert all(order[3] == 4 for order in ray.orders)


def test_a_lost_batch_is_ordered_again(monkeypatch, caplog):
    made, written, _ = collectors(monkeypatch, [["ObjectLostError", "ObjectLostError", "ObjectLostError", batch("a")]])
    made.collect()
    assert written == ["a"]
    assert caplog.text.count("a batch of actor 0 was lost: ObjectLostError") == 3


def test_an_actor_that_loses_all_is_given_up(monkeypatch):
    made, _, _ = collectors(monkeypatch, [["ObjectLostError"] * 9], max_restarts=3)
    with pytest.raises(TrainingError, match="no actor is left; the last died: ObjectLostError"):
        made.collect()


def test_the_others_go_on_without_an_actor_that_is_dead_for_good(monkeypatch, caplog):
    made, written, _ = collectors(monkeypatch, [["ActorDiedError"] * 2, [batch("a"), batch("b"), batch("c")]])
    for _ in range(3):
        made.collect()
    assert written == ["a", "b", "c"]
    assert "actor 0 is dead for good, 1 go on: ActorDiedError" in caplog.text


@pytest.mark.parametrize("name", ["RayTaskError", "UnserializableException", "RaySystemError"])
def test_an_error_of_the_users_code_ends_the_run(name, monkeypatch):
    made, _, _ = collectors(monkeypatch, [[name]])
    with pytest.raises(TrainingError, match=f"actor 0 .*\n?.*{name}"):
        made.collect()


def test_a_silent_actor_is_named_and_so_is_its_return(monkeypatch, caplog):
    made, _, _ = collectors(monkeypatch, [[batch(), batch(), batch()]])
    made.collect()
    made.collect()
    made._actors[0].heard_s -= 1000
    made._tell_of_silent_ones()
    made._tell_of_silent_ones()
    made.collect()
    assert caplog.text.count("actor 0 has delivered nothing for 1000 s") == 1
    assert caplog.text.count("actor 0 is back") == 1


# ------------------------------------------------------------------------------------------- what an actor does
@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_an_actor_collects_with_plugins_that_lie_elsewhere(vectorization, tmp_path):
    """Two of them have one name; neither file is there where the actor is."""
    source = Path(numbered_episodes.__file__).read_text()
    first, second = (source.replace("NumberedEpisodes-v0", f"Numbered{k}{vectorization}-v0") for k in (1, 2))
    plugins = {"/nowhere/a/env.py": first, "/nowhere/b/env.py": second}
    values = small(tmp_path, collect={"num_envs": 2, "steps_per_epoch": 25}).to_json()
    values["env"] = {
        "tasks": [{"id": f"Numbered{k}{vectorization}-v0"} for k in (1, 2)],
        "vectorization": vectorization,
    }
    here = config_factory("actor_critic", json.loads(json.dumps(values)))
    for text in plugins.values():
        exec(compile(text, "plugin", "exec"), {"__name__": "plugin"})
    world = find_world(here, None, GivenMakers(), is_collecting=True, warn=print)
    body = ActorBody(7, "actor_critic", {**values, "plugins": list(plugins)}, plugins, world.info)
    try:
        found = body.collect(0, 0)
        again = body.collect(1, 1000)
    finally:
        body._collector.close()
    assert found.stats.num_steps == again.stats.num_steps == 50
    assert {t.env_name for t in found.trajectories} == {f"Numbered{k}{vectorization}-v0" for k in (1, 2)}
    assert [len(t) for t in found.trajectories] == [10] * 4
    assert found.life == again.life
    assert again.steps_per_env == 1025
    assert not np.array_equal(found.trajectories[0].obs["obs"], again.trajectories[0].obs["obs"])
