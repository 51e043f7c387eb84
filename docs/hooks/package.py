"""Shows mkdocstrings the package's modules alone: the repository root is the package, with tests and environments in it."""

import tempfile
from pathlib import Path

from mkdocs.plugins import event_priority

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = tempfile.TemporaryDirectory()


@event_priority(100)  # before mkdocstrings reads where to look
def on_config(config):
    package = Path(_FOLDER.name) / "weftformer"
    if not package.exists():
        package.mkdir()
        rooms = [path for path in ROOT.iterdir() if (path / "__init__.py").is_file() and path.name != "tests"]
        for path in [ROOT / "__init__.py", ROOT / "family.py", *rooms]:
            (package / path.name).symlink_to(path)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [_FOLDER.name]
    return config
