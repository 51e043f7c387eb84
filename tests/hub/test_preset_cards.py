"""`model_cards/`: its table of presets, and its figures, which are those of the documentation."""

import re

from weftformer.configuration import PRESETS, WeftConfig
from weftformer.hub.card import FOLDER
from weftformer.hub.export import ROOT
from weftformer.hub.facts import count_parameters, written_facts

DECODERS = (ROOT / "docs" / "decoders.md").read_text(encoding="utf-8")


def test_the_table_has_the_sizes_of_all_presets():
    rows = re.findall(
        r"^\| `([\w-]+)` \| ([\d,]+) \| ([\d,]+) \|", (FOLDER / "README.md").read_text(), flags=re.MULTILINE
    )
    counts = {name: count_parameters(WeftConfig.from_preset(name)) for name in PRESETS}
    expected = {name: (f"{total:,}", f"{active:,}") for name, (total, active) in counts.items()}
    assert {name: (total, active) for name, total, active in rows} == expected
    assert set(written_facts()["presets"]) == set(PRESETS)


def table(start: str) -> list[list[str]]:
    lines = DECODERS[DECODERS.index(start) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
