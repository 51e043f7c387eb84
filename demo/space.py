"""Writing the folder of a Hub Space that shows models: the page, the sources of the package, and its requirements."""

import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from huggingface_hub import SpaceCard, SpaceCardData

from ..common.atomic import atomic_folder
from ..hub.export import ROOT
from .loading import check_named, load_models

_APP = '''"""The page of this Space. The folder beside this file has the sources of Weft, which is not on PyPI."""

import os

from weftformer.scripts.cli import main

os.chdir(os.path.dirname(os.path.abspath(__file__)))  # the paths of copied models are relative to this folder
raise SystemExit(main({arguments}))
'''

_TEXT = """# {title}

A page to try models of Weft, an encoder-decoder family for Hugging Face transformers:
{shows}

`weftformer/` has the sources of the package at the time this Space was written, and `requirements.txt` names the
packages that it needs. The version of gradio is the `sdk_version` above. torch is installed for CPUs only: for a Space
with a GPU, remove the first line of `requirements.txt`.
"""

_EXTRAS = ("", "chem")  # gradio, the extra `app`, comes from `sdk_version`
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def write_space(
    out: Path, route_model: str | None = None, text_model: str | None = None, *, title: str = "Weft"
) -> None:
    """
    Write the folder of a Space. It is written completely or not at all.

    The sources of Weft are copied beside `app.py`, where Python finds them first. A wheel in `requirements.txt` would
    fail, because the Hub installs the requirements before it copies the other files of the Space.

    Args:
        out (`Path`):
            The folder to write.
        route_model (`str`, *optional*):
            A folder with a route model, whose model and tokenizer are copied into the Space, or the id of a model on
            the Hub, which the Space downloads when it starts.
        text_model (`str`, *optional*):
            The same for a text model. At least one of the two models is required.
        title (`str`, *optional*, defaults to `"Weft"`):
            The title of the Space.

    Raises:
        ValueError: `out` is not empty, no model is given, a model is of the other kind, or gradio or Weft is not
            installed.
        OSError: a folder has no model.
    """
    check_named(route_model, text_model)
    named = {"--model": route_model, "--text-model": text_model}
    folders = [name if name is not None and Path(name).is_dir() else None for name in (route_model, text_model)]
    card, requirements = _card(title, named), _requirements()
    with atomic_folder(out) as staging:
        arguments: list[str] = []
        tasks = load_models(folders[0], folders[1]) if any(folders) else [None, None]
        for (option, name), task in zip(named.items(), tasks, strict=True):
            place = name if task is None else option.removeprefix("--")
            arguments += [] if place is None else [option, place]
            if task is not None:
                # not a copy of the folder, which may have private files of a training run
                task.model.save_pretrained(staging / str(place))
                (task.tokenizer if option == "--text-model" else task.planner.tokenizer).save_pretrained(
                    staging / str(place)
                )
        (staging / "app.py").write_text(_APP.format(arguments=["app", *arguments]), encoding="utf-8")
        (staging / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
        _copy_sources(staging / "weftformer")
        card.save(staging / "README.md")


def _card(title: str, named: dict[str, str | None]) -> SpaceCard:
    try:
        gradio = version("gradio")
    except PackageNotFoundError:
        raise ValueError("A Space needs gradio: pip install 'weftformer[app]'.") from None
    data = SpaceCardData(
        title=title,
        sdk="gradio",
        sdk_version=gradio,
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        app_file="app.py",
        license="apache-2.0",
        models=[name for name in named.values() if name is not None and not Path(name).is_dir()] or None,
        tags=["weft", "encoder-decoder", *(["chemistry", "retrosynthesis"] if named["--model"] else [])],
        short_description="Models of Weft: routes and texts",
    )
    shows = {
        "--model": "- target molecule in, ranked and drawn synthesis routes out",
        "--text-model": "- text to text",
    }
    lines = [line for option, line in shows.items() if named[option] is not None]
    text = _TEXT.format(title=title, shows="\n".join(lines))
    return SpaceCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


def _requirements() -> list[str]:
    """Return the lines of `requirements.txt`.

    Raises:
        ValueError: Weft is not installed, so its requirements are unknown.
    """
    try:
        asked = requires("weftformer") or []
    except PackageNotFoundError:
        raise ValueError("Weft must be installed to write a Space: pip install -e . in its folder.") from None
    return ["--extra-index-url https://download.pytorch.org/whl/cpu", *_needed(asked)]


def _needed(asked: list[str]) -> Iterator[str]:
    for line in asked:
        need, _, condition = (part.strip() for part in line.partition(";"))
        if condition in {f'extra == "{extra}"' if extra else "" for extra in _EXTRAS}:
            yield need


def _copy_sources(target: Path) -> None:
    """Copy the package without the tests and the other folders of a checkout."""
    rooms = [path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests"]
    target.mkdir()
    for file in (*ROOT.glob("*.py"), *ROOT.glob("LICENSE")):
        shutil.copy2(file, target / file.name)
    for room in rooms:
        shutil.copytree(ROOT / room, target / room, ignore=_IGNORED)
