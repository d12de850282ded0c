"""Command-line scripts. Each is a ``main(argv=None) -> int`` that ``seqrl <command>`` and the tests call too.

``script`` makes such a main of a program of one's own: messages instead of tracebacks, exit codes, logging.
"""

from seqrl.scripts._script import script

__all__ = ["script"]
