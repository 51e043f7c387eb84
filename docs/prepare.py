"""Prepare the pages: `python docs/prepare.py`, before `zensical build --strict` (or `zensical serve`).

Writes the notebooks and the help of all commands as pages into `docs/generated`. For mkdocstrings, links the package's
modules alone into `runs/package`, because the repository root is the package, with tests and environments in it.
"""

import json
import os
import shutil
from pathlib import Path

from weftformer.scripts.cli import build_parser

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "docs" / "generated"


def link_package(folder: Path) -> None:
    """Link the modules of the package and its subpackages into a folder."""
    package = folder / "weftformer"
    shutil.rmtree(folder, ignore_errors=True)
    package.mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.suffix == ".py" or ((path / "__init__.py").is_file() and path.name != "tests"):
            (package / path.name).symlink_to(path)


def page_of_notebook(file: Path) -> str:
    """Return a notebook's texts and code. Its outputs are cleared in the repository."""
    parts = []
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"]).strip()
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    note = f"This page is the notebook `docs/notebooks/{file.name}`. To run it, open it with Jupyter"
    parts.insert(1, f'{note} (`pip install -e ".[chem,train,notebooks]"`).')
    return "\n\n".join(parts) + "\n"


def page_of_commands() -> str:
    """Return the help of every command, a hundred columns wide."""
    os.environ["COLUMNS"] = "100"
    parser, commands = build_parser()
    parts = ["# Commands", f"```text\n{parser.format_help().strip()}\n```"]
    parts += [
        f"## weftformer {name}\n\n```text\n{command.format_help().strip()}\n```" for name, command in commands.items()
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    link_package(ROOT / "runs" / "package")
    (GENERATED / "notebooks").mkdir(parents=True, exist_ok=True)
    for file in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        (GENERATED / "notebooks" / f"{file.stem}.md").write_text(page_of_notebook(file), encoding="utf-8")
    (GENERATED / "commands.md").write_text(page_of_commands(), encoding="utf-8")


if __name__ == "__main__":
    main()
