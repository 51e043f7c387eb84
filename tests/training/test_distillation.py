"""A teacher of any family adds to the loss and does not change, and steps do not depend on the split of batches."""

import copy

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, GPT2Config, GPT2LMHeadModel

from weftformer import WeftConfig, WeftModel

from . import runs

SPARSE = {
    "encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "num_experts": 4,
    "router_aux_loss_coef": 0.5, "router_z_loss_coef": 0.1,
}  # fmt: skip
ROWS = 12
pytestmark = pytest.mark.dtype(torch.float64)


def bart() -> BartForConditionalGeneration:
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=53, d_model=24, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
            encoder_attention_heads=2, decoder_attention_heads=2, pad_token_id=52, bos_token_id=0, eos_token_id=22,
            decoder_start_token_id=22, init_std=0.3, max_position_embeddings=32, forced_eos_token_id=None,
        )
    )  # fmt: skip


def weft(seed: int = 0, **fields):
    return runs.build(torch.float64, seed, init_std=0.3, **fields)


def teacher(**fields):
    return weft(seed=1, **fields)


def trainer(folder, fields=None, model=None, teacher=None, alpha=0.5, temperature=2.0, **settings):
    about = {"teacher": teacher, "distillation_alpha": alpha, "distillation_temperature": temperature}
    settings = runs.PLAIN_STEPS | {"max_steps": 2, "per_device_train_batch_size": ROWS} | settings
    return runs.trainer(folder, model or weft(**(fields or {})), runs.rows(ROWS), teacher=about, **settings)


def trained(*args, **settings):
    run = trainer(*args, **settings)
    run.train()
    return run


def batch(run):
    return dict(run.data_collator(run.train_dataset))


def naive(student, teacher_logits, labels, alpha, temperature):
    """Token by token, after Hinton et al. 2015, with labels that are smoothed by 0.1."""
    hard, soft, count = 0.0, 0.0, 0
    for row in range(labels.shape[0]):
        for at in range(labels.shape[1]):
            if labels[row, at] == -100:
                continue
            count += 1
            scores = student[row, at].log_softmax(-1)
            hard -= 0.9 * scores[labels[row, at]] + 0.1 * scores.mean()
            target, found = ((one[row, at] / temperature).softmax(-1) for one in (teacher_logits, student))
            soft += (target * (target / found).log()).sum()
    return ((1 - alpha) * hard + alpha * temperature**2 * soft) / count


@pytest.mark.parametrize("kind", [teacher, bart])
def test_the_loss_is_that_of_the_formula(tmp_path, kind):
    torch.manual_seed(1)
    model = kind()
    run = trainer(tmp_path, teacher=model, alpha=0.3, temperature=3.0, label_smoothing_factor=0.1)
    inputs = batch(run)
    run.model.train()
    found = run.compute_loss(run.model, dict(inputs))
    mask = inputs["input_ids"].ne(52)
    with torch.no_grad():
        shifted = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
        said = model.eval()(
            input_ids=inputs["input_ids"], attention_mask=mask.long(), decoder_input_ids=shifted
        ).logits
        student = run.model(input_ids=inputs["input_ids"], attention_mask=mask, labels=inputs["labels"]).logits
    expected = naive(student, said, inputs["labels"], 0.3, 3.0)
    torch.testing.assert_close(found.detach(), expected, rtol=1e-9, atol=1e-9)


def test_a_step_is_that_of_one_batch(tmp_path):
    # each accumulated batch would balance by its own load
    told, fields = {"teacher": teacher(), "alpha": 0.7}, SPARSE | {"router_aux_loss_coef": 0.0}
    whole = trained(tmp_path, fields, **told)
    split = trained(tmp_path, fields, **told, per_device_train_batch_size=5, gradient_accumulation_steps=3)
    assert runs.losses(whole) == pytest.approx(runs.losses(split), rel=5e-6)
    runs.assert_close(split.model.state_dict(), whole.model.state_dict())
    alone = trained(tmp_path, fields).model.state_dict()
    assert all((value - alone[name]).abs().max() > 1e-6 for name, value in whole.model.state_dict().items())


def test_the_teacher_is_in_evaluation_and_learns_nothing(tmp_path):
    model = teacher(dropout=0.5).train()
    before = copy.deepcopy(model.state_dict())
    run = trainer(tmp_path, teacher=model)
    said = [run.distillation.logits(batch(run)) for _ in range(2)]
    assert torch.equal(*said) and not said[0].requires_grad
    run.train()
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_evaluation_is_of_the_labels_alone(tmp_path):
    found = trainer(tmp_path, teacher=teacher()).evaluate()["eval_loss"]
    assert found == pytest.approx(trainer(tmp_path).evaluate()["eval_loss"], rel=1e-9)


def test_logits_are_there_with_a_large_vocabulary(tmp_path):
    run = trainer(tmp_path, {"vocab_size": 4200}, teacher=teacher(vocab_size=4200))
    assert torch.isfinite(run.compute_loss(run.model.train(), batch(run)))


def test_what_does_not_fit_is_refused(tmp_path):
    own, gpt = weft(), GPT2LMHeadModel(GPT2Config(vocab_size=53, n_embd=8, n_layer=1, n_head=1))
    two = teacher(
        vocab_size=60, decoder_vocab_size=53, share_encoder_decoder_embeddings=False, tie_word_embeddings=False
    )
    for message, settings in (
        ("60 source words and 60 target words, .* has 53 and 53", {"teacher": teacher(vocab_size=60)}),
        ("60 source words and 53 target words", {"teacher": two}),
        ("GPT2LMHeadModel, which is not an encoder-decoder", {"teacher": gpt}),
        (
            "WeftModel, which has no language modeling head",
            {"teacher": WeftModel(WeftConfig(vocab_size=53, d_model=16))},
        ),
        ("distillation_temperature=0 is not allowed", {"teacher": teacher(), "temperature": 0}),
        ("distillation_alpha=1.5 is not allowed", {"teacher": teacher(), "alpha": 1.5}),
        ("are the same object", {"model": own, "teacher": own}),
    ):
        with pytest.raises(ValueError, match=message):
            trainer(tmp_path, **settings)
