"""Losses here and in d3rlpy on equal batches and weights, over 200 gradient steps: a table of ``docs/offline.md``.

pip install as for ``run.py``
python benchmarks/offline/equal_losses.py

d3rlpy moves the weights. Before each of its steps they are copied into the networks here, and both libraries give their
losses on the same batch of 64 transitions. Noise of targets is off, as each library would draw its own.

Left out: losses that are means over samples (CQL, SAC-N and BCQ on continuous actions), and the errors of discrete
critics, which are Huber losses there and squared errors here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))
sys.path.insert(0, str(HERE.parents[1]))

from record import RESULTS, provenance, table, write_table  # noqa: E402

import seqrl  # noqa: E402
from seqrl.core.files import write_json  # noqa: E402
from seqrl.core.tensors import SeqBatch  # noqa: E402

PAGE = HERE.parents[2] / "docs" / "offline.md"
STEPS, BATCH, D_OBS, HIDDEN = 200, 64, 3, 64
BOX, DISCRETE = gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(4)


def linears(net: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of one of d3rlpy's networks, in order."""
    return [layer for layer in net.modules() if isinstance(layer, nn.Linear)]


def as_mlp(name: str, net: nn.Module) -> dict[str, Tensor]:
    """Return the weights of one of their networks under the names of an ``nn.Sequential`` here."""
    return {
        f"{name}.{2 * k}.{p}": getattr(layer, p) for k, layer in enumerate(linears(net)) for p in ("weight", "bias")
    }


def as_critics(name: str, nets: nn.ModuleList, takes_action: bool) -> dict[str, Tensor]:
    """Return the weights of their ensemble as the stacked ones here; a weight is transposed."""
    first, hidden, last = (list(layers) for layers in zip(*(linears(net) for net in nets), strict=True))
    stack: Callable[[list[nn.Linear]], Tensor] = lambda layers: torch.stack([x.weight.T for x in layers])  # noqa: E731
    bias: Callable[[list[nn.Linear]], Tensor] = lambda layers: torch.stack([x.bias[None] for x in layers])  # noqa: E731
    weights = {f"{name}.hidden.0.weight": stack(hidden), f"{name}.hidden.0.bias": bias(hidden)}
    weights |= {f"{name}.last.weight": stack(last), f"{name}.last.bias": bias(last)}
    if not takes_action:
        return weights | {f"{name}.first.weight": stack(first), f"{name}.first.bias": bias(first)}
    weights |= {f"{name}.first_state.weight": stack(first)[:, :D_OBS], f"{name}.first_state.bias": bias(first)}
    weights |= {f"{name}.first_discount.weight": torch.zeros(len(nets), 1, HIDDEN)}
    return weights | {f"{name}.first_action.weight": stack(first)[:, D_OBS:]}


def weights_of(modules: Any, takes_action: bool) -> dict[str, Tensor]:
    """Return d3rlpy's weights under the names here."""
    weights = {
        "trunk.timestep_encoder.mlp.0.weight": torch.eye(D_OBS),
        "trunk.timestep_encoder.mlp.0.bias": torch.zeros(D_OBS),
    }
    weights |= as_critics("critic", modules.q_funcs, takes_action)
    weights |= as_critics("target_critic", modules.targ_q_funcs, takes_action)
    for name, here in (
        ("policy", "actor.mlp"),
        ("imitator", "actor.mlp"),
        ("targ_policy", "target_actor.mlp"),
        ("value_func", "value"),
    ):
        if hasattr(modules, name):
            weights |= as_mlp(here, getattr(modules, name))
    return weights


