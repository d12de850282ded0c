"""Experiments: data sources, the learning loop, evaluation, logs and reports."""
