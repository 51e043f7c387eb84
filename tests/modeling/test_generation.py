"""What Weft adds to `generate`: refusals before the first step, scores that must be finite, and the hooks it relies on."""

import collections
import inspect
import re
import traceback
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
)
from transformers.generation import GenerationMixin

from weftformer import WeftForConditionalGeneration
from weftformer.modeling.generation import RefuseNonFiniteScores

from ..models import tiny_model

TABLES = {
    "learned": {"position_embedding_type": "learned", "self_attention_position_type": "none"},
    "additive": {"self_attention_position_type": "additive"},
    "additive across": {"self_attention_position_type": "none", "cross_attention_position_type": "additive"},
}
LIMITS = {"max_source_positions": 12, "max_target_positions": 10}
SOURCE = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]])


build = partial(tiny_model, encoder_layers=1, decoder_layers=1, tie_word_embeddings=False)


def count_calls(module: torch.nn.Module) -> list[int]:
    calls: list[int] = []
    module.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"input_ids": SOURCE + 27}, "`input_ids` contains the id 36, but the vocabulary has 31 tokens"),
        (
            {"input_ids": SOURCE, "decoder_input_ids": torch.tensor([[1, 23]] * 2)},
            "`decoder_input_ids` contains the id 23",
        ),
    ],
)
def test_the_ids_of_every_request_are_looked_at_before_anything_is_computed(given, words):
    model = build(share_encoder_decoder_embeddings=False, decoder_vocab_size=23)
    model.generate(SOURCE, max_new_tokens=2)
    entered = []
    model.model.encoder.register_forward_pre_hook(lambda *_: entered.append(1))
    with pytest.raises(ValueError, match=words):
        model.generate(**given, max_new_tokens=2)
    assert not entered


@pytest.mark.parametrize("kind", TABLES)
def test_a_request_that_cannot_fit_is_refused_before_the_first_step(kind):
    model = build(**TABLES[kind], **LIMITS)
    calls = count_calls(model.model.decoder.layers[0])
    with pytest.raises(ValueError) as error:
        model.generate(SOURCE, max_new_tokens=11)
    assert str(error.value) == (
        "A prefix of 1 tokens and max_new_tokens=11 do not fit the learned position table of 10 rows "
        "(`max_target_positions`): ask for at most max_new_tokens=10."
    )
    with pytest.raises(ValueError, match=r"A prefix of 4 tokens and max_new_tokens=8 .* at most max_new_tokens=7"):
        model.generate(SOURCE, decoder_input_ids=torch.tensor([[1, 5, 5, 5]] * 2), max_new_tokens=8)
    with pytest.raises(ValueError, match="at most max_new_tokens=10"):
        model.generate(SOURCE, max_length=12)
    assert not calls


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("settings", [{"use_cache": False}, {"num_beams": 2}])
def test_what_just_fits_is_written_to_the_last_token(kind, settings):
    model = build(**TABLES[kind], **LIMITS)
    assert model.generate(SOURCE, min_new_tokens=10, max_new_tokens=10, **settings).shape == (2, 11)
    prefix = torch.tensor([[1, 5, 5, 5]] * 2)
    found = model.generate(SOURCE, decoder_input_ids=prefix, min_new_tokens=7, max_new_tokens=7, **settings)
    assert found.shape == (2, 11)


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default:UserWarning")
def test_without_a_request_the_length_stays_within_the_table():
    model = build(**TABLES["learned"], **LIMITS)
    assert model.generate(SOURCE, min_new_tokens=9).shape[1] <= 11


def test_forbidden_tokens_are_no_damage():
    scores = torch.zeros(3, 5)
    scores[:, 1:] = -torch.inf
    refusal = RefuseNonFiniteScores()
    assert refusal(torch.zeros(3, 4, dtype=torch.long), scores) is scores
    refusal.look()


def test_damage_of_a_later_step_is_told_at_the_end_with_its_row_and_length():
    refusal = RefuseNonFiniteScores()
    sound, damaged = torch.zeros(3, 5), torch.zeros(3, 5)
    damaged[2, 4] = torch.inf
    alone = torch.zeros(1, 5)
    for length, scores in (
        (4, sound),
        (4, alone),
        (5, sound),
        (6, damaged),
        (7, damaged.flip(0)),
        (5, alone),
        (8, sound),
    ):
        refusal(torch.zeros(len(scores), length, dtype=torch.long), scores)
    with pytest.raises(ValueError, match="in row 2, at length 6:"):
        refusal.look()


