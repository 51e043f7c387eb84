"""One file a command. `weftformer COMMAND`, or `python -m weftformer COMMAND`, runs it."""

import sys

if sys.argv[0] == "-m":  # Python imports this package to run a file of it, which would only define the command
    raise SystemExit("A file of weftformer.scripts is not a program: use `python -m weftformer COMMAND`.")
