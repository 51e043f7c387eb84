"""The search that ranks by log p / sqrt(length), against DirectMultiStep's own."""

import pytest
import torch

from weftformer.conversion import SOURCES, convert
from weftformer.tokenization import build_route_tokenizer

from ..conversion.references import directmultistep

pytestmark = pytest.mark.dtype(torch.float64)

PAD, START, END = 52, 0, 22
LENGTH = 30
STEPS = torch.tensor([[3.0], [5.0], [2.0]])
PREFIX = [START, 1, 2, 3, 4, 4, 3]


def draw() -> torch.Tensor:
    """Three targets: product, pads, starting material, pads."""
    source = torch.randint(1, 52, (3, 40), generator=torch.Generator().manual_seed(5))
    source[:, 12:20] = source[:, 33:] = PAD
    source[1, 7:12] = PAD
    return source


def search(model, source, steps, beams, **kwargs):
    return model.generate(
        source, condition_values=steps, num_beams=beams, num_return_sequences=beams, max_length=LENGTH,
        custom_generate="sqrt_length", do_sample=False, return_dict_in_generate=True, **kwargs,
    )  # fmt: skip


def found(output, beams):
    """For each target its (tokens without what stands behind the end, log p)."""
    lengths = (output.sequences != PAD).sum(dim=1)
    log_probs = output.sequences_scores * (lengths.float().sqrt() + 1e-6)
    rows = list(zip(map(trimmed, output.sequences.tolist()), log_probs.tolist(), strict=True))
    return [rows[start : start + beams] for start in range(0, len(rows), beams)]


def trimmed(ids):
    ids = ids[: ids.index(END) + 1] if END in ids else ids
    while ids and ids[-1] == PAD:
        ids = ids[:-1]
    while ids and ids[0] == PAD:
        ids = ids[1:]
    return tuple(ids)


def lively(model, head, seed):
    """Weights that end some sequences soon, some late and some never."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.15)
        head.bias[END] += 0.3
    return model.eval()


@pytest.fixture(scope="module", params=[0, 1])
def both(request):
    """The original with random weights, and the same converted."""
    config = directmultistep.both(directmultistep.published("flash_10M"), hid_dim=32, n_layers=2, n_heads=4, ff_mult=2)
    from directmultistep.model import ModelFactory

    torch.manual_seed(request.param)
    original = ModelFactory(config, device="cpu", compile_model=False).create_model().double()
    lively(original, original.decoder.fc_out, request.param)
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    return original, convert(original.state_dict(), SOURCES["dms"], overrides=heads).build().double()


def as_text(ids, tokens):
    """What the original makes of ids: no start token, nothing from the end on, (pads are blanks there)."""
    ids = ids[: ids.index(END)] if END in ids else ids
    return "".join(tokens[token] for token in ids if token != START).strip(" ")


@pytest.mark.parametrize("prefix", [None, PREFIX], ids=["free", "forced"])
@pytest.mark.parametrize("beams", [1, 5])
def test_equals_beam_search_optimized(both, beams, prefix):
    from directmultistep.generation.tensor_gen import BeamSearchOptimized

    original, model = both
    source = draw()
    forced = {} if prefix is None else {"decoder_input_ids": torch.tensor([prefix] * 3)}
    results = found(search(model, source, STEPS, beams, **forced), beams)
    tokens = {index: token for token, index in build_route_tokenizer().get_vocab().items()}
    theirs = BeamSearchOptimized(original, beams, START, PAD, END, LENGTH + 1, tokens, torch.device("cpu"))
    start = None if prefix is None else torch.tensor([prefix])
    for row in range(3):  # in a batch, the second target of the original continues the beams of the first
        inputs = source[row : row + 1], STEPS[row : row + 1].long()
        (expected,) = theirs.decode(*inputs, path_start_BL=start, progress_bar=False)
        assert [as_text(list(ids), tokens) for ids, _ in results[row]] == [text.strip(" ") for text, _ in expected]
        assert [total for _, total in results[row]] == pytest.approx([total for _, total in expected], abs=2e-4)
