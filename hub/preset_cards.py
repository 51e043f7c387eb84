"""Builds the cards of the presets from the template, the configurations and `model_cards/facts.yaml`.

`python -m weftformer.hub.preset_cards` writes them into `model_cards/`.
"""

from pathlib import Path

from ..configuration import PRESETS, WeftConfig
from .card import FOLDER, Facts, MetricResult, build_card
from .facts import count_parameters, preset_facts


def preset_card(name: str) -> str:
    """Return the card of a preset as text.

    Raises:
        ValueError: no preset has that name, or `model_cards/facts.yaml` has no entry for it.
    """
    config, known = WeftConfig.from_preset(name), preset_facts(name)
    dataset = known.pop("dataset", "")
    total, active = count_parameters(config)
    facts = Facts(
        name=name,
        config=config,
        parameters=total,
        active_parameters=active,
        preset=name,
        has_weights=False,
        recipe=known.pop("recipe").format(name=name),
        results=[MetricResult(dataset=dataset, split="test", **result) for result in known.pop("results", [])],
        **known,
    )
    return str(build_card(facts))


def write_preset_cards(folder: Path = FOLDER) -> list[Path]:
    """Write the card of each preset into a folder, and return the files."""
    files = []
    for name in PRESETS:
        files.append(folder / f"{name}.md")
        files[-1].write_text(preset_card(name), encoding="utf-8")
    return files


if __name__ == "__main__":
    for file in write_preset_cards():
        print(file)
