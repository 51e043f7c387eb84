"""Benchmarks and studies. They are in the repository, but not in the installed package."""
