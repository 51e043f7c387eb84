"""Planners that know four routes by heart, trained in seconds, and the library of a search. Without RDKit, no test of routes
is collected.
"""

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.routes import Route
from weftformer.tokenization import build_route_tokenizer, encode_route, encode_source

from ..conftest import save_both

collect_ignore_glob = [] if find_spec("rdkit") else ["*.py"]

KNOWN = [
    Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1"))),
    Route("CCOC(C)=O", (Route("CC(=O)O"), Route("CCO"))),
    Route("CS(=O)(=O)NCC", (Route("CS(=O)(=O)Cl"), Route("CCN"))),
    Route("O=C(O)CNC(C)=O", (Route("COC(=O)CNC(C)=O", (Route("CC(=O)O"), Route("COC(=O)CN"))),)),
]

# The first begins from an amine that the second makes.
CHAIN = [
    Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1"))),
    Route("NCc1ccccc1", (Route("N"), Route("BrCc1ccccc1"))),
]


def learn_by_heart(config: WeftConfig, routes: list[Route], steps: int) -> Any:
    """Return a planner whose model has learned to write these routes, given their lengths."""
    from weftformer.routes.planning.planner import RoutePlanner

    tokenizer = build_route_tokenizer()
    rows = [
        SimpleNamespace(
            input_ids=torch.tensor(encode_source(tokenizer, route.smiles)),
            labels=torch.tensor(encode_route(tokenizer, route.to_string())),
        )
        for route in routes
    ]
    pad = torch.nn.utils.rnn.pad_sequence
    batch = {
        "input_ids": pad([row.input_ids for row in rows], batch_first=True, padding_value=tokenizer.pad_token_id),
        "labels": pad([row.labels for row in rows], batch_first=True, padding_value=-100),
        "condition_values": torch.tensor([[float(route.depth)] for route in routes]),
    }
    torch.manual_seed(0)
    model = WeftForConditionalGeneration(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(steps):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.05
    return RoutePlanner(model, tokenizer)


@pytest.fixture(scope="session")
def known() -> list[Route]:
    # targets as the planner writes them
    from weftformer.routes.chemistry.molecules import canonical_smiles

    return [Route(canonical_smiles(route.smiles), route.children) for route in KNOWN]


@pytest.fixture(scope="session")
def planner(known) -> Any:
    config = WeftConfig.from_preset(
        "dms-tiny", d_model=64, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=128, decoder_ffn_dim=128,
        max_target_positions=160,
    )  # fmt: skip
    return learn_by_heart(config, known, 120)


@pytest.fixture(scope="session")
def chain_planner() -> Any:
    """A planner that writes routes of one step, which form a chain: the amide of an amine, and that amine."""
    config = WeftConfig.from_preset(
        "dms-tiny", d_model=48, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=64, decoder_ffn_dim=96,
        max_target_positions=110,
    )  # fmt: skip
    return learn_by_heart(config, CHAIN, 100)


@pytest.fixture(scope="session")
def planner_folder(planner, tmp_path_factory) -> str:
    return save_both(tmp_path_factory.mktemp("planner"), planner.model, planner.tokenizer)


@pytest.fixture(scope="session")
def untrained_folder(tmp_path_factory) -> str:
    config = WeftConfig.from_preset(
        "dms-tiny", d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        max_target_positions=60,
    )  # fmt: skip
    model = WeftForConditionalGeneration(config)
    return save_both(tmp_path_factory.mktemp("model"), model, build_route_tokenizer())


@pytest.fixture
def library(monkeypatch) -> Any:
    """Sets the transformations that propose reactions. By default there are none, and searches to the stock end."""
    from weftformer.routes import judging
    from weftformer.routes.planning import stock_search

    steps = stock_search._derived.__wrapped__

    def proposes(*rows: Any, textbook: Any = ()) -> None:
        known = judging.Library(rows, textbook=judging.Library(textbook, by_similarity=True))
        rare = judging.shipped_library().rare
        monkeypatch.setattr(
            stock_search, "_derived", lambda library, *asked: steps(known.rare if library is rare else known, *asked)
        )

    proposes()
    return proposes
