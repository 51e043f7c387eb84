"""The pages tell of routes too. Without that package, none of their tests is collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("weftformer.routes") else ["*.py"]
