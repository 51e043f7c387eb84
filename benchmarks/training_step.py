"""The training cases of `python -m weftformer.benchmarks`: forward, backward and AdamW on the same batch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from transformers import NllbMoeConfig, NllbMoeForConditionalGeneration

import weftformer
from weftformer.benchmarks.peers import DIMENSIONS, END, START, Contender, as_weft, bart, directmultistep
from weftformer.modeling.losses import chunked_cross_entropy, cross_entropy


@dataclass(frozen=True)
class TrainingCase:
    """A batch of `batch` training pairs, with sources of `source` tokens and targets of `target` tokens."""

    name: str
    batch: int = 16
    source: int = 145
    target: int = 300

    @property
    def units(self) -> int:
        """The number of target tokens of a step."""
        return self.batch * self.target

    def per_unit(self, seconds: float) -> str:
        return f"{self.units / seconds:.0f} target tokens/s"

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        shapes = (self.batch, self.source), (self.batch, self.target)
        source, target = (torch.randint(1, END, shape, generator=generator) for shape in shapes)
        return source, target

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        """Yield BART and Weft with the same weights, both also compiled."""
        peer = bart()
        models = {"BART (transformers)": peer, "Weft": as_weft(peer)}
        if compiled:
            torch._dynamo.reset()
            twin = bart()
            models |= {"BART, compiled": torch.compile(twin), "Weft, compiled": torch.compile(as_weft(twin))}
        for name, model in models.items():
            yield self.contender(name, model)

    def contender(self, name: str, model: Any, check: bool = True, **extra) -> Contender:
        source, target = self.tensors()
        batch = {"input_ids": source, "attention_mask": torch.ones_like(source), "labels": target} | extra

        def logits() -> torch.Tensor | None:
            if not check:
                return None
            model.eval()
            with torch.no_grad():
                output = model(**batch).logits
            model.train()
            return output

        return Contender(name, steps(model.train(), lambda: model(**batch).loss), check=logits)


def steps(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def run() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


@dataclass(frozen=True)
class SparseTrainingCase(TrainingCase):
    """Models with experts, of which a token uses two: DirectMultiStep, NLLB-MoE of the same size, and Weft, also with
    DirectMultiStep's limit on the tokens of an expert.
    """

    experts: int = 3

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        if find_spec("directmultistep") is None:
            raise ValueError('This case needs directmultistep. In a clone: pip install -e ".[parity]"')
        source, target = self.tensors()
        count = torch.full((self.batch, 1), 3)
        inputs = torch.cat([torch.full((self.batch, 1), START), target[:, :-1]], dim=1)

        peer = directmultistep("flex_20M", self.experts).train()

        def loss() -> torch.Tensor:
            return nn.functional.cross_entropy(peer(source, inputs, count).flatten(0, 1), target.flatten())

        yield Contender("directmultistep 1.1.3", steps(peer, loss), check=lambda: None)
        yield self.contender("NLLB-MoE (transformers)", nllb_moe(self.experts), check=False)
        for name, capacity in (("Weft", None), ("Weft, with its capacity", 1.0)):
            torch.manual_seed(0)
            config = weftformer.WeftConfig.from_preset(
                "dms-flex-20m", num_experts=self.experts, expert_capacity_factor=capacity
            )
            model = weftformer.WeftForConditionalGeneration(config)
            yield self.contender(name, model, check=False, condition_values=count.float())


def nllb_moe(num_experts: int) -> NllbMoeForConditionalGeneration:
    """Build NLLB-MoE with the dimensions of `dms-flex-20m`."""
    torch.manual_seed(0)
    config = NllbMoeConfig(**DIMENSIONS, num_experts=num_experts, encoder_sparse_step=1, decoder_sparse_step=1)
    return NllbMoeForConditionalGeneration(config)


@dataclass(frozen=True)
class VocabularyCase(TrainingCase):
    """Only the language-model head and its loss, with a large vocabulary."""

    vocabulary: int = 50_000

    def contenders(self, compiled: bool) -> Iterator[Contender]:
        torch.manual_seed(0)
        head = nn.Linear(256, self.vocabulary, bias=False)
        states = torch.randn(self.batch, self.target, 256, requires_grad=True)
        labels = torch.randint(0, self.vocabulary, (self.batch, self.target))
        for name, loss in (
            ("logits of all tokens", lambda: cross_entropy(head(states), labels)),
            ("Weft, in pieces", lambda: chunked_cross_entropy(states, head, labels)),
        ):

            def run(loss=loss) -> None:
                loss().backward()
                head.weight.grad = states.grad = None

            def gradient(loss=loss) -> torch.Tensor:
                return torch.autograd.grad(loss(), head.weight)[0]

            yield Contender(name, run, check=gradient)
