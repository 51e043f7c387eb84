"""How the included models, library and stock were made. In the repository, but not in the installed package."""
