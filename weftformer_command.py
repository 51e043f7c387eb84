"""The console command `weftformer`, and processes that need parts of the package only.

`import weftformer` registers the family with transformers, which takes seconds and needs torch. `weftformer --help`
and the worker processes that read molecules do without. This module is outside the package, to be imported first.
"""

import os
import pickle
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec, module_from_spec


def import_parts() -> Callable[[], object]:
    """Let `weftformer.PART` be imported without `weftformer` itself, and return a function that imports it then."""
    spec = find_spec("weftformer") if "weftformer" not in sys.modules else None
    if spec is None or spec.loader is None:
        return lambda: None
    package = sys.modules["weftformer"] = module_from_spec(spec)
    return partial(spec.loader.exec_module, package)


def call_with_parts(pickled: bytes) -> None:
    """Call a pickled function of a part of the package. This begins a worker process."""
    import_parts()
    pickle.loads(pickled)()


def main() -> int:
    # Threads of OpenMP wait for each other by spinning, which takes the time of other processes on busy cores. It
    # reads this when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import_package = import_parts()
    from weftformer.scripts.cli import main as run_command

    return run_command(import_package=import_package)
