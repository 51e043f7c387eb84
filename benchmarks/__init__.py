"""Measurements and studies; they come with the repository, not with the installed package."""
