"""Searches as graphs: the tokens of the plain path, for the models and requests that the graphs are made for."""

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessor, default_data_collator

from weftformer.inference import TextTask
from weftformer.modeling import modeling_weft
from weftformer.modeling.decoding import ContinuousSearch, compiled, dispatch, graph, reason_against
from weftformer.modeling.decoding.compiled import compiled_folder, load_package
from weftformer.modeling.decoding.continuous import continuous_settings
from weftformer.modeling.decoding.graph import GraphSearch, kind_of
from weftformer.training import WeftTrainer, WeftTrainingArguments

from ..models import run_loop, tiny_text_model
from .conftest import FEW, KINDS, row_of

ENDS = {"eos_token_id": [2, 4, 7]}
PLAIN = {"cache_implementation": "dynamic"}


@pytest.fixture
def written(monkeypatch):
    """Run graphs without compiling them, and list the texts that they write."""
    texts, write = [], GraphSearch.write
    monkeypatch.setattr(graph, "while_loop", run_loop)
    monkeypatch.setattr(GraphSearch, "_package", lambda self, graph, *others: graph)
    monkeypatch.setattr(GraphSearch, "write", lambda self, *given: texts.append(write(self, *given)) or texts[-1])
    compiled_folder().mkdir()
    return texts


SEARCHES = [
    {"num_beams": 1},
    {"num_beams": 3, "early_stopping": False, "length_penalty": 1.0},
    {"num_beams": 3, "early_stopping": True, "length_penalty": -0.5, "num_return_sequences": 3},
    {"num_beams": 2, "early_stopping": "never", "length_penalty": 2.0, "num_return_sequences": 2},
]


@pytest.mark.parametrize(
    ("model", "search"),
    [
        *((kind, SEARCHES[1]) for kind in KINDS),
        # the rules of a search do not depend on the kind
        *((kind, search) for kind in FEW for search in (SEARCHES[0], *SEARCHES[2:])),
    ],
    indirect=["model"],
    ids=str,
)
def test_tokens_are_those_of_the_plain_path(model, inputs, steps, written, monkeypatch, search):
    monkeypatch.setattr(graph, "_BLOCK", 3)  # three blocks
    short = {name: value[:1] if name == "condition_values" else value[:1, :1] for name, value in inputs.items()}
    several, expected = (inputs, row_of(inputs, 3), short), []
    for given in several:
        expected.append(model.generate(**given, **ENDS, **PLAIN, **search, max_new_tokens=9))
        assert torch.equal(model.generate(**given, **ENDS, **search, max_new_tokens=9), expected[-1])
    assert len(written) == len(several) and not steps
    assert len({text.shape for text in expected}) > 1


def test_a_pool_of_a_server_is_written_by_graphs(written):
    texts, calls = ["one two three", "two", "six six"], []
    task = TextTask(*tiny_text_model(texts), max_new_tokens=9)
    inputs, pool = task.inputs(texts, beams=1), task.open_pool(1, lambda: calls.append(1))
    for key, input in enumerate(inputs):
        pool.add(key, input)
    found = dict(pool.step())
    assert len(written) == len(calls) == 1
    # the planner's texts begin with forced tokens and have scores, so that no graph can write them
    assert reason_against(task.model, num_beams=1) is None
    compiled_folder().rmdir()
    assert found == {key: output.text for key, [output] in enumerate(task.generate(inputs))} and len(written) == 1
    assert isinstance(task.open_pool(1, print).search, ContinuousSearch)


def test_the_trainer_evaluates_with_graphs_and_the_current_weights(build, source, written, tmp_path):
    model, data = build("rotary"), [{"input_ids": row.tolist(), "labels": row.tolist()} for row in source]
    arguments = WeftTrainingArguments(
        tmp_path, report_to="none", use_cpu=True, max_steps=2, eval_steps=1, learning_rate=0.1, predict_with_generate=True,
        generation_max_length=6,
    )  # fmt: skip
    trainer = WeftTrainer(model, arguments, default_data_collator, data, data, compute_metrics=lambda output: {})
    trainer.train()
    first, last = written
    assert not torch.equal(first, last)
    assert torch.equal(last, model.eval().generate(source, max_length=6, **PLAIN))


