"""POST /translate: texts from a model behind the server are those of each text alone."""

import time

import pytest

from weftformer.inference import search
from weftformer.serving import TranslateTask

from ..models import tiny_text_model
from .conftest import running, soon

TEXTS = ["one two three", "two", "three one four one five nine two six", "six six", "", "nine five"]


@pytest.fixture(scope="module")
def text_task():
    return TranslateTask(*tiny_text_model([*TEXTS, "four five six seven eight nine"], max_source_positions=40))


@pytest.mark.parametrize("has_outputs", [False, True])
def test_the_page_of_a_text_model_has_its_example_and_its_settings(tmp_path, has_outputs):
    model, tokenizer = tiny_text_model(TEXTS)
    tokenizer.init_kwargs["text_columns"] = {"source": "question", "target": "answer"}
    model.name_or_path = str(tmp_path)
    model.generation_config.num_beams, model.generation_config.max_new_tokens = 3, 7
    if has_outputs:
        rows = 'source,expected,written,is_right\n"six, <six>",a,a,True\nnine,b,c,False\ntwo,d,d,True\n'
        (tmp_path / "validation_outputs.csv").write_text(rows)
    task = TranslateTask(model, tokenizer)
    with running(task, max_batch_size=4) as server:
        page = server.client.get("/").text
    example = "six, &lt;six&gt;\nnine" if has_outputs else "first question\nsecond question"
    assert f"{example}</textarea>" in page and 'value="3"' in page and "SMILES" not in page
    with running(task, max_batch_size=4, api_key="secret") as server:  # the page needs no key
        assert "first question\nsecond question</textarea>" in server.client.get("/").text
    (input,) = task.inputs(["six"])
    assert (input.settings.beams, input.settings.max_new_tokens) == (3, 7)


def answers_together(task, bodies):
    """Return the answers to simultaneous requests, each with its own body."""
    with running(task, max_batch_size=4) as server:
        got = [server.later(body) for body in bodies]
        soon(lambda: all(got), 60)
    assert [response.status_code for (response,) in got] == [200] * len(got), got[0][0].text
    return [response.json() for (response,) in got]


@pytest.mark.parametrize("in_batches", [False, True])
def test_translations_equal_those_of_each_text_alone(text_task, monkeypatch, in_batches):
    if in_batches:
        monkeypatch.setattr(search, "reason_against", lambda model, **settings: "in batches")
    sizes, open_pool = [], text_task.open_pool

    def opened(key, watch):
        pool = open_pool(key, watch)
        step = pool.step

        def counted():
            sizes.append(len(pool))
            time.sleep(0.01)
            return step()

        pool.step = counted
        return pool

    monkeypatch.setattr(text_task, "open_pool", opened)
    bodies = [{"texts": text, "beams": beams, "max_new_tokens": 12} for text in TEXTS[:4] for beams in (1, 3)]
    answers = answers_together(text_task, bodies)
    assert max(sizes) > 1
    for body, answer in zip(bodies, answers, strict=True):
        inputs = text_task.tokenizer([body["texts"]], return_tensors="pt")
        ids = text_task.model.generate(**inputs, num_beams=body["beams"], do_sample=False, max_new_tokens=12)
        assert answer["translations"] == text_task.tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert len({answer["translations"][0] for answer in answers}) > 1
