"""`model_cards/`: what lies there is what is generated, and its figures are those of configurations and of the documentation."""

import re
import tomllib

import pytest
import torch
from huggingface_hub import ModelCard

from weftformer.configuration import PRESETS
from weftformer.hub.card import FOLDER
from weftformer.hub.export import ROOT
from weftformer.hub.facts import written_facts
from weftformer.hub.preset_cards import preset_card, write_preset_cards

DOCS = "\n\n".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("decoders", "results"))


def test_the_folder_holds_what_is_generated(tmp_path):
    again = {path.name: path.read_text() for path in write_preset_cards(tmp_path)}
    found = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    assert found.pop("template.md")
    assert found == again, "run `python -m weftformer.hub.preset_cards`"
    assert set(found) == {f"{name}.md" for name in PRESETS}


def test_an_installed_weft_has_what_cards_are_made_of():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["weftformer"]
    for name in ("template.md", "facts.yaml"):
        assert (FOLDER / name).is_file() and any(FOLDER / name in ROOT.glob(pattern) for pattern in data)


@pytest.mark.parametrize("name", PRESETS)
def test_a_card_says_what_there_is_and_invents_no_results(name, capsys):
    card = ModelCard.load(FOLDER / f"{name}.md")
    assert (card.data.library_name, card.data.license) == ("transformers", "apache-2.0")
    assert ("chemistry" in card.data.tags) == name.startswith("dms-")
    assert "**No weights of this size are published by this project" in card.text
    assert ("None were measured." in card.text) == (name != "dms-tiny")
    for heading in ("## Model", "## Use", "## Training", "## Results", "## Limits and misuse", "## Licence"):
        assert f"\n{heading}\n" in card.text
    with torch.device("meta"):
        exec(card.text.split("```python\n")[1].split("```")[0], {})
    assert f"| parameters | {capsys.readouterr().out.strip()} |\n" in card.text


def table(start: str) -> list[list[str]]:
    lines = DOCS[DOCS.index(start) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_errors_against_originals_are_those_of_the_documentation():
    found: dict[str, list[list[str]]] = {}
    for source, *cells in table("| source | compared with |"):
        name = source.strip("`") or name  # noqa: F821 (the first row has one)
        found.setdefault(name, []).append(cells)
    assert found == {name: known["parity"] for name, known in written_facts()["sources"].items()}


def test_figures_of_the_demo_are_those_of_the_documentation():
    column = {cells[0]: cells[1] for cells in table("| | sample of 4,000 routes")}
    text = (FOLDER / "dms-tiny.md").read_text()
    for row, words in {
        "training routes": "{} recorded routes",
        "training time": "| time | {} |",
        "exact route, top-1": "| exact route, top-1 | {} Wilson | 400 |",
        "exact route, top-5": "| exact route, top-5 | {} Wilson | 400 |",
        "candidates that are routes": "candidates that are routes | {} |",
        "test targets": "| {} held-out routes of the sample |",
    }.items():
        value = re.sub(r"\[([\d.]+), ([\d.]+)\]", r"| [\1 %, \2 %],", column[row])
        assert words.format(value) in text, row
    loss, test_loss = column["loss, last training steps / test"].split(" / ")
    assert f"last training steps | {loss} |" in text and f"| loss | {test_loss} |" in text


def test_a_preset_of_which_nothing_is_written_is_named(monkeypatch):
    monkeypatch.setitem(PRESETS, "new", PRESETS["tiny"])
    with pytest.raises(ValueError, match=r"facts.yaml has no entry for the preset new"):
        preset_card("new")
