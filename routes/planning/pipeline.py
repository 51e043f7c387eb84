"""The planner as a transformers pipeline: `pipeline("weft-routes", model=folder)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transformers import Pipeline


class RoutesPipeline(Pipeline):
    """Plans ranked routes for one or several SMILES. Needs RDKit.

    The settings are fields of [`PlanSettings`] and arguments of [`RoutePlanner.stream`]. They are given to the pipeline or to a call.
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True

    def __call__(self, inputs: str | Iterable[str], **kwargs: Any) -> Any:
        """
        Plan routes to one or several targets.

        Args:
            inputs (`str` or `Iterable[str]`):
                One SMILES, or several.
            kwargs:
                Arguments of [`RoutePlanner.plan`], including `batch_size`.

        Returns:
            `dict[str, Any]` or `list[dict[str, Any]]`: for each target, the result of `Plan.to_dict`, a dictionary
            with `target`, `problem` and `candidates`, best first.

        Raises:
            ValueError: as in [`RoutePlanner.plan`].
        """
        targets = [inputs] if isinstance(inputs, str) else list(inputs)
        # the planner forms its own batches, of searches with similar lengths instead of targets
        batch_size = kwargs.pop("batch_size", self._batch_size)
        plans = super().__call__({"targets": targets, "batch_size": batch_size}, **kwargs)
        return plans[0] if isinstance(inputs, str) else plans

    def _sanitize_parameters(self, **settings: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, settings, {}

    def preprocess(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs

    def _forward(self, inputs: dict[str, Any], **settings: Any) -> dict[str, Any]:
        from .planner import RoutePlanner  # not at the top, because the package can be imported without RDKit

        planner = RoutePlanner(self.model, self.tokenizer)
        return {"plans": planner.plan(**inputs, **({"progress": False} | settings))}

    def postprocess(self, outputs: dict[str, Any]) -> list[dict[str, Any]]:
        return [plan.to_dict() for plan in outputs["plans"]]
