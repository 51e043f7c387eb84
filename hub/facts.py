"""Facts about a model that can be found in the model itself: its sizes and its settings of `generate`."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import ModelCard

from ..configuration import WeftConfig
from ..modeling import WeftForConditionalGeneration, WeftPreTrainedModel
from ..modeling.moe import ExpertsBase
from .card import FOLDER, Facts, build_card, writes_routes

# Fields that affect only training. They may change when a model is trained further.
TRAINING_FIELDS = frozenset(
    ["dropout", "attention_dropout", "activation_dropout", "router_aux_loss_coef", "router_z_loss_coef",
     "router_bias_update_rate", "output_router_logits", "use_cache", "init_std"]
)  # fmt: skip
# The first sentence of the card that transformers writes for a repository without one.
_DEFAULT_CARD = "This is the model card of a 🤗 transformers model that has been pushed on the Hub."


@cache
def written_facts() -> Mapping[str, Any]:
    """Return the content of `model_cards/facts.yaml`: citations, and facts about sources of conversion."""
    return yaml.safe_load((FOLDER / "facts.yaml").read_text(encoding="utf-8"))


def bibtex(name: str) -> str:
    """Return the BibTeX of a work in `model_cards/facts.yaml`."""
    return written_facts()["citations"][name].strip()


def count_parameters(
    config: WeftConfig, model_class: type[WeftPreTrainedModel] = WeftForConditionalGeneration
) -> tuple[int, int]:
    """Return the number of parameters and the number that a token uses, from the configuration alone.

    The weights themselves may be sharded over many GPUs.
    """
    with torch.device("meta"):
        model = model_class(config)
    total = model.num_parameters()
    in_experts = sum(
        parameter.numel()
        for module in model.modules()
        if isinstance(module, ExpertsBase)
        for parameter in module.parameters()
    )
    idle = config.num_experts - config.num_experts_per_tok
    return total, total - in_experts * idle // config.num_experts


def decoding_settings(model: WeftPreTrainedModel) -> dict[str, Any]:
    """Return the settings of `generate` that are saved with a model and change its output, without token ids."""
    if not model.can_generate():
        return {}
    settings = model.generation_config.to_diff_dict()
    return {
        name: value
        for name, value in settings.items()
        if value is not None
        # `routes` describes the training of a route model
        and not name.startswith(("_", "output_", "use_cache", "routes"))
        and not name.endswith(("_token_id", "_version"))
    }


def facts_of(model: WeftPreTrainedModel, name: str, **given_facts: Any) -> Facts:
    """
    Return the facts about a model.

    Args:
        model ([`WeftPreTrainedModel`]):
            The model.
        name (`str`):
            The name for `from_pretrained`.
        given_facts (*optional*):
            Further fields of [`Facts`], which replace those found in the model.

    Returns:
        [`Facts`]
    """
    total, active = count_parameters(model.config, type(model))
    facts: dict[str, Any] = {
        "citation": bibtex("directmultistep") if writes_routes(model.config) else None,
        "summary": f"A `{type(model).__name__}` of Weft, an encoder-decoder family for transformers.",
        "model_class": type(model).__name__,
        "decoding": decoding_settings(model),
    }
    return Facts(name=name, config=model.config, parameters=total, active_parameters=active, **(facts | given_facts))


def converted_card(
    model: WeftPreTrainedModel,
    name: str,
    source: str,
    title: str,
    *,
    new: Sequence[str] = (),
    has_tokenizer: bool = True,
) -> ModelCard:
    """
    Build the card of converted weights.

    Args:
        model ([`WeftPreTrainedModel`]):
            The converted model.
        name (`str`):
            The name for `from_pretrained`.
        source (`str`):
            The name of the source of the conversion, a key of `weftformer.conversion.SOURCES`.
        title (`str`):
            A description of the source, such as its `title`.
        new (`Sequence[str]`, *optional*):
            The names of weights that the source does not have, which are random.
        has_tokenizer (`bool`, *optional*, defaults to `True`):
            Whether there is a tokenizer beside the weights.

    Returns:
        `huggingface_hub.ModelCard`
    """
    source_facts = written_facts()["sources"].get(source, {})
    keys = ", ".join(f"`{key}`" for key in new)
    random = [f"These weights are random and need training before use: {keys}."] if new else []
    facts = facts_of(
        model,
        name,
        summary=f"Weights of {title} as a Weft model: the same numbers, with transformers' `generate`, caches and Trainer.",
        has_tokenizer=has_tokenizer,
        is_converted=True,
        **({"citation": bibtex(source_facts["citation"])} if "citation" in source_facts else {}),
        license_note=f"the licence of the original weights applies. {source_facts.get('license', '')}".rstrip(" ."),
        data="The weights were trained before they were converted. How they were trained is not recorded here.",
        limits=random,
    )
    return build_card(facts)


def upcycled_card(model: WeftPreTrainedModel, name: str, dense: str, *, has_tokenizer: bool = True) -> ModelCard:
    """
    Build the card of a sparse model that was made from a dense one.

    Args:
        model ([`WeftPreTrainedModel`]):
            The sparse model.
        name (`str`):
            The name for `from_pretrained`.
        dense (`str`):
            The name of the dense model.
        has_tokenizer (`bool`, *optional*, defaults to `True`):
            Whether there is a tokenizer beside the weights.

    Returns:
        `huggingface_hub.ModelCard`
    """
    facts = facts_of(
        model,
        name,
        summary=f"The dense model {dense} as a mixture of experts. Each expert starts as a copy of a feed-forward network of the dense model.",
        has_tokenizer=has_tokenizer,
        origin="Sparse upcycling ([arXiv:2212.05055](https://arxiv.org/abs/2212.05055)), with outputs equal to those of the dense model",
        license_note=f"the licence of {dense} applies",
        data=f"The weights are those of {dense}. They were not trained as a mixture of experts yet.",
    )
    return build_card(facts)


def upload_with_card(model: WeftPreTrainedModel, working_dir: str, repo_id: str, *args: Any, **kwargs: Any) -> Any:
    """Upload the files of `push_to_hub`, with Weft's card in place of transformers' empty one.

    Any other card is kept.
    """
    file = Path(working_dir, "README.md")
    if file.is_file() and _DEFAULT_CARD in file.read_text(encoding="utf-8"):
        tags = ModelCard.load(file).data.tags or []
        build_card(facts_of(model, repo_id, tags=tags)).save(file)
    return super(WeftPreTrainedModel, model)._upload_modified_files(working_dir, repo_id, *args, **kwargs)
