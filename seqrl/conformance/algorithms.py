"""What every algorithm must keep, on every memory, timestep encoder and kind of actions that it takes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from seqrl.algo import Algo
from seqrl.algo.acting import VectorPolicy
from seqrl.algo.algo import find_factory
from seqrl.algo.finite_guard import NonFiniteError
from seqrl.algo.losses import checked_losses
from seqrl.conformance.cases import (
    ACTION_KINDS,
    ACTION_SPACES,
    ENCODER_OBS,
    OBS,
    free_batch,
    masked_batch,
    random_batch,
    random_obs,
    small_algo,
    small_config,
)
from seqrl.conformance.check import Check, ConformanceError, expect, expect_close, expect_kinds, named
from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ACTION_KINDS as ALL_KINDS
from seqrl.core.tensors import SeqBatch, SeqInputs

MEMORY, ENCODER = "transformer", "mlp"
"""What an algorithm is checked with where a check does not vary it."""
IMAGES_ALONE = ("cnn",)
MASKABLE = ("discrete", "multi_binary", "multi_discrete", "hybrid")


@dataclass(frozen=True)
class AlgoCase:
    """An algorithm to check.

    Attributes:
        name: Registered name.
        memory: Sequence encoder.
        actions: Name of an action space in :data:`~seqrl.conformance.cases.ACTION_SPACES`.
        encoder: Timestep encoder.
        values: Further settings of its section.
        device: Where it computes.
    """

    name: str
    memory: str = MEMORY
    actions: str = "discrete"
    encoder: str = ENCODER
    values: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    @property
    def space(self) -> spaces.Space[Any]:
        """The action space."""
        return ACTION_SPACES[self.actions]

    def build(self, seed: int = 0) -> Algo:
        """Return the tiny algorithm."""
        values = {"device": self.device, "encoder": self.encoder, **self.values}
        return small_algo(self.name, self.memory, self.space, seed=seed, **values)

    def batch(self, seed: int = 0) -> SeqBatch:
        """Return a batch that it can learn from."""
        return random_batch(self.space, seed=seed, obs=ENCODER_OBS.get(self.encoder))

    def obs(self, rng: np.random.Generator, *lead: int) -> dict[str, np.ndarray]:
        """Return observations that it can act on."""
        return {k: v.numpy() for k, v in random_obs(rng, ENCODER_OBS.get(self.encoder, OBS), *lead).items()}


def algo_class(name: str) -> type[Algo]:
    """Return the class of an algorithm."""
    return _class_of(name, find_factory(name))


@functools.cache
def _class_of(name: str, factory: Callable[..., tuple[type[Algo], Any]]) -> type[Algo]:
    return factory(small_config(name).algo)[0]


def spaces_of(name: str, among: tuple[str, ...] = tuple(ACTION_SPACES)) -> list[str]:
    """Return the action spaces, by name, whose kind an algorithm takes.

    Raises:
        ConformanceError: If a kind is unknown.
    """
    kinds = algo_class(name).action_kinds
    expect_kinds("action_kinds", kinds, ALL_KINDS)
    return [space for space in among if ACTION_KINDS[space] in kinds]


# ---------------------------------------------------------------------------------------------- learning
def learns_by_heart(case: AlgoCase) -> None:
    """Every metric in ``Algo.fitted`` falls within 60 steps on one batch."""
    algo, batch = case.build(), case.batch()
    first = _losses(algo, batch)
    missing = [name for name in algo.fitted if name not in first]
    expect(not missing, f"`fitted` names {', '.join(missing)}, but its metrics are {', '.join(sorted(first))}")
    lowest = {name: first[name] for name in algo.fitted}
    for begin, end in itertools.pairwise((0, 10, 20, 30, 40, 50, 60)):
        train(algo, batch, end - begin, begin)
        now = _losses(algo, batch)
        lowest = {name: min(value, now[name]) for name, value in lowest.items()}
        stuck = [n for n in algo.fitted if not lowest[n] < first[n] - min(0.05, 0.2 * abs(first[n]))]
        if not stuck:
            return
    texts = [f"{name} was {first[name]:.3g} and is {lowest[name]:.3g} at best" for name in stuck]
    raise ConformanceError(f"does not overfit a batch: after 60 steps {', '.join(texts)}")


def every_weight_learns(case: AlgoCase) -> None:
    """No weight that asks for a gradient stays where it was over three steps."""
    algo, batch = case.build(), case.batch()
    train(algo, batch, 1)
    before = _learned(algo)
    train(algo, batch, 3, first=1)
    still = [k for k, v in _learned(algo).items() if torch.equal(before[k], v)]
    expect(not still, f"{_some(still)} never moved in 3 steps; set requires_grad to False where that is meant")
    broken = [k for k, v in algo.serialize().items() if v.is_floating_point() and not torch.isfinite(v).all()]
    expect(not broken, f"{_some(broken)} became infinite or NaN in 4 steps")


def padding_has_no_influence(case: AlgoCase) -> None:
    """Whatever padding holds, three steps lead to the same weights."""
    batch = case.batch()
    results = []
    for given in (batch, _with_other_padding(batch, case.batch(seed=9))):
        algo = case.build()
        train(algo, given, 3)
        results.append(algo.serialize())
    for key, value in results[0].items():
        problem = f"padding leaks: after 3 steps {key!r} is different where only padding differs (use batch.mask)"
        expect_close(results[1][key], value, problem, atol=1e-6, rtol=1e-5)


def compute_losses_writes_nothing(case: AlgoCase) -> None:
    """The forward pass leaves weights and buffers alone, and gives one scalar with a gradient."""
    algo, batch = case.build(), case.batch()
    algo.set_train()
    before = algo.serialize()
    losses = checked_losses(algo.compute_losses(algo.process_batch_for_training(batch)))
    attached = [k for k, v in [*losses.metrics.items(), *losses.stats.items()] if v.requires_grad]
    expect(not attached, f"{_some(attached)} of metrics or stats carries a gradient: detach it")
    written = _different(before, algo.serialize())
    expect(
        not written,
        f"compute_losses writes {_some(written)}: put sums into Losses.stats, and update it in on_gradient_step",
    )


def validation_changes_nothing(case: AlgoCase) -> None:
    """``train_on_batch(validate=True)`` leaves weights and buffers alone."""
    algo, batch = case.build(), case.batch()
    train(algo, batch, 1)
    before = algo.serialize()
    algo.set_eval()
    algo.train_on_batch(algo.process_batch_for_training(batch), validate=True)
    written = _different(before, algo.serialize())
    expect(not written, f"validation changes {_some(written)}")


def seeded_runs_are_equal(case: AlgoCase) -> None:
    """The same seed gives the same weights, bit for bit."""
    runs = []
    for _ in range(2):
        algo = case.build()
        train(algo, case.batch(), 3)
        runs.append(algo.serialize())
    other = _different(*runs)
    expect(not other, f"two runs of the same seed differ in {_some(other)}: draw from torch's own generator only")


def resumed_equals_uninterrupted(case: AlgoCase) -> None:
    """Two steps, saved and loaded, and a third one give the weights of three steps."""
    batch = case.batch()
    straight, first, second, forgetful = case.build(), case.build(), case.build(seed=5), case.build(seed=5)
    train(straight, batch, 3)
    train(first, batch, 2)
    weights, optimizer, steps = first.serialize(), first.updater.state_tensors(), first.updater.num_steps
    second.deserialize(weights)
    second.updater.load_state(optimizer, steps)
    train(second, batch, 1, first=2)
    lost = _different(straight.serialize(), second.serialize())
    expect(not lost, f"a resumed run continues differently in {_some(lost)}: all state has to be in `nets`")
    forgetful.deserialize(weights)
    train(forgetful, batch, 1, first=2)
    expect(bool(_different(straight.serialize(), forgetful.serialize())), "the state of the optimiser has no influence")


def nonfinite_batch_moves_nothing(case: AlgoCase) -> None:
    """A batch with a NaN moves neither a weight nor what follows them, and is reported a step later."""
    algo, batch, poisoned = case.build(), case.batch(), case.batch()
    train(algo, batch, 2)
    before = algo.serialize()
    poisoned.inputs.obs["state"][0, 0] = torch.nan
    train(algo, poisoned, 1)
    moved = _different(before, algo.serialize())
    expect(not moved, f"a batch with a NaN moves {_some(moved)}: move what follows the weights in on_gradient_step")
    try:
        train(algo, batch, 1)
    except NonFiniteError as error:
        expect(len(error.batches) == 2 and "gradient step 2" in str(error), f"a NaN is reported as: {error}")
        return
    raise ConformanceError("a batch with a NaN is not noticed: is its loss finite?")


def averages_stand_in(case: AlgoCase) -> None:
    """In evaluation the averages of the weights act; afterwards the weights are as they were."""
    algo, batch = replace(case, values={**case.values, "average_decay": 0.99}).build(), case.batch()
    weights = expected = _learned(algo)
    for step in range(3):
        train(algo, batch, 1, first=step)
        weights, share = _learned(algo), (2.0 + step) ** -0.75
        expected = {name: mean + share * (weights[name] - mean) for name, mean in expected.items()}
    with algo.averaged():
        for name, weight in _learned(algo).items():
            problem = f"{name!r} is no average: let on_gradient_step call that of its base"
            expect_close(weight, expected[name], problem, atol=1e-6, rtol=1e-5)
    expect(not _different(weights, _learned(algo)), "Algo.averaged does not put the weights back")


def works_as_in_robomimic(case: AlgoCase) -> None:
    """Dict batches, the four verbs, and get_action work as robomimic's users know them."""
    algo, batch = case.build(), case.batch().to_mapping()
    algo.set_train()
    losses = []
    for epoch in range(8):
        info = algo.train_on_batch(algo.process_batch_for_training(batch), epoch=epoch, validate=False)
        losses.append(algo.log_info(info)["Loss"])
        algo.on_epoch_end(epoch)
    if "loss/total" in algo.fitted:
        expect(losses[-1] < losses[0], f"dict batches: the loss went from {losses[0]:.3g} to {losses[-1]:.3g}")
    algo.set_eval()
    obs = {k: v[:, 0] for k, v in batch["obs"].items()}
    for _ in range(2):
        algo.reset()
        shape = tuple(algo.get_action(obs).shape)
        expect(shape == (4, algo.codec.dim), f"get_action gives {shape} for 4 rows, expected {(4, algo.codec.dim)}")
    clone = case.build(seed=3)
    clone.deserialize(algo.serialize())
    lost = _different(clone.serialize(), algo.serialize())
    expect(not lost, f"deserialize does not give back {_some(lost)}")


