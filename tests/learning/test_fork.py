"""Fork: a mean of two ways runs into the wall; values choose among the ways that the data shows.

300 demonstrations that pass the wall on both sides, 200 sampled episodes, seed 0, CPU.
"""

import pytest

import seqrl

DATA = [{"scripted": "seqrl/Fork-v0", "episodes": 300}]


def learned(algo, folder, num_steps, *, pays="both", data=DATA, **section):
    """Return the last evaluation's shares of successes, of episodes that passed, and of those on the right."""
    config = seqrl.config_factory(
        algo,
        {
            "experiment": {
                "output_dir": str(folder),
                "name": f"{algo}-{pays}-{section.get('distribution', {}).get('type')}",
                "evaluation": {"episodes": 200, "every_n_epochs": 2, "deterministic": False},
                "report": {"enabled": False},
                "logging": {"tensorboard": False},
            },
            "env": {"id": "seqrl/Fork-v0", "kwargs": {"pays": pays}},
            "train": {"data": data, "window_steps": 8, "num_epochs": 1, "steps_per_epoch": num_steps, "seed": 0},
            "observation": {
                "use_prev_action": False,
                "use_prev_reward": False,
                "timestep_encoder": {"type": "mlp", "d_hidden": 64, "d_output": 64},
            },
            "algo": {
                "sequence_encoder": {"type": "feedforward", "d_model": 64, "d_ff": 128, "num_layers": 1},
                "optimizer": {"learning_rate": 1e-3, "warmup_steps": 50},
                **section,
            },
        },
    )
    experiment = seqrl.Experiment(config)
    experiment.start()
    metrics = experiment.learn().metrics
    return metrics["eval/success_mean"], metrics["eval/log/passed"], metrics["eval/log/right"]


@pytest.mark.learning
@pytest.mark.slow
def test_a_mean_runs_into_the_wall(tmp_path):
    success, *_ = learned("bc", tmp_path, 500, distribution={"type": "deterministic"}, actor={"d_hidden": 64})
    assert success <= 0.05


ACT = {"d_model": 32, "num_encoder_layers": 1}
WIDE = {"denoiser": {"type": "mlp", "d_hidden": 256, "num_layers": 3}}


@pytest.mark.learning
@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "chunk_steps", "num_steps", "section"),
    [
        ("flow_matching", 4, 2000, WIDE),
        ("diffusion_policy", 1, 2000, {**WIDE, "inference_steps": 20}),
        ("act", 4, 1000, {**ACT, "kl_weight": 0.02}),
    ],
)
def test_policies_of_several_modes_take_both_ways(algo, chunk_steps, num_steps, section, tmp_path):
    chunks = {"chunk_steps": chunk_steps, "execute_steps": max(chunk_steps // 2, 1)}
    success, _, right = learned(algo, tmp_path, num_steps, **chunks, **section)
    assert success >= 0.75
    assert 0.25 <= right / success <= 0.75


@pytest.mark.learning
@pytest.mark.slow
def test_a_latent_without_divergence_from_its_prior_collides(tmp_path):
    """Nothing holds the posterior near what acting draws from, so a draw says nothing."""
    success, *_ = learned("act", tmp_path, 1000, chunk_steps=4, execute_steps=2, kl_weight=0.0, **ACT)
    assert success <= 0.6


@pytest.mark.learning
@pytest.mark.slow
@pytest.mark.parametrize("pays", ["right", "left"])
def test_values_choose_the_way_that_pays(pays, tmp_path):
    """Those that pass take the way that pays; up to a quarter of the episodes hit the wall, where no data lies."""
    values = {
        "actor": {"d_hidden": 64},
        "critic": {"d_hidden": 64},
        "tau": 0.02,
        "reward_multiplier": 10.0,
        "gamma": 0.95,
    }
    success, passed, _ = learned("bcq", tmp_path, 1000, pays=pays, num_acting_candidates=20, **values)
    assert passed >= 0.75
    assert success / passed >= 0.95
