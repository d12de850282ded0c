"""Convert a robomimic BC checkpoint to a seqrl checkpoint, without executing code from it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from seqrl.core.errors import ConfigError
from seqrl.core.files import expanded
from seqrl.scripts._script import script

GYM = 2
"""What robomimic calls environments of gym in ``env_metadata``."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl convert-checkpoint", description=__doc__)
    p.add_argument("source", type=expanded, help="robomimic checkpoint (.pth)")
    p.add_argument("target", type=expanded, help="folder of the new checkpoint")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Convert, and return the exit code."""
    args = parser().parse_args(argv)
    if args.target.exists():
        raise ConfigError(f"{args.target} exists; name another folder")
    from gymnasium import spaces

    from seqrl.algo.checkpoint import save_checkpoint
    from seqrl.algo.robomimic_checkpoint import import_robomimic

    algo, env = import_robomimic(args.source)
    boxes = spaces.Dict({k: spaces.Box(-float("inf"), float("inf"), v.shape) for k, v in algo.obs.items()})
    named = {"id": env["env_name"], "kwargs": env.get("env_kwargs") or {}} if env.get("type") == GYM else {}
    save_checkpoint(args.target, algo, boxes, algo.codec.space, env=named)
    memory = algo.config.algo.sequence_encoder.type  # type: ignore[attr-defined]
    print(f"wrote bc with the memory {memory} to {args.target}", file=sys.stderr)
    if memory in ("lstm", "gru"):
        steps = algo.config.train.window_steps
        print(f"robomimic clears its memory every {steps} steps of an episode; this policy does not", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
