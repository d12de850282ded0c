"""Every packaged run file trains as it stands, if only for two tiny epochs."""

import pytest

from seqrl.configs import template_names
from seqrl.scripts import train

VARIANTS = {"cql.json, calibrated": ["algo.calibrate=true"], "bcq.json, gmm": ["algo.proposals=gmm"]}


@pytest.mark.parametrize("name", [*template_names(), *VARIANTS])
def test_a_template_trains(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [word for setting in VARIANTS.get(name, ()) for word in ("--set", setting)]
    assert train.main(["--config", name.split(",")[0], "--debug", *words]) == 0
