"""Policies of returns and of subgoals: what they are told counts. Seed 0, 200 episodes, CPU."""

import pytest

import seqrl
from seqrl.algo.checkpoint import load_algo, read_checkpoint
from seqrl.rollout.from_checkpoint import env_maker_from_checkpoint
from seqrl.rollout.probing import Player, point_of, sweep_target_return

pytestmark = [pytest.mark.learning, pytest.mark.slow, pytest.mark.timeout(900)]
GRU = {"type": "gru", "d_hidden": 128, "num_layers": 1, "d_output": 64}


def trained(folder, algo, data, window, num_steps, **section):
    """Return a player of the trained policy."""
    config = seqrl.config_factory(
        algo,
        {
            "experiment": {
                "output_dir": str(folder),
                "name": algo,
                "evaluation": {"enabled": False},
                "report": {"enabled": False},
                "logging": {"tensorboard": False},
            },
            "train": {"data": data, "window_steps": window, "num_epochs": 1, "steps_per_epoch": num_steps, "seed": 0},
            "observation": {
                "use_prev_action": False,
                "use_prev_reward": False,
                "timestep_encoder": {"type": "mlp", "d_hidden": 128, "d_output": 64},
            },
            "algo": {
                "sequence_encoder": GRU,
                "optimizer": {"learning_rate": 1e-3, "warmup_steps": 50},
                **section,
            },
        },
    )
    experiment = seqrl.Experiment(config)
    experiment.start()
    experiment.learn()
    checkpoint = read_checkpoint(folder / algo)
    policy, _, _ = load_algo(checkpoint, "cpu")
    return Player(policy, lambda kwargs: env_maker_from_checkpoint(checkpoint, kwargs=kwargs), data[0]["scripted"])


def test_as_much_is_reached_as_is_asked_for(tmp_path):
    data = [
        {"scripted": "seqrl/PointRecall-v0", "episodes": 300, "noise": 0.3},
        {"scripted": "seqrl/PointRecall-v0", "episodes": 200, "noise": 1.0},
    ]
    player = trained(tmp_path, "decision_transformer", data, 18, 1000)
    probe = sweep_target_return(player, [0.0, 0.5, 1.0])
    reached = [point.measures["return"].value for point in probe.points]
    assert reached == pytest.approx([0.0, 0.5, 1.0], abs=0.15)
    assert probe.points[-1].measures["success"].value >= 0.9
    assert probe.points[0].measures["success"].value <= 0.1


def test_subgoals_lead_through_the_maze_and_those_of_others_do_not(tmp_path):
    data = [{"scripted": "seqrl/MazeRunner-v0", "episodes": 500}]
    planner = {"subgoal_keys": ["achieved_goal"], "subgoal_steps": 4}
    player = trained(tmp_path, "hbc", data, 24, 800, planner=planner)
    own = point_of("own", player.play()).measures["success"].value
    algo = player.algo
    proposed = algo._proposed

    def of_others(hidden, deterministic):
        return proposed(hidden, deterministic).roll(1, dims=0)

    algo._proposed = of_others
    assert own >= 0.65
    assert point_of("of others", player.play()).measures["success"].value <= own - 0.1
