"""The page of the server at `/`: its model, settings and example requests. It contacts no other host."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..configuration.version import __version__
from ..inference.tasks import RouteTask, TextTask
from .limits import Limits

_POLICY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
}
# The body of the example request of each endpoint.
_EXAMPLES: dict[str, dict[str, Any]] = {
    "/plan": {"targets": "O=C(Nc1ccccc1)c1ccc(F)cc1", "max_routes": 3},
    "/translate": {"texts": ["ein Haus", "zwei Hunde"]},
}


def add_page(app: FastAPI, task: RouteTask | TextTask, name: str, limits: Limits) -> None:
    """Add the page at `/`.

    Args:
        app: the application.
        task: the model.
        name: the name of the model.
        limits: the bounds on requests, which the page lists.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    template, body = environment.get_template("home.html"), dict(_EXAMPLES[task.path])
    if isinstance(task, RouteTask) and task.stock is not None:
        body |= {"num_routes": 3, "only_purchasable": True}
    example = json.dumps(body, ensure_ascii=False)

    @app.get("/", include_in_schema=False)
    async def home(request: Request) -> HTMLResponse:
        url, settings = str(request.base_url).rstrip("/"), _settings(task, limits)
        text = template.render(
            version=__version__, name=name, url=url, path=task.path, example=example, settings=settings
        )
        return HTMLResponse(text, headers=_POLICY)


def _settings(task: RouteTask | TextTask, limits: Limits) -> dict[str, Any]:
    found: dict[str, Any] = {"endpoint": task.path}
    if isinstance(task, RouteTask):
        stock = task.stock
        found["stock"] = str(stock) if stock is not None else "none: purchasable molecules are unknown"
        found["forward model"] = (
            "none: feasibility is unknown"
            if task.forward is None
            else f"predicts the products of reactions, {task.forward.beams} beams"
        )
        found |= {f"training data, {key}": _told(value) for key, value in task.planner.about.items()}
        if task.takes_steps:
            found["steps tried by default"] = _told(list(task.planner.default_steps))
    found["largest number of new tokens"] = task.max_new_tokens
    return found | {
        f"--{field.name.replace('_', '-')}": _told(getattr(limits, field.name)) for field in fields(limits)
    }


def _told(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "set by the model" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
