"""Tasks over small models: routes known by heart, and texts of a model that was never trained."""

import pytest
import torch

pytest.importorskip("rdkit")
pytest.importorskip("gradio", reason="needs gradio: pip install weftformer[app]")

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.inference.tasks import RouteTask, TextTask
from weftformer.tokenization import train_tokenizer

WORDS = "one two three four five six seven eight nine ten <b>bold</b>"


@pytest.fixture(scope="session")
def route_task(planner):
    return RouteTask(planner)


@pytest.fixture(scope="session")
def text_task():
    tokenizer = train_tokenizer([WORDS] * 3, vocab_size=300)
    torch.manual_seed(0)
    config = WeftConfig.from_preset(
        "modern-tiny", vocab_size=len(tokenizer), d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=4, decoder_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    model = WeftForConditionalGeneration(config)
    with torch.no_grad():  # attention that prefers some tokens, and ends that do not come at once
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return TextTask(model, tokenizer)
