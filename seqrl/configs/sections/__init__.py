"""The sections of a run file, and one section per built-in component."""
