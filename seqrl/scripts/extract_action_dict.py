"""Add the parts of the actions (positions, rotations, gripper) to a robomimic file, as action_dict."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.scripts._script import add_dataset, parsed, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl extract-action-dict", description=__doc__)
    add_dataset(p, "robomimic file whose actions are 7 numbers (position, axis-angle, gripper), or 14 of two arms")
    p.add_argument("--overwrite", action="store_true", help="replace parts that exist")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Split the actions, and return the exit code."""
    args = parsed(parser(), argv)
    from seqrl.data.action_dict import extract_action_dict

    names = extract_action_dict(Path(args.dataset), overwrite=args.overwrite)
    print(f"{args.dataset}: action_dict has {', '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
