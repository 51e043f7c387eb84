"""The commands of README run and print what it shows except for figures."""

import csv
import gzip
import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.conversion import SOURCES, convert
from weftformer.routes.shipped import STOCK
from weftformer.scripts import cli

from .test_pages import ROOT, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    """Return the words of the `weftformer` commands in a text, in order, without the first word. Files of the
    repository get their whole paths.
    """
    lines = "\n".join(blocks(text, "bash")).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [
        [str(ROOT / word) if word.startswith(("docs/", "training/")) else word for word in rest]
        for first, *rest in filter(None, words)
        if Path(first).name == "weftformer"
    ]


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def printed(name: str) -> list[str]:
    """Return the lines that README shows as output."""
    return re.findall(rf"<!-- printed: {name} -->\n```text\n(.*?)```", README, flags=re.DOTALL)[0].splitlines()


def shape(line: str) -> str:
    """Return a line without its figures and spaces."""
    return " ".join(re.sub(r"\d[\d,.]*", "#", line).split())


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_is_short():
    lines = README.splitlines()
    assert len(lines) <= 115 and max(map(len, lines)) <= 120
    assert "`make demo`" in README and "`make test`" in README


def test_every_door_opens_with_the_same_sentence():
    sentence = re.search(r"# Weft\n+(.+?\.)\s`", README, flags=re.DOTALL)[1]
    pages = [(ROOT / "docs" / "index.md").read_text(), cli.build_parser(())[0].format_help()]
    pages += [(ROOT / name).read_text() for name in ("pyproject.toml", "mkdocs.yml")]
    assert all(" ".join(sentence.split()) in " ".join(page.split()) for page in pages)


def test_the_picture_is_what_the_command_draws():
    pytest.importorskip("rdkit")
    (words,) = [words for words in commands(README) if "draw" in words]
    stock = Path("stock.smi")
    stock.write_text((ROOT / "docs" / "bought.smi").read_text())  # a cache is written beside it
    words[words.index("--stock") + 1] = str(stock)
    assert cli.main(words) == 0
    assert Path("route.svg").read_text() == (ROOT / "docs" / "route.svg").read_text()


def test_the_starter_tidies_a_table(capsys):
    _, tidy = commands(section("Try the included models"))
    entries = Path(tidy[-1]).read_text(encoding="utf-8").replace('"', "").splitlines()[1:]
    assert cli.main(tidy) == 0
    answers = capsys.readouterr().out.splitlines()
    assert all(f"`{entry}`" in section("Try the included models") for entry in entries)
    assert answers == printed("included")[-len(entries) :]


@pytest.mark.integration
def test_targets_are_planned(capsys):
    pytest.importorskip("rdkit")
    lidocaine, _ = commands(section("Try the included models"))
    safinamide, _, serve = commands(section("You have a target molecule"))
    assert cli.main(lidocaine) == 0 and cli.main(safinamide) == 0 and serve == ["serve"]
    found = {shape(line) for line in capsys.readouterr().out.splitlines()}
    for line in printed("included")[:-4] + printed("plan"):
        assert shape(line) in found, line
    assert Path("routes.html").is_file()


def test_a_converted_bart_base_has_the_parameters():
    config = BartConfig(
        d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072,
    )  # fmt: skip
    types = ["dense", "sparse"] * 3  # the default of `weftformer upcycle`
    experts = {"num_experts": 4, "encoder_mlp_layer_types": types, "decoder_mlp_layer_types": types}
    with torch.device("meta"):  # shapes take no time
        weights = BartForConditionalGeneration(config).state_dict()
        copies = ("embed_tokens.weight", "lm_head.weight")  # which files do not have
        weights = {name: value for name, value in weights.items() if not name.endswith(copies)}
        dense = convert(weights, SOURCES["bart"], source_config=config.to_dict()).config.to_dict()
        sizes = [
            WeftForConditionalGeneration(WeftConfig.from_dict(fields)).num_parameters()
            for fields in (dense, dense | experts)
        ]
    assert [f"{size:,}" for size in sizes] == re.findall(r"[\d,]{11}", "\n".join(printed("convert")))[:2]


