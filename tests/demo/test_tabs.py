"""The tabs without a browser: the right answers, and reasons if there is none."""

import gzip
import threading
from itertools import pairwise

import gradio as gr
import pytest

from weftformer.common.watching import Watch
from weftformer.demo import asking, build_demo, routes_tab
from weftformer.demo.asking import MOST_CHARACTERS, MOST_SMILES, numbers, reasons
from weftformer.demo.routes_tab import plan_routes
from weftformer.demo.text_tab import write
from weftformer.inference.batching import Unwanted
from weftformer.inference.tasks import RouteTask, TextTask
from weftformer.routes import Route, Stock
from weftformer.routes.drawing.listing import plan_html
from weftformer.routes.plans import Candidate, Plan

from ..models import tiny_text_model

TEXT = "one two three"


def test_a_known_route_is_planned_and_drawn(route_task, known, tmp_path):
    stock = tmp_path / "stock.smi"
    stock.write_text("CC(=O)O\n")
    plan = plan_routes(route_task, " C(c1ccccc1)NC(C)=O ", steps=1, beams=3, stock_file=str(stock))
    assert plan.routes[0].canonical() == known[0].canonical()
    assert plan.distinct[0].missing == ("NCc1ccccc1",)
    html = plan_html(plan)
    assert html.count("<svg") == len(plan.distinct)
    assert html.count("<details open>") == 1
    assert "✕ 1 not in stock" in html and "<code>NCc1ccccc1</code>" in html
    assert route_task.stock is None  # a stock is for one request only
    assert list(tmp_path.iterdir()) == [stock]


def test_a_stock_is_searched_to_within_a_budget_unless_whole_routes_are_wanted(planner, library):
    task = RouteTask(planner, Stock(["CC(=O)O", "NCc1ccccc1"]))
    [best, *_] = plan_routes(task, "CC(=O)NCc1ccccc1", beams=2, time_limit=30).distinct
    assert best.purchasable and best.route.num_reactions == 1
    late = plan_routes(task, "CCOC(C)=O", beams=2, time_limit=0.01)
    assert "was found in 0.01 s" in " ".join([*late.remarks, late.nothing_because])
    assert {one.n_steps for one in plan_routes(task, "CC(=O)NCc1ccccc1", beams=1, direct=True).candidates} > {1}


def test_what_routes_begin_from_may_be_asked_for(planner, monkeypatch):
    task = RouteTask(planner, Stock(["CC(=O)O"]))
    asked = {"beams": 2, "time_limit": 20, "direct": True}
    leaves = [
        route.leaves() for route in plan_routes(task, "CC(=O)NCc1ccccc1", required_leaf=" OC(C)=O", **asked).routes
    ]
    assert leaves and all("CC(=O)O" in one for one in leaves)
    assert plan_routes(task, "CC(=O)NCc1ccccc1", steps=1, only_purchasable=True, **asked).routes == []
    with pytest.raises(ValueError, match="need a stock"):
        plan_routes(RouteTask(planner), "CCO", only_purchasable=True)
    monkeypatch.setattr(planner.model.generation_config, "routes", {"starting_material": False}, raising=False)
    for one, is_shown in ((task, True), (RouteTask(planner), False)):  # the first was made before
        blocks = {getattr(block, "elem_id", None): block for block in build_demo(one).blocks.values()}
        assert blocks["material"].visible is is_shown and blocks["leaf"].visible and blocks["bought"].visible


def test_the_number_of_steps_counts(route_task):
    plans = [plan_routes(route_task, "CCOC(C)=O", steps=steps, beams=2) for steps in (1, 0)]
    one, any_number = ({candidate.n_steps for candidate in plan.candidates} for plan in plans)
    assert one == {1} and len(any_number) > 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"target": "CC(=O"}, "not a molecule"),
        ({"target": " "}, "The target is empty"),
        ({"target": "C" * (MOST_SMILES + 1)}, f"'C{{77}}'... has {MOST_SMILES + 1} characters"),
        ({"target": "CCO", "material": "x"}, "not a molecule"),
        # a stock has the name that the user gave it
        ({"stock": b"???\n!!!\n"}, "^bought.smi is not a stock"),
        ({"stock": b"\x1f\x8b\x08broken"}, "^bought.smi"),
    ],
)
def test_what_cannot_be_planned(route_task, tmp_path, settings, reason):
    if (content := settings.pop("stock", None)) is not None:
        (tmp_path / "bought.smi").write_bytes(content)
        settings |= {"target": "CCO", "stock_file": str(tmp_path / "bought.smi")}
    with pytest.raises(ValueError, match=reason) as error:
        plan_routes(route_task, **settings)
    assert str(tmp_path) not in str(error.value)


def test_a_stock_is_read_in_time_or_not_at_all(route_task, tmp_path, monkeypatch):
    (tmp_path / "bought.smi").write_text("CCO\n")
    with monkeypatch.context() as patched:
        patched.setattr(asking, "SECONDS", 0.0)
        with pytest.raises(ValueError, match=r"^Reading bought\.smi took longer than"):
            plan_routes(route_task, "CCO", stock_file=str(tmp_path / "bought.smi"))
    (tmp_path / "bought.smi.gz").write_bytes(gzip.compress(b"C" * 30_000))  # a line that does not end
    monkeypatch.setattr(routes_tab, "_MOST_UNPACKED", 29_999)
    with pytest.raises(ValueError, match=r"^bought\.smi\.gz unpacks to more than 0\.029999 MB"):
        plan_routes(route_task, "CCO", stock_file=str(tmp_path / "bought.smi.gz"))
    monkeypatch.setattr(routes_tab, "_MOST_UNPACKED", 30_000)
    with pytest.raises(ValueError, match=r"^bought\.smi\.gz is not a stock"):
        plan_routes(route_task, "CCO", stock_file=str(tmp_path / "bought.smi.gz"))


