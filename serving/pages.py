"""The pages of the server, which contact no other host: `/`, a form for requests with the settings of the model, and
those of endpoints.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from ..common import html
from ..configuration.version import __version__
from .endpoint import Endpoint, Task
from .limits import Limits

_FOLDER = Path(__file__).parent


def add_home(app: FastAPI, task: Task, endpoint: Endpoint, pages: Sequence[Endpoint], *, limits: Limits) -> None:
    """Add the page at `/`.

    Args:
        app: the application.
        task: the model.
        endpoint: the endpoint of the form.
        pages: the endpoints with pages of their own.
        limits: the bounds on requests, which the page lists.
    """
    template, script = (
        html.templates(_FOLDER).get_template("home.html"),
        (_FOLDER / "home.js").read_text(encoding="utf-8"),
    )
    # the page itself needs no key, and an example may be a text of the training data
    example = task.public_example if app.state.has_key else task.example
    texts = {
        "version": __version__, "name": app.state.name, "path": endpoint.path, "summary": endpoint.summary,
        "title": endpoint.title, "style": endpoint.style,
        "pages": {page.path[1:]: page.page.label for page in pages if page.page is not None},
        "has_key": app.state.has_key,
        "example": json.dumps(example, ensure_ascii=False), "settings": _settings(task, limits),
        "form": _form(endpoint, example, limits), "script": script,
    }  # fmt: skip

    @app.get("/", include_in_schema=False)
    async def home(request: Request) -> HTMLResponse:
        text = template.render(texts, url=str(request.base_url).rstrip("/"))
        return page_response(text, script)


def add_page(app: FastAPI, endpoint: Endpoint) -> None:
    """Add the page of an endpoint."""
    assert endpoint.page is not None
    text, script = endpoint.page.content(app.state.has_key)

    @app.get(endpoint.path, include_in_schema=False)
    async def page() -> HTMLResponse:
        return page_response(text, script)


def page_response(text: str, script: str) -> HTMLResponse:
    """Return a page whose only script is the given one, and which contacts no other host."""
    policy = (
        f"default-src 'none'; script-src {html.policy_hash(script)}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


def _form(endpoint: Endpoint, example: dict[str, Any], limits: Limits) -> list[dict[str, Any]]:
    """Return the fields of the form, from the schema of requests: its kind, bounds, default and description."""
    form = []
    properties = endpoint.request.model_json_schema()["properties"]
    inputs = next(iter(endpoint.form))
    for name, label in endpoint.form.items():
        if name not in properties or name in limits.refuse:
            continue
        about = properties[name]
        types = {schema.get("type"): schema for schema in (about, *about.get("anyOf", ()))}
        number: dict[str, Any] = types.get("integer") or types.get("number") or {}
        value = about.get("default")
        if name == inputs:
            kind, texts = "lines", example[name]
            value = texts if isinstance(texts, str) else "\n".join(texts)
        elif "boolean" in types:
            kind = "check"
        else:
            kind = "number" if number else "text"
        form.append({
            "name": name, "label": label, "hint": about["description"], "kind": kind, "value": value,
            "least": number.get("minimum"), "most": number.get("maximum"),
        })  # fmt: skip
    return form


def _settings(task: Task, limits: Limits) -> dict[str, str]:
    bounds = {f"--{field.name.replace('_', '-')}": getattr(limits, field.name) for field in fields(limits)}
    return {name: text for name, value in (task.describe() | bounds).items() if (text := _shown(value))}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{name}: {_shown(item)}" for name, item in value.items()]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:,}"
    return "set by the model" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