# ------------------------------------------------------------------------------------------------ acting
def acting_resets_rows_alone(case: AlgoCase) -> None:
    """Greedy actions of a row that begins anew in the middle are those of a row by itself."""
    algo = case.build()
    train(algo, case.batch(), 20)
    algo.set_eval()
    rng = np.random.default_rng(0)
    obs, rewards = case.obs(rng, 14, 2), rng.normal(size=(14, 2)).astype(np.float32)
    policy, alone = (VectorPolicy(algo, rows, deterministic=True) for rows in (2, 1))
    for t in range(14):
        policy.reset(np.array([False, t == 9]))
        both = policy.act({k: v[t] for k, v in obs.items()}, rewards[t])
        if t >= 9:
            single = alone.act({k: v[t, 1:] for k, v in obs.items()}, rewards[t, 1:])
            difference = float(np.abs(single[0] - both[1]).max())
            expect(
                difference < 1e-4,
                f"acting: {t - 9} steps after reset_rows of one row, its greedy action differs by {difference:.3g} "
                "from that of a row by itself",
            )


def acting_does_not_mix_rows(case: AlgoCase) -> None:
    """Rows do not see one another in acting: those of a vector act as each would alone."""
    algo = case.build()
    train(algo, case.batch(), 5)
    algo.set_eval()
    rng = np.random.default_rng(1)
    obs, rewards = case.obs(rng, 4, 3), rng.normal(size=(4, 3)).astype(np.float32)
    policy = VectorPolicy(algo, 3, deterministic=True)
    alone = [VectorPolicy(algo, 1, deterministic=True) for _ in range(3)]
    for t in range(4):
        together = policy.act({k: v[t] for k, v in obs.items()}, rewards[t])
        for row in range(3):
            at = slice(row, row + 1)
            single = alone[row].act({k: v[t, at] for k, v in obs.items()}, rewards[t, at])
            expect(np.abs(single[0] - together[row]).max() < 1e-4, f"acting mixes rows: row {row} differs at step {t}")