def test_a_mistake_takes_the_place_of_the_last_answer(route_task):
    page = build_demo(route_task)
    (plan,) = (function.fn for function in page.fns.values() if function.api_name == "plan")
    answers = plan("C1<b>", 0, 2, "", None, False, 60, "", False)
    told, *files = next(answers)
    assert "'C1&lt;b&gt;' is not a molecule" in told.replace("&#x27;", "'") and "<svg" not in told
    assert [file.visible for file in files] == [False] * 5 and {file.value for file in files} == {None}
    with pytest.raises(gr.Error, match="is not a molecule"):
        next(answers)


def test_without_a_route_the_reason():
    plan = Plan("CCO", [Candidate("<i>", -1.0, 1, problem="'<i>' is no route", rank=1)])
    html = plan_html(plan)
    assert "no route was found" in html and "&lt;i&gt;" in html and "<i>" not in html


def test_a_long_list_is_cut():
    routes = [Route("CCO", (Route("C" * length),)) for length in range(1, 15)]
    candidates = [
        Candidate(route.to_string(), -1.0, 1, route, missing=(), rank=rank) for rank, route in enumerate(routes, 1)
    ]
    html = plan_html(Plan("CCO", candidates))
    assert html.count("<svg") == 10 and "the first 10 are shown" in html and html.count("✓ purchasable") == 10


@pytest.mark.parametrize("beams", [1, 3])
def test_a_text_comes_in_pieces_and_is_that_of_the_task(text_task, beams):
    pieces = list(write(text_task, TEXT, beams=beams, max_new_tokens=30))
    [work] = text_task.works([TEXT], beams=beams, max_new_tokens=30)
    [[best]] = text_task.write([work])
    expected = best.text
    assert pieces[-1] == expected and len(expected) > 5
    assert all(later.startswith(earlier) for earlier, later in pairwise(pieces))
    assert len(pieces) > 10 if beams == 1 else pieces == [expected]


def test_a_closed_stream_stops_the_model(text_task, monkeypatch):
    steps, pieces_read = [], threading.Event()

    def counted(self, ids, scores):
        steps.append(ids.shape[1])
        if len(steps) > 5:  # by then, the reader has stopped
            assert pieces_read.wait(20)
        return asked(self, ids, scores)

    asked = Watch.__call__
    monkeypatch.setattr(Watch, "__call__", counted)
    stream = write(text_task, TEXT, max_new_tokens=200)
    next(stream)
    # `close` waits for the thread: what it waits for comes a little later
    threading.Timer(0.1, pieces_read.set).start()
    stream.close()
    assert 1 <= len(steps) <= 7  # of 200
    assert not [thread for thread in threading.enumerate() if thread.name == "weft-writes"]


def test_too_long_a_wait_ends(text_task, route_task, monkeypatch):
    monkeypatch.setattr(asking, "SECONDS", 0.0)
    with pytest.raises(gr.Error, match="longer than 0 s"), reasons():
        list(write(text_task, TEXT))
    with pytest.raises(Unwanted):
        plan_routes(route_task, "CCO")


def test_a_failure_of_the_model_is_no_empty_text(text_task, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(text_task.model, "generate", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(write(text_task, TEXT))


@pytest.mark.parametrize(
    ("text", "reason"), [("", "The text is empty"), ("x" * (MOST_CHARACTERS + 1), "at most 2000")]
)
def test_what_cannot_be_written(text_task, text, reason):
    with pytest.raises(ValueError, match=reason):
        next(write(text_task, text))


def test_numbers():
    assert numbers(" 1, 2.5,") == [1.0, 2.5] and numbers("") == numbers(None) == []
    with pytest.raises(ValueError, match="'1;2'"):
        numbers("1;2")


def test_reasons_are_no_html():
    with pytest.raises(gr.Error) as error, reasons():
        raise ValueError("<img src=x onerror=alert(1)>" + "y" * 1000)
    assert error.value.message.startswith("&lt;img") and len(error.value.message) < 800


def test_everything_waits_for_one_model(route_task, text_task):
    demo = build_demo(route_task, text_task)
    slow = [function for function in demo.fns.values() if function.concurrency_id == "model"]
    assert len(slow) == 2 and {function.concurrency_limit for function in slow} == {1}
    assert demo.analytics_enabled is False
    assert demo.get_config_file()["title"] == "Weft"


@pytest.mark.parametrize("features", [0, 1])
def test_the_field_of_conditions_is_shown_where_the_model_has_some(features):
    task = TextTask(*tiny_text_model(["one two"], num_condition_features=features))
    blocks = build_demo(text_model=task).blocks.values()
    (field,) = [block for block in blocks if getattr(block, "label", None) == "Conditions"]
    assert field.visible is (features > 0)
