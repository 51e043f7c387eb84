"""ANNalog 1.0.6: trained weights in the layout of Ben Trevett's tutorial, with its own code and its own search.

It turns a molecule into similar ones.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from . import Reference

HEADS, MOST_TOKENS, PAD = 8, 102, 1
HEAD_FIELDS = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS)


@cache
def annalog() -> Any:
    """The original with its weights and vocabularies, loaded by its own code."""
    package = pytest.importorskip("annalog", reason="pip install --no-deps annalog==1.0.6")
    folder = Path(package.__file__).parent / "ckpt_and_vocab"
    vocabulary = str(folder / "stereo_experiment_vocab_ttf.pkl")
    return package.SMILESModelHandler(vocabulary, vocabulary, str(folder / "Lev_extended.pt"), device="cpu")


def source_config() -> dict[str, Any]:
    # its `stoi` gets an entry for each unknown token
    vocabulary = {token: index for index, token in enumerate(annalog().SRC.vocab.itos)}
    return {"vocabulary": vocabulary, "pattern": r"\[[^\]]*\]|%\d{2}|Br|Cl|."}


def molecules(number: int) -> list[str]:
    """Return real molecules of different lengths, which the vocabulary knows."""
    texts = Path(__file__).with_name("molecules.smi").read_text(encoding="utf-8").split()
    return texts[:: len(texts) // number][:number]


def ids(texts: list[str]) -> torch.Tensor:
    """What the original reads: start, tokens, end and pads."""
    return annalog().SRC.process([annalog().SRC.preprocess(text) for text in texts])


def searched(module: Any, source: torch.Tensor, beams: int) -> list[list[int]]:
    """The outputs of the original's own search for one source, the most probable first."""
    search = sys.modules["annalog.model_files.multi_gen_final"].beam_search_decode
    mask = module.make_src_mask(source)
    outputs = search(module, source, mask, annalog().TRG, beams, MOST_TOKENS, source.device, use_masking=True)
    return [output for output, _ in outputs]


def written(module: Any) -> torch.Tensor:
    """One text at a time, because its search takes one."""
    texts = [searched(module, ids([text]), beams=1)[0] for text in molecules(4)]
    return pad_sequence([torch.tensor(text) for text in texts], batch_first=True, padding_value=PAD)


def reference() -> Reference:
    source, target = ids(molecules(16)), ids(molecules(16)[::-1])
    return Reference(
        "seq2seq",
        annalog().model.to(torch.get_default_dtype()),
        lambda module: module(source, target)[0],
        {"input_ids": source, "decoder_input_ids": target},
        {"source_config": source_config(), "overrides": HEAD_FIELDS},
        tolerance=1e-6,  # its scores are divided by a root of 32 bits
        shown=target != PAD,
        written=written,
        generation={"inputs": ids(molecules(4)), "max_length": MOST_TOKENS, "do_sample": False},
    )


CASES = {"annalog": reference}
TEXTS = ("annalog",)
