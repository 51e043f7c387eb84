"""The search as one file: the texts of `generate`, in Python and in C++."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from weftformer import exporting
from weftformer.exporting import SearchGraph, differing_outputs, search, write_search
from weftformer.modeling.decoding import graph
from weftformer.scripts.cli import main
from weftformer.tokenization import build_route_tokenizer

from ..models import run_loop

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exporting.md"
BEAMS = {"num_beams": 3, "length_penalty": 2.0}


@pytest.mark.parametrize("beams", [{}, BEAMS], ids=["greedy", "beams"])
@pytest.mark.parametrize("preset", ["modern-tiny", "dms-flash-10m"])
def test_texts_are_those_of_generate(small, monkeypatch, preset, beams):
    model = small(preset, eos_token_id=[2, 9])
    model.generation_config.update(**beams)
    written = SearchGraph(model)
    monkeypatch.setattr(graph, "while_loop", run_loop)
    monkeypatch.setattr(search.torch._inductor, "aoti_load_package", lambda file: written)
    assert differing_outputs(model, Path()) == 0
    written.loop = SearchGraph(small(preset, seed=1)).loop
    assert differing_outputs(model, Path()) > 0


SPARSE = {"encoder_mlp_layer_types": "sparse", "decoder_mlp_layer_types": "sparse", "num_experts": 4}
# fields, saved settings, and a word of the reason
REFUSED = [
    ({}, {"do_sample": True}, "do_sample=True"),
    ({}, {"eos_token_id": None}, "no end token"),
    ({}, {"min_new_tokens": 2}, "logits processors"),
    (SPARSE | {"expert_capacity_factor": 1.5}, {}, "capacity"),
    (SPARSE | {"router_type": "noisy_top_k", "router_noise": "always"}, {}, "noisy"),
    ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, {}, "length"),
]


@pytest.mark.parametrize(("fields", "settings", "reason"), REFUSED)
def test_other_searches_and_models_that_change_with_the_call_are_refused(small, fields, settings, reason):
    model = small("modern-tiny", **fields)
    model.generation_config.update(**settings)
    with pytest.raises(ValueError, match=reason):
        SearchGraph(model)


def test_the_command_deletes_what_differs(small, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "model"
    small("dms-flash-10m", decoder_layers=1, num_condition_features=0).save_pretrained(folder)
    build_route_tokenizer().save_pretrained(folder)
    monkeypatch.setattr(exporting, "write_search", lambda model, staging: (staging / "search.pt2").touch())
    monkeypatch.setattr(exporting, "differing_outputs", lambda model, staging: 0.25)
    assert main(["export", str(folder), str(tmp_path / "out"), "--format", "search"]) == 1
    assert "share of texts that differ 2.5e-01" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.integration
def test_the_program_of_the_page_runs_without_python(small, tmp_path):
    model = small("modern-tiny", decoder_layers=1)
    model.generation_config.update(**BEAMS)
    write_search(model, tmp_path)
    assert differing_outputs(model, tmp_path) == 0
    text = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"```cpp\n(.*?)```", text, re.DOTALL)
    (tmp_path / "search.cpp").write_text(program)
    command = "".join(re.findall(r"^(?:TORCH=|g\+\+ ).*\n", text, re.MULTILINE))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=os.environ | {"PATH": path}, check=True)
    sources = [[5, 6, 7, 8], [9, 10, 11, 12, 13, 14]]
    given = "".join(f"{' '.join(map(str, ids))}\n" for ids in sources)
    done = subprocess.run(
        ["./search", "search.pt2"], cwd=tmp_path, input=given, capture_output=True, text=True, check=True
    )
    expected = [model.generate(torch.tensor([ids]), max_new_tokens=31)[0].tolist() for ids in sources]
    assert [[int(word) for word in line.split()] for line in done.stdout.splitlines()] == expected
