"""Tasks with small models: one that has learned a few routes, and an untrained text model."""

import pytest

pytest.importorskip("rdkit")
pytest.importorskip("gradio", reason="needs gradio: pip install weftformer[app]")

from weftformer.inference.tasks import RouteTask, TextTask

from ..models import tiny_text_model

WORDS = "one two three four five six seven eight nine ten <b>bold</b>"


@pytest.fixture(scope="session")
def route_task(planner):
    return RouteTask(planner)


@pytest.fixture(scope="session")
def text_task():
    return TextTask(*tiny_text_model([WORDS]))
