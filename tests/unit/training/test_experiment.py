"""An experiment is composed of parts, and each override point has its effect."""

import inspect
import json

import numpy as np
import pytest
import torch

import seqrl
from seqrl.algo.algo import Losses
from seqrl.core.errors import ConfigError
from seqrl.rollout.evaluator import Evaluator, summarize_episodes
from seqrl.training.checkpoints import Checkpoints
from seqrl.training.collector import CollectStats
from seqrl.training.experiment import Experiment
from seqrl.training.sources import Data
from tests.regression.test_interrupt import offline
from tests.regression.test_online import small

OVERRIDES = {
    "init_dsets", "init_model", "init_dloaders", "init_optimizer", "init_envs", "init_checkpoints", "init_logger",
    "compute_loss", "train_step", "edit_actor_mask", "edit_critic_mask", "interact", "policy_metrics", "log",
}  # fmt: skip


def short(folder, **changes):
    train = {"num_epochs": 1, "steps_per_epoch": 2, "accumulate_batches": 1, **changes.pop("train", {})}
    config = offline(folder, train=train, **changes)
    config.experiment.logging.every_n_steps = 1
    return config


def learned(cls, config, **options):
    experiment = cls(config, **options)
    experiment.start()
    return experiment, experiment.learn()


def rows(stats):
    return [json.loads(line) for line in (stats.path / "metrics.jsonl").read_text().splitlines()]


# --------------------------------------------------------------------------------- speed on a CPU
def test_the_optimiser_flushes_numbers_too_small_to_matter_and_nothing_else_does(tmp_path, monkeypatch):
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU keeps them")
    torch.set_flush_denormal(False)
    seen, step = [], torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self, *a: seen.append(_tiny()) or step(self, *a))
    monkeypatch.setattr(torch.optim.AdamW, "step", torch.optim.Adam.step)
    learned(Experiment, short(tmp_path))
    assert seen == [0.0] * 2
    assert _tiny() > 0.0


def _tiny():
    return (torch.full((), 2e-38) * 0.1).item()