@pytest.mark.integration
def test_pairs_are_learned_and_new_lines_answered(capsys):
    rows = [f"{first} {second},{second} {first}" for first in "abcdefgh" for second in "abcdefgh"]
    Path("pairs.csv").write_text("question,answer\n" + "\n".join(rows) + "\n")
    Path("new.csv").write_text("question\na b\nc d\ne f\n")
    train, generate = commands(section("You have a csv of pairs"))
    assert cli.main([*train, "--max-steps", "2", "--use-cpu"]) == 0
    assert cli.main(generate) == 0
    assert Path("answers.txt").read_text().count("\n") == 3
    found = [shape(line).partition(":")[0] for line in "".join(capsys.readouterr()).splitlines()]
    for line in printed("csv"):
        assert shape(line).partition(":")[0] in found, line


def row(page: str, start: str, column: int) -> str:
    """Return a cell of the first row of a page that begins with these cells."""
    (line, *_) = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith(start)]
    return line.split(" | ")[column].strip("|* ")


def test_figures_are_those_of_the_tables():
    times = section("How it compares")
    bart, weft, compiled = re.findall(r"5 beams.*BART: (.+) s \| (.+) s; compiled (.+) times", times)[0]
    assert row("benchmarks/README.md", "| BART (transformers) | 8", 1).startswith(f"{bart} s (")
    assert row("benchmarks/README.md", "| Weft | 4", 1).startswith(f"{weft} s (")
    plain, search = (float(row("docs/speed.md", "| 500 |", column)) for column in (4, 5))
    assert f"{plain / search:.1f}" == compiled
    titles = re.findall(r"titles.*Marian: (.+) ms \| (.+) ms; compiled (.+) ms", times)[0]
    assert titles == tuple(row("docs/speed.md", "| 1 | 1 |", column) for column in (2, 4, 5))
    card = re.findall(r"H200 .*: (.+) ms per token \| .*: (.+) ms per token", times)[0]
    assert card == tuple(row("docs/gpu.md", f"| greedy {name} |", 1) for name in ("plain", "static"))
    training = re.findall(r"training.*BART: (\d+) \| (\d+) \|", times)[0]
    for name, tokens in zip(("BART (transformers) | 2.92", "Weft | 2.64"), training, strict=True):
        assert row("benchmarks/README.md", f"| {name} s", 2) == f"{tokens} target tokens/s"

    planning = " ".join(section("You have a target molecule").split())
    top_1, top_10 = re.findall(r"top-1 accuracy is (\d+)% and top-10 accuracy is (\d+)%", planning)[0]
    best = "| Included model, the same 500, `num_augmentations=5` |"
    for percent, column in ((top_1, 1), (top_10, 4)):
        assert f"{float(row('docs/results.md', best, column).split()[0]):.0f}" == percent
    drugs = re.findall(r"Of (\d+) approved drugs that were drawn at random, (\d+) were solved", planning)[0]
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert (
        drugs[0] == "60" and results.count("Sixty drugs") == 1 and f"included stock. {drugs[1]} are solved" in results
    )
    targets, solved = re.findall(r"Of (\d+) recorded targets .* had seen, (\d+) were solved", planning)[0]
    assert row("docs/results.md", "| solved:", 1).startswith(f"{int(solved) / int(targets):.0%} [")
    assert f"this version ({targets} targets)" in results
    figures = json.loads((ROOT / "routes" / "shipped" / "weft-routes" / "about.json").read_text())["figures"]
    assert figures.startswith(f"Of {targets} recorded targets") and f" {solved} were solved" in figures
    with gzip.open(STOCK, "rt", encoding="utf-8", newline="") as stock:
        rows = list(csv.DictReader(stock))
    assert f"has {len(rows):,} molecules: {sum(bool(row['zinc']) for row in rows):,} in ZINC20" in planning


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)", re.sub(r"```.*?```", "", README, flags=re.DOTALL)):
        assert link.startswith("https://") or (ROOT / link).exists(), link