def refuses_other_actions(case: AlgoCase) -> None:
    """An action space of a kind that it does not take is refused, and the refusal names the kinds."""
    kinds = algo_class(case.name).action_kinds
    for name, kind in ACTION_KINDS.items():
        if kind in kinds:
            continue
        try:
            replace(case, actions=name).build()
        except ConfigError as error:
            unnamed = [k for k in (*sorted(kinds), kind) if k not in str(error)]
            expect(not unnamed, f"refuses {kind} actions without naming {', '.join(unnamed)}: {error}")
        else:
            raise ConformanceError(f"action_kinds is {sorted(kinds)}, but {kind} actions are not refused")


# ------------------------------------------------------------------------------------------------- masks
def illegal_actions_are_never_taken(case: AlgoCase) -> None:
    """Neither greedy nor sampled actions are outside the mask."""
    algo = case.build()
    algo.set_eval()
    codec, rng = algo.codec.parts[1] if algo.codec.parts else algo.codec, np.random.default_rng(0)
    for deterministic in (False, True):
        policy = VectorPolicy(algo, 200, deterministic=deterministic)
        for _ in range(3):
            mask = rng.random((200, codec.dim)) < 0.4
            for part in np.split(mask, np.cumsum(codec.factors)[:-1], axis=-1) if codec.factors else []:
                part[np.arange(200), rng.integers(0, part.shape[-1], 200)] = True
            action = policy.act(case.obs(rng, 200), np.zeros(200, np.float32), action_mask=mask)
            action = action[:, algo.codec.dim - codec.dim :]  # values are always legal
            illegal = (action.astype(bool) & ~mask).any(-1)
            how = "greedy" if deterministic else "sampled"
            expect(not illegal.any(), f"{illegal.sum()} of 200 {how} actions are illegal by inputs.action_mask")
            if codec.factors:
                expect((action.sum(-1) == len(codec.factors)).all(), f"{how} actions are not one-hot in each factor")


