"""A sweep over target returns asks for each, and puts the policy's own target back."""

import pytest

from seqrl.conformance.algorithms import AlgoCase
from seqrl.core.errors import ConfigError
from seqrl.envs.metrics import Episode
from seqrl.rollout.probing import Player, draw_probes, sweep_target_return

CASE = AlgoCase("decision_transformer", "gru", "box", values={"target_return": 3.0, "return_scale": 2.0})


class Obedient(Player):
    """Plays episodes whose return is what the policy is asked for."""

    def play(self, **kwargs):
        asked = float(self.algo.returns.target)
        return [Episode("", 0, asked + noise, 3, None) for noise in (-0.1, 0.1)]


def player_of(algo):
    return Obedient(algo, lambda kwargs: None, "an environment")


def test_each_return_is_asked_for(tmp_path):
    algo = CASE.build()
    probe = sweep_target_return(player_of(algo), [-1.0, 0, 2.5])
    assert [p.measures["return"].value for p in probe.points] == pytest.approx([-1.0, 0.0, 2.5], abs=1e-6)
    assert probe.reference == 3.0
    assert algo.returns.target.item() == 3.0
    draw_probes(tmp_path / "probe.png", [probe])
    assert (tmp_path / "probe.png").stat().st_size > 1000


def test_others_cannot_be_asked():
    with pytest.raises(ConfigError, match="bc is not conditioned on a return"):
        sweep_target_return(player_of(AlgoCase("bc", "gru", "box").build()), [1.0])
    with pytest.raises(ConfigError, match="'much' is not a number"):
        sweep_target_return(player_of(CASE.build()), ["much"])
