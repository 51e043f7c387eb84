"""The benchmark of drafts: the same routes, its counts and its table."""

import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.benchmarks import drafts
from weftformer.modeling.decoding_ahead import AheadStepper
from weftformer.routes import Route, write_routes
from weftformer.tokenization import build_route_tokenizer


def test_a_row_for_each_search(tmp_path, capsys):
    torch.manual_seed(0)
    config = WeftConfig.from_preset("dms-tiny", d_model=16, encoder_ffn_dim=16, decoder_ffn_dim=16, encoder_layers=1,
                                    decoder_layers=1)  # fmt: skip
    WeftForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    build_route_tokenizer().save_pretrained(tmp_path / "model")
    write_routes(tmp_path / "routes.json", [Route("CCO", (Route("CC"), Route("O")))])
    advance = AheadStepper.advance
    drafts.main(["--model", str(tmp_path / "model"), "--routes", str(tmp_path / "routes.json"), "--beams", "1", "2",
                 "--batch-sizes", "1", "--runs", "1", "--new-tokens", "12", "--draft-tokens", "4"])  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines] == ["beams", "---", "1", "2"]
    assert all(line.endswith("| same |") for line in lines[2:])
    assert AheadStepper.advance is advance
