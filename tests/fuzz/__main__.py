"""Damages files for a while: ``python -m tests.fuzz --seconds 3600``; it ends with 1 if something was read wrongly."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.driver import failures, fuzz, table

parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
parser.add_argument("--cases", type=int, help="stop after so many")
parser.add_argument("--first", type=int, default=0, help="number of the first case; each is the seed of its damage")
args = parser.parse_args()
with tempfile.TemporaryDirectory() as made:
    found = fuzz(Path(made), args.first, args.cases, args.seconds)
sys.stdout.write(f"{len(found)} cases, from number {args.first}\n{table(found)}\n")
sys.exit(bool(failures(found)))
