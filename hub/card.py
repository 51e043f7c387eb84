"""Builds the card of a model: metadata for the Hub, and a text from `model_cards/template.md`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..configuration import PRESETS, WeftConfig
from .export import ROOT

FOLDER = ROOT / "model_cards"
_LANGUAGE = re.compile(r"[a-z]{2,3}|code|multilingual")
_ROUTE_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


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
        low, high (`float`, *optional*):
            The ends of the interval.
        method (`str`, *optional*):
            The method that computed the interval, such as `"Wilson"`.
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
    low: float | None = None
    high: float | None = None
    method: str | None = None
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
        if self.low is None or self.high is None:
            return "not computed"
        return f"[{self._show(self.low)}, {self._show(self.high)}]" + (f", {self.method}" if self.method else "")

    def for_index(self, task: str) -> EvalResult:
        """
        Return the entry for the `model-index` of the metadata, with the interval among the arguments of the metric.

        Args:
            task (`str`):
                The Hub's name of the task.
        """
        settings: dict[str, Any] = {"n": self.n}
        if self.low is not None and self.high is not None:
            ends = {"low": round(self.low, 6), "high": round(self.high, 6)}
            settings |= {**ends, "confidence": 0.95, "method": self.method}
        settings = {name: value for name, value in settings.items() if value is not None}
        return EvalResult(
            task_type=task,
            dataset_type="custom",
            dataset_name=self.dataset,
            dataset_split=self.split,
            metric_type=self.metric,
            metric_name=self.name,
            metric_value=self.value,
            metric_args=settings or None,
        )


@dataclass(frozen=True, kw_only=True)
class Facts:
    """
    The facts about a model on its card. If a fact is omitted, the card states that it is unknown, or omits it too.

    Args:
        name (`str`):
            The name for `from_pretrained`.
        config ([`WeftConfig`]):
            The configuration.
        parameters (`int`):
            The number of parameters.
        active_parameters (`int`):
            The number of parameters that a token uses.
        summary (`str`):
            One paragraph about the model.
        model_class (`str`, *optional*, defaults to `"WeftForConditionalGeneration"`):
            The name of the model's class.
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
        base_model (`str` or `Sequence[str]`, *optional*):
            The name of the model that this one was made from, or the names of several.
        task (`str`, *optional*):
            The Hub's name of the task. Defaults to none, or `"feature-extraction"` for a model without a head: no
            pipeline of transformers 5 takes a text to a text.
        data (`str`, *optional*):
            The data that the model was trained on.
        training (`Mapping[str, Any]`, *optional*):
            The rows of the table of training arguments.
        results (`Sequence[MetricResult]`, *optional*):
            The measured values.
        results_note (`str`, *optional*):
            A remark on them.
        decoding (`Mapping[str, Any]`, *optional*):
            The settings of `generate`.
        origin (`str`, *optional*):
            The origin of the model.
        is_converted (`bool`, *optional*, defaults to `False`):
            Whether the weights are those of another family.
        limits (`Sequence[str]`, *optional*):
            Limits of this model besides those of all such models.
        citation (`str`, *optional*):
            BibTeX of the work to cite.
    """

    name: str
    config: WeftConfig
    parameters: int
    active_parameters: int
    summary: str
    model_class: str = "WeftForConditionalGeneration"
    is_routes: bool | None = None
    has_tokenizer: bool = True
    license: str | None = None
    license_note: str | None = None
    language: Sequence[str] = ()
    tags: Sequence[str] = ()
    datasets: Sequence[str] = ()
    base_model: str | Sequence[str] | None = None
    task: str | None = None
    data: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[MetricResult] = ()
    results_note: str | None = None
    decoding: Mapping[str, Any] = field(default_factory=dict)
    origin: str | None = None
    is_converted: bool = False
    limits: Sequence[str] = ()
    citation: str | None = None


def writes_routes(config: WeftConfig) -> bool:
    """Return whether a model writes synthesis routes: its special tokens are those of the route vocabulary."""
    routes = PRESETS["dms-tiny"]
    return all(getattr(config, name) == routes[name] for name in _ROUTE_TOKENS)


def build_card(facts: Facts) -> ModelCard:
    """
    Build the card of a model.

    Args:
        facts ([`Facts`]):
            The facts that the card states.

    Returns:
        `huggingface_hub.ModelCard`: the card, with metadata for the Hub.

    Raises:
        ValueError: a language is not an ISO 639 code.
    """
    for language in facts.language:
        if not _LANGUAGE.fullmatch(language):
            raise ValueError(f"language={language!r} is not allowed: give an ISO 639 code, such as de or deu.")
    config, base, title = facts.config, facts.base_model, facts.name.rsplit("/", 1)[-1]
    generates = facts.model_class == "WeftForConditionalGeneration"
    # no pipeline of transformers 5 takes a text to a text
    task = facts.task or (None if generates else "feature-extraction")
    is_routes = writes_routes(config) if facts.is_routes is None else facts.is_routes
    kind = ["chemistry", "retrosynthesis"] if is_routes else []
    moe = ["mixture-of-experts"] if config.has_sparse_layers else []
    metadata = ModelCardData(
        library_name="transformers",
        pipeline_tag=task,
        license=facts.license,
        language=list(facts.language) or None,
        tags=["weft", "encoder-decoder", *moe, *kind, *facts.tags],
        datasets=list(facts.datasets) or None,
        base_model=base if base is None or isinstance(base, str) else list(base),
        metrics=list(dict.fromkeys(item.metric for item in facts.results)) or None,
        model_name=title if facts.results else None,
        eval_results=[item.for_index(task or "text-generation") for item in facts.results] or None,
    )
    texts = {item.name: getattr(facts, item.name) for item in fields(facts)}
    extra = {
        "title": title,
        "is_routes": is_routes,
        "generates": generates,
        "architecture": architecture(facts),
        "conditions": [1.0] * config.num_condition_features,
        # three ids that every vocabulary has
        "example_ids": ", ".join(str(token % config.vocab_size) for token in (5, 6, 7)),
    }
    card = ModelCard.from_template(metadata, template_path=str(FOLDER / "template.md"), **(texts | extra))
    # parts of the template that are empty leave blank lines
    card.text = re.sub(r"\n{3,}", "\n\n", card.text).rstrip() + "\n"
    return card


def architecture(facts: Facts) -> dict[str, str]:
    """Return the rows of the table that describes a configuration in words."""
    config = facts.config
    heads = " and ".join(
        str(count) for count in dict.fromkeys([config.encoder_attention_heads, config.decoder_attention_heads])
    )
    groups = config.given("num_key_value_heads")
    shared = f" ({groups} for keys and values)" if groups else ""
    widths = dict.fromkeys([config.encoder_ffn_dim, config.decoder_ffn_dim])
    gate = "gated " if config.is_gated_act else ""
    order = "before" if config.norm_first else "after"
    rows = {
        "parameters": f"{facts.parameters:,}",
        "active for each token": f"{facts.active_parameters:,}",
        "layers": f"{config.encoder_layers} encoder, {config.decoder_layers} decoder",
        "width": f"{config.d_model}, {heads} heads{shared}",
        "feed-forward": f"{' and '.join(map(str, widths))}, {gate}{config.activation_function}",
        "norms": f"{config.norm_type} {order} each sub-layer",
        "positions": _positions(config),
        "vocabulary": f"{config.vocab_size:,} tokens"
        + (f", {config.target_vocab_size:,} of the target" if config.target_vocab_size != config.vocab_size else ""),
    }
    if config.has_sparse_layers:
        encoder, decoder = (
            (types or []).count("sparse") for types in (config.encoder_mlp_layer_types, config.decoder_mlp_layer_types)
        )
        rows["sparse layers"] = (
            f"{encoder} encoder, {decoder} decoder; {config.num_experts} experts, {config.num_experts_per_tok} for each token"
        )
    if config.num_condition_features:
        rows["conditions"] = f"{config.num_condition_features} (`condition_values`)"
    return rows


def _positions(config: WeftConfig) -> str:
    kinds = []
    if config.position_embedding_type != "none":
        kinds.append(f"{config.position_embedding_type} embeddings")
    if config.position_embedding_type == "learned":
        kinds.append(f"up to {config.max_source_positions:,} source and {config.max_target_positions:,} target tokens")
    for kind in ("self", "cross"):
        if (name := getattr(config, f"{kind}_attention_position_type")) != "none":
            kinds.append(f"{name} in {kind}-attention")
    return ", ".join(kinds) or "none"