def illegal_actions_learn_nothing(case: AlgoCase) -> None:
    """What speaks only for an action that is illegal everywhere gets no gradient, and enters no loss.

    Which weights those are is asked for by behaviour: they have a gradient on a batch that allows everything and none
    on one that forbids the action, and without a mask moving them changes what the policy does.
    """
    free = free_batch(case.batch())
    masked = masked_batch(case.space, case.batch())
    before, after = (_gradients(case.build(), batch) for batch in (free, masked))
    spared = {k: (before[k] != 0) & (after[k] == 0) for k in before}
    usual = _sampled(case, case.build())
    moved = [_moved(case, spared, by) for by in (100.0, -100.0)]
    expect(
        any(not np.array_equal(_sampled(case, algo), usual) for algo in moved),
        "learns about illegal actions: a batch that forbids action 1 everywhere still moves every weight that "
        "affects only action 1; pass inputs.action_mask to the policy in every loss",
    )
    plain = case.build()
    for algo in (plain, *moved):
        train(algo, masked, 1)  # targets follow
    expected = _losses(plain, masked)
    names = sorted((n for n in expected if n.startswith("loss/")), key=lambda n: n == "loss/total")
    for algo in moved:
        given = _losses(algo, masked)
        for name in names:
            problem = f"{name} depends on weights that affect only an action that is illegal everywhere"
            expect_close(torch.tensor(given[name]), torch.tensor(expected[name]), problem, atol=1e-4, rtol=1e-4)


def a_mask_that_forbids_nothing_changes_nothing(case: AlgoCase) -> None:
    """Training with a mask that allows everything is training without one."""
    results = []
    for batch in (case.batch(), free_batch(case.batch())):
        algo = case.build()
        train(algo, batch, 2)
        results.append(algo.serialize())
    for key, value in results[0].items():
        problem = f"a mask that forbids nothing leads to another {key!r}"
        expect_close(results[1][key], value, problem, atol=1e-5, rtol=1e-4)


def _over(*axes: str, among: tuple[str, ...] = tuple(ACTION_SPACES), acts: bool = False) -> Callable[[AlgoCase], bool]:
    """Return which cases a check is for: what it does not vary is as usual, the action space the first that fits."""

    def fits(case: AlgoCase) -> bool:
        taken = spaces_of(case.name, among)
        if case.actions not in taken or (acts and not algo_class(case.name).acts):
            return False
        is_first = case.actions == taken[0]
        if case.encoder in IMAGES_ALONE and algo_class(case.name).reads_vectors:
            return False
        if case.encoder != ENCODER:
            return "encoder" in axes and is_first and case.memory == "gru"
        return ("actions" in axes or is_first) and ("memory" in axes or case.memory == MEMORY)

    return fits


