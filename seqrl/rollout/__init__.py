"""Policies in environments: rollouts, evaluation, deployment, films, probes."""