class Writes(LogitsProcessor):
    """The second row of the batch writes a certain token third."""

    def __init__(self, token: int, rows: slice):
        self.token, self.rows = token, rows

    def __call__(self, input_ids, scores):
        if input_ids.shape[1] != 3:
            return scores
        forced = scores.clone()
        forced[self.rows] = -torch.inf
        forced[self.rows, self.token] = 0.0
        return forced


def plain_greedy(model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs):
    return GenerationMixin._sample(
        model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs
    )


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        ({}, 1),
        ({"cache_implementation": "dynamic"}, 1),
        ({"cache_implementation": "static"}, 1),
        ({"use_cache": False}, 1),
        ({"num_beams": 2}, 2),
        ({"num_beams": 2, "cache_implementation": "dynamic"}, 2),
        ({"do_sample": True}, 1),
        ({"do_sample": True, "cache_implementation": "dynamic"}, 1),
        ({"do_sample": True, "num_beams": 2}, 2),
        ({"num_beams": 2, "custom_generate": "sqrt_length"}, 2),
        ({"custom_generate": plain_greedy}, 1),
        ({"prompt_lookup_num_tokens": 2}, 0),
        ({"assistant_model": "itself"}, 0),
    ],
    ids=lambda value: (
        value if isinstance(value, int) else ", ".join(f"{k} {getattr(v, '__name__', v)}" for k, v in value.items())
    ),
)
def test_scores_that_cease_to_be_finite_are_refused_by_every_mode(settings, row):
    model = build(share_encoder_decoder_embeddings=False, init_std=0.4)
    if settings.get("assistant_model"):
        settings = {"assistant_model": build(share_encoder_decoder_embeddings=False, init_std=0.4)}
    with torch.no_grad():
        model.model.decoder.embed_tokens.weight[9] = torch.nan
    source, beams = SOURCE[1:] if row == 0 else SOURCE, settings.get("num_beams", 1)
    # of several candidates that are read at once, those before the NaN see it too: 0 times NaN
    length = 3 if "assistant_model" in settings else 4
    request = {"min_new_tokens": 8, "max_new_tokens": 8, "suppress_tokens": [9], **settings}
    assert torch.isfinite(model.generate(source, **request)).all()
    processors = LogitsProcessorList([Writes(9, slice(row, row + beams))])
    with pytest.raises(ValueError, match=f"NaN or infinite in row {row}, at length {length}: the weights are damaged"):
        model.generate(source, **(request | {"suppress_tokens": None}), logits_processor=processors)


