"""Command-line scripts. Each is a ``main(argv=None) -> int`` that ``seqrl <command>`` and the tests call too."""
