"""Peculiarities of single sources. `test_parity.py` compares outputs, gradients, weights and texts."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.conversion import SOURCES, clean_keys, convert, export, read_source_config
from weftformer.conversion.shapes import VASWANI
from weftformer.conversion.vocabularies import special_tokens
from weftformer.scripts.cli import main

from .references import bart, largest_error, seq2seq, symm, t5, torch_transformer, tutorial
from .references.directmultistep import DENSE, SPARSE, both, build, preset_of, published, saved

in_float64 = pytest.mark.dtype(torch.float64)
pytestmark = pytest.mark.filterwarnings("ignore:path is deprecated")  # directmultistep's way to its own files


@torch.no_grad()
def assert_same(reference, conversion):
    assert largest_error(reference.found(conversion.build()), reference.expected()) <= reference.tolerance


# --- DirectMultiStep

DMS = SOURCES["dms"]
ALIKE = ("flex_20M", "explorer_19M")  # in every shape


@pytest.mark.parametrize("name", (*DENSE, *SPARSE))
def test_published_shapes_tell_the_preset(name):
    config, preset = published(name), preset_of(name)
    with torch.device("meta"):  # shapes alone, to have the published sizes in no time
        weights = build(config, "meta").state_dict()
    fields = WeftConfig.from_preset(preset).to_dict()
    if name in ALIKE:
        with pytest.raises(ValueError, match=r"dms-flex-20m and dms-explorer-19m.*`--preset`"):
            convert(weights, DMS)
    assert convert(weights, DMS, preset=preset if name in ALIKE else None).config.to_dict() == fields
    assert convert(weights, DMS, source_config=saved(config)).config.to_dict() == fields


@pytest.mark.parametrize(("field", "value"), [("ff_activation", "relu"), ("top_k", 1)])
def test_what_weft_has_once_has_to_agree_in_both_stacks(field, value):
    config = both(published("flex_20M"), hid_dim=64, n_layers=2)
    setattr(config.decoder, field, value)
    with pytest.raises(ValueError, match=field):
        convert(build(config).state_dict(), DMS, source_config=saved(config))


# --- symm-learning


@in_float64
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_the_kind_of_norm_is_seen_by_its_bias(norm):
    weights = symm.build(norm=norm, norm_first=False).state_dict()
    assert convert(weights, SOURCES["symm"], overrides=symm.HEAD_FIELDS).config.norm_type == norm


def test_tables_of_different_lengths_do_not_fit():
    attentions = [symm.attention("relative", distance=distance) for distance in (symm.DISTANCE, symm.DISTANCE + 1)]
    with pytest.raises(ValueError, match=r"encoder_attn\.relative_bias would have shape \(7,\)"):
        symm.reference("relative", "relative", attentions=attentions).converted()


# --- torch.nn.Transformer

TORCH = SOURCES["torch"]


def test_only_the_embeddings_are_new():
    weights = torch_transformer.build("transformer").state_dict()
    conversion = convert(weights, TORCH, overrides=symm.HEAD_FIELDS | {"vocab_size": 11})
    assert conversion.found.new == ["model.shared.weight"]
    first, second, third = (conversion.build(seed).shared.weight for seed in (0, 0, 1))
    assert first.shape == (11, symm.WIDTH) and torch.equal(first, second) and not torch.equal(first, third)


@pytest.mark.parametrize("shared", [False, True])
def test_embeddings_positions_and_head_around_it(shared):
    table, other, positions, head = (torch.randn(rows, symm.WIDTH) for rows in (11, 12, 30, 12))
    names = {"emb.weight": table} if shared else {"src.weight": table, "tgt.weight": other}
    renames = [("^core\\.", ""), ("^emb", "shared"), ("^src", "encoder.embed_tokens"), ("^tgt", "decoder.embed_tokens"),
               ("^pe$", "embed_positions.weight"), ("^out", "lm_head")]  # fmt: skip
    head = head[:11] if shared else head
    weights = {f"core.{key}": tensor for key, tensor in torch_transformer.build("transformer").state_dict().items()}
    weights |= names | {"pe": positions[:, None], "out.weight": head}
    conversion = convert(clean_keys(weights, renames), TORCH, overrides=symm.HEAD_FIELDS)
    config, model = conversion.config, conversion.build()
    assert type(model).__name__ == "WeftForConditionalGeneration" and conversion.found.new == []
    assert (config.vocab_size, config.target_vocab_size) == (11, 11 if shared else 12)
    assert (config.max_source_positions, config.max_target_positions, config.lm_head_bias) == (30, 30, False)
    for stack in (model.model.encoder, model.model.decoder):
        assert torch.equal(stack.embed_positions.weight, positions)
    assert torch.equal(model.lm_head.weight, head) and torch.equal(model.model.encoder.embed_tokens.weight, table)
    assert torch.equal(model.model.decoder.embed_tokens.weight, table if shared else other)


# --- transformers' BART family


@in_float64
@pytest.mark.parametrize("prefix", ["model.", ""], ids=["prefix", "as `BartModel` saves it"])
@torch.no_grad()
def test_a_file_without_the_bias_of_the_head(prefix):
    """transformers reads such files: the bias is zero."""
    reference = bart.reference("bart")
    reference.module.final_logits_bias.zero_()
    weights = {prefix + key: tensor for key, tensor in reference.module.model.state_dict().items()}
    assert_same(reference, reference.converted(weights))


NLLB_MOE = [
    {"router_bias": False},
    {"normalize_router_prob_before_dropping": True, "moe_token_dropout": 0.0},
    {"encoder_sparse_step": 0, "decoder_sparse_step": 3},
    {"num_experts": 5, "router_bias": False, "normalize_router_prob_before_dropping": True},
    {"batch_prioritized_routing": True},
    {"router_ignore_padding_tokens": True},
]


@in_float64
@pytest.mark.parametrize("fields", NLLB_MOE, ids=str)
def test_settings_of_nllb_moe(fields):
    reference = bart.reference("nllb-moe", **fields)
    assert_same(reference, reference.converted())


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [("nllb-moe", "second_expert_policy", "random"), ("nllb-moe", "moe_eval_capacity_token_fraction", 0.25),
     ("nllb-moe", "moe_eval_capacity_token_fraction", -1.0), ("m2m100", "pad_token_id", 0)],
)  # fmt: skip
def test_what_weft_has_no_form_for_is_refused(family, field, value):
    """Experts drawn at random; tokens dropped in evaluation; positions that do not begin at 2, which is the pad's + 1."""
    with pytest.raises(ValueError, match=f"{field}={value!r}"):
        bart.reference(family, **{field: value}).converted()