class Reads(TorchDispatchMode):
    """How often what a tensor holds was waited for, by the file of transformers or of Weft that did so."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero")

    def __init__(self, monkeypatch):
        super().__init__()
        self.counts = collections.Counter()
        tolist = torch.Tensor.tolist  # which no operation stands for
        monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: self.count() or tolist(tensor))

    def count(self):
        files = [Path(frame.filename) for frame in traceback.extract_stack() if frame.filename != __file__]
        self.counts[
            [file for file in files if file.parent.name == "modeling" or "transformers" in file.parts][-1].name
        ] += 1

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation.overloadpacket.__name__ in self.WAITS:
            self.count()
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("request_", [{}, {"do_sample": True}, {"num_beams": 2}], ids=str)
def test_the_scores_are_looked_at_twice_however_long_the_text(request_, monkeypatch):
    model, reads = build(), Reads(monkeypatch)
    with reads:
        model.generate(SOURCE, min_new_tokens=10, max_new_tokens=10, cache_implementation="dynamic", **request_)
    assert reads.counts["generation.py"] == 2


def test_what_the_caller_asked_to_be_repaired_is_not_refused():
    model = build(lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[7] = torch.nan
    assert model.generate(SOURCE, max_new_tokens=3, remove_invalid_values=True).shape[0] == 2


def test_a_row_without_any_allowed_token_is_named_as_such():
    with pytest.raises(
        ValueError, match=r"in row 0, at length 1: .* or every token is forbidden \(by `suppress_tokens`"
    ):
        build().generate(SOURCE, prefix_allowed_tokens_fn=lambda row, ids: [5], suppress_tokens=[5], max_new_tokens=2)


def cache_of(model, settings=None, **given):
    """The cache that a search of the caller gets."""
    seen = []

    def search(model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs):
        seen.append(model_kwargs["past_key_values"])
        return input_ids

    model.generate(SOURCE, settings, custom_generate=search, **given)
    return seen[0]


def test_a_search_of_the_caller_gets_the_cache_that_is_asked_for():
    model = build()
    assert not cache_of(model, max_new_tokens=2).is_compileable
    own = EncoderDecoderCache(DynamicCache(), DynamicCache())
    assert cache_of(model, past_key_values=own, max_new_tokens=2) is own
    static = GenerationConfig(cache_implementation="static", max_new_tokens=2)
    assert cache_of(model, static).is_compileable
    assert not cache_of(model, static, cache_implementation="dynamic").is_compileable
    model.generation_config.cache_implementation = "static"
    assert cache_of(model, max_new_tokens=2).is_compileable


def test_settings_of_generation_come_from_the_configuration():
    model = build(eos_token_id=[2, 9], decoder_start_token_id=4, pad_token_id=3)
    settings = model.generation_config
    assert (settings.eos_token_id, settings.decoder_start_token_id, settings.pad_token_id) == ([2, 9], 4, 3)
    assert (model.generate(SOURCE, max_new_tokens=2)[:, 0] == 4).all()
    given = GenerationConfig(decoder_start_token_id=6, max_new_tokens=2)
    assert (model.generate(SOURCE, given)[:, 0] == 6).all()


@pytest.mark.parametrize("settings", [{}, {"cache_implementation": "static"}, {"num_beams": 2}], ids=str)
def test_only_the_last_position_is_scored(settings):
    model, shapes = build(), []
    model.lm_head.register_forward_hook(lambda module, args, output: shapes.append(output.shape[1]))
    prefix = torch.tensor([[1, 5, 6]] * 2)
    model.generate(SOURCE, decoder_input_ids=prefix, min_new_tokens=3, max_new_tokens=3, **settings)
    assert shapes == [1, 1, 1]


# What Weft overrides in transformers beyond its public interface. When an upgrade moves one of these, the override is
# no longer called, and nothing else would say so.
HOOKS = {
    (GenerationMixin, "_validate_generated_length"): "self generation_config input_ids_length has_default_max_length",
    (
        GenerationMixin,
        "prepare_inputs_for_generation",
    ): "self input_ids next_sequence_length past_key_values attention_mask inputs_embeds is_first_iteration kwargs",
    (GenerationMixin, "compute_transition_scores"): "self sequences scores beam_indices normalize_logits",
    (GenerationMixin, "_optimize_model_for_decode"): "self",
    (
        GenerationMixin,
        "_get_logits_processor",
    ): "self generation_config input_ids_seq_length encoder_input_ids prefix_allowed_tokens_fn logits_processor device model_kwargs negative_prompt_ids negative_prompt_attention_mask",
    (
        GenerationMixin,
        "_get_candidate_generator",
    ): "self generation_config input_ids inputs_tensor logits_processor model_kwargs assistant_model target_tokenizer assistant_tokenizer",
    (PreTrainedModel, "_resize_token_embeddings"): "self new_num_tokens pad_to_multiple_of mean_resizing",
    (PreTrainedModel, "_can_set_attn_implementation"): "cls",
    (PreTrainedModel, "_can_set_experts_implementation"): "cls",
}


@pytest.mark.parametrize(("owner", "name"), HOOKS, ids=lambda value: getattr(value, "__name__", value))
def test_a_hook_that_weft_overrides_exists_with_its_signature(owner, name):
    hook = getattr(owner, name, None)
    assert hook is not None, f"transformers no longer has {owner.__name__}.{name}: what Weft does there is lost."
    found = list(inspect.signature(getattr(hook, "__func__", hook)).parameters)
    assert found == HOOKS[owner, name].split(), f"The signature of {owner.__name__}.{name} has changed: {found}."
    own = getattr(WeftForConditionalGeneration, name)
    assert getattr(own, "__func__", own) is not getattr(hook, "__func__", hook), f"Weft no longer overrides {name}."


def test_transformers_calls_the_hooks_of_generation():
    """By name, in the one place each is called from."""
    text = inspect.getsource(GenerationMixin)
    for name in (
        "_validate_generated_length", "prepare_inputs_for_generation", "_get_candidate_generator", "_get_logits_processor",
        "_optimize_model_for_decode",
    ):  # fmt: skip
        assert re.search(rf"self\.{name}\(", text), name


def test_transformers_calls_the_hooks_of_models():
    text = inspect.getsource(inspect.getmodule(PreTrainedModel))
    for name in (
        "_resize_token_embeddings",
        "_can_set_attn_implementation",
        "_can_set_experts_implementation",
    ):
        assert re.search(rf"(self|model|module|cls|submodule)\.{name}\(", text), name
