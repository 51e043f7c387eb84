"""The encoder alone, from the folder of any model: the same states; and a classifier that the plain Trainer trains."""

import json

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    logging,
)
from transformers.loss.loss_utils import ForSequenceClassificationLoss

from weftformer import (
    WeftConfig,
    WeftEncoderModel,
    WeftForConditionalGeneration,
    WeftForSequenceClassification,
    WeftModel,
)
from weftformer.tokenization import train_tokenizer

from ..models import TINY_CONFIG

TINY = TINY_CONFIG | {"init_std": 0.3, "pad_token_id": 0, "dropout": 0.0}
SPARSE = {
    "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "num_experts": 4,
    "router_aux_loss_coef": 0.5, "router_z_loss_coef": 0.1, "router_bias_update_rate": 0.1,
}  # fmt: skip
KINDS = {
    "shared": {},
    "untied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "decoder_vocab_size": 23},
    "sparse": SPARSE,
    "planner": {"position_embedding_type": "learned", "self_attention_position_type": "none",
                "num_condition_features": 1, "norm_first": False, "norm_type": "layernorm"},
}  # fmt: skip
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0]])
MASK = (IDS != 0).long()


@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("whole", [WeftForConditionalGeneration, WeftModel])
def test_states_are_those_of_the_whole_model(fields, whole, tmp_path, caplog):
    model = whole(WeftConfig(**(TINY | fields))).eval()
    model.save_pretrained(tmp_path / "whole")
    expected = model.base_model.encoder(IDS, MASK).last_hidden_state
    logging.enable_propagation()
    alone = AutoModelForTextEncoding.from_pretrained(tmp_path / "whole")
    assert type(alone) is WeftEncoderModel and not caplog.text  # nothing is said of the decoder that is left out
    torch.testing.assert_close(alone(IDS, MASK).last_hidden_state, expected)
    torch.testing.assert_close(alone(input_ids=IDS, attention_mask=MASK, return_dict=False)[0], expected)
    assert len(alone(IDS, MASK, output_hidden_states=True).hidden_states) >= 2
    alone.save_pretrained(tmp_path / "alone")
    again, info = WeftEncoderModel.from_pretrained(tmp_path / "alone", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    torch.testing.assert_close(again(IDS, MASK).last_hidden_state, expected)
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole", num_labels=3)
    assert type(classifier) is WeftForSequenceClassification and classifier.classifier.out_features == 3
    torch.testing.assert_close(classifier.model(IDS, MASK).last_hidden_state, expected)
    with pytest.raises(ValueError, match="lacks"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "alone")


def test_logits_are_of_the_mean_over_tokens(tmp_path):
    model = WeftForSequenceClassification(WeftConfig(**TINY, num_labels=3)).eval()
    states = model.model(IDS, MASK).last_hidden_state
    means = torch.stack([states[0].mean(0), states[1, :3].mean(0)])
    torch.testing.assert_close(model(IDS, MASK).logits, model.classifier(means))
    alone = model(IDS[1:, :3]).logits
    torch.testing.assert_close(model(IDS, MASK).logits[1:], alone)  # no neighbour and no pad changes it
    model.save_pretrained(tmp_path)
    loaded, info = WeftForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and torch.equal(loaded(IDS, MASK).logits, model(IDS, MASK).logits)


@pytest.mark.parametrize(
    ("number", "labels", "kind"),
    [
        (1, torch.tensor([0.5, -2.0]), "regression"),
        (3, torch.tensor([2, 0]), "single_label_classification"),
        (3, torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), "multi_label_classification"),
    ],
)
def test_losses_are_those_of_transformers(number, labels, kind):
    model = WeftForSequenceClassification(WeftConfig(**TINY, num_labels=number))
    output = model(IDS, MASK, labels=labels)
    assert model.config.problem_type == kind
    expected = ForSequenceClassificationLoss(labels, output.logits, model.config)
    torch.testing.assert_close(output.loss, expected)
    parts = [
        model(IDS[i : i + 1], MASK[i : i + 1], labels=labels[i : i + 1], num_items_in_batch=labels.numel())
        for i in (0, 1)
    ]
    torch.testing.assert_close(sum(part.loss for part in parts), expected)


