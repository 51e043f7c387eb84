"""Small models of every kind of position, vocabulary and layer, and sources with pads in every place."""

from types import SimpleNamespace

import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.modeling.decoding.step import DecodeStep

from ..models import KINDS, TINY_CONFIG

PAD, START, END = 0, 1, 2
# scores of 32 bits, of a model of 64: only their own rounding is left
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
# Left-padded: rows of 1, 4, 2 and 3 real tokens, each beginning with the start.
PREFIX = torch.tensor([[PAD, PAD, PAD, START], [START, 9, 5, 14], [PAD, PAD, START, 20], [PAD, START, 4, 4]])
PADDED = {"decoder_input_ids": PREFIX, "decoder_attention_mask": (PREFIX != PAD).long()}
TINY = TINY_CONFIG | {
    "tie_word_embeddings": False,
    "dropout": 0.0,
    # so that `generate` without a mask can be compared with a forward pass without one
    "infer_attention_mask": True,
    # large enough for the answers to depend on every token
    "init_std": 0.4,
}
# The two that differ most, in norms, positions, heads, biases, tables and conditions. `make test` tries with these two
# what `generate` does around the model, because it does not depend on the kind, and with all what each kind computes.
FEW = ("rotary across", "learned")
few_kinds = pytest.mark.parametrize("model", FEW, indirect=True)


def make(kind: str, dtype: torch.dtype = torch.float64, **fields) -> WeftForConditionalGeneration:
    """Build a model in 64 bits, so that tokens do not nearly tie. `generate` gives scores and logits in 32 bits."""
    torch.manual_seed(0)
    # torch has no grouped_mm of 64 bits
    experts = {"experts_implementation": "eager"} if dtype == torch.float64 else {}
    model = WeftForConditionalGeneration._from_config(WeftConfig(**(TINY | KINDS[kind] | fields)), **experts).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("relative_bias"):  # zero at first, where a missing bias would not be seen
                parameter.normal_()
            elif name.endswith(("q_norm.weight", "k_norm.weight")):  # one at first, where the two are alike
                parameter.normal_(1.0, 0.3)
            elif name.endswith("bias"):
                parameter.normal_(std=0.1)
    return model.to(dtype)


@pytest.fixture(scope="session", params=KINDS)
def model(request) -> WeftForConditionalGeneration:
    return make(request.param)


@pytest.fixture(scope="session")
def build():
    """A fresh model of a kind: `build("learned", dropout=0.1)`."""
    return make


@pytest.fixture
def source() -> torch.Tensor:
    """Four rows of nine: without pads, pads on the right, on the left, in the middle."""
    ids = torch.randint(3, 23, (4, 9), generator=torch.Generator().manual_seed(1))
    ids[1, 6:] = ids[2, :3] = ids[3, 4:6] = PAD
    return ids


@pytest.fixture
def inputs(source, model) -> dict[str, torch.Tensor]:
    """The source, and the other inputs of this kind of model."""
    given = {"input_ids": source}
    if model.config.num_condition_features:
        given["condition_values"] = torch.tensor([[2.0], [0.5], [-1.0], [3.0]])
    return given


@pytest.fixture
def run():
    """Generate exactly `steps` tokens and return (sequences, raw logits of each step (rows, steps, vocabulary))."""

    def run(model, steps, **kwargs):
        settings = {"min_new_tokens": steps, "max_new_tokens": steps, "output_logits": True}
        output = model.generate(**(settings | kwargs), return_dict_in_generate=True)
        return output.sequences, torch.stack(output.logits, dim=1)

    return run


@pytest.fixture
def steps(monkeypatch):
    """A list with the number of rows of each decoding step on the fast path."""
    taken = []
    original = DecodeStep.step
    monkeypatch.setattr(
        DecodeStep, "step", lambda self, ids, cache: taken.append(len(ids)) or original(self, ids, cache)
    )
    return taken


@pytest.fixture
def writes(monkeypatch):
    """Record the fields that are written to the configurations in `watched`, which concurrent requests read."""
    writes = SimpleNamespace(names=[], watched=[])

    def recorded(original):
        def record(config, name, *value):
            writes.names += [name] if any(config is watched for watched in writes.watched) else []
            original(config, name, *value)

        return record

    for method in ("__setattr__", "__delattr__"):
        monkeypatch.setattr(WeftConfig, method, recorded(getattr(WeftConfig, method)))
    return writes


def row_of(given: dict[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    """Return one row of a dictionary of tensors."""
    return {name: value[index : index + 1] for name, value in given.items()}