_CONTINUOUS_FIRST = ("box", "discrete", "multi_discrete", "multi_binary")
CHECKS: dict[str, Check[AlgoCase]] = named(
    Check("overfits a batch", learns_by_heart, fits=_over("memory", "actions", "encoder")),
    Check("moves every weight", every_weight_learns, fits=_over("memory", "actions")),
    Check("is not influenced by padding", padding_has_no_influence, fits=_over("actions")),
    Check("writes nothing in compute_losses", compute_losses_writes_nothing, fits=_over("actions")),
    Check("changes nothing in validation", validation_changes_nothing, fits=_over("actions")),
    Check("is the same with the same seed", seeded_runs_are_equal, fits=_over("actions")),
    Check("resumes as if it had not stopped", resumed_equals_uninterrupted, fits=_over("memory")),
    Check("moves no weight on a batch with NaN", nonfinite_batch_moves_nothing, fits=_over(among=_CONTINUOUS_FIRST)),
    Check("acts by averages of the weights", averages_stand_in, fits=_over("memory")),
    Check("works as robomimic's algorithms do", works_as_in_robomimic, fits=_over(acts=True)),
    Check("resets rows alone", acting_resets_rows_alone, fits=_over("memory", among=_CONTINUOUS_FIRST, acts=True)),
    Check("does not mix rows in acting", acting_does_not_mix_rows, fits=_over(among=_CONTINUOUS_FIRST, acts=True)),
    Check("refuses actions that it does not take", refuses_other_actions, fits=_over()),
    Check(
        "never takes an illegal action",
        illegal_actions_are_never_taken,
        fits=_over("memory", "actions", among=MASKABLE, acts=True),
    ),
    Check(
        "learns nothing about illegal actions",
        illegal_actions_learn_nothing,
        fits=_over("actions", among=MASKABLE, acts=True),
    ),
    Check(
        "learns the same with a mask that forbids nothing",
        a_mask_that_forbids_nothing_changes_nothing,
        fits=_over("actions", among=MASKABLE),
    ),
)


# ------------------------------------------------------------------------------------------------- parts
def train(algo: Algo, batch: SeqBatch, steps: int, first: int = 0) -> None:
    """Take gradient steps on one batch, each with its own seed."""
    algo.set_train()
    for step in range(first, first + steps):
        torch.manual_seed(step)
        algo.train_on_batch(algo.process_batch_for_training(batch))


def _losses(algo: Algo, batch: SeqBatch) -> dict[str, float]:
    """Return the metrics of a batch, with draws that are always the same."""
    torch.manual_seed(0)
    info = algo.log_info(algo.train_on_batch(algo.process_batch_for_training(batch), validate=True))
    expect(info["Loss"] == info["loss/total"], "log_info's Loss is not loss/total")
    return info


def _learned(algo: Algo) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in algo.nets.named_parameters() if p.requires_grad}


def _different(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> list[str]:
    return sorted(k for k in a.keys() | b.keys() if k not in a or k not in b or not torch.equal(a[k], b[k]))


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _with_other_padding(batch: SeqBatch, garbage: SeqBatch) -> SeqBatch:
    def corrupt(real: Tensor, fake: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask.view(*mask.shape, *([1] * (real.dim() - 2))), real, fake)

    inputs, other = batch.inputs, garbage.inputs
    return SeqBatch(
        inputs=SeqInputs(
            obs={k: corrupt(v, other.obs[k], batch.input_mask) for k, v in inputs.obs.items()},
            prev_action=corrupt(inputs.prev_action, other.prev_action, batch.input_mask),
            prev_reward=corrupt(inputs.prev_reward, 1e6 * other.prev_reward, batch.input_mask),
            step=inputs.step,
        ),
        actions=corrupt(batch.actions, garbage.actions, batch.mask),
        rewards=corrupt(batch.rewards, 1e6 * garbage.rewards, batch.mask),
        terminated=corrupt(batch.terminated, ~batch.terminated, batch.mask),
        truncated=corrupt(batch.truncated, ~batch.truncated, batch.mask),
        mask=batch.mask,
        extras={k: corrupt(v, garbage.extras[k], batch.input_mask) for k, v in batch.extras.items()},
    )


def _gradients(algo: Algo, batch: SeqBatch) -> dict[str, Tensor]:
    torch.manual_seed(0)
    algo.set_train()
    losses = algo.compute_losses(algo.process_batch_for_training(batch))
    losses.total.backward()
    broken = [k for k, v in {"total": losses.total, **losses.metrics}.items() if not torch.isfinite(v).all()]
    expect(not broken, f"with an action mask {_some(broken)} is infinite or NaN")
    trained = {k: p for k, p in algo.nets.named_parameters() if p.requires_grad}
    return {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in trained.items()}


def _moved(case: AlgoCase, where: Mapping[str, Tensor], by: float) -> Algo:
    """Return the algorithm with some entries of its weights moved."""
    algo = case.build()
    with torch.no_grad():
        for name, parameter in algo.nets.named_parameters():
            if name in where:
                parameter.add_(where[name], alpha=by)
    return algo


def _sampled(case: AlgoCase, algo: Algo) -> np.ndarray:
    """Return first actions of 200 rows, drawn without a mask from one seed."""
    algo.set_eval()
    torch.manual_seed(0)
    return VectorPolicy(algo, 200, deterministic=False).act(case.obs(np.random.default_rng(0), 200))