@in_float64
@pytest.mark.parametrize("stacks", [("encoder", "decoder"), ("decoder",)], ids=len)
@pytest.mark.parametrize("family", ["pegasus", "marian"])
@torch.no_grad()
def test_a_trained_table_of_sines_is_read(family, stacks):
    reference = bart.reference(family)
    assert reference.converted().config.position_embedding_type == "sinusoidal"
    for stack in stacks:
        table = reference.module.get_parameter(f"model.{stack}.embed_positions.weight")
        table.add_(torch.randn(table.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    assert_same(reference, reference.converted())


# --- transformers' T5 family

T5 = SOURCES["t5"]


@in_float64
@pytest.mark.parametrize("filled", [True, False], ids=["defaults filled in", "as it is"])
def test_a_configuration_as_published(tmp_path, filled):
    """T5 1.1 and Flan-T5 say `tie_word_embeddings: false`, which transformers reads as: the output is not scaled."""
    reference = t5.reference("t5 1.1, own head")
    config = {"model_type": "t5"} | t5.SMALL | t5.V1_1
    config |= {"dense_act_fn": "gelu_new", "is_gated_act": True, "layer_norm_epsilon": 1e-6, "dropout_rate": 0.1,
               "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    source_config = read_source_config(tmp_path) if filled else config
    assert_same(reference, convert(reference.module.state_dict(), T5, source_config=source_config))


@in_float64
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_tensors_that_went_apart_are_refused_on_the_way_there_and_back(stack):
    reference = t5.reference("t5")
    weights, here = reference.module.state_dict(), reference.converted().build()
    copy = f"{stack}.embed_tokens.weight"
    with pytest.raises(ValueError, match=f"{copy} differs from shared.weight"):
        reference.converted(weights | {copy: weights[copy] + 1e-3})
    with torch.no_grad():
        getattr(here.model, stack).layers[1].self_attn.relative_bias.add_(1.0)
    message = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight is one tensor for all"
    with pytest.raises(ValueError, match=message):
        export(here, T5, reference.module.config.to_dict())


# --- labels


@in_float64
@pytest.mark.parametrize(
    ("module", "family"), [*((bart, family) for family in bart.FAMILIES), *((t5, family) for family in t5.FAMILIES)]
)
def test_labels_mean_what_they_mean_to_the_source(module, family):
    reference = module.reference(family)
    source, model = reference.module, reference.converted().build()
    pad, ids = source.config.pad_token_id, torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
    for labels in ([[12, 13, 2, 30], [15, 2, 31, -100]], [[30, 12, 13, 2], [31, 15, 2, pad]]):
        outputs = [model_of(input_ids=ids, labels=torch.tensor(labels)) for model_of in (source, model)]
        torch.testing.assert_close(
            outputs[1].loss, outputs[0].loss, rtol=reference.tolerance, atol=reference.tolerance
        )
        if hasattr(source, "prepare_decoder_input_ids_from_labels"):  # not M2M100
            shifted = [part.prepare_decoder_input_ids_from_labels(torch.tensor(labels)) for part in (source, model)]
            assert torch.equal(*shifted)


# --- the tutorial


@in_float64
def test_special_tokens_come_from_the_vocabularies():
    ids = {"pad_token_id": 17, "bos_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 28}
    names = ("<SOS>", "<PAD>", "<EOS>")
    assert special_tokens((tutorial.ENGLISH, tutorial.PERSIAN), *names) == ids
    model = tutorial.CASES["added"]().converted().build()
    assert {name: getattr(model.config, name) for name in ids} == ids
    assert model.generation_config.pad_token_id == 27
    for name in names:
        with pytest.raises(ValueError, match=f"target vocabulary has no {name}"):
            special_tokens((tutorial.ENGLISH, {key: i for key, i in tutorial.PERSIAN.items() if key != name}), *names)


# --- Ben Trevett's tutorial

SEQ2SEQ = SOURCES["seq2seq"]
HEADS_OF_TWO = dict.fromkeys(symm.HEAD_FIELDS, 2)
START, END = 2, 3
SPECIAL = {"<unk>": 0, "<pad>": 1, "<sos>": START, "<eos>": END}


def test_texts_are_tokenized_as_by_the_original():
    config = seq2seq.source_config()
    texts = [
        *seq2seq.molecules(200),
        "C[N+](C)(C)Cc1ccccc1Br.[O-]Cl",
        "C1CC%10CC1C%10",
        "C[Zn]C",
    ]  # the last is unknown
    tokenizer = SEQ2SEQ.tokenizer(config)
    assert tokenizer(texts).input_ids == [seq2seq.ids([text])[0].tolist() for text in texts]
    assert tokenizer.batch_decode(tokenizer(texts[:-1]).input_ids, skip_special_tokens=True) == texts[:-1]
    assert tokenizer("C[Zn]C").input_ids.count(tokenizer.unk_token_id) == 1


@in_float64
@torch.no_grad()
def test_beams_are_those_of_a_plain_search_with_the_original():
    """Its own search goes on with fewer beams after each end, so that it ends with other texts."""
    reference = seq2seq.reference()
    settings = {"num_beams": 5, "num_return_sequences": 5, "length_penalty": 0.0, "early_stopping": True}
    rows = reference.model.generate(**reference.generation, **settings).tolist()
    texts = [row[: row.index(END) + 1] for row in rows]
    sources = seq2seq.molecules(4)
    assert texts == [text for source in sources for text in plain_beams(reference.module, seq2seq.ids([source]), 5)]


def plain_beams(module, source, number):
    """Beam search without a cache. It is over when as many texts have ended as there are beams."""
    beams, ends, mask = [([START], 0.0)], [], module.make_src_mask(source)
    states = module.encoder(source, mask)
    while len(ends) < number:
        target = torch.tensor([tokens for tokens, _ in beams])
        target_mask = module.make_trg_mask(target)
        logits = module.decoder(target, states.expand(len(target), -1, -1), target_mask, mask)[0][:, -1]
        scores = logits.log_softmax(dim=-1) + torch.tensor([score for _, score in beams])[:, None]
        best = scores.flatten().topk(2 * number)
        places = [divmod(index, scores.shape[1]) for index in best.indices.tolist()]
        texts = [([*beams[beam][0], token], score)
                 for (beam, token), score in zip(places, best.values.tolist(), strict=True)]  # fmt: skip
        ends += [text for text in texts[:number] if text[0][-1] == END]
        beams = [text for text in texts if text[0][-1] != END][:number]
    return [tokens for tokens, _ in sorted(ends, key=lambda text: -text[1])][:number]


def small_weights():
    """Weights under the keys of the tutorial, with a vocabulary of six tokens."""
    fields = VASWANI | {"vocab_size": 6, "d_model": 8, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
              "decoder_attention_heads": 2, "position_embedding_type": "learned", "attention_bias": True,
              "attention_out_bias": True, "mlp_bias": True, "lm_head_bias": True, "tie_word_embeddings": False,
              "share_encoder_decoder_embeddings": False, "max_source_positions": 9, "max_target_positions": 7}  # fmt: skip
    return export(WeftForConditionalGeneration(WeftConfig(**fields)), SEQ2SEQ)


@pytest.mark.parametrize(
    ("options", "text", "tokens", "decoded"),
    [({}, "ab cd xy", ["ab", "cd", "<unk>"], "ab cd"), ({"lower": True}, " AB  Cd", ["ab", "cd"], "ab cd"),
     ({"pattern": "[a-z]{2}"}, "abcdxy", ["ab", "cd", "<unk>"], "abcd")],
)  # fmt: skip
def test_a_vocabulary_becomes_a_tokenizer_that_loads(tmp_path, options, text, tokens, decoded):
    vocabulary = SPECIAL | {"ab": 4, "cd": 5}
    torch.save(small_weights(), tmp_path / "model.pt")
    (tmp_path / "own.json").write_text(json.dumps({"vocabulary": vocabulary} | options))
    arguments = [str(tmp_path / "model.pt"), str(tmp_path / "out"), "--heads", "2", "--source-config"]
    assert main(["convert", *arguments, str(tmp_path / "own.json")]) == 0
    tokenizer, config = (loader.from_pretrained(tmp_path / "out") for loader in (AutoTokenizer, AutoConfig))
    ids = tokenizer(text).input_ids
    assert tokenizer.convert_ids_to_tokens(ids) == ["<sos>", *tokens, "<eos>"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == decoded
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    assert [getattr(config, name) for name in names] == [getattr(tokenizer, name) for name in names] == [1, 2, 3]
    assert (config.max_source_positions, config.max_target_positions, config.decoder_start_token_id) == (9, 7, 2)


def test_vocabularies_of_two_languages():
    source, target = SPECIAL | {"ab": 4, "cd": 5}, {"<pad>": 5, "ab": 4, "cd": 1} | SPECIAL | {"<pad>": 5}
    config = {"source_vocabulary": source, "target_vocabulary": target}
    conversion = convert(small_weights(), SEQ2SEQ, source_config=config, overrides=HEADS_OF_TWO)
    assert conversion.config.pad_token_id == 1 and conversion.build().generation_config.pad_token_id == 5
    assert SEQ2SEQ.tokenizer(config) is None  # a folder has one tokenizer


@pytest.mark.parametrize(
    ("vocabulary", "reason"),
    [(SPECIAL, "source vocabulary has 4 tokens for 6 rows"),
     (SPECIAL | {"ab": 4, "cd": 4}, "source vocabulary has 6 tokens"),
     (list(SPECIAL), "vocabulary is a list: give a mapping"),
     ({"<unk>": 0, "<pad>": 1, "<bos>": 2, "<eos>": 3, "ab": 4, "cd": 5}, "target vocabulary has no <sos>")],
)  # fmt: skip
def test_vocabularies_that_do_not_fit_are_refused(vocabulary, reason):
    with pytest.raises(ValueError, match=reason):
        convert(small_weights(), SEQ2SEQ, source_config={"vocabulary": vocabulary}, overrides=HEADS_OF_TWO)


def test_special_cases_of_tokenizers():
    with pytest.raises(ValueError, match="pattern='\\[' is not a regular expression"):
        SEQ2SEQ.tokenizer({"vocabulary": SPECIAL, "pattern": "["})
    vocabulary = {"<sos>": 0, "<pad>": 1, "<eos>": 2, "ab": 3}  # torchtext can leave the unknown token out
    tokenizer = SEQ2SEQ.tokenizer({"vocabulary": vocabulary})
    assert len(tokenizer) == 4 and tokenizer.unk_token is None
