"""The benchmark case with routes of a file: planning beside DirectMultiStep's `generate_routes`."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import yaml

from weftformer.benchmarks.peers import Contender, FileCase, directmultistep, quiet
from weftformer.conversion import SOURCES, export
from weftformer.routes import Route, read_routes
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.tokenization import PRODUCT_LENGTH, SOURCE_LENGTH, build_route_tokenizer

# The ranked routes of each target, one per line.
Texts = list[str]


@dataclass(frozen=True)
class RoutesCase(FileCase):
    """Planning of the targets in a route file, with their numbers of steps.

    DirectMultiStep plans one target after the other, and Weft plans them as a batch.
    """

    needs: ClassVar[tuple[str, ...]] = ("model", "routes")

    name: str
    routes: str = ""
    beams: int = 10

    @cached_property
    def targets(self) -> list[Route]:
        return list(read_routes(self.routes))

    @property
    def units(self) -> int:
        return len(self.targets)

    def per_unit(self, seconds: float) -> str:
        return f"{seconds / self.units:.2f} s a target"

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        if find_spec("directmultistep") is None:
            raise ValueError('This case needs directmultistep. In a clone: pip install -e ".[parity]"')
        if not self.targets:
            raise ValueError(f"{self.routes} has no routes.")
        planner = RoutePlanner.from_pretrained(self.model)
        yield Contender("directmultistep 1.1.3, generate_routes", self._published(planner.model), is_slow=True)
        yield Contender("Weft", self._planning(planner, grammar=False))
        yield Contender("Weft, with the grammar", self._planning(planner), check=lambda: None)

    def _planning(self, planner: RoutePlanner, **settings: Any) -> Callable[[], Texts]:
        def run() -> Texts:
            plans = planner.plan(
                [route.smiles for route in self.targets], n_steps=[route.depth for route in self.targets],
                beams=self.beams, ranking="sqrt_length", progress=False, enforce_limits=False, **settings,
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
                routes = (
                    generate_routes(route.smiles, route.depth, None, self.beams, peer, file) for route in self.targets
                )
                return ["\n".join(texts) for texts in routes]

        return run
