"""The planner as a pipeline of transformers: `pipeline("weft-routes", model=folder)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transformers import Pipeline


class RoutesPipeline(Pipeline):
    """Ranked routes for a SMILES, or for each of several; needs RDKit.

    Its settings are those of [`RoutePlanner.plan`], given when it is made or when it is called.
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True

    def __call__(self, inputs: str | Iterable[str], **kwargs: Any) -> Any:
        """Plan a target, or several at once.

        Args:
            inputs: one SMILES, or several.
            kwargs: settings of [`RoutePlanner.plan`], among them `batch_size`.

        Returns:
            For each target what `Plan.to_dict` gives: a dictionary with `target`, `problem` and `candidates`, best first.

        Raises:
            ValueError: as in [`RoutePlanner.plan`].
        """
        targets = [inputs] if isinstance(inputs, str) else list(inputs)
        # a batch is the planner's own: it is searches that are alike in length, not targets
        batch_size = kwargs.pop("batch_size", self._batch_size)
        plans = super().__call__({"targets": targets, "batch_size": batch_size}, **kwargs)
        return plans[0] if isinstance(inputs, str) else plans

    def _sanitize_parameters(self, **settings: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, settings, {}

    def preprocess(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs

    def _forward(self, inputs: dict[str, Any], **settings: Any) -> dict[str, Any]:
        from .planner import RoutePlanner  # RDKit may be missing where the family is imported

        planner = RoutePlanner(self.model, self.tokenizer)
        return {"plans": planner.plan(**inputs, **({"progress": False} | settings))}

    def postprocess(self, outputs: dict[str, Any]) -> list[dict[str, Any]]:
        return [plan.to_dict() for plan in outputs["plans"]]
