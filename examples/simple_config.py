"""Run files in Python: defaults, changes, what is refused, and JSON there and back.

python examples/simple_config.py
python examples/simple_config.py --algo multitask --set algo.gamma=0.98 --output multitask.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.configs import apply_overrides, config_factory, get_all_registered_configs, read_config_values
from seqrl.core.errors import SeqrlError
from seqrl.scripts import script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--algo", choices=sorted(get_all_registered_configs()), default="bc", help="default %(default)s")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key, e.g. train.seed=2")
    p.add_argument("--output", type=Path, default=Path("config.json"), help="file to write (default %(default)s)")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Show what configs can do, and write one."""
    args = parser().parse_args(argv)

    # A run file names only what differs from the defaults, as nested dicts; "type" chooses a component.
    maze = {"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 10}}
    values = {
        "env": maze,
        "train": {"data": [{"scripted": maze["id"], "episodes": 100}], "window_steps": 11, "num_epochs": 2},
        "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 64}},
    }
    apply_overrides(values, args.set)  # as --set of seqrl train: KEY=VALUE, the value in JSON
    config = config_factory(args.algo, values)
    print("the memory:", config.to_json()["algo"]["sequence_encoder"])

    # Attributes are typed and checked, when they are assigned too.
    config.train.batch_size = 8
    try:
        config.train.batch_size = 0
    except ValueError as error:
        print("refused:", str(error).splitlines()[-2].strip())
    print("still:", config.train.batch_size)

    # Everything that is wrong is told at once, with its place and the nearest legal name.
    wrong = {
        "train": {"batchsize": 8},
        "algo": {"sequence_encoder": {"type": "gruu"}, "optimizer": {"grad_clip": -1.0}},
    }
    try:
        config_factory(args.algo, wrong, source="wrong.json")
    except SeqrlError as error:
        print(f"refused: {error}")

    # To JSON, with every default in it, and back.
    args.output.write_text(json.dumps(config.to_json(), indent=2) + "\n", encoding="utf-8")
    again = config_factory(args.algo, read_config_values(str(args.output)))
    print("the same after reading it again:", again == config)
    print(f"wrote {args.output}; train by it: seqrl train --config {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
