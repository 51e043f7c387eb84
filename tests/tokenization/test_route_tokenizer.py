"""The DMS vocabulary against a plain reference, over routes and random text."""

import json
import random
import re

import pytest
import transformers
from transformers import AutoTokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from weftformer.tokenization import build_route_tokenizer, encode_route, encode_source, source_text

# The published vocabulary in the order of its ids, written a second time on purpose: these ids are in other people's
# checkpoints.
PUBLISHED = [
    "<SOS>", "{", "'smiles':", "'", "C", "O", "(", "=", ")", "c", "1", "2", "[", "N", "+", "]", "-", ",",
    "'children':", "B", "r", "}", "?", "l", "#", "n", "o", "3", "s", "S", "F", "I", "H", "P", "@", "4", "L", "i",
    "5", "/", "\\", "M", "g", "6", "7", "u", "K", "e", "Z", "a", "p", "J", " ",
]  # fmt: skip
IDS = {token: index for index, token in enumerate(PUBLISHED)}
SMILES = ["CCO", "Cl", "BrCCBr", "N[C@@H](C)C(=O)O", "F/C=C\\F", "[O-][N+](=O)c1ccccc1", "C[Si](C)(C)C#N", "[Mg]Br"]
ROUTE = "{'smiles':'CCO','children':[{'smiles':'C=C'},{'smiles':'O','children':[{'smiles':'[H][H]'}]}]}"


def reference_ids(text: str) -> list[int]:
    """Return the ids of DMS for a route or SMILES without special tokens. An unknown character is a KeyError."""
    tokens = []
    while text:
        key = next((key for key in ("'smiles':", "'children':") if text.startswith(key)), text[0])
        tokens.append(key)
        text = text[len(key) :]
    return [IDS[token] for token in tokens]


def test_vocabulary_is_the_published_one(tokenizer):
    assert tokenizer.get_vocab() == IDS
    assert len(tokenizer) == tokenizer.vocab_size == 53 and tokenizer.is_fast
    roles = {"bos_token": "<SOS>", "eos_token": "?", "pad_token": " ", "mask_token": "J"}
    assert {name: tokenizer.special_tokens_map[name] for name in roles} == roles
    assert tokenizer.unk_token is None


def test_the_larger_vocabulary_writes_every_element_isotope_and_salt(tmp_path):
    tokenizer = build_route_tokenizer("weft")
    assert {token: index for token, index in tokenizer.get_vocab().items() if index < 53} == IDS
    assert len(tokenizer) == 78
    chem = pytest.importorskip("rdkit.Chem")
    elements = {chem.GetPeriodicTable().GetElementSymbol(number) for number in range(1, 119)}
    assert set("".join(elements)) <= tokenizer.get_vocab().keys()
    target = "[18F]CC([2H])([3H])[11CH2][13CH2][14CH2][125I].[Na+].[Pd]C[Se]C%10CC%10B[Si][Sn]"
    route = f"{{'smiles':'{target}','children':[{{'smiles':'O'}}]}}"
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.decode(encode_source(loaded, target), skip_special_tokens=True) == target
    assert loaded.decode(encode_route(loaded, route), skip_special_tokens=True) == route


@pytest.mark.parametrize("text", [*SMILES, ROUTE])
def test_equals_reference_and_decodes_back(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert ids == [0, *reference_ids(text), 22]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.decode(ids) == f"<SOS>{text}?"


def test_equals_reference_on_random_text(tokenizer):
    # Not only well-formed text: broken keys, quotes in odd places, and the one-character special tokens.
    rng = random.Random(0)
    pieces = [token for token in PUBLISHED if token != "<SOS>"] + ["'smiles'", "'children'"]
    for _ in range(500):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 60)))
        try:
            expected = reference_ids(text)
        except KeyError:
            with pytest.raises(Exception, match="UNK"):
                tokenizer(text)
        else:
            assert tokenizer(text, add_special_tokens=False)["input_ids"] == expected, text


def test_a_saved_tokenizer_is_plain_and_saving_again_changes_nothing(tmp_path, monkeypatch):
    """A folder also has a configuration, of a model_type that transformers alone does not know."""
    monkeypatch.delitem(CONFIG_MAPPING._extra_content, "weft", raising=False)
    # a new one: a call with padding changes the tokenizer that is shared, and what is saved of it
    tokenizer = build_route_tokenizer()
    tokenizer.save_pretrained(tmp_path / "first")
    (tmp_path / "first" / "config.json").write_text(json.dumps({"model_type": "weft"}))
    loaded = AutoTokenizer.from_pretrained(tmp_path / "first")
    texts = [*SMILES, ROUTE, source_text("CCO", "C"), "J ?", ""]
    assert loaded(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert (loaded.model_input_names, loaded.all_special_ids) == (["input_ids"], tokenizer.all_special_ids)
    loaded.save_pretrained(tmp_path / "second")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        first, second = (json.loads((tmp_path / folder / name).read_text()) for folder in ("first", "second"))
        # transformers notes where it loaded from; nothing else may differ.
        notes = {"is_local", "local_files_only"}
        assert {key: first[key] for key in first.keys() - notes} == {key: second[key] for key in second.keys() - notes}
    assert hasattr(transformers, first["tokenizer_class"]) and "auto_map" not in first
    with pytest.raises(Exception, match="UNK"):
        loaded("C%O")


def test_source_text_layout(tokenizer):
    assert source_text("CCO") == "CCO"
    assert source_text("CCO", "O", product_length=8, source_length=12) == "CCO?   <SOS>O"
    ids = encode_source(tokenizer, "CCO", "N")
    assert ids[:5] == [0, 4, 4, 5, 22]
    assert ids[5:145] == [52] * 140
    assert ids[145:] == [0, 13, 22]
    assert encode_source(tokenizer, "CCO") == [0, 4, 4, 5, 22]
    assert encode_source(tokenizer, "CCO", "") == [0, 4, 4, 5, 22, *[52] * 140, 0, 22]


def test_source_at_its_limits(tokenizer):
    ids = encode_source(tokenizer, "C" * 143, "O" * 133)
    assert ids == [0, *[4] * 143, 22, 0, *[5] * 133, 22]
    assert len(ids) == 280
    assert source_text("C" * 278) == "C" * 278  # alone, it has the room of a starting material too
    with pytest.raises(ValueError, match=r"product has 281 tokens .* at most 280 .*source_length=280"):
        source_text("C" * 279)
    with pytest.raises(ValueError, match=r"product has 146 tokens .* at most 145 .*product_length=145"):
        source_text("C" * 144, "C")
    with pytest.raises(ValueError, match=r"starting material has 136 tokens .* at most 135 "):
        source_text("C", "O" * 134)
    with pytest.raises(ValueError, match=r"starting material has 5 tokens .* at most 4 .*source_length=12"):
        source_text("C", "OOO", product_length=8, source_length=12)
    with pytest.raises(ValueError, match="'%' at index 3 of 'CCC%10'"):  # of the SMILES, not of the text
        encode_source(tokenizer, "CC", "CCC%10")


@pytest.mark.parametrize("character", [" ", "?", "J", "{", "}", "'", ",", "<SOS>"])
def test_source_refuses_layout_characters(character):
    message = rf"contains {re.escape(repr(character))} at index 2"
    with pytest.raises(ValueError, match="product " + message):
        source_text(f"CC{character}O")
    with pytest.raises(ValueError, match="starting material " + message):
        source_text("C", f"CC{character}O")
