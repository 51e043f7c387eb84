"""A model card made from what is known of a model: the Hub's metadata, and a text from `model_cards/template.md`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..configuration import PRESETS, WeftConfig
from .export import ROOT

FOLDER = ROOT / "model_cards"
_LANGUAGE = re.compile(r"[a-z]{2,3}|code|multilingual")
_ROUTE_TOKENS = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


@dataclass(frozen=True)
class Measured:
    """A measured value and, where one was computed, its 95 % interval.

    Args:
        metric: the Hub's name of the metric, such as "exact_match".
        name: for people, such as "Exact route, top-1".
        value: in the metric's own unit.
        dataset: what it was measured on, for people.
        low, high: ends of the interval.
        method: how the interval was computed, such as "Wilson".
        n: number of examples.
        split: such as "test".
        dataset_type: id of the data set on the Hub, where it is there.
        percent: the value is a share, to be shown as a percentage.
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
    dataset_type: str = "custom"
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
        """The entry in the metadata's `model-index`, the interval among the metric's arguments."""
        settings: dict[str, Any] = {"n": self.n}
        if self.low is not None and self.high is not None:
            settings |= {
                "low": round(self.low, 6),
                "high": round(self.high, 6),
                "confidence": 0.95,
                "method": self.method,
            }
        settings = {name: value for name, value in settings.items() if value is not None}
        return EvalResult(
            task_type=task,
            dataset_type=self.dataset_type,
            dataset_name=self.dataset,
            dataset_split=self.split,
            metric_type=self.metric,
            metric_name=self.name,
            metric_value=self.value,
            metric_args=settings or None,
        )


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a model; of what is left out the card says that it is not known, or nothing.

    Args:
        name: what `from_pretrained` is to be given.
        config: its configuration.
        parameters, active_parameters: all weights, and those a token goes through.
        summary: one paragraph.
        has_weights: False for a size of which none are published.
        model_class: name of its class; has_tokenizer: whether a tokenizer lies beside the weights.
        license, license_note: the Hub's id of the weights' licence, and what is to be said of it.
        language, tags, datasets, base_model, task: metadata of the Hub.
        data, recipe, training: what it learned from, how, and the arguments as rows of a table.
        results, results_note: what was measured.
        decoding: settings of `generate`.
        origin, parity, limits, citation: where the model comes from, rows of errors against the original, limits beyond
            those of all such models, BibTeX.
    """

    name: str
    config: WeftConfig
    parameters: int
    active_parameters: int
    summary: str
    preset: str | None = None
    has_weights: bool = True
    model_class: str = "WeftForConditionalGeneration"
    has_tokenizer: bool = True
    license: str | None = None
    license_note: str | None = None
    language: Sequence[str] = ()
    tags: Sequence[str] = ()
    datasets: Sequence[str] = ()
    base_model: str | None = None
    task: str | None = None
    data: str | None = None
    recipe: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[Measured] = ()
    results_note: str | None = None
    decoding: Mapping[str, Any] = field(default_factory=dict)
    origin: str | None = None
    parity: Sequence[Sequence[str]] = ()
    limits: Sequence[str] = ()
    citation: str | None = None


def writes_routes(config: WeftConfig) -> bool:
    """Whether a model writes synthesis routes: its special tokens are those of the route vocabulary."""
    routes = PRESETS["dms-tiny"]
    return all(getattr(config, name) == routes[name] for name in _ROUTE_TOKENS)


def build_card(facts: Facts) -> ModelCard:
    """The card, its metadata as the Hub reads them.

    Raises:
        ValueError: a language is no ISO 639 code.
    """
    for language in facts.language:
        if not _LANGUAGE.fullmatch(language):
            raise ValueError(f"language={language!r} is not allowed: give an ISO 639 code, such as de or deu.")
    config, title = facts.config, facts.name.rsplit("/", 1)[-1]
    generates = facts.model_class == "WeftForConditionalGeneration"
    task = facts.task or ("text-generation" if generates else "feature-extraction")
    is_routes = writes_routes(config)
    kind = ["chemistry", "retrosynthesis"] if is_routes else []
    moe = ["mixture-of-experts"] if config.has_sparse_layers else []
    metadata = ModelCardData(
        library_name="transformers",
        pipeline_tag=task,
        license=facts.license,
        language=list(facts.language) or None,
        tags=["weft", "encoder-decoder", *moe, *kind, *facts.tags],
        datasets=list(facts.datasets) or None,
        base_model=facts.base_model,
        metrics=list(dict.fromkeys(one.metric for one in facts.results)) or None,
        model_name=title if facts.results else None,
        eval_results=[one.for_index(task) for one in facts.results] or None,
    )
    texts = {one.name: getattr(facts, one.name) for one in fields(facts)}
    extra = {
        "title": title,
        "is_routes": is_routes,
        "generates": generates,
        "architecture": architecture(facts),
        "conditions": [1.0] * config.num_condition_features,
        # three that are in every vocabulary
        "example_ids": ", ".join(str(token % config.vocab_size) for token in (5, 6, 7)),
    }
    card = ModelCard.from_template(metadata, template_path=str(FOLDER / "template.md"), **(texts | extra))
    # where a part of the template has nothing to say
    card.text = re.sub(r"\n{3,}", "\n\n", card.text).rstrip() + "\n"
    return card


def architecture(facts: Facts) -> dict[str, str]:
    """Rows of a table: what a configuration says, in words."""
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
        "preset": f"`{facts.preset}`" if facts.preset else "none",
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
        counts = [(config.encoder_mlp_layer_types or []).count("sparse")]
        counts.append((config.decoder_mlp_layer_types or []).count("sparse"))
        rows["sparse layers"] = (
            f"{counts[0]} encoder, {counts[1]} decoder; {config.num_experts} experts, "
            f"{config.num_experts_per_tok} for each token"
        )
    if config.num_condition_features:
        rows["conditions"] = f"{config.num_condition_features} (`condition_values`)"
    return rows


def _positions(config: WeftConfig) -> str:
    found = []
    if config.position_embedding_type != "none":
        found.append(f"{config.position_embedding_type} embeddings")
    if config.position_embedding_type == "learned":
        found.append(f"up to {config.max_source_positions:,} source and {config.max_target_positions:,} target tokens")
    for kind in ("self", "cross"):
        if (name := getattr(config, f"{kind}_attention_position_type")) != "none":
            found.append(f"{name} in {kind}-attention")
    return ", ".join(found) or "none"
