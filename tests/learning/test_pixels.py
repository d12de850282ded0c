"""Imitation of PushT from its pixels, 96 x 96: the loss falls within 200 gradient steps. Skipped without gym-pusht."""

import json

import numpy as np
import pytest

from seqrl.scripts import train

pytestmark = [pytest.mark.learning, pytest.mark.slow, pytest.mark.timeout(1200)]
SMALL = (
    "train.data.0.episodes=20",
    "train.batch_size=4",
    "train.num_epochs=1",
    "train.steps_per_epoch=200",
    "observation.timestep_encoder.modalities.pixels.core.type=drq",
    "algo.optimizer.learning_rate=0.0005",
    "experiment.logging.every_n_steps=10",
    "experiment.evaluation.enabled=false",
    "experiment.report.enabled=false",
)


@pytest.mark.parametrize("name", ["act_images", "diffusion_images"])
def test_the_loss_falls(tmp_path, name):
    pytest.importorskip("gym_pusht")
    words = [word for setting in (*SMALL, f"experiment.output_dir={tmp_path}") for word in ("--set", setting)]
    assert train.main(["--config", f"{name}.json", "--name", "run", *words]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss/total"] for row in rows if "loss/total" in row]
    assert len(losses) == 20
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:3])
