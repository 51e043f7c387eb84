"""The published objectives, by counting what they did to many texts; and that nothing of a text is lost."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from weftformer.tokenization import MODES, add_denoising_tokens, sentinel_ids, train_tokenizer
from weftformer.training import DataCollatorForSpanCorruption, DataCollatorForTextInfilling, DataCollatorForUL2
from weftformer.training.denoising import COLLATORS

LENGTH = 200


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = train_tokenizer(["a b c. d e."], vocab_size=300)
    for objective in COLLATORS:
        add_denoising_tokens(tokenizer, objective)
    return tokenizer


def text(length: int = LENGTH) -> list[int]:
    """Ids no two of which are alike, and none of a token that the collators put in."""
    return list(range(1000, 1000 + length))


def spans(target: list[int], sentinels: list[int]) -> list[list[int]]:
    """What stands after each sentinel of a target, which are in order."""
    found: list[list[int]] = []
    for token in target:
        if len(found) < len(sentinels) and token == sentinels[len(found)]:
            found.append([])
        else:
            found[-1].append(token)
    return found


def mended(source: list[int], parts: list[list[int]], sentinels: list[int]) -> list[int]:
    return [one for token in source for one in (parts[sentinels.index(token)] if token in sentinels else [token])]


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 8.0)])
def test_spans_have_the_published_share_and_number(tokenizer, density, mean):
    collator = DataCollatorForSpanCorruption(tokenizer, noise_density=density, mean_span_length=mean)
    sentinels, rng = sentinel_ids(tokenizer), np.random.default_rng(0)
    lengths: Counter[int] = Counter()
    taken: Counter[int] = Counter()
    for _ in range(400):
        source, target = collator.corrupt(text(), rng)
        parts = spans(target, sentinels)
        assert sum(map(len, parts)) == round(density * LENGTH)
        assert len(parts) == round(round(density * LENGTH) / mean)
        assert min(map(len, parts)) >= 1
        assert mended(source, parts, sentinels) == text()
        assert not any(one in sentinels and two in sentinels for one, two in pairwise(source))
        lengths.update(map(len, parts))
        taken.update(token - 1000 for part in parts for token in part)
    # all ways to cut n tokens in k: a span has one token with probability (k - 1) / (n - 1)
    noise, number = round(density * LENGTH), len(parts)
    assert lengths[1] / lengths.total() == pytest.approx((number - 1) / (noise - 1), abs=0.02)
    assert lengths.total() == 400 * number
    # the first token always stays and the last never does, as in T5; in between no place is left out
    assert taken[0] == 0 and taken[LENGTH - 1] == 400
    assert min(taken[at] for at in range(20, LENGTH - 1)) > 400 * density / 3


def test_sources_and_targets_of_t5(tokenizer):
    """512 and 114 tokens of 568, with the eos of each: what T5's own code computes."""
    collator = DataCollatorForSpanCorruption(tokenizer)
    assert collator.longest_text(512, 114) == 568
    row = collator.features(text(568), np.random.default_rng(0))
    assert (len(row["input_ids"]), len(row["labels"])) == (512, 114)
    assert row["input_ids"][-1] == row["labels"][-1] == tokenizer.eos_token_id


def test_infilling_has_the_published_share_and_lengths(tokenizer):
    collator = DataCollatorForTextInfilling(tokenizer, permute_sentences=False)
    rng, mask = np.random.default_rng(0), tokenizer.mask_token_id
    ids, lengths, gaps, adjacent = text(5000), Counter(), 0, 0
    for _ in range(40):
        drawn = collator._span_lengths(1500, rng)
        assert sum(drawn) == 1500
        lengths.update(drawn[:-1])
        source, target = collator.corrupt(ids, rng)
        assert target == ids
        kept = [token for token in source if token != mask]
        assert kept == sorted(kept) and len(kept) == 3500  # 30 %, in order
        gaps += source.count(mask)
        adjacent += sum(one == two == mask for one, two in pairwise(source))
    # Poisson(3)
    assert np.mean(list(lengths.elements())) == pytest.approx(3, abs=0.05)
    for length, share in enumerate([0.0498, 0.1494, 0.2240, 0.2240, 0.1680, 0.1008]):
        assert lengths[length] / lengths.total() == pytest.approx(share, abs=0.01)
    assert gaps / 40 == pytest.approx(500, rel=0.02)
    assert adjacent / 40 == pytest.approx(500 * 500 / 4000, rel=0.15)  # no order of masks and tokens is favoured


def test_sentences_change_places_and_stay_whole(tokenizer):
    collator = DataCollatorForTextInfilling(tokenizer)
    sentences = [tokenizer(one, add_special_tokens=False)["input_ids"] for one in ("a b.", " c d...", " e")]
    ids, rng = [token for sentence in sentences for token in sentence], np.random.default_rng(0)
    orders: Counter[str] = Counter(tokenizer.decode(collator._permuted(ids, rng)) for _ in range(600))
    assert set(orders) == {
        "a b. c d... e", "a b. e c d...", " c d...a b. e", " c d... ea b.", " ea b. c d...", " e c d...a b.",
    }  # fmt: skip
    assert min(orders.values()) > 60
    source, target = collator.corrupt(ids, rng)
    assert target == ids and len(source) <= len(ids)


