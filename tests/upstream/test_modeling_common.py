"""transformers' own common tests, on Weft as on BART.

Each configuration is one class of tests, which inherits them. What BART runs, Weft must not skip (see `conftest.py`).
"""

import unittest
from unittest.mock import patch

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, BartModel
from transformers.models.auto import modeling_auto

from weftformer import WeftConfig, WeftForConditionalGeneration, WeftModel

pytest.importorskip("parameterized", reason="transformers' common tests need it: pip install parameterized")
MISSING = "transformers' common tests are in its source distribution: `make` unpacks those of the pinned version"
common = pytest.importorskip("transformers_tests.test_modeling_common", reason=MISSING)
ConfigTester = pytest.importorskip("transformers_tests.test_configuration_common", reason=MISSING).ConfigTester
GenerationTesterMixin = pytest.importorskip("transformers_tests.generation.test_utils").GenerationTesterMixin

SIZES = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "attention_dropout": 0.1, "init_std": 0.02,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
DENSE = {
    "norm_type": "layernorm", "norm_eps": 1e-5, "norm_first": False, "normalize_embedding": True,
    "position_embedding_type": "learned", "self_attention_position_type": "none", "is_gated_act": False,
    "mlp_bias": True, "attention_bias": True, "attention_out_bias": True, "activation_function": "gelu",
}  # fmt: skip
MODERN = {"num_key_value_heads": 2, "use_qk_norm": True}
SPARSE = {"num_key_value_heads": 2, "num_experts": 4, "encoder_mlp_layer_types": ["dense", "sparse"],
          "decoder_mlp_layer_types": ["dense", "sparse"]}  # fmt: skip


class ModelTester:
    """The parts of a model that transformers' tests need: a configuration, inputs and their sizes."""

    batch_size, seq_length, num_hidden_layers, num_attention_heads = 13, 7, 2, 4
    vocab_size, hidden_size, is_training = SIZES["vocab_size"], SIZES["d_model"], True

    def __init__(self, config_class, fields):
        self.config_class, self.fields = config_class, fields

    def get_config(self):
        return self.config_class(**self.fields)

    def prepare_config_and_inputs_for_common(self):
        source, target = (common.ids_tensor([self.batch_size, self.seq_length], self.vocab_size) for _ in range(2))
        inputs = {"input_ids": source.clamp(3), "decoder_input_ids": target.clamp(3)}
        for name in ("attention_mask", "decoder_attention_mask"):
            inputs[name] = torch.ones(source.shape, dtype=torch.bool)
        return self.get_config(), inputs


class CommonTests(common.ModelTesterMixin, GenerationTesterMixin):
    """transformers' tests, and those of BART's tests that apply to every encoder-decoder."""

    is_encoder_decoder = True
    # all of BART's weights that a file lacks are initialized, although the test does not require it of old models
    test_can_init_all_missing_weights_before_2023 = True

    def setUp(self):
        common.global_rng.seed(0)  # of the inputs
        torch.manual_seed(0)
        self.model_tester = ModelTester(self.config_class, self.fields)
        self.config_tester = ConfigTester(self, config_class=self.config_class, **SIZES)

    def test_config(self):
        self.config_tester.run_common_tests()


@pytest.mark.slow  # in every run only where Weft skips
class TestBart(CommonTests, unittest.TestCase):
    config_class, all_model_classes = BartConfig, (BartModel, BartForConditionalGeneration)
    fields = SIZES | {"max_position_embeddings": 50}


class WeftTests(CommonTests):
    config_class, all_model_classes = WeftConfig, (WeftModel, WeftForConditionalGeneration)
    reference = TestBart

    def setUp(self):
        super().setUp()
        self.check_that_it_applies()
        # transformers identifies the purpose of a class by these names. Its own lists do not take other classes.
        seq2seq = modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
        self.enterContext(patch.dict(modeling_auto.MODEL_MAPPING_NAMES, weft="WeftModel"))
        self.enterContext(patch.dict(seq2seq, weft="WeftForConditionalGeneration"))
        if "rope" in self._testMethodName:
            # These tests set `rope_parameters` on the result of `get_text_config`, and read them in the model. For a
            # configuration with two stacks, the result is a copy.
            self.enterContext(patch.object(WeftConfig, "get_text_config", lambda self, **_: self))
        if "tp_plan" in self._testMethodName:
            # They look for a plan in the configuration, but here the classes have it, for each stack.
            self.enterContext(patch.object(WeftConfig, "base_model_tp_plan", {}))

    def check_that_it_applies(self):
        """Skip tests that do not apply. transformers' tests check the class, which has all these configurations."""
        config = self.model_tester.get_config()
        if "rope" in self._testMethodName and config.self_attention_position_type != "rotary":
            self.skipTest("This configuration has no rotary positions, as BART has none.")
        if "batched_and_grouped" in self._testMethodName and not config.has_sparse_layers:
            self.skipTest("This configuration has no experts, as BART has none.")


@pytest.mark.integration
class TestDense(WeftTests, unittest.TestCase):
    """As in BART: norms after the residuals, learned positions, biases everywhere."""

    fields = SIZES | DENSE | {"max_source_positions": 50, "max_target_positions": 50}


@pytest.mark.integration
class TestModern(WeftTests, unittest.TestCase):
    """Norms first, rotary positions, gated feed-forward, grouped queries."""

    fields = SIZES | MODERN | {"max_source_positions": 50, "max_target_positions": 50}


class TestSparse(WeftTests, unittest.TestCase):
    """Experts in every second layer."""

    fields = SIZES | SPARSE | {"max_source_positions": 50, "max_target_positions": 50}

    def setUp(self):
        super().setUp()
        if "fp16" in self._testMethodName or "bf16" in self._testMethodName:
            # Two ways of computing may choose different experts in half precision if two nearly tie, so take all.
            self.model_tester.fields = self.fields | {"num_experts_per_tok": 4}

    def test_moe_models_record_router_logits(self):
        """Replace transformers' test, which supports only models with one stack, and with the experts in one file."""
        for model_class in self.all_model_classes:
            config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
            model = model_class(config).eval()
            self.assertIsNone(model(**inputs).encoder_router_logits)
            outputs = model(**inputs, output_router_logits=True)
            for logits in (outputs.encoder_router_logits, outputs.decoder_router_logits):
                self.assertEqual([one.shape[-1] for one in logits], [config.num_experts])
