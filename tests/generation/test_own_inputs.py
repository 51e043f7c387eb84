"""Inputs that a subclass has added to `forward`: they reach what reads them, in training and in each way of decoding."""

import copy

import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling.modeling_weft import WeftDecoder, WeftEncoder, WeftModel

from ..models import TINY_CONFIG

IDS = torch.randint(3, 29, (4, 9), generator=torch.Generator().manual_seed(1))
STYLE = torch.tensor([0, 1, 2, 3])
WAYS = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "static": {"cache_implementation": "static"},
    "no cache": {"use_cache": False},
    "several": {"num_beams": 2, "num_return_sequences": 2},
    "assisted": {"assistant_model": "itself"},
}


def styled(base):
    """Return a class whose `forward` adds a vector for the style of each row to its states or logits."""

    class Styled(base):
        def __init__(self, config, *parts):
            super().__init__(config, *parts)
            width = config.target_vocab_size if base is WeftForConditionalGeneration else config.d_model
            self.styles = torch.nn.Embedding(4, width)

        def forward(self, input_ids=None, *args, style=None, **inputs):
            output = super().forward(input_ids, *args, **inputs)
            if style is not None:
                name = "logits" if "logits" in output else "last_hidden_state"
                output[name] = output[name] + self.styles(style)[:, None]
            return output

    return Styled


PARTS = {"encoder_class": WeftEncoder, "decoder_class": WeftDecoder, "model_class": WeftModel}


def build(place):
    torch.manual_seed(0)
    base = WeftForConditionalGeneration
    kind = styled(base) if place == "head" else type("Own", (base,), {place: styled(PARTS[place])})
    model = kind(WeftConfig(**TINY_CONFIG)).eval()
    for module in model.modules():
        if hasattr(module, "styles"):
            torch.nn.init.normal_(module.styles.weight, std=10)
    return model


@pytest.fixture(params=["head", *PARTS])
def model(request):
    return build(request.param)


@pytest.mark.parametrize("way", WAYS)
def test_each_row_has_its_own_input_in_each_way_of_decoding(model, way):
    settings = {"max_new_tokens": 6, "min_new_tokens": 6, **WAYS[way]}
    plain = settings | {"use_cache": False, "cache_implementation": None, "assistant_model": None}
    texts = model.generate(IDS, style=STYLE, **plain)
    if way == "assisted":
        settings["assistant_model"] = copy.deepcopy(model)  # which decodes one row at a time
    else:
        assert torch.equal(texts, model.generate(IDS, style=STYLE, **settings))
    rows = [model.generate(IDS[i : i + 1], style=STYLE[i : i + 1], **settings) for i in range(4)]
    assert torch.equal(texts, torch.cat(rows))
    assert not torch.equal(texts, model.generate(IDS, style=STYLE.roll(1), **plain))
    with pytest.raises(ValueError, match="stile"):
        model.generate(IDS[:1], stile=STYLE[:1], **settings)


def test_trainer_hands_inputs_to_what_reads_them(model, tmp_path):
    settings = Seq2SeqTrainingArguments(
        tmp_path, predict_with_generate=True, generation_max_length=6, use_cpu=True, report_to="none", max_steps=1,
        remove_unused_columns=False, per_device_eval_batch_size=2, save_strategy="no",
    )  # fmt: skip
    rows = [{"input_ids": IDS[i], "labels": IDS[i, :5], "style": STYLE[i]} for i in range(4)]
    trainer = Seq2SeqTrainer(model, settings, train_dataset=rows)
    trainer.train()
    texts = model.eval().generate(IDS, style=STYLE, max_length=6)
    assert trainer.predict(rows).predictions[:, :6].tolist() == texts.tolist()
    outputs = [model(input_ids=IDS, labels=IDS, style=style).logits for style in (STYLE, STYLE.roll(1))]
    assert not torch.allclose(*outputs)
    with pytest.raises(ValueError, match="stile"):
        model(input_ids=IDS, labels=IDS, stile=STYLE)
