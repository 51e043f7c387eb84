"""Builds the card of a model: metadata for the Hub, and a text from `model_cards/template.md`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..configuration import PRESETS, WeftConfig
from ..modeling import WeftForConditionalGeneration, WeftPreTrainedModel
from ..modeling.moe import ExpertsBase
from .export import ROOT

FOLDER = ROOT / "model_cards"
# Fields that affect only training. They may change when a model is trained further.
TRAINING_FIELDS = frozenset(
    ["dropout", "attention_dropout", "activation_dropout", "router_aux_loss_coef", "router_z_loss_coef",
     "router_bias_update_rate", "output_router_logits", "use_cache", "init_std"]
)  # fmt: skip
_ROUTE_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
# The first sentence of the card that transformers writes for a repository without one.
_DEFAULT_CARD = "This is the model card of a 🤗 transformers model that has been pushed on the Hub."


@dataclass(frozen=True)
class MetricResult:
    """
    A measured value, with its 95 % interval if one was computed.

    Args:
        metric (`str`):
            The Hub's name of the metric, such as `"exact_match"`.
        name (`str`):
            The metric's name for readers, such as `"Exact route, top-1"`.
        value (`float`):
            The value, in the unit of the metric.
        dataset (`str`):
            The name of the data set for readers.
        interval (`tuple[float, float, str]`, *optional*):
            The ends of the interval, and the method that computed it, such as `"Wilson"`.
        n (`int`, *optional*):
            The number of examples.
        split (`str`, *optional*):
            The split of the data set, such as `"test"`.
        percent (`bool`, *optional*, defaults to `False`):
            Whether the value is a share, which the card shows as a percentage.
    """

    metric: str
    name: str
    value: float
    dataset: str
    interval: tuple[float, float, str] | None = None
    n: int | None = None
    split: str | None = None
    percent: bool = False

    def _show(self, number: float) -> str:
        return f"{100 * number:.1f} %" if self.percent else f"{number:.4g}"

    @property
    def shown_value(self) -> str:
        return self._show(self.value)

    @property
    def shown_interval(self) -> str:
        if self.interval is None:
            return "not computed"
        low, high, method = self.interval
        return f"[{self._show(low)}, {self._show(high)}], {method}"

    def for_index(self, task: str) -> EvalResult:
        """
        Return the entry for the `model-index` of the metadata, with the interval among the arguments of the metric.

        Args:
            task (`str`):
                The Hub's name of the task.
        """
        settings: dict[str, Any] = {} if self.n is None else {"n": self.n}
        if self.interval is not None:
            low, high, method = self.interval
            settings |= {"low": round(low, 6), "high": round(high, 6), "confidence": 0.95, "method": method}
        return EvalResult(
            task_type=task, dataset_type="custom", dataset_name=self.dataset, dataset_split=self.split,
            metric_type=self.metric, metric_name=self.name, metric_value=self.value, metric_args=settings or None,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Facts:
    """
    Facts on a card that the model itself does not have. If one is omitted, the card states that it is unknown, or omits it.

    Args:
        summary (`str`, *optional*):
            One paragraph about the model.
        is_routes (`bool`, *optional*):
            Whether the model writes synthesis routes. Defaults to whether it has the special tokens of the route vocabulary.
        has_tokenizer (`bool`, *optional*, defaults to `True`):
            Whether there is a tokenizer beside the weights.
        license (`str`, *optional*):
            The Hub's id of the weights' licence.
        license_note (`str`, *optional*):
            A remark on the licence.
        language, tags, datasets (`Sequence[str]`, *optional*):
            Metadata of the Hub. Languages are ISO 639 codes.
        base_model (`str` or `list[str]`, *optional*):
            The name of the model that this one was made from, or the names of several.
        task (`str`, *optional*):
            The Hub's name of the task. Defaults to none, or `"feature-extraction"` for a model without a head: no
            pipeline of transformers 5 takes a text to a text.
        data (`str`, *optional*):
            The data that the model was trained on.
        training (`Mapping[str, Any]`, *optional*):
            The rows of the table of the training.
        results (`Sequence[MetricResult]`, *optional*):
            The measured values.
        results_note (`str`, *optional*):
            A remark on them.
        origin (`str`, *optional*):
            The origin of the model.
        is_converted (`bool`, *optional*, defaults to `False`):
            Whether the weights are those of another family.
        limits (`Sequence[str]`, *optional*):
            Limits of this model besides those of all such models.
        citation (`str`, *optional*):
            BibTeX of the work to cite. Defaults to DirectMultiStep for a model that writes routes.
    """

    summary: str | None = None
    is_routes: bool | None = None
    has_tokenizer: bool = True
    license: str | None = None
    license_note: str | None = None
    language: Sequence[str] = ()
    tags: Sequence[str] = ()
    datasets: Sequence[str] = ()
    base_model: str | list[str] | None = None
    task: str | None = None
    data: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[MetricResult] = ()
    results_note: str | None = None
    origin: str | None = None
    is_converted: bool = False
    limits: Sequence[str] = ()
    citation: str | None = None


def writes_routes(config: WeftConfig) -> bool:
    """Return whether a model writes synthesis routes: its special tokens are those of the route vocabulary."""
    routes = PRESETS["dms-tiny"]
    return all(getattr(config, name) == routes[name] for name in _ROUTE_TOKENS)


@cache
def _written() -> Mapping[str, Any]:
    """Return the content of `model_cards/facts.yaml`: citations, and facts about sources of conversion."""
    return yaml.safe_load((FOLDER / "facts.yaml").read_text(encoding="utf-8"))


def count_parameters(
    config: WeftConfig, model_class: type[WeftPreTrainedModel] = WeftForConditionalGeneration
) -> tuple[int, int]:
    """Return the number of parameters and the number that a token uses, from the configuration alone.

    The weights themselves may be sharded over many GPUs.
    """
    with torch.device("meta"):
        model = model_class(config)
    experts = [module for module in model.modules() if isinstance(module, ExpertsBase)]
    in_experts = sum(parameter.numel() for module in experts for parameter in module.parameters())
    idle = config.num_experts - config.num_experts_per_tok
    return model.num_parameters(), model.num_parameters() - in_experts * idle // config.num_experts


def build_card(model: WeftPreTrainedModel, name: str, **given_facts: Any) -> ModelCard:
    """
    Build the card of a model.

    Args:
        model ([`WeftPreTrainedModel`]):
            The model.
        name (`str`):
            The name for `from_pretrained`.
        given_facts (*optional*):
            Fields of [`Facts`].

    Returns:
        `huggingface_hub.ModelCard`: the card, with metadata for the Hub.
    """
    facts, config, kind, title = Facts(**given_facts), model.config, type(model).__name__, name.rsplit("/", 1)[-1]
    task = facts.task or (None if model.can_generate() else "feature-extraction")
    is_routes = writes_routes(config) if facts.is_routes is None else facts.is_routes
    tags = ["mixture-of-experts"] * config.has_sparse_layers + ["chemistry", "retrosynthesis"] * is_routes
    metadata = ModelCardData(
        library_name="transformers",
        pipeline_tag=task,
        license=facts.license,
        language=list(facts.language) or None,
        tags=["weft", "encoder-decoder", *tags, *facts.tags],
        datasets=list(facts.datasets) or None,
        base_model=facts.base_model,
        metrics=list(dict.fromkeys(item.metric for item in facts.results)) or None,
        model_name=title if facts.results else None,
        eval_results=[item.for_index(task or "text-generation") for item in facts.results] or None,
    )
    parameters, active = count_parameters(config, type(model))
    texts = vars(facts) | {
        "name": name,
        "title": title,
        "summary": facts.summary or f"A `{kind}` of Weft, an encoder-decoder family for transformers.",
        "citation": facts.citation or (_bibtex("directmultistep") if writes_routes(config) else None),
        "model_class": kind,
        "config": config,
        "is_routes": is_routes,
        "generates": model.can_generate(),
        "sets_length": model.can_generate() and model.generation_config.to_diff_dict().get("max_length") is not None,
        "parameters": {"parameters": f"{parameters:,}", "active for each token": f"{active:,}"},
        "conditions": [1.0] * config.num_condition_features,
        # three ids that every vocabulary has
        "example_ids": ", ".join(str(token % config.vocab_size) for token in (5, 6, 7)),
    }
    card = ModelCard.from_template(metadata, template_path=str(FOLDER / "template.md"), **texts)
    # parts of the template that are empty leave blank lines
    card.text = re.sub(r"\n{3,}", "\n\n", card.text).rstrip() + "\n"
    return card


def _bibtex(name: str | None) -> str | None:
    return name and _written()["citations"][name].strip()


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
    known = _written()["sources"].get(source, {})
    keys = ", ".join(f"`{key}`" for key in new)
    return build_card(
        model,
        name,
        summary=f"Weights of {title} as a Weft model: the same numbers, with transformers' `generate`, caches and Trainer.",
        has_tokenizer=has_tokenizer,
        is_converted=True,
        citation=_bibtex(known.get("citation")),
        license_note=f"the licence of the original weights applies. {known.get('license', '')}".rstrip(" ."),
        data="The weights were trained before they were converted. How they were trained is not recorded here.",
        limits=[f"These weights are random and need training before use: {keys}."] if new else [],
    )


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
    return build_card(
        model,
        name,
        summary=f"The dense model {dense} as a mixture of experts. Each expert starts as a copy of a feed-forward network of the dense model.",
        has_tokenizer=has_tokenizer,
        origin="Sparse upcycling ([arXiv:2212.05055](https://arxiv.org/abs/2212.05055)), with outputs equal to those of the dense model",
        license_note=f"the licence of {dense} applies",
        data=f"The weights are those of {dense}. They were not trained as a mixture of experts yet.",
    )


def replace_default_card(model: WeftPreTrainedModel, working_dir: str, repo_id: str) -> None:
    """Write Weft's card over transformers' empty one in a folder that is being pushed. Any other card is kept."""
    file = Path(working_dir, "README.md")
    if file.is_file() and _DEFAULT_CARD in file.read_text(encoding="utf-8"):
        build_card(model, repo_id, tags=ModelCard.load(file).data.tags or []).save(file)
