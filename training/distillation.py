"""Learning from the labels and the token distributions of a teacher (Hinton et al. 2015, arXiv:1503.02531)."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from ..configuration import WeftConfig
from ..hub.loading import load
from ..modeling.checks import inferred_mask
from ..modeling.layers import at_least_float32
from ..modeling.losses import counted_items, cross_entropy


class Distillation:
    """The loss of a student that also learns from a teacher.

    It is (1 - `alpha`) x cross-entropy of the labels + `alpha` x `temperature`^2 x KL(teacher || student), plus the
    router losses, which `alpha` does not weight. The temperature softens both distributions. Both terms are sums over
    the labels that count, divided by the number of labels of the whole step.

    Args:
        teacher: any encoder-decoder of transformers with the student's vocabulary. It is moved to the device and set
            to evaluation mode.
        student: the configuration of the student.
        temperature: the divisor of the logits, above 0.
        alpha: the weight of the teacher, from 0 to 1.
        device: the device of the student.
        autocast: returns the context of mixed precision in which the teacher computes.

    Raises:
        ValueError: the teacher is not an encoder-decoder or has another vocabulary, or a number is out of range.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        student: WeftConfig,
        temperature: float = 2.0,
        alpha: float = 0.5,
        device: torch.device | str = "cpu",
        autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    ):
        if not temperature > 0:
            raise ValueError(f"distillation_temperature={temperature} is not allowed: give a number above 0.")
        if not 0 <= alpha <= 1:
            raise ValueError(f"distillation_alpha={alpha} is not allowed: give a weight from 0 to 1.")
        _check_fit(teacher, student)
        self.teacher = teacher.to(device).eval()
        self.student, self.temperature, self.alpha = student, temperature, alpha
        self._autocast = autocast
        self._known = set(inspect.signature(teacher.forward).parameters)

    def loss(
        self, outputs: Any, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Return the training loss of the student, including the teacher's part.

        Args:
            outputs: the outputs of the student: `loss`, and `logits` of shape `(batch, target, vocabulary)`.
            inputs: the inputs of the student, including `labels` of shape `(batch, target)`.
            num_items_in_batch: the number of labels of all accumulated batches and processes (default: of this batch).
        """
        labels = inputs["labels"]
        own = cross_entropy(outputs.logits, labels, inputs.get("smoothing", 0.0), num_items_in_batch)
        dtype = at_least_float32(outputs.logits.dtype)
        student = (outputs.logits.to(dtype) / self.temperature).log_softmax(dim=-1)
        teacher = (self.logits(inputs).to(student) / self.temperature).log_softmax(dim=-1)
        divergence = torch.nn.functional.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=-1)
        total = divergence.masked_fill(labels.eq(-100), 0).sum()
        softened = self.temperature**2 * total / counted_items(labels, num_items_in_batch).to(dtype)
        return outputs.loss + self.alpha * (softened - own)

    @torch.no_grad()
    def logits(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the teacher's logits for the labels, of shape `(batch, target, vocabulary)`.

        The teacher makes its decoder inputs from the labels, with its own start token.
        """
        given = {name: value for name, value in inputs.items() if name in self._known}
        # the student infers the mask from the ids, but other families do not
        mask = inferred_mask(self.student, given.get("attention_mask"), given.get("input_ids"))
        if mask is not None:
            given["attention_mask"] = mask
        for name in (
            "num_items_in_batch",
            "smoothing",
            "chunked_loss",
            "sum_router_counts",
        ):  # of the student's own loss
            given.pop(name, None)
        with self._autocast():
            return self.teacher(**given, return_dict=True).logits


def load_teacher(name: str, tokenizer: PreTrainedTokenizerBase, own: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Load a teacher from a folder or from the Hub. Its vocabulary must be that of `tokenizer`.

    Args:
        own: the teacher's own tokenizer.

    Raises:
        ValueError: it cannot be loaded, or has another vocabulary.
    """
    if own.get_vocab() != tokenizer.get_vocab():
        raise ValueError(
            f"--teacher {name} has another vocabulary ({len(own)} words) than this model's tokenizer ({len(tokenizer)} words): give "
            f"--tokenizer-name {name}, or a teacher with the same vocabulary."
        )
    try:
        return load(AutoModelForSeq2SeqLM, name)
    except OSError as error:
        raise ValueError(f"--teacher {name} cannot be loaded: {str(error).strip().splitlines()[0]}") from error


def _check_fit(teacher: PreTrainedModel, student: WeftConfig) -> None:
    if not teacher.config.is_encoder_decoder:
        raise ValueError(
            f"The teacher is a {type(teacher).__name__}, which is not an encoder-decoder: give a model that AutoModelForSeq2SeqLM loads."
        )
    head = teacher.get_output_embeddings()
    if head is None:
        raise ValueError(f"The teacher is a {type(teacher).__name__}, which has no language modeling head.")
    source, target = teacher.get_input_embeddings().weight.shape[0], head.weight.shape[0]
    if (source, target) != (student.vocab_size, student.target_vocab_size):
        raise ValueError(
            f"The teacher has {source} source words and {target} target words, but the model to train has {student.vocab_size} and "
            f"{student.target_vocab_size}: both need the same vocabulary. (If the teacher's table is longer than its tokenizer, "
            f"create the new model with vocab_size={target}.)"
        )
