"""PyTorch's own transformer and its parts, with random weights, and the Weft models made of them: the same numbers."""

import pytest
import torch
from torch import nn

from weftformer.conversion import SOURCES, convert, export
from weftformer.conversion.table import to_weft
from weftformer.conversion.torch_transformer import EMBEDDINGS, stack_part
from weftformer.modeling import WeftDecoder, WeftEncoder, WeftModel

BATCH, TARGET, SOURCE, WIDTH, HEADS, FFN = 2, 6, 7, 16, 4, 20
TORCH = SOURCES["torch"]
# each with its Weft class and what Weft calls the whole model's keys from there on
PARTS = {
    "encoder layer": (WeftEncoder, "model.encoder."),
    "decoder layer": (WeftDecoder, "model.decoder."),
    "encoder": (WeftEncoder, "model.encoder."),
    "decoder": (WeftDecoder, "model.decoder."),
    "transformer": (WeftModel, "model."),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),  # the fast path needs what not all cases have
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask"),  # boolean beside an additive mask
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.dtype(torch.float64),
]


def filled(module, seed=0):
    """Random weights everywhere: biases start at zero and norms at one, where a mistake would not be seen."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            noise *= parameter.shape[-1] ** -0.5 if parameter.ndim == 2 else 0.35
            parameter.copy_(noise + 1.0 if "norm" in name and name.endswith("weight") else noise)
    return module.eval()


def build(part, final=True, seed=0, **options):
    if part == "transformer":
        return filled(nn.Transformer(WIDTH, HEADS, 2, 1, FFN, batch_first=True, **options), seed)
    kind = part.split()[0].capitalize()
    module = getattr(nn, f"Transformer{kind}Layer")(WIDTH, HEADS, FFN, batch_first=True, **options)
    if not part.endswith("layer"):
        norm = nn.LayerNorm(WIDTH, bias=options.get("bias", True)) if final else None
        module = getattr(nn, f"Transformer{kind}")(module, 2, norm=norm)
    return filled(module, seed)


def converted(module, norm_first=False, activation="relu", **fields):
    heads = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    fields = heads | {"norm_first": norm_first, "activation_function": activation} | fields
    return convert(module.state_dict(), TORCH, overrides=fields).build()


def draw(part, is_causal=True, width=WIDTH, heads=HEADS):
    """One call: the inputs by Weft's names, in torch's order, and the masks as (torch's keywords, Weft's keywords)."""
    generator = torch.Generator().manual_seed(3)
    source, target = (
        torch.randn(BATCH, length, width, generator=generator, requires_grad=True) for length in (SOURCE, TARGET)
    )
    source_pads, memory_pads = torch.zeros(BATCH, SOURCE).bool(), torch.zeros(BATCH, SOURCE).bool()
    target_pads = torch.zeros(BATCH, TARGET).bool()
    # the first target is no pad: a row that sees nothing gives NaN in torch and zeros here
    source_pads[0, 5:] = memory_pads[0, 4:] = memory_pads[1, 1:3] = target_pads[0, 4:] = target_pads[1, 2] = True
    if part.startswith("encoder"):
        return {"inputs_embeds": source}, {"src_key_padding_mask": source_pads}, {"attention_mask": ~source_pads}
    bias = torch.randn(BATCH, heads, TARGET, SOURCE, generator=generator)
    there = {
        "tgt_mask": torch.ones(TARGET, TARGET).triu(1).bool() if is_causal else None,
        "tgt_key_padding_mask": target_pads,
        "memory_mask": bias.flatten(0, 1),
        "memory_key_padding_mask": memory_pads,
    }
    # the memory's two masks are one here
    cross = bias.masked_fill(memory_pads[:, None, None], float("-inf"))
    causal = {} if is_causal else {"is_causal": False}
    if part.startswith("decoder"):
        inputs = {"inputs_embeds": target, "encoder_hidden_states": source}
        return inputs, there, {"attention_mask": ~target_pads, "encoder_attention_mask": cross} | causal
    inputs = {"inputs_embeds": source, "decoder_inputs_embeds": target}
    here = {"attention_mask": ~source_pads, "decoder_attention_mask": ~target_pads, "encoder_attention_mask": cross}
    return inputs, there | {"src_key_padding_mask": source_pads}, here | causal


def assert_same(module, model, place, inputs, there, here):
    """The output, and the gradient of every parameter and input, these also relative to their largest entry."""
    expected = module(*inputs.values(), **there)
    found = model(**inputs, **here).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    assert expected.std() > 0.3
    # another weight for each output, so that no error can cancel; small ones, which make gradients of about one
    weight = 0.25 * torch.randn(expected.shape, generator=torch.Generator().manual_seed(4))
    theirs = dict(module.named_parameters())
    ours = {place + name: p for name, p in model.named_parameters() if place + name not in EMBEDDINGS}
    wanted = torch.autograd.grad((expected * weight).sum(), [*inputs.values(), *theirs.values()])
    got = torch.autograd.grad((found * weight).sum(), [*inputs.values(), *ours.values()])
    # a gradient goes the way of its weight, which is only cut
    prefix, count = stack_part(theirs)[1], len(inputs)
    gradients = {prefix + name: gradient for name, gradient in zip(theirs, wanted[count:], strict=True)}
    shapes = {name: p.shape for name, p in ours.items()}
    moved = to_weft(gradients, TORCH.table(model.config, {}), model.config, shapes)
    assert moved.fits, moved.describe()
    for name, one, other in zip(
        [*inputs, *ours], got, [*wanted[:count], *(moved.weights[name] for name in ours)], strict=True
    ):
        assert (one - other).abs().max() <= 1e-12 * max(1.0, other.abs().max()), name


@pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "bare"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("part", PARTS)
def test_output_and_gradients(part, activation, bias, norm_first):
    module = build(part, activation=activation, bias=bias, norm_first=norm_first)
    model = converted(module, activation=activation, norm_first=norm_first)
    assert type(model) is PARTS[part][0]
    assert_same(module, model, PARTS[part][1], *draw(part))


@pytest.mark.parametrize("part", ["decoder layer", "decoder", "transformer"])
def test_a_target_that_sees_all_of_itself(part):
    module = build(part)
    assert_same(module, converted(module), PARTS[part][1], *draw(part, is_causal=False))


@pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_a_stack_without_last_norm(part, norm_first):
    module = build(part, final=False, norm_first=norm_first)
    model = converted(module, norm_first=norm_first)
    assert model.layer_norm is None
    assert_same(module, model, PARTS[part][1], *draw(part))


def test_stacks_of_different_make():
    """Heads and feed-forward of its own for each."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True), 1, nn.LayerNorm(WIDTH))
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, 8, 28, batch_first=True), 2, nn.LayerNorm(WIDTH))
    module = filled(nn.Transformer(WIDTH, custom_encoder=encoder, custom_decoder=decoder, batch_first=True))
    model = converted(module, encoder_attention_heads=2, decoder_attention_heads=8)
    assert_same(module, model, "model.", *draw("transformer", heads=8))