def test_the_mixture_draws_each_denoiser_as_often(tokenizer):
    collator = DataCollatorForUL2(tokenizer)
    sentinels, rng = sentinel_ids(tokenizer), np.random.default_rng(0)
    modes = {tokenizer.convert_tokens_to_ids(token): mode for mode, token in MODES.items()}
    found: Counter[tuple[str, int, int]] = Counter()
    for _ in range(3500):
        (mode, *source), target = collator.corrupt(text(), rng)
        parts = spans(target, sentinels)
        assert mended(source, parts, sentinels) == text()
        found[modes[mode], sum(map(len, parts)), len(parts)] += 1
        if modes[mode] == "S":
            assert source == [*text()[:150], sentinels[0]]
    # share of 200 tokens, in spans of 3, 8, all, 3, 8, 64 and 64
    assert set(found) == {
        ("R", 30, 10), ("R", 30, 4), ("S", 50, 1), ("X", 100, 33), ("X", 100, 12), ("X", 30, 1), ("X", 100, 2),
    }  # fmt: skip
    assert all(count == pytest.approx(500, rel=0.15) for count in found.values())


@pytest.mark.parametrize("objective", COLLATORS)
def test_every_shorter_text_fits_too(tokenizer, objective):
    collator = COLLATORS[objective](tokenizer)
    for limits in ((30, 30), (128, 40), (40, 128), (600, 600)):
        longest = collator.longest_text(*limits)
        assert not collator._fits(longest + 1, limits[0] - 1, limits[1] - 1)
        rng = np.random.default_rng(0)
        for length in {*range(2, min(longest, 12)), longest - 1, longest} - {1}:
            assert collator._fits(length, limits[0] - 1, limits[1] - 1)
            for _ in range(10):
                row = collator.features(text(length), rng)
                assert len(row["input_ids"]) <= limits[0] and len(row["labels"]) <= limits[1]


@pytest.mark.parametrize("objective", COLLATORS)
def test_batches_are_those_of_the_seed(tokenizer, objective):
    rows = [{"input_ids": text(length)} for length in (40, 17, 2)]

    def batches(**settings):
        collator = COLLATORS[objective](tokenizer, **settings)
        return [collator(rows) for _ in range(2)]

    first, again, other = batches(seed=3), batches(seed=3), batches(seed=3, process_index=1)
    assert all(torch.equal(one[name], two[name]) for one, two in zip(first, again, strict=True) for name in one)
    assert not all(
        one[name].shape == two[name].shape and torch.equal(one[name], two[name])
        for one, two in zip(first, other, strict=True)
        for name in one
    )
    batch = first[0]
    assert torch.equal(batch["attention_mask"].sum(-1), batch["input_ids"].ne(tokenizer.pad_token_id).sum(-1))
    assert batch["labels"][0, -1] == tokenizer.eos_token_id and batch["labels"][2, -1] == -100
    # the second time the same texts are corrupted otherwise
    assert first[0]["input_ids"].tolist() != first[1]["input_ids"].tolist()


def test_rows_with_labels_are_padded_alone(tokenizer):
    batch = DataCollatorForSpanCorruption(tokenizer)(
        [{"input_ids": [5, 6, 2], "labels": [7, 2]}, {"input_ids": [5], "labels": [8]}]
    )
    assert batch["input_ids"].tolist() == [[5, 6, 2], [5, 0, 0]] and batch["labels"].tolist() == [[7, 2], [8, -100]]


def test_what_cannot_be_is_refused():
    tokenizer = train_tokenizer(["a b c."], vocab_size=300)
    for kind, objective in ((DataCollatorForSpanCorruption, "span"), (DataCollatorForTextInfilling, "infilling")):
        with pytest.raises(ValueError, match=f"add_denoising_tokens.tokenizer, '{objective}'"):
            kind(tokenizer)
    add_denoising_tokens(tokenizer, "span")
    with pytest.raises(ValueError, match=r"no \[NLU\], \[S2S\], \[NLG\]"):
        DataCollatorForUL2(tokenizer)
    add_denoising_tokens(tokenizer, "ul2")
    with pytest.raises(ValueError, match=r"noise_density=1\.5 is not allowed"):
        DataCollatorForSpanCorruption(tokenizer, noise_density=1.5)
    collator = DataCollatorForSpanCorruption(tokenizer)
    with pytest.raises(ValueError, match="A text of 1 tokens cannot be corrupted"):
        collator([{"input_ids": [5]}])
    with pytest.raises(ValueError, match="has 150 spans, and the tokenizer 100 sentinels"):
        collator([{"input_ids": text(3000)}])
    with pytest.raises(ValueError, match="leave no room"):
        collator.longest_text(2, 2)
