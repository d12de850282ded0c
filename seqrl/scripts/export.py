"""Write a trained policy as an ONNX file, which runs without torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.core.files import expanded
from seqrl.scripts._script import add_acting_options, check_output, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl export", description=__doc__)
    p.add_argument("agent", metavar="RUN", help="checkpoint, or run folder (its last checkpoint)")
    p.add_argument("--output", type=expanded, default=Path("policy.onnx"), help="file to write (default %(default)s)")
    add_acting_options(p, "sample actions, with noise as an input")
    p.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    p.add_argument("--plugin", action="append", default=[], help="Python file or module to import first")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Export, and return the exit code."""
    args = parser().parse_args(argv)
    check_output(args.output, (".onnx",), overwrite=args.overwrite)
    from seqrl.algo.acting import acts_greedily
    from seqrl.algo.checkpoint import load_algo, read_checkpoint
    from seqrl.algo.export import export_onnx
    from seqrl.core.plugins import load_plugins

    load_plugins(args.plugin)
    algo, observation_space, action_space = load_algo(read_checkpoint(args.agent), "cpu")
    is_sampled = not acts_greedily(algo.config, args.deterministic)
    if hasattr(algo.algo_config, "denoiser"):
        print("exporting takes minutes if there are many denoising steps", file=sys.stderr)
    facts = export_onnx(algo, args.output, observation_space, action_space, is_sampled=is_sampled)
    if args.deterministic is False and not facts["noise"]:
        print("note: this policy is deterministic, so --sample changes nothing", file=sys.stderr)
    elif args.deterministic is None and is_sampled and facts["noise"]:
        print("note: it samples actions, from noise, as the run's evaluations did; --greedy does not", file=sys.stderr)
    size = args.output.stat().st_size / 1e6
    print(f"wrote {facts['algorithm']} to {args.output}, {size:.2g} MB; load it with", file=sys.stderr)
    print(f'  seqrl.deploy.policy_from_onnx("{args.output}")', file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
