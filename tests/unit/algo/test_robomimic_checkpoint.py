"""A checkpoint that robomimic wrote acts as it did there."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import seqrl
from seqrl.algo.robomimic_checkpoint import import_robomimic
from seqrl.core.errors import CheckpointError
from seqrl.scripts import convert_checkpoint

DATA = Path(__file__).parents[2] / "data"
RECORDED = json.loads((DATA / "robomimic_actions.json").read_text())


def acted(policy, inputs):
    """Return what a policy does in episodes of ten steps."""
    actions = []
    for i, entry in enumerate(inputs):
        if i % 10 == 0:
            policy.start_episode()
        actions.append(policy({key: np.array(values, np.float32) for key, values in entry.items()}))
    return np.stack(actions)


@pytest.mark.parametrize("kind", RECORDED)
def test_it_acts_as_its_original(kind, tmp_path, capsys):
    target = tmp_path / "converted"
    assert convert_checkpoint.main([str(DATA / f"robomimic_{kind}.pth"), str(target)]) == 0
    policy, checkpoint = seqrl.policy_from_checkpoint(target, device="cpu")
    recorded = RECORDED[kind]
    assert len(recorded["inputs"]) == 100
    np.testing.assert_allclose(acted(policy, recorded["inputs"]), recorded["actions"], atol=1e-6)
    assert checkpoint.card["env"] == {"id": "PointMass-v0", "kwargs": {}}
    assert ("every 10 steps" in capsys.readouterr().err) == ("lstm" in kind or "gru" in kind)
    assert convert_checkpoint.main([str(DATA / f"robomimic_{kind}.pth"), str(target)]) == 2


def test_deviations_of_a_mixture_are_its_own():
    algo, _ = import_robomimic(DATA / "robomimic_gmm.pth")
    algo.set_eval()
    inputs = RECORDED["gmm"]["inputs"]
    obs = {key: torch.tensor([entry[key] for entry in inputs])[:, None] for key in ("pos", "vel")}
    batch = algo.process_batch_for_training({"obs": obs, "actions": torch.zeros(100, 1, 2)})
    with torch.no_grad():
        hidden, _ = algo.trunk(batch.inputs)
        found = algo.actor(hidden[:, :1], batch.inputs.first(1)).log_std.exp()
    torch.testing.assert_close(found.reshape(100, 3, 2), torch.tensor(RECORDED["gmm"]["stds"]))


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize("content", [b"", b"PK nonsense", pickle.dumps(Evil()), pickle.dumps({"model": 1})])
def test_what_is_no_checkpoint_is_refused_and_not_executed(content, tmp_path, capsys):
    file = tmp_path / "x.pth"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.pth (cannot be read|is not a robomimic checkpoint)"):
        import_robomimic(file)
    assert "executed" not in capsys.readouterr().out


def edited(tmp_path, kind="mlp", changes=(), **values):
    """Return a checkpoint of theirs with other entries, and other keys of its run file."""
    found = torch.load(DATA / f"robomimic_{kind}.pth", weights_only=True)
    theirs = json.loads(found["config"])
    for part, key, value in changes:
        theirs["algo"].setdefault(part, {})[key] = value
    torch.save({**found, "config": json.dumps(theirs), **values}, tmp_path / "x.pth")
    return tmp_path / "x.pth"


@pytest.mark.parametrize(
    ("kind", "changes", "values", "problem"),
    [
        ("mlp", (), {"algo_name": "hbc"}, "holds robomimic's 'hbc'"),
        ("mlp", [("transformer", "enabled", True)], {}, r"algo\.transformer\.enabled cannot be imported"),
        ("lstm", [("rnn", "open_loop", True)], {}, r"algo\.rnn\.open_loop cannot be imported"),
        ("gaussian", [("gaussian", "fixed_std", True)], {}, r"algo\.gaussian\.fixed_std cannot be imported"),
        ("mlp", (), {"action_normalization_stats": {"actions": {"scale": [[2.0]], "offset": [[0.0]]}}}, "normalised"),
        ("mlp", (), {"config": "{}"}, "not as robomimic writes it: KeyError: 'algo'"),
        ("mlp", (), {"model": {}}, "not as robomimic writes it: KeyError"),
    ],
)
def test_other_policies_are_refused(kind, changes, values, problem, tmp_path):
    with pytest.raises(CheckpointError, match=problem):
        import_robomimic(edited(tmp_path, kind, changes, **values))


def test_a_scale_of_one_changes_nothing(tmp_path):
    same = {"actions": {"scale": [[1.0, 1.0]], "offset": [[0.0, 0.0]]}}
    assert import_robomimic(edited(tmp_path, action_normalization_stats=same))
