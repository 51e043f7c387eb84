"""Builds the card of a model: metadata for the Hub, and a text from `model_cards/template.md`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..configuration import PRESETS, WeftConfig
from ..modeling import WeftPreTrainedModel
from .export import ROOT

FOLDER = ROOT / "model_cards"
_ROUTE_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
# The first sentence of the card that transformers writes for a repository without one.
_DEFAULT_CARD = "This is the model card of a 🤗 transformers model that has been pushed on the Hub."


def metric_result(
    metric: str,
    name: str,
    value: float,
    dataset: str,
    split: str | None = None,
    n: int | None = None,
    interval: tuple[float, float, str] | None = None,
) -> EvalResult:
    """Return a measured value for the `model-index` of a card, with its 95% interval if one was computed.

    Args:
        metric: the Hub's name of the metric. The card shows values of `"exact_match"` as percentages.
        name: the metric's name for readers, such as `"Exact route, top-1"`.
        value: the value, in the unit of the metric.
        dataset: the name of the data set for readers.
        split: the split of the data set, such as `"test"`.
        n: the number of examples.
        interval: the ends of the interval, and the method that computed it, such as `"Wilson"`.
    """
    args: dict[str, Any] = {} if n is None else {"n": n}
    if interval is not None:
        low, high, method = interval
        args |= {"low": round(low, 6), "high": round(high, 6), "confidence": 0.95, "method": method}
    return EvalResult(
        "text-generation", "custom", dataset, metric, value, metric_name=name, dataset_split=split, metric_args=args
    )


def _cells(result: EvalResult) -> list[str]:
    """Return the row of a measured value in the table of a card."""

    def text(number: float) -> str:
        return f"{100 * number:.1f}%" if result.metric_type == "exact_match" else f"{number:.4g}"

    args: dict[str, Any] = result.metric_args or {}
    interval = f"[{text(args['low'])}, {text(args['high'])}], {args['method']}" if "low" in args else "not computed"
    value = text(result.metric_value)
    return [result.dataset_name, result.metric_name or "", value, interval, str(args.get("n", ""))]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts on a card that the model itself does not have. If one is omitted, the card says that it is unknown, or
    omits it.

    Args:
        metadata: fields of `huggingface_hub.ModelCardData`, such as `license`, `language`, `datasets` and
            `base_model`. `tags` are added to those of the model. The `pipeline_tag` defaults to none, or to
            `"feature-extraction"` for a model without a head: no pipeline of transformers 5 takes a text to a text.
        summary: one paragraph about the model.
        is_routes: whether the model writes synthesis routes. Defaults to whether it has the special tokens of the
            route vocabulary.
        has_tokenizer: whether there is a tokenizer beside the weights.
        license_note: a remark on the licence.
        data: the data that the model was trained on.
        training: the rows of the table of the training.
        results: the measured values, as of [`metric_result`].
        results_note: a remark on them.
        origin: the origin of the model.
        is_converted: whether the weights are those of another family.
        limits: limits of this model besides those of all such models.
        citation: BibTeX of the work to cite. Defaults to DirectMultiStep for a model that writes routes.
        example: a source that the model was trained on, and its target.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    summary: str | None = None
    is_routes: bool | None = None
    has_tokenizer: bool = True
    license_note: str | None = None
    data: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[EvalResult] = ()
    results_note: str | None = None
    origin: str | None = None
    is_converted: bool = False
    limits: Sequence[str] = ()
    citation: str | None = None
    example: tuple[str, str] | None = None


def writes_routes(config: WeftConfig) -> bool:
    """Return whether a model writes synthesis routes: its special tokens are those of the route vocabulary."""
    routes = PRESETS["dms-tiny"]
    return all(getattr(config, name) == routes[name] for name in _ROUTE_TOKENS)


def _facts_of_source(name: str) -> Mapping[str, Any]:
    """Return what `model_cards/facts.yaml` says of a source of conversion: its citation and its licence."""
    return yaml.safe_load((FOLDER / "facts.yaml").read_text(encoding="utf-8")).get(name, {})


def count_parameters(model: WeftPreTrainedModel) -> tuple[int, int]:
    """Return the number of parameters of a model and the number that a token uses.

    They are those of its configuration, because the weights themselves may be sharded over many GPUs.
    """
    with torch.device("meta"):
        model = type(model)(model.config)
    # by its attributes, because code that travels with weights has the family's classes in a module of its own
    experts = [
        module.experts for module in model.modules() if hasattr(module, "experts") and hasattr(module, "router")
    ]
    in_experts = sum(parameter.numel() for module in experts for parameter in module.parameters())
    idle = 1 - model.config.num_experts_per_tok / model.config.num_experts
    return model.num_parameters(), model.num_parameters() - round(in_experts * idle)


def loadable_name(folder: str | PathLike[str]) -> str:
    """Return a name by which a folder loads: its path from the current folder if it is in it, else its whole path."""
    path = Path(folder).resolve()
    return (path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path).as_posix()


def build_card(model: WeftPreTrainedModel, name: str, **facts_by_name: Any) -> ModelCard:
    """Build the card of a model.

    Args:
        model: the model.
        name: the name for `from_pretrained`.
        **facts_by_name: fields of [`Facts`].

    Returns:
        The card, with metadata for the Hub.
    """
    facts, config, title = Facts(**facts_by_name), model.config, name.rsplit("/", 1)[-1]
    is_routes = writes_routes(config) if facts.is_routes is None else facts.is_routes
    tags = ["mixture-of-experts"] * config.has_sparse_layers + ["chemistry", "retrosynthesis"] * is_routes
    task = facts.metadata.get("pipeline_tag") or (None if model.can_generate() else "feature-extraction")
    metadata: dict[str, Any] = {"library_name": "transformers"} | dict(facts.metadata) | {"pipeline_tag": task}
    metadata["tags"] = ["weft", "encoder-decoder", *tags, *facts.metadata.get("tags", ())]
    if facts.results:
        metrics = list(dict.fromkeys(result.metric_type for result in facts.results))
        metadata |= {"model_name": title, "eval_results": list(facts.results), "metrics": metrics}
    texts = vars(facts) | {
        "model": model,
        "config": config,
        "name": name,
        "title": title,
        "parameters": count_parameters(model),
        "is_routes": is_routes,
        "example": None if facts.example is None else [*map(repr, facts.example)],
        "license": facts.metadata.get("license"),
        "results": [_cells(result) for result in facts.results],
        "citation": facts.citation or (_facts_of_source("dms")["citation"] if writes_routes(config) else None),
    }
    card = ModelCard.from_template(ModelCardData(**metadata), template_path=str(FOLDER / "template.md"), **texts)
    # parts of the template that are empty leave blank lines
    card.text = re.sub(r"\n{3,}", "\n\n", card.text).rstrip() + "\n"
    return card


def converted_card(
    model: WeftPreTrainedModel, name: str, source: str, title: str, new: Sequence[str] = (), has_tokenizer: bool = True
) -> ModelCard:
    """Build the card of converted weights.

    Args:
        model: the converted model.
        name: the name for `from_pretrained`.
        source: the name of the source of the conversion, a key of `weftformer.conversion.SOURCES`.
        title: a description of the source, such as its `title`.
        new: the names of weights that the source does not have, which are random.
        has_tokenizer: whether there is a tokenizer beside the weights.
    """
    facts = _facts_of_source(source)
    keys = ", ".join(f"`{key}`" for key in new)
    return build_card(
        model,
        name,
        summary=f"Weights of {title} as a Weft model: the same numbers, with transformers' `generate` and Trainer.",
        has_tokenizer=has_tokenizer,
        is_converted=True,
        citation=facts.get("citation"),
        license_note=f"the licence of the original weights applies. {facts.get('license', '')}".rstrip(" ."),
        data="The weights were converted. How they were trained is not recorded here.",
        limits=[f"These weights are random and need training before use: {keys}."] if new else [],
    )


def upcycled_card(model: WeftPreTrainedModel, name: str, dense: str, *, has_tokenizer: bool = True) -> ModelCard:
    """Build the card of a sparse model that was made from a dense one.

    Args:
        model: the sparse model.
        name: the name for `from_pretrained`.
        dense: the name of the dense model.
        has_tokenizer: whether there is a tokenizer beside the weights.
    """
    return build_card(
        model,
        name,
        summary=f"The dense model {dense} as a mixture of experts. Each expert starts as a copy of its feed-forward.",
        has_tokenizer=has_tokenizer,
        origin="Sparse upcycling ([arXiv:2212.05055](https://arxiv.org/abs/2212.05055)), with equal outputs.",
        license_note=f"the licence of {dense} applies",
        data=f"The weights are those of {dense}. They were not trained as a mixture of experts yet.",
    )


def replace_default_card(model: WeftPreTrainedModel, working_dir: str, repo_id: str) -> None:
    """Write Weft's card over transformers' empty one in a folder that is being pushed. Any other card is kept."""
    file = Path(working_dir, "README.md")
    if file.is_file() and _DEFAULT_CARD in file.read_text(encoding="utf-8"):
        build_card(model, repo_id, metadata={"tags": ModelCard.load(file).data.tags or []}).save(file)