@pytest.mark.parametrize("search", SEARCHES[:2], ids=str)
@pytest.mark.parametrize("kind", ["learned", "sparse"])
def test_all_tensors_are_on_the_device_of_the_model(build, source, written, monkeypatch, kind, search):
    """The default device stands for another one: tensors that are made without a device are there."""
    monkeypatch.setattr(graph, "_BLOCK", 3)
    model = build(kind)
    settings = continuous_settings(model, {**search, **ENDS})
    settings.max_length = 9
    for ids in (source, source[:1]):
        expected, mask = model.generate(ids, **ENDS, **PLAIN, **search, max_new_tokens=8), ids.ne(0).long()
        with torch.no_grad(), torch.device("meta"):
            assert torch.equal(GraphSearch(model).write(settings, ids, mask), expected)


@pytest.mark.parametrize(("kind", "search"), [("rotary", ()), ("relative", (3, 1, 1.0, False))])
def test_graphs_are_exported_on_the_device_of_the_model(build, monkeypatch, kind, search):
    """The device "meta" has no values, so an export that reads one fails, as it would wait for a GPU."""
    monkeypatch.setattr(modeling_weft, "check_ids", lambda *given: None)
    model = build(kind, encoder_layers=1, decoder_layers=1).to("meta")
    model.tie_weights()
    graphs = GraphSearch(model)
    for part in (graphs.source, graphs.loop(search)):
        program = graphs.exported(part, True)
        modules = [module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
        values = [node.meta.get("val") for module in modules for node in module.graph.nodes]
        assert {value.device.type for value in values if isinstance(value, torch.Tensor)} == {"meta"}
    assert len(modules) == 3  # with the condition and the body of the loop


def test_who_compiled_for_a_gpu_need_not_turn_the_fast_path_on(build):
    model = build("rotary").to("meta")
    assert "fast_decoding" in dispatch.reason_against_model(model)
    assert dispatch.reason_against_model(model, with_encoder=True) is None
    assert "the model is on meta" in dispatch.reason_against_graphs(model)


class Nothing(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return scores


@pytest.mark.parametrize(
    "request_",
    [
        {"num_beams": 2, "do_sample": True}, {"do_sample": True, "top_k": 1}, {"min_new_tokens": 3}, {"suppress_tokens": [5]},
        {"logits_processor": [Nothing()]}, {"decoder_input_ids": torch.full((4, 2), 1)}, {"max_time": 9.0},
        {"return_dict_in_generate": True}, {"eos_token_id": None}, {"use_cache": False}, {"custom_generate": "sqrt_length"},
        {"attention_mask": torch.ones(4, 9).index_fill(0, torch.tensor(1), 0)}, {"decoder_start_token_id": 31},
        {"decoder_start_token_id": -1}, {"pad_token_id": 31}, {"eos_token_id": [*range(31)]},
        {"decoder_start_token_id": [1]}, {"num_return_sequences": 0}, {"max_new_tokens": 5.0}, {"max_new_tokens": 2**80},
        {"unknown": None}, {"prefill_chunk_size": 4}, {"token_healing": True}, {"low_memory": True},
        {"attention_mask": [[1] * 9] * 4}, {"attention_mask": torch.ones(4, 9, device="meta")},
        {"attention_mask": torch.ones(4, 9).numpy()}, {"generation_config": GenerationConfig(eos_token_id=torch.tensor([2, 3]))},
    ],
    ids=lambda request: "-".join(request),
)  # fmt: skip
@torch.no_grad()  # as `generate` calls it
def test_other_requests_take_the_ordinary_way(build, source, written, request_):
    request_ = {"max_new_tokens": 5} | request_
    model, settings, processors = (
        build("rotary"),
        request_.pop("generation_config", None),
        request_.pop("logits_processor", ()),
    )
    for _ in range(2):  # settings are kept between requests
        dispatch.compiled_texts(model, source, settings, processors, dict(request_))
    assert not written


def test_a_folder_that_cannot_be_read_takes_the_ordinary_way(build, source, written, monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("WEFT_COMPILED_FOLDER", "a" * 5000)
    assert "compiled" in dispatch.graph_search(build("rotary"))
    monkeypatch.delenv("WEFT_COMPILED_FOLDER")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert "compiled" in dispatch.graph_search(build("rotary"))
    with pytest.raises(ValueError, match="home directory"):
        load_package({}, build("rotary").config, torch.device("cpu"), print)


@torch.no_grad()  # as `generate` calls it
def test_models_that_graphs_do_not_fit_take_the_ordinary_way(build, source, written):
    settings = {"max_new_tokens": 5}
    compiled_folder().rmdir()
    assert dispatch.compiled_texts(build("rotary"), source, None, (), settings) is None
    compiled_folder().mkdir()
    growing = build("rotary", rope_parameters={"rope_type": "dynamic", "factor": 2.0})
    assert dispatch.compiled_texts(growing, source, None, (), settings) is None
    hooked = build("rotary")
    hooked.model.encoder.layers[0].register_forward_hook(lambda *given: None)
    assert dispatch.compiled_texts(hooked, source, None, (), settings) is None
    rotary = build("rotary")
    torch.set_default_dtype(torch.float64)
    assert dispatch.compiled_texts(rotary, source, None, (), settings) is None
    torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert dispatch.compiled_texts(rotary, source, None, (), settings) is None
    with pytest.raises(ValueError, match="32 positions"):
        build("learned").generate(source, condition_values=torch.ones(4, 1), max_new_tokens=40)
    assert not written
    broken = build("rotary")
    broken.lm_head.weight.data[5] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        broken.generate(source, **settings)
    assert written == [None]


def test_graphs_stay_while_values_of_weights_change(build, written):
    model = build("rotary")
    first = dispatch.graph_search(model)
    model.lm_head.weight.data.mul_(2.0)
    assert dispatch.graph_search(model) is first
    square = model.model.encoder.layers[0].self_attn.out_proj.weight
    changes = (
        lambda: setattr(model.model.encoder.layers[0].final_layer_norm, "eps", 0.5),
        lambda: setattr(model.lm_head, "weight", torch.nn.Parameter(model.lm_head.weight.detach().clone())),
        lambda: setattr(model.config, "scale_embedding", True),
        lambda: setattr(square, "data", square.data.t()),
        lambda: model.model.decoder.rotary_embedding.inv_freq.div_(4),
    )
    for change in changes:
        before = dispatch.graph_search(model)
        change()
        assert dispatch.graph_search(model) is not before


def test_models_of_one_configuration_share_code(build, tmp_path, monkeypatch):
    keys = []
    monkeypatch.setattr(compiled, "_load", lambda folder, key, device: keys.append(key))

    def key_of(model):
        keys.clear()
        for module in (GraphSearch(model).source, GraphSearch(model).loop(())):
            GraphSearch(model)._package(module, False, False)
        return copy.deepcopy(keys)

    model = build("rotary", torch.float32, tie_word_embeddings=True)
    key = key_of(model)  # before saving, which adds to the configuration, and before the first call
    model(torch.tensor([[5, 6]]), decoder_input_ids=torch.tensor([[1]]))
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    assert key == key_of(model) == key_of(loaded)
    loaded.lm_head.weight = torch.nn.Parameter(loaded.lm_head.weight.detach().clone())
    assert key_of(model) != key_of(loaded)  # the tied table is one constant of the code
    stretched = copy.deepcopy(model)
    stretched.model.encoder.rotary_embedding.inv_freq.div_(4)  # which is a constant of the code, too
    assert key_of(stretched) != key == key_of(model)


def test_saved_settings_may_change_between_requests(build, source, written):
    model, texts = build("rotary"), []
    for edit in ({}, {"num_beams": 3}, {"max_new_tokens": 9}):
        model.generation_config.update(**edit)
        texts.append(model.generate(source))
    assert len(written) == 3
    for text, settings in zip(texts, ({"num_beams": 1}, {"num_beams": 3}, {"num_beams": 3}), strict=True):
        expected = model.generate(source, **PLAIN, **settings, max_new_tokens=text.shape[1] - 1)
        assert torch.equal(text, expected)
    assert texts[2].shape[1] == 10 < texts[1].shape[1]


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("search", SEARCHES[:2], ids=str)
@pytest.mark.parametrize("kind", ["rotary across", "bucketed", "sparse"])
def test_real_graphs_are_loaded_again_and_follow_the_weights(build, source, monkeypatch, kind, search, device):
    source = source.to(device)
    settings = {"max_new_tokens": 80, "do_sample": False, **search, **ENDS}  # grows twice
    model = build(kind, torch.float32).to(device)
    expected = [model.generate(rows, **settings) for rows in (source, source[:1])]
    prepared, _ = model._prepare_generation_config(None, **settings)
    model._prepare_special_tokens(prepared, True, device=device)
    for is_single in (False, True):
        assert GraphSearch(model).packages(kind_of(prepared), is_single, compiles=True)
    for rows, texts in zip((source, source[:1]), expected, strict=True):
        assert torch.equal(model.generate(rows, **settings), texts)
    monkeypatch.setattr(graph, "write_package", None)
    twin = build(kind, torch.float32).to(device)
    twin.lm_head.weight.data.copy_(twin.lm_head.weight.data.flip(0).clone())
    for rows in (source, source[:1]):
        expected = twin.generate(rows, **PLAIN, **settings)
        assert torch.equal(twin.generate(rows, **settings), expected)
    assert all(dispatch.graph_search(twin)._packages.values())


@pytest.mark.integration
def test_real_graphs_of_one_layer_run_in_threads(build, source):
    """The keys and values of one layer have other strides, and the experts' product is an operator written in Python."""
    fields = {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_mlp_layer_types": "dense",
        "decoder_mlp_layer_types": "sparse",
    }
    model, settings = build("sparse", torch.float32, **fields), {"max_new_tokens": 20, "num_beams": 1, **ENDS}
    expected = model.generate(source, **PLAIN, **settings)
    assert GraphSearch(model).packages((), False, compiles=True)
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(model.generate, ids, **settings) for ids in (source, source.int()) * 10]
        assert all(torch.equal(call.result(timeout=300), expected) for call in calls)
    assert dispatch.graph_search(model)._packages[(), False]
    mask = torch.ones_like(source, dtype=torch.float32)
    assert torch.equal(
        model.generate(source, attention_mask=mask, **settings),
        model.generate(source, attention_mask=mask, **PLAIN, **settings),
    )
    with pytest.raises(ValueError, match="input_ids"):
        model.generate(source.short(), **settings)


def test_operations_for_one_row_are_those_of_torch():
    query, key, value = (torch.randn(1, 3, length, 4, dtype=torch.float64) for length in (1, 7, 7))
    mask = torch.tensor([True, False, True, True, False, True, True])[None, None, None]
    for given in (None, mask, torch.randn(1, 3, 1, 7, dtype=torch.float64)):
        expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, given, scale=0.7)
        torch.testing.assert_close(graph._attention(query, key, value, given, scale=0.7), expected)
    weight, bias = key[0, 0, :5], key[0, 1, :5, 0]
    expected = torch.nn.functional.linear(value[:1, 0, :1], weight, bias)
    torch.testing.assert_close(graph._product(value[:1, 0, :1], weight, bias), expected)
