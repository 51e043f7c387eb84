"""Benchmarks of planning and judging. They are in the repository, but not in the installed package."""
