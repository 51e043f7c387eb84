"""`weftformer convert`: another family's weights as a Weft model's folder, complete or not at all."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers.utils import GENERATION_CONFIG_NAME

from weftformer.common.whole_files import whole_folder
from weftformer.conversion import (
    SOURCES,
    DoesNotFit,
    Source,
    clean_keys,
    convert,
    detect,
    read_source_config,
    read_weights,
)
from weftformer.conversion.files import READABLE
from weftformer.conversion.source import HEADS
from weftformer.hub import converted_card
from weftformer.tokenization import build_route_tokenizer
from weftformer.training.parsing import parse_overrides

logger = logging.getLogger(__name__)

_EXAMPLES = """examples:
  weftformer convert flash.ckpt runs/flash
  weftformer convert dms flex.ckpt runs/flex --preset dms-flex-20m
  weftformer convert bart folder-of-bart-base runs/bart
  weftformer convert torch encoder_decoder.pt runs/mine --heads 8 --config-overrides norm_first=true
"""


def build_parser() -> argparse.ArgumentParser:
    sources = "\n".join(f"  {name:<10}{source.title}" for name, source in SOURCES.items())
    parser = argparse.ArgumentParser(
        prog="weftformer convert",
        description=f"{__doc__}\n\nsources:\n{sources}",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", nargs="?", choices=list(SOURCES), metavar="SOURCE",
                        help="where the weights come from (default: told by their keys)")  # fmt: skip
    parser.add_argument("path", type=Path, metavar="PATH",
                        help=f"a file of weights ({', '.join(READABLE)}), or a folder with them")  # fmt: skip
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write; it must not hold anything yet")
    parser.add_argument("--preset", help="take the configuration of this preset instead of reading it off the weights")
    parser.add_argument("--heads", type=int, help="attention heads of both stacks, where the weights do not tell")
    parser.add_argument("--config-overrides", metavar="FIELD=VALUE,...",
                        help="fields of the Weft configuration that win over all others")  # fmt: skip
    parser.add_argument("--source-config", type=Path, metavar="FILE",
                        help="the source's own configuration, JSON or YAML (default: config.json beside the weights)")  # fmt: skip
    parser.add_argument("--rename", action="append", default=[], metavar="PATTERN=REPLACEMENT",
                        help="regular expression to replace in every key first; may be given several times")  # fmt: skip
    return parser


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
    if not source.model_types:
        return None
    # without this question transformers makes up an empty one
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        logger.warning(f"{folder} has no tokenizer: none goes with the model.")
        return None
    return AutoTokenizer.from_pretrained(folder)


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
