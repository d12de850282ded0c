"""Every packaged run file trains as it stands, if only for two tiny epochs."""

import pytest

from seqrl.configs import template_names
from seqrl.scripts import train

VARIANTS = {"cql.json, calibrated": ["algo.calibrate=true"], "bcq.json, gmm": ["algo.proposals=gmm"]}

QUICK = ("bc.json", "iql.json")
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in (*template_names(), *VARIANTS)]


@pytest.mark.parametrize("name", NAMES)
def test_a_template_trains(name, tmp_path, monkeypatch):
    is_pusht = name.endswith(("_images.json", "_paper.json"))
    if is_pusht:
        pytest.importorskip("gym_pusht")
    monkeypatch.chdir(tmp_path)
    settings = VARIANTS.get(name, ["env.kwargs.max_episode_steps=20"] if is_pusht else ())
    words = [word for setting in settings for word in ("--set", setting)]
    assert train.main(["--config", name.split(",")[0], "--debug", *words]) == 0