# --------------------------------------------------------------------------------- a checkpoint's run file
@pytest.mark.parametrize("kind", ["file", "module", "environment", "expert"])
def test_a_run_of_a_checkpoints_config_imports_nothing_unasked(kind, tmp_path, monkeypatch):
    marker, plugin = tmp_path / "executed", tmp_path / f"evil_{kind}_of_tests.py"
    plugin.write_text(f"open({str(marker)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    experiment = Experiment(short(tmp_path))
    experiment.start()
    config, named = experiment.config, f"{plugin.stem}:seqrl/TMazePassive-v0"
    if kind in ("file", "module"):
        config.plugins = [str(plugin) if kind == "file" else plugin.stem]
    elif kind == "environment":
        config.env.id = named
    else:
        config.train.data.append(type(config.train.data[0])(scripted=named, episodes=1))
    experiment.save()
    experiment.close()

    config, checkpoint = seqrl.config_from_checkpoint(tmp_path / "run")
    config.experiment.name = "again"
    again = Experiment.from_config(config)
    again.start()
    again.close()
    assert not marker.exists()
    seqrl.config_from_checkpoint(ckpt_dict=checkpoint, plugins=[plugin.stem])
    assert marker.exists()


# -------------------------------------------------------------------------------------------- composition
def public_methods():
    found = vars(Experiment).items()
    return {n for n, v in found if not n.startswith("_") and isinstance(v, classmethod | staticmethod | type(learned))}


def test_it_inherits_nothing_and_has_few_methods():
    assert Experiment.__bases__ == (object,)
    assert public_methods() >= OVERRIDES
    assert len(public_methods() - OVERRIDES) <= 15


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_override_points_say_what_they_take_and_return(name):
    method = getattr(Experiment, name)
    arguments = list(inspect.signature(method).parameters)[1:]
    assert all(f"            {argument}: " in method.__doc__ for argument in arguments)
    assert ("Returns:" in method.__doc__) == (inspect.signature(method).return_annotation != "None")


def test_parts_are_asked_for_after_start_only(tmp_path):
    experiment = Experiment(short(tmp_path))
    with pytest.raises(ConfigError, match=r"'act' .* not built yet: call start\(\) first"):
        experiment.algo.act  # noqa: B018
    for call in (experiment.learn, lambda: experiment.evaluate_test(lambda: None)):
        with pytest.raises(ConfigError, match=r"call start\(\) before"):
            call()
    experiment.start()
    with pytest.raises(AttributeError):
        experiment.parts.algo = None
    experiment.close()


# ------------------------------------------------------------------------------------------------- parts
def test_init_dsets(tmp_path):
    class Half(seqrl.Experiment):
        def init_dsets(self):
            data = super().init_dsets()
            (source,) = data.sources
            source.indices = source.indices[:4]
            return Data([source])

    experiment, _ = learned(Half, short(tmp_path))
    assert experiment.learner.dataset.num_trajectories == 4
    assert experiment.learner.valid is None


def test_init_model(tmp_path):
    class Zeros(seqrl.Experiment):
        def init_model(self):
            algo = super().init_model()
            with torch.no_grad():
                for weight in algo.nets.parameters():
                    weight.zero_()
            return algo

    experiment = Zeros(short(tmp_path))
    experiment.start()
    assert all(not p.any() for p in experiment.algo.nets.parameters())
    experiment.close()


def test_init_dloaders(tmp_path):
    class Swapped(seqrl.Experiment):
        def init_dloaders(self):
            dataset, valid = super().init_dloaders()
            return valid, dataset

    experiment, stats = learned(Swapped, short(tmp_path))
    plain, _ = learned(seqrl.Experiment, short(tmp_path / "plain"))
    assert experiment.learner.dataset.num_trajectories == plain.learner.valid.num_trajectories
    assert "valid/total" in stats.metrics


def test_init_optimizer(tmp_path):
    class WithSGD(seqrl.Experiment):
        def init_optimizer(self, nets):
            return torch.optim.SGD(nets.parameters(), lr=0.0)

    experiment = WithSGD(short(tmp_path))
    experiment.start()
    before = {k: v.clone() for k, v in experiment.algo.nets.named_parameters()}
    experiment.learn()
    assert all(torch.equal(v, before[k]) for k, v in experiment.algo.nets.named_parameters())


def test_init_envs(tmp_path):
    class Stretched(seqrl.Experiment):
        def init_envs(self):
            env, _ = super().init_envs()
            section = self.config.experiment.evaluation.model_copy(update={"episodes": 3})
            return env, Evaluator(section, lambda num_envs: super(Stretched, self).init_envs()[0], seed=0)

    experiment, stats = learned(Stretched, small(tmp_path, train={"num_epochs": 1}))
    assert stats.metrics["eval/episodes"] == 3
    assert experiment.collector is not None


def test_init_envs_may_leave_the_evaluation_out(tmp_path):
    class Blind(seqrl.Experiment):
        def init_envs(self):
            return super().init_envs()[0], None

    _, stats = learned(Blind, short(tmp_path))
    assert not any(name.startswith("eval/") for name in stats.metrics)


def test_init_checkpoints(tmp_path):
    class Odd(Checkpoints):
        def is_kept(self, epoch):
            return epoch % 2 == 1

    class KeepsOdd(seqrl.Experiment):
        def init_checkpoints(self):
            return Odd(self.config, self.parts, self.progress)

    config = short(tmp_path, train={"num_epochs": 4}, experiment={"save": {"best": []}})
    _, stats = learned(KeepsOdd, config)
    assert sorted(p.name for p in (stats.path / "checkpoints").glob("epoch_*")) == [
        "epoch_000001", "epoch_000003", "epoch_000004",
    ]  # fmt: skip


def test_init_logger(tmp_path):
    class Memory:
        def __init__(self):
            self.steps, self.is_open = [], True

        def log(self, values, step):
            self.steps.append(step)

        def close(self):
            self.is_open = False

    memory = Memory()

    class Remembers(seqrl.Experiment):
        def init_logger(self):
            return [*super().init_logger(), memory]

    _, stats = learned(Remembers, short(tmp_path))
    assert memory.steps == [row["step"] for row in rows(stats)]
    assert not memory.is_open


# ------------------------------------------------------------------------------------------------- steps
class Doubled(seqrl.Experiment):
    """With twice the loss, which Adam does not notice, and a metric of its own."""

    def compute_loss(self, batch):
        losses = super().compute_loss(batch)
        return Losses(2 * losses.total, {**losses.metrics, "loss/own": losses.total.detach()}, losses.stats)


def test_compute_loss(tmp_path):
    """The steps and the validation use it; so does the gradient."""
    _, doubled = learned(Doubled, short(tmp_path))
    _, plain = learned(seqrl.Experiment, short(tmp_path / "plain"))
    first, other = (next(r for r in rows(s) if "loss/total" in r) for s in (doubled, plain))
    assert first["loss/total"] == pytest.approx(2 * first["loss/own"])
    assert first["optim/grad_norm"] == pytest.approx(2 * other["optim/grad_norm"], rel=1e-4)
    assert rows(doubled)[0]["valid/total"] == pytest.approx(2 * rows(plain)[0]["valid/total"], rel=1e-5)
    assert "valid/own" in doubled.metrics


def test_compute_loss_sees_the_networks_of_the_updater(tmp_path):
    """It is what the module calls that DDP, autocast and torch.compile wrap."""
    calls = []

    class Counted(seqrl.Experiment):
        def compute_loss(self, batch):
            calls.append(torch.is_grad_enabled())
            return super().compute_loss(batch)

    config = short(tmp_path)
    config.experiment.evaluation.enabled = False
    learned(Counted, config)
    assert calls.count(True) >= 2  # both steps; the prediction of the cost may differentiate as well
    assert calls.count(False) == 2 * config.train.valid_batches


def test_train_step(tmp_path):
    seen = []

    class Twice(seqrl.Experiment):
        def train_step(self, batch, step):
            seen.append(step)
            super().train_step(batch, step)
            return super().train_step(batch, step)

    experiment, _ = learned(Twice, short(tmp_path))
    assert seen == [0, 2]
    assert experiment.num_steps == 4


@pytest.mark.parametrize("name", ["actor", "critic"])
def test_edit_masks(name, tmp_path):
    """Without any transition, that loss is zero; the other one is not touched."""
    seen = []

    def edit(self, batch, loss, mask):
        seen.append((loss.shape, mask.shape, mask.dtype, loss.requires_grad))
        return torch.zeros_like(mask)

    cls = type("Edited", (seqrl.Experiment,), {f"edit_{name}_mask": edit})
    _, stats = learned(cls, small(tmp_path, train={"num_epochs": 1}))
    row = [r for r in rows(stats) if "loss/critic" in r][-1]
    values = {"critic": [row["loss/critic"]], "actor": [v for k, v in row.items() if k.startswith("loss/actor")]}
    assert not any(values.pop(name))
    assert any(next(iter(values.values())))
    assert all(s[0] == s[1] and s[2] == torch.bool and not s[3] for s in seen)


def test_the_algorithm_is_given_the_masks(tmp_path):
    class Edited(seqrl.Experiment):
        def edit_actor_mask(self, batch, loss, mask):
            return mask & (loss < 1)

    experiment = Edited(short(tmp_path))
    experiment.start()
    loss, mask = torch.tensor([[0.5, 2.0]]), torch.ones(1, 2, dtype=torch.bool)
    assert experiment.algo.mask_edits.actor(None, loss, mask).tolist() == [[True, False]]
    assert experiment.algo.mask_edits.critic(None, loss, mask) is mask
    experiment.close()


# ----------------------------------------------------------------------------------- acting, metrics, logs
def test_interact(tmp_path):
    class Lazy(seqrl.Experiment):
        def interact(self, epoch):
            return super().interact(epoch) if epoch < 1 else CollectStats()

    _, stats = learned(Lazy, small(tmp_path, train={"num_epochs": 3}))
    assert stats.env_steps == 60
    assert [r["collect/episodes"] > 0 for r in rows(stats) if "collect/episodes" in r] == [True, False, False]


def test_a_run_that_collects_nothing_says_so(tmp_path):
    experiment = seqrl.Experiment(offline(tmp_path))
    experiment.start()
    with pytest.raises(ConfigError, match=r"collects nothing: set collect\.steps_per_epoch above 0"):
        experiment.interact(0)
    experiment.close()


def test_policy_metrics(tmp_path):
    class Lengths(seqrl.Experiment):
        def policy_metrics(self, episodes):
            longest = max(e.length for e in episodes)
            return {**summarize_episodes(episodes), "eval/longest": float(longest)}

    experiment = Lengths(short(tmp_path))
    experiment.start()
    tested, episodes = experiment.evaluate_test(lambda: seqrl_env(), episodes=3)
    stats = experiment.learn()
    assert tested["eval/longest"] == max(e.length for e in episodes)
    assert stats.metrics["eval/longest"] >= stats.metrics["eval/length_mean"]


def seqrl_env():
    from seqrl.envs.make import make_env

    return make_env("seqrl/TMazePassive-v0", {"corridor_length": 3})


def test_log(tmp_path):
    class Rounded(seqrl.Experiment):
        def log(self, numbers, step):
            super().log({k: float(np.round(v)) for k, v in numbers.items()}, step)

    _, stats = learned(Rounded, short(tmp_path))
    written = [v for row in rows(stats) for k, v in row.items() if k.startswith(("loss/", "valid/", "eval/"))]
    assert written
    assert all(v == round(v) for v in written)


def test_numbers_of_numpy_are_metrics_and_anything_else_is_named(tmp_path):
    class Longest(seqrl.Experiment):
        def policy_metrics(self, episodes):
            return {"longest": np.max([e.length for e in episodes])}

    class Telling(seqrl.Experiment):
        def policy_metrics(self, episodes):
            return {"told": "well"}

    experiment, stats = learned(Longest, short(tmp_path))
    assert any(row.get("longest", 0) > 0 or row.get("eval/longest", 0) > 0 for row in rows(stats))
    assert experiment.folder.last is not None
    with pytest.raises(ConfigError, match=r"told' is 'well', not a number"):
        learned(Telling, short(tmp_path / "other"))


def test_an_evaluation_in_which_no_episode_ends_is_a_warning(tmp_path, caplog):
    evaluation = {"max_steps_per_env": 1, "episodes": 5}
    experiment, stats = learned(seqrl.Experiment, short(tmp_path, experiment={"evaluation": evaluation}))
    assert experiment.folder.last is not None
    assert not any("eval/return_mean" in row for row in rows(stats))
    assert "no episode ended within experiment.evaluation.max_steps_per_env, 1 steps" in caplog.text
