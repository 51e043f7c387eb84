"""`python -m weft` is the console command `weft`."""

import sys

from weft.scripts.cli import main

sys.exit(main())
