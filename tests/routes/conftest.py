"""A planner that knows four routes by heart."""

import pytest
import torch

pytest.importorskip("rdkit")

from transformers import DataCollatorForSeq2Seq

from weft import WeftConfig, WeftForConditionalGeneration
from weft.routes import Route
from weft.routes.planner import RoutePlanner
from weft.tokenization import build_route_tokenizer, encode_route, encode_source

KNOWN = [
    Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1"))),
    Route("CCOC(C)=O", (Route("CC(=O)O"), Route("CCO"))),
    Route("CS(=O)(=O)NCC", (Route("CS(=O)(=O)Cl"), Route("CCN"))),
    Route("O=C(O)CNC(C)=O", (Route("COC(=O)CNC(C)=O", (Route("CC(=O)O"), Route("COC(=O)CN"))),)),
]


@pytest.fixture(scope="session")
def known() -> list[Route]:
    # targets as the planner writes them
    from weft.routes.molecules import canonical_smiles

    return [Route(canonical_smiles(route.smiles), route.children) for route in KNOWN]


@pytest.fixture(scope="session")
def planner(known) -> RoutePlanner:
    tokenizer = build_route_tokenizer()
    config = WeftConfig.from_preset(
        "dms-tiny", d_model=64, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=128, decoder_ffn_dim=128,
        max_target_positions=160,
    )  # fmt: skip
    rows = [
        {
            "input_ids": encode_source(tokenizer, route.smiles),
            "labels": encode_route(tokenizer, route.to_string()),
            "condition_values": [float(route.depth)],
        }
        for route in known
    ]
    batch = DataCollatorForSeq2Seq(tokenizer)(rows)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = WeftForConditionalGeneration(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(120):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.set_num_threads(threads)
    assert loss.item() < 0.05
    return RoutePlanner(model, tokenizer)
