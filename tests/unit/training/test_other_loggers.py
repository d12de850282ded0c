"""Weights & Biases by a stand-in, and loggers of plug-ins."""

import json
import sys
import types

import pytest

import seqrl
from seqrl.configs.sections.run import WandbSection
from seqrl.core.errors import ConfigError
from seqrl.core.registry import LOGGERS
from seqrl.training.loggers import log_video
from seqrl.training.wandb_logger import WandbLogger
from tests.regression.test_interrupt import interrupted, offline, run


class StandIn(types.ModuleType):
    """What of wandb is used."""

    def __init__(self):
        super().__init__("wandb")
        self.runs = []

    def init(self, **options):
        made = types.SimpleNamespace(
            id=options["id"] or f"id{len(self.runs)}", options=options, rows=[], axes=[], finished=0
        )
        made.log = made.rows.append
        made.define_metric = lambda name, step_metric=None: made.axes.append((name, step_metric))
        made.finish = lambda: setattr(made, "finished", made.finished + 1)
        self.runs.append(made)
        return made

    def Video(self, path, format):  # noqa: N802
        return (path, format)


@pytest.fixture
def wandb(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", made := StandIn())
    return made


def logged(folder, name="run", **wandb):
    logging = {"every_n_steps": 2, "tensorboard": False, "wandb": {"enabled": True, "mode": "offline", **wandb}}
    return offline(folder, name, experiment={"logging": logging})


def test_every_row_goes_to_wandb(wandb, tmp_path):
    config = logged(tmp_path, project="p", entity="e", group="g", tags=["t"])
    run(config)
    (made,) = wandb.runs
    expected = {"project": "p", "entity": "e", "group": "g", "tags": ["t"], "mode": "offline", "name": "run"}
    assert expected.items() <= made.options.items()
    (provenance,) = json.loads((tmp_path / "run/provenance.json").read_text())
    assert made.options["config"] == config.to_json() | {"provenance": provenance}
    assert made.options["id"] is made.options["resume"] is None
    assert made.axes == [("gradient_step", None), ("*", "gradient_step")]
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["gradient_step"] for row in made.rows] == [row["step"] for row in rows]
    assert [row.get("loss/total") for row in made.rows] == [row.get("loss/total") for row in rows]
    assert made.finished == 1


def test_videos_go_to_wandb(wandb, tmp_path):
    metrics_logger = WandbLogger(tmp_path, WandbSection(enabled=True), {})
    log_video([metrics_logger], tmp_path / "a.mp4", 7)
    assert wandb.runs[0].rows == [{"video": (str(tmp_path / "a.mp4"), "mp4"), "gradient_step": 7}]


def test_a_resumed_run_goes_on_in_the_same_run_of_wandb(wandb, tmp_path):
    interrupted(logged(tmp_path), "step", 8, 15)
    run(logged(tmp_path), resume=True)
    run(logged(tmp_path, "other"))
    assert [made.id for made in wandb.runs] == ["id0", "id0", "id2"]
    assert (wandb.runs[1].options["id"], wandb.runs[1].options["resume"]) == ("id0", "allow")
    assert min(row["gradient_step"] for row in wandb.runs[1].rows) > 8
    assert all(made.finished == 1 for made in wandb.runs)


@pytest.mark.parametrize("module", [None, types.ModuleType("wandb")])
def test_without_wandb_nothing_is_begun(module, tmp_path, monkeypatch):
    """The module may also be a folder of that name, which an offline run leaves behind."""
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(ConfigError, match=r'experiment\.logging\.wandb: .*pip install "seqrl\[wandb\]"'):
        seqrl.Experiment(logged(tmp_path)).start()
    assert not (tmp_path / "run").exists()
    run(offline(tmp_path, "off"))


def test_settings_of_wandb_that_is_off_are_told(tmp_path, caplog):
    run(logged(tmp_path, enabled=False))
    assert "logging.wandb has settings" in caplog.text  # mode is one
    caplog.clear()
    run(offline(tmp_path, "none", experiment={"logging": {"tensorboard": False}}))
    assert "logging.wandb" not in caplog.text


def test_a_logger_of_a_plugin(tmp_path, monkeypatch):
    monkeypatch.setattr(LOGGERS, "_entries", {})
    monkeypatch.setattr(LOGGERS, "sections", {})
    made = []

    @LOGGERS.register("mine")
    class Mine:
        def __init__(self, run, *, greeting: str = "hello"):
            made.append(self)
            self.run, self.greeting, self.rows, self.is_closed = run, greeting, [], False

        def log(self, values, step):
            self.rows.append((step, dict(values)))

        def close(self):
            self.is_closed = True

    logging = {"every_n_steps": 2, "tensorboard": False, "others": [{"type": "mine", "greeting": "hi"}]}
    config = offline(tmp_path, experiment={"logging": logging})
    stats = run(config)
    (mine,) = made
    assert (mine.greeting, mine.run.path, mine.run.step, mine.is_closed) == ("hi", stats.path, None, True)
    assert mine.run.config == config.to_json()
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [step for step, _ in mine.rows] == [row["step"] for row in rows]
    with pytest.raises(ConfigError, match=r"others\.0\.type +unknown logger 'minee'; did you mean 'mine'\?"):
        offline(tmp_path, experiment={"logging": {"others": [{"type": "minee"}]}})


def test_a_logger_of_a_plugin_that_fails_is_told_once_and_the_run_goes_on(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(LOGGERS, "_entries", {})
    monkeypatch.setattr(LOGGERS, "sections", {})

    @LOGGERS.register("broken")
    class Broken:
        def __init__(self, run):
            pass

        def log(self, values, step):
            raise ValueError("server down")

    logging = {"every_n_steps": 2, "tensorboard": False, "others": [{"type": "broken"}]}
    run(offline(tmp_path, experiment={"logging": logging}))
    text = "the logger 'broken' (experiment.logging.others) fails, and the run goes on: ValueError: server down"
    assert sum(record.getMessage() == text for record in caplog.records) == 1


def test_the_schema_allows_for_loggers_of_plugins(monkeypatch):
    monkeypatch.setattr(LOGGERS, "_entries", {})
    monkeypatch.setattr(LOGGERS, "sections", {})
    schema = json.dumps(type(seqrl.config_factory("bc")).model_json_schema())
    assert '"anyOf": []' not in schema