def transitions(rng: np.random.Generator, space: gym.Space[Any]) -> dict[str, np.ndarray]:
    """Return random transitions, a tenth of which are terminal."""
    draw = (lambda: rng.integers(0, 4, (BATCH, 1))) if space == DISCRETE else (lambda: rng.uniform(-1, 1, (BATCH, 2)))
    obs, next_obs = rng.normal(size=(2, BATCH, D_OBS)).astype(np.float32)
    rewards = rng.normal(size=(BATCH, 1)).astype(np.float32)
    return {
        "observations": obs, "actions": draw().astype(np.float32), "rewards": rewards, "next_observations": next_obs,
        "next_actions": draw().astype(np.float32), "intervals": np.ones((BATCH, 1), np.float32),
        "terminals": (rng.random((BATCH, 1)) < 0.1).astype(np.float32),
    }  # fmt: skip


def batch_here(algo: Any, t: dict[str, np.ndarray], space: gym.Space[Any]) -> SeqBatch:
    """Return the same transitions as a processed batch of windows of one step."""
    actions = np.eye(4, dtype=np.float32)[t["actions"][:, 0].astype(int)] if space == DISCRETE else t["actions"]
    next_action = np.stack([t["actions"], t["next_actions"]], 1).astype(np.float32)
    return algo.process_batch_for_training(
        {
            "obs": {"obs": t["observations"][:, None]},
            "next_obs": {"obs": t["next_observations"][:, None]},
            "actions": actions[:, None],
            "rewards": t["rewards"],
            "dones": t["terminals"],
            "extras": {"next_action": next_action, "has_next_action": np.ones((BATCH, 2), np.float32)},
        }
    )


def build_here(algo: str, section: dict[str, Any], space: gym.Space[Any]) -> Any:
    """Return an algorithm whose networks have the shapes of d3rlpy's; its encoder passes observations on."""
    networks = {"num_layers": 2, "d_hidden": HIDDEN, "activation": "relu"}
    encoder = {"type": "mlp", "num_layers": 0, "d_output": D_OBS, "norm": "none", "normalize_inputs": False}
    num_critics = section.pop("num_critics", 2)
    values = {
        "observation": {"use_prev_action": False, "use_prev_reward": False, "timestep_encoder": encoder},
        "algo": {
            "sequence_encoder": {"type": "identity"},
            "actor": networks,
            "critic": {**networks, "num_critics": num_critics},
            **section,
        },
    }
    config = seqrl.config_factory(algo, values)
    return seqrl.algo_factory(algo, config, {"obs": (D_OBS,)}, 4 if space == DISCRETE else 2, "cpu", space)


@dataclass(frozen=True)
class Case:
    """An algorithm in both libraries.

    Attributes:
        algo: Registered name here.
        section: Settings of ``algo`` here.
        theirs: Class in d3rlpy.
        settings: Its arguments.
        losses: Name there -> weights of the names here that it is the sum of. d3rlpy adds up critics, here they are
            averaged.
        is_discrete: Kind of actions.
    """

    algo: str
    section: dict[str, Any]
    theirs: str
    settings: dict[str, Any]
    losses: dict[str, dict[str, float]]
    is_discrete: bool = False

    @property
    def space(self) -> gym.Space[Any]:
        """Of actions."""
        return DISCRETE if self.is_discrete else BOX


STD = {"type": "gaussian", "std": "shared", "std_activation": "exp", "init_std": 1.0, "min_std": 1e-12}
STILL = {"target_smoothing_sigma": 0.0}
CASES = {
    "IQL": Case(
        "iql", {"distribution": STD}, "IQL", {},
        {"q_loss": {"critic": 2}, "v_loss": {"value": 1}, "actor_loss": {"actor": 1}},
    ),
    "TD3+BC": Case(
        "td3_bc", {"target_noise": 0.0}, "TD3PlusBC", STILL,
        {"critic_loss": {"critic": 2}, "actor_loss": {"actor_online": 2.5, "actor_offline": 1}},
    ),
    "ReBRAC": Case(
        "td3_bc", {"variant": "rebrac", "target_noise": 0.0}, "ReBRAC",
        {**STILL, "actor_beta": 0.01, "critic_beta": 0.01},
        {"critic_loss": {"critic": 2}, "actor_loss": {"actor_online": 1, "actor_offline": 0.01}},
    ),
    "CQL, discrete": Case(
        "cql", {"conservative_weight": 1.0, "num_critics": 1}, "DiscreteCQL", {"alpha": 1.0},
        {"conservative_loss": {"conservative": 1}}, is_discrete=True,
    ),
    "BCQ, discrete": Case(
        "bcq", {"num_critics": 1}, "DiscreteBCQ", {"action_flexibility": 0.3, "beta": 0.0},
        {"imitator_loss": {"actor": 1}}, is_discrete=True,
    ),
}  # fmt: skip


