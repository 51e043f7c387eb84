"""The jobs for a GPU: what the page says of them, and that they end in time."""

import gzip
import itertools
import json
import sys
import tarfile
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from weftformer.benchmarks import gpu
from weftformer.recipes import archives, gpu_queue, timed_training
from weftformer.recipes.gpu_queue import JOBS, RecordedData, run, run_until


def test_the_page_lists_all_jobs_with_their_minutes():
    page = Path(gpu_queue.__file__).with_name("gpu_queue.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert {row[0].strip("| `"): int(row[1]) for row in rows} == {name: job.minutes for name, job in JOBS.items()}
    assert list(JOBS) == [row[0].strip("| `") for row in rows]
    for job in JOBS.values():
        gpu.chosen_cases(job.checks)  # raises for one that does not exist


def test_a_command_ends_before_the_time_is_over(tmp_path):
    begun = time.monotonic()
    assert not run_until([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log", begun)
    assert time.monotonic() - begun < 30
    assert run_until([sys.executable, "-c", "print('done')"], tmp_path / "log", begun + 60)
    assert (tmp_path / "log").read_text() == "done\n"


@pytest.fixture
def source(tmp_path, monkeypatch) -> RecordedData:
    monkeypatch.setattr(gpu_queue, "FOLDER", tmp_path / "queue")
    monkeypatch.setattr(gpu_queue, "WHEELS", ())
    monkeypatch.setattr(archives, "call", lambda words: None)
    (tmp_path / "data").mkdir()
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            with gzip.open(tmp_path / "data" / f"{part}.{language}.gz", "wt") as file:
                file.writelines(f"A {language} {number}\n" for number in range(9))
    return RecordedData(tmp_path / "data", 4)


def test_archives_have_the_first_rows_and_a_limited_size(source, monkeypatch):
    gpu_queue.prepare(["multi30k"], source.data, source.rows, "3.12")
    with tarfile.open(gpu_queue.FOLDER / "multi30k.tar.xz") as archive:
        files = {Path(name).name: archive.extractfile(name).read().decode() for name in archive.getnames()[1:]}
    assert files["train.de"] == "".join(f"a de {number}\n" for number in range(4))
    assert len(files) == 6
    monkeypatch.setattr(gpu_queue, "MAX_BYTES", 10)
    with pytest.raises(ValueError, match="the limit is 10"):
        gpu_queue.prepare(["multi30k"], source.data, None, "3.12")


def test_held_out_reactions_are_drawn_with_a_seed(source):
    file = source.data / "uspto-full-part.jsonl.gz"
    with gzip.open(file, "wt") as rows:
        rows.writelines(json.dumps({"product": "C" * number}) + "\n" for number in range(1, 41))
    gpu_queue.FOLDER.mkdir()
    whole = RecordedData(source.data, None)
    samples = [
        gzip.decompress(whole.held_out(file.name, 5, source.data).read_bytes()).split(b"\n")[:-1] for _ in range(2)
    ]
    assert samples[0] == samples[1] and len(set(samples[0])) == 5


def test_the_next_job_begins_if_one_fails(source, capsys):
    assert run(["routes", "forward"], 0.1, source.data / "results", "cpu") == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines if "No such file" in line] == ["routes", "forward"]
    assert [line.partition(",")[0] for line in lines if line.endswith("no results")] == ["routes", "forward"]


def test_a_training_follows_the_clock(tmp_path, monkeypatch):
    now = itertools.count()  # a second for each look
    monkeypatch.setattr(timed_training, "time", SimpleNamespace(monotonic=lambda: next(now)))
    (tmp_path / "pairs.csv").write_text("source,target\n" + "".join(f"a{n},b{n}\n" for n in range(40)))
    words = f"--train-file {tmp_path}/pairs.csv --output-dir {tmp_path}/out --preset modern-tiny --use-cpu true"
    words += " --config-overrides d_model=24,head_dim=4 --max-steps 1000000 --warmup-steps 4 --learning-rate 1"
    words += " --logging-steps 1"
    words += " --per-device-train-batch-size 4 --eval-strategy no --do-eval true --predict-with-generate false"
    timed_training.main(Namespace(end=50, words=[*words.split(), "--validation-split", "4"]))
    history = json.loads((tmp_path / "out/trainer_state.json").read_text())["log_history"]
    rates = [row["learning_rate"] for row in history if "learning_rate" in row]
    assert rates[:5] == [0, 0.25, 0.5, 0.75, 1] and rates[4:] == sorted(rates[4:], reverse=True)
    # a step looks at the clock once, and once for each of two groups of weights
    assert len(rates) == 50 // 3 and rates[-1] < 0.2
    figures = gpu_queue._figures(tmp_path / "out")
    assert None not in figures.values() and figures["global_step"] == 16
    assert (tmp_path / "out/model.safetensors").exists()
