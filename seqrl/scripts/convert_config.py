"""Translate a robomimic run file, and list what cannot be translated."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from seqrl.configs import config_factory, read_config_values
from seqrl.configs.robomimic import translate
from seqrl.core.files import expanded, write_json
from seqrl.scripts._script import check_output, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl convert-config", description=__doc__)
    p.add_argument("source", help="robomimic run file (JSON)")
    p.add_argument("target", type=expanded, help="run file to write (JSON)")
    p.add_argument("--overwrite", action="store_true", help="replace the file")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Translate, and return the exit code."""
    args = parser().parse_args(argv)
    check_output(args.target, (".json",), overwrite=args.overwrite)
    found = translate(read_config_values(args.source))
    config_factory(str(found.values["algo_name"]), found.values, args.source)  # every value is legal
    write_json(args.target, found.values)
    print(
        f"{args.target}: {len(found.translated)} keys translated, {len(found.unused)} ignored: their sections are off",
        file=sys.stderr,
    )
    for title, keys in (("partly carried over", found.partly), ("left out", found.dropped)):
        if keys:
            print(f"\n{title} ({len(keys)}):", file=sys.stderr)
            width = max(map(len, keys))
            print("\n".join(f"  {key:<{width}}  {why}" for key, why in keys.items()), file=sys.stderr)
    if found.values["algo_name"].startswith("bc"):
        print("\nobservations first go through observation.timestep_encoder, which robomimic lacks", file=sys.stderr)
    print(f"\ntrain with: seqrl train --config {args.target}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
