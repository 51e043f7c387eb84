"""The pages of the server: what there is, at `/`, and the API, at `/docs`. They load nothing from anywhere.

FastAPI's own page at `/docs` is a program that the browser fetches from another server (Swagger), so it stays empty where
there is no network. This one is written from the same OpenAPI schema, without scripts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..configuration.version import __version__
from ..inference.tasks import RouteTask, TextTask
from .limits import Limits

_POLICY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
}
# The body of the example of each endpoint.
_EXAMPLES: dict[str, dict[str, Any]] = {
    "/plan": {"targets": "O=C(Nc1ccccc1)c1ccc(F)cc1", "beams": 5, "max_routes": 3},
    "/translate": {"texts": ["ein Haus", "zwei Hunde"], "beams": 4},
}
# Keywords of JSON schema that bound a value, and how they are told.
_BOUNDS = {
    "minimum": "at least {}", "maximum": "at most {}", "minLength": "at least {} characters", "maxLength": "at most {} characters",
    "minItems": "at least {} items", "maxItems": "at most {} items",
}  # fmt: skip


def add_pages(app: FastAPI, task: RouteTask | TextTask, name: str, limits: Limits) -> None:
    """
    Answer `/` and `/docs`.

    Args:
        app (`FastAPI`):
            The application, made with `docs_url=None`. Its other paths may come later.
        task (`RouteTask` or `TextTask`):
            The model.
        name (`str`):
            What the model is called.
        limits (`Limits`):
            The bounds on requests, which `/` lists.
    """

    @app.get("/", include_in_schema=False)
    async def home(request: Request) -> HTMLResponse:
        url = str(request.base_url).rstrip("/")
        return _page(
            "home.html",
            name=name,
            url=url,
            path=task.path,
            example=_example(task.path),
            settings=_settings(task, limits),
        )

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        url, schema = str(request.base_url).rstrip("/"), app.openapi()
        return _page("docs.html", name=name, url=url, operations=list(_operations(schema)))


def _page(template: str, **values: Any) -> HTMLResponse:
    return HTMLResponse(_templates().get_template(template).render(version=__version__, **values), headers=_POLICY)


@cache
def _templates() -> Environment:
    return Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)


def _example(path: str) -> str:
    return json.dumps(_EXAMPLES[path], ensure_ascii=False)


def _settings(task: RouteTask | TextTask, limits: Limits) -> dict[str, Any]:
    found: dict[str, Any] = {"endpoint": task.path}
    if isinstance(task, RouteTask):
        stock = task.stock
        found["stock"] = (
            f"{len(stock)} molecules" if stock is not None else "none: nothing is said of what can be bought"
        )
        found["forward model"] = (
            "none: nothing is said of feasibility"
            if task.forward is None
            else f"says which reactions it predicts, {task.forward.beams} beams"
        )
        found |= {f"trained on, {key}": _told(value) for key, value in task.planner.about.items()}
        if task.takes_steps:
            found["steps that are tried by default"] = _told(list(task.planner.default_steps))
    found["tokens that are written at most"] = task.max_new_tokens
    return found | {
        f"--{field.name.replace('_', '-')}": _told(getattr(limits, field.name)) for field in fields(limits)
    }


def _told(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "by the model" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _whole(value: float) -> float:
    """A number without `.0`."""
    return int(value) if value == int(value) else value


def _operations(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each path of the schema with what it takes and what it answers."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody")
            answers = [
                {"status": status, "description": answer["description"], "fields": _fields(_content(answer), schema)}
                for status, answer in operation["responses"].items()
            ]
            yield {
                "method": method.upper(),
                "path": path,
                "description": operation.get("description", ""),
                "fields": _fields(_content(body), schema) if body else [],
                "example": _example(path) if body else None,
                "answers": answers,
            }


def _content(part: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = part.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _fields(kind: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of an object of the schema."""
    kind = _resolved(kind, schema)
    needed = kind.get("required", [])
    return [
        {
            "name": name,
            "kind": _kind(field, schema),
            "default": None if "default" not in field else json.dumps(field["default"], ensure_ascii=False),
            "is_needed": name in needed,
            "description": field.get("description", ""),
        }
        for name, field in kind.get("properties", {}).items()
    ]


def _resolved(kind: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in kind:
        found: Any = schema
        for part in kind["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        kind = found
    return kind


def _kind(field: Mapping[str, Any], schema: dict[str, Any]) -> str:
    """What a field holds, in words: `integer, at least 1, at most 50`."""
    field = _resolved(dict(field), schema)
    if "anyOf" in field:
        return " or ".join(_kind(one, schema) for one in field["anyOf"])
    if "enum" in field or "const" in field:
        return " or ".join(json.dumps(value) for value in field.get("enum", [field.get("const")]))
    words = str(field.get("type", "anything"))
    if field.get("type") == "array":
        words = f"list of ({_kind(field.get('items', {}), schema)})"
    bounds = (told.format(_whole(field[bound])) for bound, told in _BOUNDS.items() if bound in field)
    return ", ".join([words, *("not empty" if bound.startswith("at least 1 ") else bound for bound in bounds)])
