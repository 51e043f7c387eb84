"""Work that several processes share without Ray: shards, parts, missing rows, and resuming."""

import importlib.util
import json

import pytest

from weftformer.distributed import job
from weftformer.distributed.parts import Parts
from weftformer.distributed.tasks import batches_of
from weftformer.inference import lines
from weftformer.scripts import cli

LINES = ["one two three", "", "two", "three one four one five nine two six", "six six", "nine five one", "two two"] * 3


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lines, "_BATCHES", 2)  # several windows in a few lines
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")


def generate(folder, *words):
    return cli.main(
        ["generate", "--model", folder, "--input-file", "lines.txt", "--batch-size", "2", "--no-progress", *words]
    )


@pytest.mark.parametrize("window", [1, 4])
def test_shards_cover_all_items_and_keep_windows_together(window):
    items = list(enumerate("abcdefghijklmnopqrstuvwxyz"))
    shards = [job.of_shard(items, f"{which}/3", window) for which in (1, 2, 3)]
    assert sorted(item for shard in shards for item in shard) == items
    assert [index // window % 3 for index, _ in shards[1]] == [1] * len(shards[1])
    for wrong in ("0/3", "4/3", "3", "a/b", "1/0"):
        with pytest.raises(ValueError, match="the third of sixteen"):
            job.shard(wrong)


def test_a_missing_ray_is_named_before_the_model_is_read(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find(name))
    assert generate("no-model", "--workers", "2", "--output-file", "parts") == 1
    assert 'pip install -e ".[ray]"' in capsys.readouterr().err


def test_batches_are_sorted_by_cost_and_become_smaller():
    items = [(index, "C" * (index * 7 % 50)) for index in range(50)]
    batches = batches_of(items, len, max_size=5, workers=2)
    handed = [item for batch in batches for item in batch]
    assert (
        sorted(handed) == items and [len(text) for _, text in handed] == sorted(map(len, dict(items).values()))[::-1]
    )
    sizes = [len(batch) for batch in batches]
    assert sizes[0] == 5 and sizes == sorted(sizes, reverse=True) and sizes[-8:] == [1] * 8


@pytest.mark.parametrize("options", [["--json-lines", "--beams", "2"], ["--sample", "--seed", "3"]])
def test_shards_are_joined_to_what_one_process_writes(texts, tmp_path, capsys, options):
    assert generate(texts, "--output-file", "alone", *options) == 0
    join = ["generate", "--join", "parts", "--output-file", "joined", *options]
    for shard in ("2/2", "1/2"):
        assert generate(texts, "--output-file", "parts", "--shard", shard, *options) == 0
        if shard == "2/2":
            assert cli.main(join) == 1
            # sampled lines of a window stay together
            lacking = (
                "12 of 21 rows, numbers 1, 2, 3, 4, 9, " if "--sample" in options else "11 of 21 rows, numbers 1, 3, "
            )
            assert f"lacks {lacking}" in capsys.readouterr().err
            assert not (tmp_path / "joined").exists()
    assert cli.main(join) == 0
    alone, of_shards = ((tmp_path / name).read_text().splitlines() for name in ("alone", "joined"))
    if "--json-lines" not in options:
        assert of_shards == alone
        return
    for row, expected in zip(map(json.loads, of_shards), map(json.loads, alone), strict=True):
        assert row.pop("score") == pytest.approx(expected.pop("score"), abs=1e-4)
        assert row == expected


def test_finished_rows_are_kept_and_other_settings_refused(texts, tmp_path, capsys):
    words = ["--output-file", "parts", "--shard", "1/1", "--beams", "1"]
    assert generate(texts, *words) == 0
    assert "21 lines in parts" in (out := capsys.readouterr().out) and "21 done (100.0% done)" in out
    _, first = sorted(tmp_path.glob("parts/part-*"))  # the first batch is written at once
    rows = first.read_text().splitlines(keepends=True)
    assert all(json.loads(row)["state"] == "done" and json.loads(row)["seconds"] > 0 for row in rows)
    before = {file: file.read_bytes() for file in tmp_path.glob("parts/*")}
    assert generate(texts, *words) == 0 and {file: file.read_bytes() for file in tmp_path.glob("parts/*")} == before
    lines_on_disk = rows[:3] + rows[5:]
    first.write_text("".join(lines_on_disk))
    assert generate(texts, *words) == 0
    new = set(tmp_path.glob("parts/part-*")) - set(before)
    numbers = [json.loads(row)["number"] for file in new for row in file.read_text().splitlines()]
    assert sorted(numbers) == sorted(json.loads(row)["number"] for row in rows[3:5])
    capsys.readouterr()
    assert generate(texts, *words[:-1], "2") == 1
    assert "--beams 1, but this run has --beams 2" in capsys.readouterr().err
    (tmp_path / "lines.txt").write_text("one\n")
    assert generate(texts, *words) == 1 and "21 rows, and this one has 1" in capsys.readouterr().err


def test_of_two_rows_of_one_number_the_first_counts(tmp_path):
    parts = Parts((tmp_path / "parts").as_uri())
    parts.begin("routes plan", {}, ["a", "b"])
    for text in ("first", "again"):
        parts.add([f'{{"number":{number},"state":"done","text":"{text}"}}\n' for number in (2, 1)])
        parts.flush()
    assert [row["text"] for row in parts.rows("routes plan")] == ["first", "first"]
    assert parts.states() == {0: "done", 1: "done"}
    with pytest.raises(ValueError, match="routes plan"):
        parts.begin("generate", {}, ["a", "b"])


def cut(kept):
    return lambda whole: whole[: len(whole) + kept if kept < 0 else kept]


def replace(old, new):
    return lambda whole: whole.replace(old.encode(), new if isinstance(new, bytes) else new.encode())


# what is done to a file: it is cut off, a row is of another job or no UTF-8, or a field of the job has another type
DAMAGES = {
    "part": [
        *map(cut, (0, 3, 40, -4, -2)),
        *(replace('"number":2,"state":"done"', row) for row in ('"number":3,"state":"done"', '"number":0,"state":"done"')),
        replace('"number":2,"state":"done"', '"number":2,"state":"odd"'), replace("é", b"\xff"),
    ],
    "job.json": [
        *map(cut, (0, 3, 40, -4, -2)), replace('"rows": 2', '"rows": "2"'), replace('"settings": {}', '"settings": [1]'),
        replace('"command": "generate"', '"command": null'),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "damage"), [(name, damage) for name in DAMAGES for damage in DAMAGES[name]])
def test_damaged_files_of_a_job_are_named(tmp_path, name, damage):
    parts = Parts(str(tmp_path / "parts"))
    parts.begin("generate", {}, ["a", "b"])
    parts.add([f'{{"number":{number},"state":"done","text":"with é at the end"}}\n' for number in (1, 2)])
    (file,) = (tmp_path / "parts").glob(f"{name}*")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert file.read_bytes() != whole
    calls = [lambda: list(parts.rows("generate"))]
    if "é".encode() in file.read_bytes() or name == "job.json":  # texts are decoded when they are read
        calls.append(lambda: (parts.begin("generate", {}, ["a", "b"]), parts.states()))
    for call in calls:
        with pytest.raises(ValueError, match=rf"parts/{file.name} is damaged.*again"):
            call()
    if name == "part":
        file.unlink()
        assert parts.states() == {}
