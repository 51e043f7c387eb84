"""How the included weights and data were made. In the repository, but not in the installed package."""
