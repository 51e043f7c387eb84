"""What is known of a model without asking anyone: its sizes, its preset, the settings it generates with."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import ModelCard

from ..configuration import PRESETS, WeftConfig
from ..modeling import WeftForConditionalGeneration, WeftPreTrainedModel
from ..modeling.moe import ExpertsBase
from .card import FOLDER, Facts, build_card, writes_routes

# Fields in which a model may differ from its preset and still be of that size.
_FREE = frozenset(
    ["vocab_size", "decoder_vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id",
     "dropout", "attention_dropout", "activation_dropout", "label_smoothing", "router_aux_loss_coef",
     "router_z_loss_coef", "router_bias_update_rate", "router_noise", "expert_capacity_factor",
     "expert_capacity_mode", "output_router_logits",
     "use_cache", "init_std"]
)  # fmt: skip
# How transformers begins the card of a repository that has none; it has no name for it.
_DEFAULT_CARD = "This is the model card of a 🤗 transformers model that has been pushed on the Hub."


@cache
def written_facts() -> Mapping[str, Any]:
    """What `model_cards/facts.yaml` holds: citations, sources of conversion and presets, in words."""
    return yaml.safe_load((FOLDER / "facts.yaml").read_text(encoding="utf-8"))


def bibtex(name: str) -> str:
    """The citation of a work in `model_cards/facts.yaml`."""
    return written_facts()["citations"][name].strip()


def preset_facts(name: str) -> dict[str, Any]:
    """What is written of a preset, and of its kind.

    Raises:
        ValueError: nothing is.
    """
    written = written_facts()
    if name not in written["presets"]:
        raise ValueError(f"{FOLDER / 'facts.yaml'} says nothing of the preset {name}: write what it is there.")
    own = written["presets"][name]
    known = written["kinds"].get(own.get("kind"), {}) | own
    known.pop("kind", None)
    return known | ({"citation": bibtex(known["citation"])} if "citation" in known else {})


def count_parameters(
    config: WeftConfig, model_class: type[WeftPreTrainedModel] = WeftForConditionalGeneration
) -> tuple[int, int]:
    """(all parameters, those a token goes through), without making the weights: a model may lie in pieces on many GPUs."""
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


def preset_of(config: WeftConfig) -> str | None:
    """The named size of a configuration, whatever its vocabulary, dropout and losses, or None."""
    names = [name for name in WeftConfig.__annotations__ if name in WeftConfig.field_names() - _FREE]
    for preset in PRESETS:
        size = WeftConfig.from_preset(preset)
        if all(getattr(size, name) == getattr(config, name) for name in names):
            return preset
    return None


def decoding_settings(model: WeftPreTrainedModel) -> dict[str, Any]:
    """The settings of `generate` that are saved with a model and decide what it writes, without ids of tokens."""
    if not model.can_generate():
        return {}
    settings = model.generation_config.to_diff_dict()
    return {
        name: value
        for name, value in settings.items()
        if value is not None
        and not name.startswith(("_", "output_", "use_cache"))
        and not name.endswith(("_token_id", "_version"))
    }


def facts_of(model: WeftPreTrainedModel, name: str, **known: Any) -> Facts:
    """What a model tells of itself, and what else is known (fields of [`Facts`]).

    Args:
        name: what `from_pretrained` is to be given.
    """
    total, active = count_parameters(model.config, type(model))
    preset = preset_of(model.config)
    of_preset = preset_facts(preset) if preset else {}
    found: dict[str, Any] = {
        "preset": preset,
        "origin": of_preset.get("origin"),
        "citation": of_preset.get("citation", bibtex("directmultistep") if writes_routes(model.config) else None),
        "summary": f"A `{type(model).__name__}` of Weft, an encoder-decoder family for transformers.",
        "model_class": type(model).__name__,
        "decoding": decoding_settings(model),
    }
    return Facts(name=name, config=model.config, parameters=total, active_parameters=active, **(found | known))


def converted_card(
    model: WeftPreTrainedModel,
    name: str,
    source: str,
    title: str,
    *,
    new: Sequence[str] = (),
    has_tokenizer: bool = True,
) -> ModelCard:
    """The card of weights that `weftformer convert` made.

    Args:
        name: what `from_pretrained` is to be given.
        source: the name of the source of conversion; title: what it is.
        new: weights that the source has nothing for, which are random.
    """
    known = written_facts()["sources"][source]
    facts = facts_of(
        model,
        name,
        summary=f"Weights of {title} as a Weft model: the same numbers, with transformers' `generate`, caches and Trainer.",
        has_tokenizer=has_tokenizer,
        parity=known["parity"],
        **({"citation": bibtex(known["citation"])} if "citation" in known else {}),
        license_note=f"it is that of the original weights. {known.get('license', '')}".rstrip(" ."),
        data="The weights were trained before they were converted; how is not recorded here.",
        limits=[f"Not trained, and to be trained before use: {', '.join(f'`{key}`' for key in new)}."] if new else [],
    )
    return build_card(facts)


def upload_with_card(model: WeftPreTrainedModel, working_dir: str, repo_id: str, *args: Any, **kwargs: Any) -> Any:
    """What `push_to_hub` of a model uploads, with a card of Weft in place of transformers' empty one; others stay."""
    file = Path(working_dir, "README.md")
    if file.is_file() and _DEFAULT_CARD in file.read_text(encoding="utf-8"):
        tags = ModelCard.load(file).data.tags or []
        build_card(facts_of(model, repo_id, tags=tags)).save(file)
    return super(WeftPreTrainedModel, model)._upload_modified_files(working_dir, repo_id, *args, **kwargs)
