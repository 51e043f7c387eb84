"""Tests of routes need RDKit. Without it, none of them are collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("rdkit") else ["*.py"]
