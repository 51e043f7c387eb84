"""Planning beside DirectMultiStep's own `generate_routes`: the same targets, weights, beams and ranked texts."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

import weft
from weft.conversion import SOURCES, export
from weft.routes import Route, read_routes
from weft.routes.planner import RoutePlanner
from weft.scripts.benchmark_peers import Contender, directmultistep, quiet
from weft.tokenization import PRODUCT_LENGTH, SOURCE_LENGTH, build_route_tokenizer

# for each target its ranked routes, one a line
Texts = list[str]


@dataclass(frozen=True)
class RoutesCase:
    """Targets of a route file, one after the other for DirectMultiStep, in a batch for Weft; each told its number of steps.

    Args:
        model: folder of a `dms-flash-10m`; with trained weights, since random ones write no routes.
        routes: the route file.
    """

    name: str
    beams: int = 10
    model: str | None = None
    routes: str | None = None

    @cached_property
    def targets(self) -> list[Route]:
        if self.model is None or self.routes is None:
            raise ValueError("The case `routes` needs --model, a trained dms-flash-10m, and --routes, a route file.")
        return list(read_routes(self.routes))

    @property
    def units(self) -> int:
        return len(self.targets)

    def per_unit(self, seconds: float) -> str:
        return f"{seconds / self.units:.2f} s a target"

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        if find_spec("directmultistep") is None:
            raise ValueError("This case needs directmultistep: pip install weft[parity].")
        if self.targets:
            planner = RoutePlanner.from_pretrained(str(self.model))
            yield Contender("directmultistep 1.1.3, generate_routes", self._published(planner.model), is_slow=True)
            yield Contender("Weft", self._planning(planner, grammar=False))
            yield Contender("Weft, with the grammar", self._planning(planner), check=lambda: None)
            if compiled:
                planner = RoutePlanner.from_pretrained(str(self.model))
                weft.fast_decoding(planner.model)
                yield Contender("Weft, compiled", self._planning(planner, grammar=False))

    def _planning(self, planner: RoutePlanner, **settings: Any) -> Callable[[], Texts]:
        def run() -> Texts:
            plans = planner.plan(
                [route.smiles for route in self.targets], n_steps=[route.depth for route in self.targets],
                beams=self.beams, ranking="sqrt_length", progress=False, **settings,
            )  # fmt: skip
            return ["\n".join(route.to_string() for route in plan.routes) for plan in plans]

        return run

    def _published(self, model: Any) -> Callable[[], Texts]:
        from directmultistep.generate import generate_routes

        peer = directmultistep("flash_10M")
        peer.load_state_dict(export(model, SOURCES["dms"]))
        tokens = build_route_tokenizer().get_vocab()
        settings = {
            "smiledict": tokens, "invdict": {index: token for token, index in tokens.items()},
            "product_max_length": PRODUCT_LENGTH, "sm_max_length": SOURCE_LENGTH - PRODUCT_LENGTH,
            "seq_out_maxlength": model.config.max_target_positions,
        }  # fmt: skip

        def run() -> Texts:
            with tempfile.TemporaryDirectory() as folder, quiet():
                file = Path(folder) / "settings.yaml"
                file.write_text(yaml.safe_dump(settings), encoding="utf-8")
                found = (
                    generate_routes(route.smiles, route.depth, None, self.beams, peer, file) for route in self.targets
                )
                return ["\n".join(texts) for texts in found]

        return run
