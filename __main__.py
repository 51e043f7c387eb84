"""`python -m weftformer` is the console command `weftformer`."""

import sys

from weftformer.scripts.cli import main

sys.exit(main())
