"""What every algorithm, memory, timestep encoder, distribution and environment must keep, for those of one's own too.

A check is a function of a case that returns nothing and raises a :class:`ConformanceError` in plain words. Each module
has a table ``CHECKS``, which the tests and ``seqrl check-plugin`` run through.
"""

from seqrl.conformance.check import Check, ConformanceError

__all__ = ["Check", "ConformanceError"]
