"""The report of a training run: what it says to do next, its page, and the table of outputs."""

import csv
import re
import shlex

import pytest

from weftformer.training.metrics import Row
from weftformer.training.report import TrainingReport

WRONG = Row("2 <b>\nlines", "84.1 s", "84.0 s")


def report(folder, rows, losses=(0.5, 0.2), scores=(0.5, 0.6), words=("--seed", "1"), **further):
    history = [{"loss": 2.0, "epoch": 0.5}, {"epoch": 2, **further}]
    for epoch, (loss, score) in enumerate(zip(losses, scores, strict=True), 1):
        history.append({"eval_loss": loss, "eval_exact_match": score, "epoch": epoch})
    facts, settings = {"files": "pairs.csv"}, {"learning rate": 1e-3}
    folder = str(folder / "my run")
    longer = {"--num-train-epochs": None, "--epochs": 80}
    return TrainingReport(folder, history, rows, facts, settings, longer, "pairs.csv", words)


LONGER, MORE, UNCERTAIN = "still falling. Train for longer:", "Add pairs to pairs.csv, and train again:", "uncertain"


@pytest.mark.parametrize(
    ("right", "wrong", "losses", "expected"),
    [
        (44, 6, (0.5, 0.2, 0.25), MORE),  # 76 to 94% are right, which alone says nothing
        (44, 6, (0.5, 0.22, 0.22, 0.22), None),
        (44, 6, (0.5, 0.4, 0.3, 0.2), LONGER),
        (44, 6, (0.2,), None),
        (0, 60, (7.0,), None),  # after eight steps
        (0, 60, (7.0, 6.0), LONGER),
        (0, 60, (0.5, 0.5, 0.5), MORE),
        (30, 30, (0.5, 0.2, 0.22), MORE),
        (190, 0, (0.2, 0.5), None),  # surely good
        (198, 2, (0.5, 0.2), None),
        (10, 0, (0.5, 0.2), UNCERTAIN),  # nothing is wrong
        (0, 0, (0.2, 0.5), None),
    ],
)
def test_advice_follows_from_the_interval_and_the_loss(tmp_path, right, wrong, losses, expected):
    """The scores of the evaluations, which differ by chance, do not matter."""
    for scores in ([0.9, *[0.88] * len(losses)], [0.1, *[0.9] * len(losses)]):
        rows = [Row("a", "b", "b")] * right + [WRONG] * wrong
        advice = report(tmp_path, rows, losses, scores[: len(losses)]).advice
        assert expected in advice[0] if expected else advice == ()
        assert len(advice) == {None: 0, UNCERTAIN: 1}.get(expected, 2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--seed 1 --output-dir 'my run' --epochs 40", "--seed 1 --output-dir '{}-2' --epochs 80"),
        ("--output_dir=x --num_train_epochs 40 --seed -1", "--seed -1 --output-dir '{}-2' --epochs 80"),
        ("--resume-from-checkpoint --seed 1 --overwrite_output_dir", "--seed 1 --output-dir '{}-2' --epochs 80"),
        (
            "run.yaml",
            "run.yaml --overwrite-output-dir false --resume-from-checkpoint false --output-dir '{}-2' --epochs 80",
        ),
    ],
)
def test_commands_have_each_option_once(tmp_path, words, expected):
    falling = report(tmp_path, [WRONG], words=shlex.split(words))
    assert falling.advice[1] == "weftformer train " + expected.format(tmp_path / "my run")
    (tmp_path / "my run-2").mkdir()
    assert "my run-3' --epochs" in falling.advice[1]
    assert len(report(tmp_path, [WRONG], words=()).advice) == 1


def test_the_last_lines_are_the_score_the_wrong_pairs_and_the_advice(tmp_path):
    lines = str(report(tmp_path, [Row("a", "b", "b")] * 3 + [WRONG])).splitlines()
    assert lines[0] == "Exact match 75% [30.1, 95.4] on 4 validation pairs: 1 is wrong:"
    assert lines[1:4] == ["source    2 <b> lines", "expected  84.1 s", "written   84.0 s"]
    assert lines[4:] == [
        "The validation loss was still falling. Train for longer:",
        f"  weftformer train --seed 1 --output-dir '{tmp_path}/my run-2' --epochs 80",
    ]
    assert str(report(tmp_path, [])) == "No texts were scored."


def test_the_wrong_rows_are_sorted_once(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr("weftformer.training.report.wrong_rows", lambda rows: counted.append(rows) or list(rows))
    made = report(tmp_path, [WRONG])
    assert str(made) and made._repr_html_() and made.advice and counted == [[WRONG]]


def test_the_files_hold_curves_marks_and_all_outputs(tmp_path):
    rows = [Row("a", "b", "b"), WRONG, Row("c" * 9, "d", "")]
    made = report(tmp_path, rows)
    (tmp_path / "my run").mkdir()
    made.save()
    page = (tmp_path / "my run" / "report.html").read_text("utf8")
    assert page.endswith(made._repr_html_()) and "<title>my run</title>" in page
    assert "http" not in page.split("</style>")[-1] and "<script" not in page
    assert "2 &lt;b&gt;\nlines" in page
    assert "84.<mark>1</mark> s" in page and "84.<mark>0</mark> s" in page and "<mark>d</mark>" in page
    # two epochs in 440 pixels; losses of 2, 0.5 and 0.2 in 160 pixels from 10 down to 0.1; scores of 50 and 60 from
    # 100 down to 40
    curves = re.findall(r'<polyline points="([^"]+)"', page)
    assert curves == ["110.0,55.9", "220.0,104.1 440.0,135.9", "220.0,133.3 440.0,106.7"]
    assert page.count("<td>1 of 1</td>") == 1 and page.count("<td>0 of 1</td>") == 2 and "9 characters" in page
    assert "pairs.csv" in page and "0.001" in page
    with (tmp_path / "my run" / "validation_outputs.csv").open(newline="", encoding="utf8") as file:
        table = list(csv.reader(file))
    assert table == [["source", "expected", "written", "is_right"], ["a", "b", "b", "True"],
                     [*WRONG, "False"], ["c" * 9, "d", "", "False"]]  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_both_schemes(tmp_path, browser, scheme):
    (tmp_path / "my run").mkdir()
    report(tmp_path, [Row("a", "b", "b"), WRONG, Row("c" * 99, "d", "")], eval_bleu=9.0, eval_chrf=9.0).save()
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page, problems = context.new_page(), []
    page.on("console", lambda message: problems.append(message.text))
    page.goto((tmp_path / "my run" / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 390 and problems == []
    ink, ground = (
        page.eval_on_selector(".weft-report", f"part => getComputedStyle(part).{name}")
        for name in ("color", "backgroundColor")
    )
    assert (ink, ground) == (
        ("rgb(0, 0, 0)", "rgb(255, 255, 255)") if scheme == "light" else ("rgb(255, 255, 255)", "rgb(18, 18, 18)")
    )
    context.close()