def test_the_fast_path_of_inference():
    """Without gradients torch runs its encoder's layers as one kernel over nested tensors, with zeros for the pads."""
    module = build("transformer")
    inputs, there, here = draw("transformer")
    pads = there["src_key_padding_mask"]
    there |= {"memory_key_padding_mask": pads, "memory_mask": None}
    del here["encoder_attention_mask"]  # then it is the source's
    with torch.no_grad():
        states = module.encoder(inputs["inputs_embeds"], src_key_padding_mask=pads)
        assert torch.equal(
            states[pads], module.encoder.norm.bias.expand_as(states[pads])
        )  # it ran, and skipped the pads
        found = converted(module)(**inputs, **here)
        torch.testing.assert_close(found.encoder_last_hidden_state[~pads], states[~pads], atol=1e-12, rtol=0)
        expected = module(*inputs.values(), **there)
        torch.testing.assert_close(found.last_hidden_state, expected, atol=1e-12, rtol=0)


@pytest.mark.dtype(torch.float32)
def test_double_precision_is_kept():
    model = converted(build("transformer").double())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "bare"])
@pytest.mark.parametrize("final", [True, False], ids=["final norm", "no final norm"])
@pytest.mark.parametrize("part", PARTS)
def test_the_way_back_gives_every_bit(part, final, bias):
    module, other = (build(part, final, seed, bias=bias) for seed in (0, 1))
    weights = module.state_dict()
    prefix = stack_part(weights)[1]
    back = export(converted(module), TORCH)
    assert set(back) == {prefix + name for name in weights}
    other.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in back.items()}, strict=True)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in other.state_dict().items())


def test_a_saved_model_gives_the_same_output(tmp_path):
    model = converted(build("transformer", activation="gelu"), activation="gelu")
    model.save_pretrained(tmp_path)
    inputs, _, here = draw("transformer")
    loaded = WeftModel.from_pretrained(tmp_path)
    found, expected = (one(**inputs, **here).last_hidden_state for one in (loaded, model))
    # not bit for bit: loaded weights stand elsewhere in memory, where kernels may sum in another order
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_only_the_embeddings_are_new():
    fields = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "vocab_size": 11}
    conversion = convert(build("transformer").state_dict(), TORCH, overrides=fields)
    assert conversion.found.new == ["model.shared.weight"]
    first, second, third = (conversion.build(seed).shared.weight for seed in (0, 0, 1))
    assert first.shape == (11, WIDTH)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


@pytest.mark.parametrize("given", ["encoder_attention_heads", "decoder_attention_heads", None])
def test_heads_have_to_be_given(given):
    missing = [name for name in ("encoder_attention_heads", "decoder_attention_heads") if name != given]
    with pytest.raises(ValueError, match=f"do not contain {' and '.join(missing)}: give .*--heads N"):
        convert(build("transformer").state_dict(), TORCH, overrides={given: HEADS} if given else {})


def test_a_last_norm_in_one_stack_alone_is_refused():
    module = build("transformer")
    module.decoder.norm = None
    with pytest.raises(ValueError, match=r"missing(.|\n)*model\.decoder\.layer_norm\.bias"):
        converted(module)


@pytest.mark.slow
@pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
def test_the_default_size(norm_first):
    """512 wide, 8 heads, 6 and 6 layers, a feed-forward of 2048."""
    module = filled(nn.Transformer(norm_first=norm_first, batch_first=True))
    model = converted(module, norm_first, encoder_attention_heads=8, decoder_attention_heads=8)
    assert_same(module, model, "model.", *draw("transformer", width=512, heads=8))
