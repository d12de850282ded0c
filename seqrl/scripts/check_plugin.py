"""Check that what a plug-in registers meets seqrl's contracts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from seqrl.scripts._script import script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(
        prog="seqrl check-plugin",
        description=__doc__,
        epilog="exit code: 0 if no check fails, 1 if one does, 2 if the plug-in registers nothing",
    )
    p.add_argument("plugin", metavar="FILE", help="Python file or module, as for seqrl train --plugin")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Check, and return the exit code."""
    path = parser().parse_args(argv).plugin
    from seqrl.conformance.check import located
    from seqrl.conformance.plugin import plan
    from seqrl.core.errors import SeqrlError

    try:
        todo = plan(path)
    except SeqrlError:
        raise
    except Exception as error:
        print(f"FAIL  {path}: importing it raised {located(error, path)}")
        return 1
    num_failed = num_all = 0
    for result in todo.run():
        num_all += 1
        if result.problem is None:
            print(f"ok    {result.subject}: {result.title} ({result.seconds:.1f} s)", flush=True)
        else:
            print(f"FAIL  {result.subject}: {result.problem}", flush=True)
            num_failed += 1
    for text in todo.unchecked:
        print(f"      {text}")
    print(f"\n{num_all - num_failed} of {num_all} checks passed" if num_all else "\nnothing to check")
    return int(num_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
