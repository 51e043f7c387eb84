"""Turn another family's weights into the folder of a Weft model. A conversion that fails writes nothing.

sources:
  torch     torch.nn.Transformer
  bart      transformers' BART family (BART, mBART, Pegasus, Marian, M2M100, NLLB, NLLB-MoE)
  t5        transformers' T5 family (T5, T5 1.1, Flan-T5, ByT5, mT5)
  dms       DirectMultiStep
  symm      symm-learning's transformer
  haiku     a transformer of Haiku modules
  tutorial  the English-to-Persian tutorial
  notebook  the lecture notebook's transformer
  seq2seq   Ben Trevett's PyTorch seq2seq tutorial
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

EPILOG = """examples:
  weftformer convert flash.ckpt runs/flash
  weftformer convert dms flex.ckpt runs/flex --preset dms-flex-20m
  weftformer convert bart folder-of-bart-base runs/bart
  weftformer convert torch mine.pt runs/mine --heads 8 --config-overrides norm_first=true \\
      --rename '^transformer\\.=' --rename 'src_emb=encoder.embed_tokens' \\
      --rename 'tgt_emb=decoder.embed_tokens' --rename '^out=lm_head'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [SOURCE] PATH OUT [--option value ...]"
    add = parser.add_argument
    add("source", nargs="?", metavar="SOURCE", help="source of the weights (default: detected from their keys)")
    add("path", type=Path, metavar="PATH",
        help="a file of weights (.safetensors, .pt, .pth, .ckpt, .bin or .npz), or a folder with them")  # fmt: skip
    add("out", type=Path, metavar="OUT", help="folder to write; it must be empty or not exist")
    add("--preset", help="use the configuration of this preset instead of deriving it from the weights")
    add("--heads", type=int, metavar="N",
        help="number of attention heads of both stacks, if it cannot be derived from the weights")  # fmt: skip
    add("--config-overrides", metavar="A=1,B=2",
        help="fields of the Weft configuration, which override all other values")  # fmt: skip
    add("--source-config", type=Path, metavar="FILE",
        help="the source's own configuration, JSON or YAML (default: config.json beside the weights)")  # fmt: skip
    add("--rename", action="append", default=[], metavar="PATTERN=REPLACEMENT",
        help="regular expression to replace in every key, as in '^transformer\\.=' (repeatable)")  # fmt: skip


def _renames(texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [text.rpartition("=") for text in texts]
    for text, (_, equals, _) in zip(texts, pairs, strict=True):
        if not equals:
            raise ValueError(f"--rename {text}: write PATTERN=REPLACEMENT.")
    return [(pattern, replacement) for pattern, _, replacement in pairs]


def main(args: argparse.Namespace) -> None:
    """Convert, compare the shapes, and write model, tokenizer and card.

    Raises:
        ValueError, OSError: there is no such source, the weights do not fit, or a file cannot be read or written.
    """
    from transformers import GenerationConfig
    from transformers.utils import CONFIG_NAME, GENERATION_CONFIG_NAME

    from weftformer.common.atomic import atomic_folder
    from weftformer.common.overrides import parse_overrides
    from weftformer.conversion import SOURCES, DoesNotFit, convert, read_tokenizer
    from weftformer.conversion.source import HEADS
    from weftformer.hub import converted_card, loadable_name

    if args.source not in (None, *SOURCES):
        raise ValueError(f"there is no source {args.source!r}: choose from {', '.join(SOURCES)}.")
    folder = args.path if args.path.is_dir() else args.path.parent
    with atomic_folder(args.out) as staging:
        overrides = parse_overrides(args.config_overrides)
        if args.heads is not None:
            overrides = dict.fromkeys(HEADS, args.heads) | overrides
        try:
            conversion = convert(
                args.path, args.source and SOURCES[args.source], renames=_renames(args.rename), preset=args.preset,
                source_config=args.source_config, overrides=overrides,
            )  # fmt: skip
        except DoesNotFit as error:
            print(error.found.describe())
            raise ValueError(error.summary) from error
        source, source_config = conversion.source, conversion.source_config
        heading = f"source      {source.name}: {source.title}"
        print(*filter(None, (heading, conversion.found.describe(), source.training)), sep="\n")
        model = conversion.build()
        if source_config.get("is_encoder_decoder"):
            if (folder / GENERATION_CONFIG_NAME).is_file():
                model.generation_config = GenerationConfig.from_pretrained(folder)
            elif (folder / CONFIG_NAME).is_file():  # older folders have all settings there
                settings = {"config_file_name": CONFIG_NAME, "_from_model_config": True}
                model.generation_config = GenerationConfig.from_pretrained(folder, **settings)
                model.generation_config._from_model_config = False
            for field in overrides.keys() & vars(model.generation_config).keys():
                setattr(model.generation_config, field, overrides[field])
            # transformers saves settings without effect, such as early stopping without beams, if they are unchanged
            model.generation_config._original_object_hash = hash(model.generation_config)
        model.save_pretrained(staging)
        tokenizer = read_tokenizer(folder) if source.model_types else source.tokenizer(source_config)
        if tokenizer is not None:
            tokenizer.padding_side, tokenizer.pad_token_id = "right", conversion.config.pad_token_id
            tokenizer.save_pretrained(staging)
        name, new = loadable_name(args.out), conversion.found.new
        card = converted_card(model, name, source.name, source.title, new=new, has_tokenizer=tokenizer is not None)
        card.save(staging / "README.md")
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"Saved {type(model).__name__} ({size:,} parameters) in {args.out}.")
