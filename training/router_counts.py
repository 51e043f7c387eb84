"""Router counts of a whole optimizer step, so that its router losses do not depend on how the step is split.

An optimizer step may be split into accumulated batches and over processes. The cross-entropy is a sum over labels,
divided by the number of labels in the whole step. The balance loss is a product of two means over tokens, and the
z-loss and the balance loss of each sequence are means over source and target tokens. Each batch can therefore compute
its summand only with the token counts, and for the balance loss with the load of every expert, of the whole step. Qiu
et al. 2025 (arXiv:2501.11873) sum the counts over processes. Here they are summed over accumulated batches too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import Trainer

from .callbacks import weft_model

SumCounts = Callable[[torch.Tensor], torch.Tensor]


def build_sum_counts(trainer: Trainer, batches: Sequence[dict[str, Any]]) -> SumCounts | None:
    """Build the `sum_router_counts` of `forward` for the batches of one optimizer step.

    The counts are summed over processes during each forward pass. Accumulated batches run one after the other, so only
    their tokens are counted in advance, and the balance loss of a batch uses the load of this batch.

    Args:
        trainer: the trainer, during training.
        batches: the batches of this process.

    Returns:
        The function, or None if the step needs none.
    """
    model, args = weft_model(trainer.model), trainer.args
    config = model.config
    coefficients = (config.router_aux_loss_coef, config.router_z_loss_coef)
    if not config.has_sparse_layers or not any(coefficients):
        return None
    if trainer.compute_loss_func is not None:
        return None  # its loss does not include the router losses
    # several devices share one batch, and which tokens each of them counts is unknown here
    if trainer.get_tp_size() * trainer.get_cp_size() * trainer.get_sp_size() > 1:
        return None
    is_spread = args.world_size > 1 and args.average_tokens_across_devices
    total = _sum_over_processes if is_spread else torch.clone
    if len(batches) <= 1:
        return total if is_spread else None
    own_counts = _count_tokens(trainer, batches)
    if own_counts is None:
        return None
    tokens = total(own_counts)
    return lambda counts: torch.cat([total(counts)[:, :-1], tokens[:, -1:]], dim=-1)


def _sum_over_processes(counts: torch.Tensor) -> torch.Tensor:
    counts = counts.clone()
    torch.distributed.all_reduce(counts)
    return counts


def _count_tokens(trainer: Trainer, batches: Sequence[dict[str, Any]]) -> torch.Tensor | None:
    """Return the number of non-pad tokens for each sparse layer, with loads of 0: (layers, E + 1).

    Return None if a batch does not have the inputs for it.
    """
    model = weft_model(trainer.model)
    before_source, before_target = _virtual_tokens(trainer.model)
    tokens = torch.zeros(2, device=trainer.args.device)
    for batch in batches:
        if "labels" not in batch or "input_ids" not in batch:
            return None
        masks = {name: batch.get(name) for name in ("attention_mask", "decoder_attention_mask")}
        # before virtual tokens, the model gets embeddings, in which it finds no pads
        ids = None if before_source else batch["input_ids"]
        source, target = model.non_pad_tokens(batch["labels"], ids, **masks)
        every = target.new_full((), batch["input_ids"].numel(), dtype=torch.long)
        tokens += torch.stack([every if source is None else source.sum(), target.sum()]).to(tokens)
        tokens[0] += len(batch["labels"]) * before_source
        if masks["decoder_attention_mask"] is not None:
            tokens[1] += len(batch["labels"]) * before_target
    config = model.config
    sparse = [types.count("sparse") for types in (config.encoder_mlp_layer_types, config.decoder_mlp_layer_types)]
    counts = torch.zeros(sum(sparse), config.num_experts + 1, device=tokens.device)
    counts[: sparse[0], -1], counts[sparse[0] :, -1] = tokens
    return counts


def _virtual_tokens(model: Any) -> tuple[int, int]:
    """Return the numbers of tokens that PEFT puts before a source, and before a target that has a mask."""
    config: Any = getattr(model, "active_peft_config", None)
    # a prefix is in the cache, which no router sees
    if not getattr(config, "is_prompt_learning", False) or config.peft_type in ("PREFIX_TUNING", "CARTRIDGE"):
        return 0, 0
    number = config.num_virtual_tokens
    return number, 0 if config.peft_type in ("PROMPT_TUNING", "P_TUNING") else number
