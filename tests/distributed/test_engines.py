"""Weft on each engine, with two processes against one: losses, gradients, weights, saved models and tokens."""

from functools import cache

import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration

from ..models import TINY_CONFIG, randomized
from .worker import run_engine

# of an odd vocabulary: the tables do not divide evenly
TINY = TINY_CONFIG | {
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "decoder_ffn_dim": 16, "max_source_positions": 16,
    "max_target_positions": 16, "dropout": 0.0, "num_experts": 4,
}  # fmt: skip
SPARSE = {"encoder_mlp_layer_types": ["dense", "sparse"], "decoder_mlp_layer_types": "sparse"}
BIASES = {"mlp_bias": True, "attention_bias": True, "attention_out_bias": True, "lm_head_bias": True}
PLAIN = {"is_gated_act": False, "activation_function": "relu"}
KINDS = {
    "dense": {"num_key_value_heads": 2, "use_qk_norm": True, "self_attention_position_type": "relative"},
    "published": {  # as in DirectMultiStep
        **PLAIN, **BIASES, "norm_type": "layernorm", "norm_first": False, "position_embedding_type": "learned",
        "self_attention_position_type": "none", "tie_word_embeddings": False,
        "share_encoder_decoder_embeddings": False,
        "num_condition_features": 1,
    },
    "bucketed": {
        "self_attention_position_type": "bucketed", "cross_attention_position_type": "bucketed",
        "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23,
    },
    "sparse": {**SPARSE, "router_bias_update_rate": 0.1},
    "sparse, biases": {**SPARSE, **BIASES, "router_bias": True},
    "sparse, plain, biases": {**SPARSE, **PLAIN, **BIASES, "router_bias_update_rate": 0.1},
}  # fmt: skip
# name: how the two processes share the model
ENGINES = {
    "ddp": {"ddp": True},
    "fsdp": {"sizes": {"fsdp_size": 2}},
    "tensor": {"sizes": {"tp_size": 2}},
    "expert, one batch": {"sizes": {"tp_size": 2, "ep_size": 2}},
    "expert, two batches": {"sizes": {"fsdp_size": 2, "ep_size": 2}},
}
CASES = [
    ("ddp", "sparse"),
    ("fsdp", "bucketed"),  # two tables, one of them tied to the head; `tied` of the trainings has one table
    ("fsdp", "sparse"),
    ("tensor", "dense"),
    ("tensor", "published"),
    ("tensor", "bucketed"),
    ("tensor", "sparse, plain, biases"),
    ("expert, one batch", "sparse, biases"),
    ("expert, two batches", "sparse"),
]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Makes the folder of a random model of a kind, in 64 bits, where only the order of sums differs."""

    @cache
    def save(kind):
        folder = tmp_path_factory.mktemp("model")
        model = WeftForConditionalGeneration(WeftConfig(**(TINY | KINDS[kind])))
        randomized(model, std=0.2).double().save_pretrained(folder)
        return folder

    return save


def batch_for(fields):
    target = fields.get("decoder_vocab_size", TINY["vocab_size"])
    generator = torch.Generator().manual_seed(1)
    batch = {
        "input_ids": torch.randint(3, TINY["vocab_size"], (4, 7), generator=generator),
        "labels": torch.randint(3, target, (4, 5), generator=generator),
    }
    batch["input_ids"][0, 4:] = 0
    batch["attention_mask"] = batch["input_ids"].ne(0).long()
    batch["labels"][3, 2:] = -100  # the two halves count differently
    if fields.get("num_condition_features"):
        batch["condition_values"] = torch.tensor([[1.0], [2.0], [-1.0], [0.5]])
    return batch


# Sums in another order differ by less after three steps. 1e-14 was observed.
TOLERANCE = 1e-10


def assert_same_text(results, expected, split):
    """Compare ids and scores. With a split batch, each process has its half, which may end sooner than the whole."""
    for name in expected:
        rows = len(expected[name]) // 2
        for rank, result in enumerate(results):
            expected_rows, result_rows = (
                expected[name][rank * rows :][:rows] if split else expected[name],
                result[name],
            )
            if name == "scores":
                # in 32 bits, whatever the dtype of the model
                torch.testing.assert_close(result_rows, expected_rows, rtol=5e-5, atol=5e-5)
            else:
                length = expected_rows.shape[1] - result_rows.shape[1]
                assert torch.equal(torch.nn.functional.pad(result_rows, (0, length)), expected_rows), name


def compare(results, expected, folder, split):
    """Compare the results of both processes and the saved model, loaded on one process, with those of one process."""
    for result in results:
        for name in ("losses", "gradients", "state"):
            torch.testing.assert_close(result[name], expected[name], rtol=TOLERANCE, atol=TOLERANCE)
    assert expected["losses"][-1] < expected["losses"][0]
    for name in ("generated", "generated after"):
        assert_same_text([result[name] for result in results], expected[name], split)
    saved = WeftForConditionalGeneration.from_pretrained(folder).state_dict()
    torch.testing.assert_close(dict(saved), results[0]["state"], rtol=0, atol=0)


@pytest.mark.integration
@pytest.mark.parametrize(("engine", "kind"), CASES, ids=lambda value: value)
def test_two_processes_equal_one(engine, kind, pair, folder_of, tmp_path):
    arguments = {"folder": folder_of(kind), "batch": batch_for(KINDS[kind])}
    expected = run_engine(**arguments, out=tmp_path / "one")
    results = pair.run(run_engine, **arguments, out=tmp_path / "two", **ENGINES[engine])
    compare(results, expected, tmp_path / "two", split=engine not in ("tensor", "expert, one batch"))
    biases = [name for name in expected["state"] if name.endswith("selection_bias")]
    assert len(biases) == (3 if KINDS[kind].get("router_bias_update_rate") else 0)
    assert all(expected["state"][name].abs().sum() > 0 for name in biases)
    # what an engine is for: no process holds all of the weights
    assert (results[0]["held"] < 0.8 * expected["held"]) == (engine != "ddp")
