"""Looks for what is wrong with a dataset, also where it cannot be read as a whole."""

from seqrl.data.validation.findings import Finding, Findings
from seqrl.data.validation.report import Report, validate

__all__ = ["Finding", "Findings", "Report", "validate"]