@pytest.mark.parametrize("training", [False, True])
def test_a_text_without_a_class_does_not_count(training):
    model = WeftForSequenceClassification(WeftConfig(**(TINY | SPARSE), num_labels=3)).train(training)
    output = model(IDS, MASK, labels=torch.tensor([2, -100]))
    expected = ForSequenceClassificationLoss(torch.tensor([2, -100]), output.logits, model.config)
    if training:
        model.config.router_aux_loss_coef = model.config.router_z_loss_coef = 0.0
        output = model(IDS, MASK, labels=torch.tensor([2, -100]))
    torch.testing.assert_close(output.loss, expected)
    none = model(IDS, MASK, labels=torch.tensor([-100, -100]), num_items_in_batch=torch.tensor(0))
    assert none.loss == 0


def test_labels_that_do_not_fit_are_refused():
    model = WeftForSequenceClassification(WeftConfig(**TINY, num_labels=3, problem_type="single_label_classification"))
    with pytest.raises(ValueError, match=r"give whole numbers of shape \(2,\)"):
        model(IDS, MASK, labels=torch.ones(2, 3))
    model.config.problem_type = "multi_label_classification"
    with pytest.raises(ValueError, match=r"asks for numbers of shape \(2, 3\)"):
        model(IDS, MASK, labels=torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="unexpected keyword `attention_msk`"):
        model(IDS, attention_msk=MASK)


def test_routers_learn_and_count():
    model = WeftForSequenceClassification(WeftConfig(**(TINY | SPARSE), num_labels=2)).train()
    output = model(IDS, MASK, labels=torch.tensor([0, 1]))
    plain = ForSequenceClassificationLoss(torch.tensor([0, 1]), output.logits, model.config)
    assert output.loss > plain + 0.1
    output.loss.backward()
    assert all(router.expert_load.sum() == 2 * MASK.sum() for router in model.routers())
    assert len(model.routers()) == 2
    model.eval()
    output = model(IDS, MASK, labels=torch.tensor([0, 1]))
    torch.testing.assert_close(
        output.loss, ForSequenceClassificationLoss(torch.tensor([0, 1]), output.logits, model.config)
    )


def test_the_vocabulary_is_resized(tmp_path):
    model = WeftForSequenceClassification(WeftConfig(**TINY, decoder_vocab_size=TINY["vocab_size"], num_labels=2))
    model.resize_token_embeddings(40)
    assert model.model.shared is model.get_input_embeddings() and model.get_input_embeddings().num_embeddings == 40
    model.save_pretrained(tmp_path)
    assert WeftForSequenceClassification.from_pretrained(tmp_path).config.vocab_size == 40


def test_the_plain_trainer_trains_it(tmp_path):
    tokenizer = train_tokenizer(["aa bb cc"], vocab_size=300)
    config = WeftConfig(**(TINY | {"vocab_size": len(tokenizer)}))
    WeftForConditionalGeneration(config).save_pretrained(tmp_path / "whole")
    tokenizer.save_pretrained(tmp_path / "whole")
    torch.manual_seed(0)
    labels = [0, 1] * 8
    rows = [dict(tokenizer(("aa ", "bb ")[label] * 2)) | {"label": label} for label in labels]
    settings = {"max_steps": 20, "learning_rate": 0.01, "report_to": "none", "use_cpu": True, "disable_tqdm": True,
                "save_strategy": "no", "gradient_accumulation_steps": 2}  # fmt: skip
    trainer = Trainer(
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole", num_labels=2),
        TrainingArguments(output_dir=str(tmp_path / "out"), **settings),
        DataCollatorWithPadding(tokenizer),
        rows,
        processing_class=tokenizer,
    )
    trainer.train()
    assert trainer.predict(rows).predictions.argmax(-1).tolist() == labels
    trainer.save_model()
    saved = json.loads((tmp_path / "out" / "config.json").read_text())
    assert saved["architectures"] == ["WeftForSequenceClassification"]
    assert saved["problem_type"] == "single_label_classification"
