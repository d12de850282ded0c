"""Errors, registries, containers, spaces, seeds and files: what every other layer stands on."""
