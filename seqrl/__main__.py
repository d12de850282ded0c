"""``seqrl <command>``: every script in ``seqrl/scripts`` under its own name, ``x_y.py`` as ``x-y``.

A name that the standard library has too ends with an underscore, as these files are run by their paths as well.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.core.errors import did_you_mean
from seqrl.version import __version__

MEANT = dict.fromkeys(("evaluate", "eval", "rollout", "play"), "run-trained-agent")
_FOLDER = Path(__file__).parent / "scripts"


def commands() -> dict[str, str]:
    """Return command -> the first line of its script's docstring, without importing the scripts."""
    found = {}
    for file in sorted(_FOLDER.glob("[a-z]*.py")):
        doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        found[file.stem.rstrip("_").replace("_", "-")] = doc.splitlines()[0] if doc else ""
    return found


def module_of(command: str) -> str:
    """Return the module of a command."""
    stem = command.replace("-", "_")
    return f"seqrl.scripts.{stem if (_FOLDER / f'{stem}.py').is_file() else f'{stem}_'}"


def completing_parser(line: str) -> argparse.ArgumentParser:
    """Return a parser of all commands, with the options of the one that a command line names.

    Args:
        line: What was typed so far.
    """
    words = line.split()
    chosen = words[1] if len(words) > 1 else ""
    p = argparse.ArgumentParser(prog="seqrl")
    choices = p.add_subparsers()
    for name, text in commands().items():
        own = [importlib.import_module(module_of(name)).parser()] if name == chosen else []
        choices.add_parser(name, help=text, parents=own, add_help=not own)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what could come next
        import argcomplete

        argcomplete.autocomplete(completing_parser(os.environ["COMP_LINE"]))
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = [f"  {name:<28}{text}" for name, text in commands().items()]
        print("usage: seqrl COMMAND [options]    (seqrl COMMAND --help)\n\n" + "\n".join(lines))
        return 0
    if arguments[0] in ("-V", "--version"):
        print(__version__)
        return 0
    name, legal = arguments[0], commands()
    if name not in legal:
        near = f"; did you mean {MEANT[name]!r}?" if name in MEANT else did_you_mean(name, legal)
        print(f"error: unknown command {name!r}{near}; commands: {', '.join(legal)}", file=sys.stderr)
        return 2
    code: int = importlib.import_module(module_of(name)).main(arguments[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
