"""What policies cost that imitate: milliseconds per executed action, and gradient steps beside a plain loop.

python benchmarks/policy_speed.py

One core, a GRU of 128, chunks of 8, all executed (policies without chunks: 1), 10 passes of a denoiser. Acting is one
row and 20 rows at once, through ``VectorPolicy``, averaged over whole plans. A gradient step is on a batch of 32
windows of 32 steps; the plain loop over the same losses and networks has AdamW and a clip of the norm, and no more.
Both take turns. Times are CPU seconds.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from record import record, table, write_table

from seqrl.algo import Algo, algo_factory
from seqrl.algo.acting import VectorPolicy
from seqrl.configs import config_factory
from seqrl.conformance.cases import random_batch
from seqrl.core.spaces import ObsSpec

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
WINDOW, BATCH, CHUNK, ROUNDS = 32, 32, 8, 40
OBS = {"state": ObsSpec((10,))}
ACTIONS = spaces.Box(-1.0, 1.0, (4,))
CHUNKS: dict[str, Any] = {"chunk_steps": CHUNK, "execute_steps": CHUNK}
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bc, gmm": ("bc", {"distribution": {"type": "gmm"}}),
    "bc, gmm, chunks": ("bc", {"distribution": {"type": "gmm"}, **CHUNKS}),
    "bc_vae": ("bc_vae", CHUNKS),
    "act": ("act", CHUNKS),
    "diffusion_policy, mlp": ("diffusion_policy", {**CHUNKS, "denoiser": {"type": "mlp"}}),
    "diffusion_policy, unet1d": ("diffusion_policy", CHUNKS),
    "flow_matching, mlp": ("flow_matching", {**CHUNKS, "denoiser": {"type": "mlp"}}),
    "flow_matching, transformer": ("flow_matching", {**CHUNKS, "denoiser": {"type": "transformer"}}),
    "decision_transformer": ("decision_transformer", {"target_return": 1.0, "return_scale": 1.0}),
    "hbc": ("hbc", {}),
    "iris": ("iris", {}),
    "fql": ("fql", {}),
}


def built(name: str) -> Algo[Any]:
    """Return the policy."""
    algo, section = POLICIES[name]
    memory = {"type": "gru", "d_hidden": 128, "num_layers": 1, "d_output": 128}
    config = config_factory(algo, {"train": {"window_steps": WINDOW}, "algo": {"sequence_encoder": memory, **section}})
    torch.manual_seed(0)
    return algo_factory(algo, config, OBS, 4, "cpu", ACTIONS)


def ms_per_action(algo: Algo[Any], rows: int) -> float:
    """Return milliseconds per step of all rows, over whole plans; the best of three."""
    algo.set_eval()
    policy, rng, best = VectorPolicy(algo, rows, deterministic=False), np.random.default_rng(0), float("inf")
    obs = {"state": rng.normal(size=(rows, 10)).astype(np.float32)}
    steps = 6 * CHUNK if rows == 1 else 3 * CHUNK
    for _ in range(3):
        begin = time.process_time()
        for _ in range(steps):
            policy.act(obs, np.zeros(rows, np.float32))
        best = min(best, (time.process_time() - begin) / steps)
    return 1000 * best


def steps_per_second(name: str) -> tuple[float, float]:
    """Return gradient steps per CPU second here, and of the plain loop."""
    batch = random_batch(ACTIONS, num=BATCH, window=WINDOW, obs=OBS)
    ours, plain = built(name), built(name)
    for algo in (ours, plain):
        algo.set_train()
        algo.wants_metrics = False
    weights = [p for p in plain.nets.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)

    def step_ours() -> None:
        ours.train_on_batch(ours.process_batch_for_training(batch))

    def step_plain() -> None:
        plain.compute_losses(plain.process_batch_for_training(batch)).total.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    spent: dict[str, list[float]] = {"ours": [], "plain": []}
    for number in range(ROUNDS + 2):
        for key, step in (("ours", step_ours), ("plain", step_plain)):
            begin = time.process_time()
            step()
            if number >= 2:
                spent[key].append(time.process_time() - begin)
    return tuple(1.0 / float(np.median(times)) for times in spent.values())  # type: ignore[return-value]


def main() -> None:
    """Measure, record, and write the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    figures = {}
    for name in POLICIES:
        algo = built(name)
        ours, plain = steps_per_second(name)
        figures[name] = {
            "ms_one_row": ms_per_action(algo, 1),
            "ms_20_rows": ms_per_action(algo, 20),
            "steps_per_s": ours,
            "plain_steps_per_s": plain,
        }
        print(name, figures[name], flush=True)
    record("policy_speed", {"policies": figures})
    write_table(PAGE, "policies", table(rows_of_table(figures)))


def rows_of_table(figures: dict[str, dict[str, float]]) -> list[dict[str, str]]:
    """Return a row for each policy."""
    return [
        {
            "policy": name,
            "ms per action": f"{found['ms_one_row']:.2f}",
            "of 20 rows": f"{found['ms_20_rows']:.2f}",
            "gradient steps per s": f"{found['steps_per_s']:.1f}",
            "of a plain loop": f"{found['steps_per_s'] / found['plain_steps_per_s']:.2f}",
        }
        for name, found in figures.items()
    ]


if __name__ == "__main__":
    main()
