"""The commands `weftformer routes ...`, one file each, of the form that `scripts/cli.py` describes."""

HELP, TITLE = "synthesis routes", "commands for molecules"
# The extra that all of them need.
EXTRA = "chem"
# The commands with their short help, in the order of the help.
COMMANDS = {
    "plan": "plan synthesis routes for a molecule",
    "expand": "propose reactions that make a molecule",
    "judge": "judge reactions by recorded ones",
    "draw": "draw the routes of a file",
    "evaluate": "score planned routes on recorded ones",
    "train": "train a model that writes synthesis routes",
    "prepare": "make training data from route files",
    "library": "make a library of your own reactions",
}
