"""A training loop by hand, with robomimic's verbs: no Experiment, no run folder, every step in sight.

python examples/simple_train_loop.py
python examples/simple_train_loop.py --memory lstm --corridor 20 --epochs 10
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

import seqrl
from seqrl.core.spaces import ActionCodec, obs_specs
from seqrl.data import SequenceDataset, Source
from seqrl.data.ingest import open_store
from seqrl.envs.make import make_env
from seqrl.scripts import collect_dataset


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corridor", type=int, default=10, help="length of the corridor (default %(default)s)")
    p.add_argument("--memory", choices=("gru", "lstm"), default="gru", help="default %(default)s")
    p.add_argument("--epochs", type=int, default=5, help="epochs of 50 gradient steps (default %(default)s)")
    p.add_argument("--episodes", type=int, default=50, help="episodes to learn from, and to play (default %(default)s)")
    p.add_argument("--output", type=Path, default=Path("simple_loop"), help="folder (default %(default)s)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Make data, train, play, and keep the weights."""
    args = parser().parse_args(argv)
    torch.manual_seed(0)
    # Episodes of a scripted expert, in robomimic's layout: a hint at the start tells which way to turn in the end.
    env_id, kwargs, file = "seqrl/TMazePassive-v0", {"corridor_length": args.corridor}, args.output / "demos.hdf5"
    made = ["--env", env_id, "--env-kwargs", json.dumps(kwargs), "--episodes", str(args.episodes)]
    collect_dataset.main([*made, "--output", str(file), "--overwrite"])
    store = open_store(str(file))
    dataset = SequenceDataset([Source(store)], window=args.corridor + 1)

    # The algorithm: its config, the entries of the observation, and the actions.
    memory = {"type": args.memory, "d_hidden": 64, "num_layers": 1, "d_output": 64}
    values = {"sequence_encoder": memory, "optimizer": {"learning_rate": 0.003, "warmup_steps": 20}}
    config = seqrl.config_factory("bc", {"algo": values, "train": {"window_steps": args.corridor + 1}})
    specs, actions = obs_specs(store.info.observation_space), store.info.action_space
    model = seqrl.algo_factory("bc", config, specs, ActionCodec(actions).dim, "cpu", actions)

    # The loop. A batch may also be a dict: {"obs": {"obs": (B, T, 4)}, "actions": (B, T, 4)}.
    model.set_train()
    for epoch in range(args.epochs):
        for step in range(50):
            batch = dataset.batch(16, seed=0, path=("train", epoch, step))
            info = model.train_on_batch(model.process_batch_for_training(batch), epoch=epoch)
        model.on_epoch_end(epoch)
        print(f"epoch {epoch + 1}: loss {model.log_info(info)['Loss']:.4f}")
    # The rollout: the policy remembers an episode until the next start_episode.
    policy = seqrl.RolloutPolicy(model, store.info.observation_space, actions)
    env, successes = make_env(env_id, kwargs), 0
    with model.averaged():  # what acts is the average of the last steps' weights
        for seed in range(args.episodes):
            ob, result = env.reset(seed=seed)
            policy.start_episode()
            while "success" not in result:
                ob, _, _, _, result = env.step(policy(ob))
            successes += result["success"]
    save_file(model.serialize(), args.output / "weights.safetensors")
    print(f"success {successes / args.episodes:.3f}; data, and weights for model.deserialize: {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