def losses_there(learner: Any, batch: Any, is_discrete: bool) -> dict[str, float]:
    """Return what d3rlpy computes on a batch."""
    impl, target = learner.impl, learner.impl.compute_target(batch)
    if is_discrete:
        found = vars(impl.compute_loss(batch, target))
    else:
        found = vars(impl.compute_critic_loss(batch, target))
        found |= vars(impl.compute_actor_loss(batch, impl.modules.policy(batch.observations)))
    return {k: float(torch.as_tensor(v).detach()) for k, v in found.items()}


def compare(case: Case) -> dict[str, tuple[float, float]]:
    """Return the largest difference of each loss over the steps, and the loss' mean size."""
    import d3rlpy

    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    here = build_here(case.algo, dict(case.section), case.space)
    factory = d3rlpy.models.VectorEncoderFactory([HIDDEN, HIDDEN])
    kinds = ["encoder_factory"] if case.is_discrete else ["actor_encoder_factory", "critic_encoder_factory"]
    kinds += ["value_encoder_factory"] if case.theirs == "IQL" else []
    settings = {**case.settings, **dict.fromkeys(kinds, factory), "batch_size": BATCH}
    if case.is_discrete:
        settings["target_update_interval"] = 10
    there = getattr(d3rlpy.algos, f"{case.theirs}Config")(**settings).create(device="cpu")
    there.create_impl((D_OBS,), 4 if case.is_discrete else 2)
    sizes: dict[str, list[tuple[float, float]]] = {name: [] for name in case.losses}
    for _ in range(STEPS):
        given = transitions(rng, case.space)
        minibatch = d3rlpy.dataset.TransitionMiniBatch(**given, transitions=[])
        batch = d3rlpy.torch_utility.TorchMiniBatch.from_batch(minibatch, 0.99, False, "cpu")
        copy_weights(there.impl.modules, here, batch, case)
        metrics = here.compute_losses(batch_here(here, given, case.space)).metrics
        theirs = losses_there(there, batch, case.is_discrete)
        for name, parts in case.losses.items():
            ours = sum(weight * float(metrics[f"loss/{part}"]) for part, weight in parts.items())
            sizes[name].append((abs(ours - theirs[name]), abs(theirs[name])))
        there.update(minibatch)
    return {name: (max(d for d, _ in found), float(np.mean([s for _, s in found]))) for name, found in sizes.items()}


def copy_weights(modules: Any, here: Any, batch: Any, case: Case) -> None:
    """Give the networks here the weights of d3rlpy's; none of theirs is left out."""
    new, old = weights_of(modules, not case.is_discrete), here.serialize()
    if case.theirs == "IQL":
        with torch.no_grad():
            new["actor.head.shared_std"] = modules.policy(batch.observations).logstd[0]
    if unknown := set(new) - set(old):
        raise KeyError(f"no such weights here: {', '.join(sorted(unknown))}")
    here.deserialize({**old, **{k: v.detach().clone() for k, v in new.items()}})


def main() -> None:
    """Compare all, and write the table."""
    rows = []
    for name, case in CASES.items():
        for loss, (largest, size) in compare(case).items():
            rows.append(
                {"algorithm": name, "loss": loss, "mean size": f"{size:.3f}", "largest difference": f"{largest:.1e}"}
            )
    write_json(RESULTS / "equal_losses.json", {**provenance(), "steps": STEPS, "batch": BATCH, "rows": rows})
    print(table(rows))
    write_table(PAGE, "equal losses", table(rows))


if __name__ == "__main__":
    main()
