"""`weftformer convert`: another family's weights as a Weft model's folder, complete or not at all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import GENERATION_CONFIG_NAME

from weftformer.common.overrides import parse_overrides
from weftformer.common.whole_files import whole_folder
from weftformer.conversion import (
    SOURCES,
    DoesNotFit,
    Source,
    clean_keys,
    convert,
    detect,
    read_source_config,
    read_tokenizer,
    read_weights,
)
from weftformer.conversion.source import HEADS
from weftformer.hub import converted_card
from weftformer.scripts.parsers.convert import build_parser
from weftformer.tokenization import build_route_tokenizer


def _renames(texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    for text, (_, equals, _) in zip(texts, pairs, strict=True):
        if not equals:
            raise ValueError(f"--rename {text}: write PATTERN=REPLACEMENT.")
    return [(pattern, replacement) for pattern, _, replacement in pairs]


def _tokenizer(source: Source, folder: Path) -> Any:
    """The source's tokenizer, or None where there is none to be read."""
    if source.tokenizer == "routes":
        return build_route_tokenizer()
    return read_tokenizer(folder) if source.model_types else None


def _copy_generation_settings(model: PreTrainedModel, folder: Path) -> None:
    if (folder / GENERATION_CONFIG_NAME).is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    folder = arguments.path if arguments.path.is_dir() else arguments.path.parent
    with whole_folder(arguments.out) as staging:
        weights = clean_keys(read_weights(arguments.path), _renames(arguments.rename))
        source_config = read_source_config(arguments.source_config or folder)
        source = SOURCES[arguments.source] if arguments.source else detect(weights, source_config)
        overrides = parse_overrides(arguments.config_overrides)
        if arguments.heads is not None:
            overrides = dict.fromkeys(HEADS, arguments.heads) | overrides
        try:
            conversion = convert(
                weights, source, preset=arguments.preset, source_config=source_config, overrides=overrides
            )
        except DoesNotFit as error:
            print(error.found.describe())
            raise ValueError(error.summary) from error
        print(f"source      {source.name}: {source.title}\n{conversion.found.describe()}")
        model = conversion.build()
        if source.model_types:
            _copy_generation_settings(model, folder)
        model.save_pretrained(staging)
        tokenizer = _tokenizer(source, folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        name, new = arguments.out.resolve().name, conversion.found.new
        card = converted_card(model, name, source.name, source.title, new=new, has_tokenizer=tokenizer is not None)
        card.save(staging / "README.md")
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{type(model).__name__}, {size:,} parameters, is in {arguments.out}.")


if __name__ == "__main__":
    main()
