"""Span corruption as T5 published it, measured on many texts, which are all restored from source and labels."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from weftformer.tokenization import add_sentinels, sentinel_ids, train_tokenizer
from weftformer.training import DataCollatorForSpanCorruption

LENGTH = 200


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = train_tokenizer(["a b c. d e."], vocab_size=300)
    add_sentinels(tokenizer)
    return tokenizer


def text(length: int = LENGTH) -> list[int]:
    """Ids that are all different, and none of them a special token."""
    return list(range(1000, 1000 + length))


def spans(labels: list[int], sentinels: list[int]) -> list[list[int]]:
    """The tokens after each sentinel of labels, which are in order."""
    found: list[list[int]] = []
    for token in labels:
        if len(found) < len(sentinels) and token == sentinels[len(found)]:
            found.append([])
        else:
            found[-1].append(token)
    return found


def test_spans_have_the_published_share_and_number(tokenizer):
    collator = DataCollatorForSpanCorruption(tokenizer)
    sentinels, rng = sentinel_ids(tokenizer), np.random.default_rng(0)
    lengths: Counter[int] = Counter()
    taken: Counter[int] = Counter()
    for _ in range(400):
        row = collator.features(text(), rng)
        assert row["input_ids"][-1] == row["labels"][-1] == tokenizer.eos_token_id
        source, parts = row["input_ids"][:-1], spans(row["labels"][:-1], sentinels)
        assert sum(map(len, parts)) == 30 and len(parts) == 10 and min(map(len, parts)) >= 1
        restored = [parts[sentinels.index(token)] if token in sentinels else [token] for token in source]
        assert [token for part in restored for token in part] == text()
        assert not any(one in sentinels and two in sentinels for one, two in pairwise(source))
        lengths.update(map(len, parts))
        taken.update(token - 1000 for part in parts for token in part)
    # all ways to cut n tokens in k: a span has one token with probability (k - 1) / (n - 1)
    assert lengths[1] / lengths.total() == pytest.approx(9 / 29, abs=0.02)
    # the first token always stays and the last never does, as in T5; in between no place is left out
    assert taken[0] == 0 and taken[LENGTH - 1] == 400
    assert min(taken[at] for at in range(20, LENGTH - 1)) > 400 * 0.15 / 3


def test_sources_and_labels_of_t5(tokenizer):
    """512 and 114 tokens of 568, with the eos of each: what T5's own code computes. Every shorter text fits too."""
    collator, rng = DataCollatorForSpanCorruption(tokenizer), np.random.default_rng(0)
    for limits, longest in (((512, 114), 568), ((30, 30), 32), ((128, 29), 141), ((600, 600), 666)):
        assert collator.longest_text(*limits) == longest
        sizes = [[len(ids) for ids in collator.features(text(n), rng).values()] for n in range(2, longest + 2)]
        assert all(source <= limits[0] and labels <= limits[1] for source, labels in sizes[:-1])
        assert sizes[-1][0] > limits[0] or sizes[-1][1] > limits[1]


def test_batches_are_padded_and_those_of_the_seed(tokenizer):
    rows, collator = [{"input_ids": text(length)} for length in (40, 17, 2)], DataCollatorForSpanCorruption(tokenizer)

    def batches(seed):
        torch.manual_seed(seed)
        return [collator(rows) for _ in range(2)]

    first, again, other = batches(3), batches(3), batches(4)
    assert all(torch.equal(one[name], two[name]) for one, two in zip(first, again, strict=True) for name in one)
    sources = {str(batch["input_ids"].tolist()) for batch in (*first, *other)}
    assert len(sources) == 4  # nor is a text corrupted twice in the same way
    batch = first[0]
    assert torch.equal(batch["attention_mask"].sum(-1), batch["input_ids"].ne(tokenizer.pad_token_id).sum(-1))
    assert batch["labels"][0, -1] == tokenizer.eos_token_id and batch["labels"][2, -1] == -100


def test_what_cannot_be_is_refused(tokenizer):
    with pytest.raises(ValueError, match="add_sentinels"):
        DataCollatorForSpanCorruption(train_tokenizer(["a b c."], vocab_size=300))
    collator = DataCollatorForSpanCorruption(tokenizer)
    with pytest.raises(ValueError, match="A text of 1 tokens cannot be corrupted"):
        collator([{"input_ids": [5]}])
    with pytest.raises(ValueError, match="has 150 spans, and the tokenizer 100 sentinels"):
        collator([{"input_ids": text(3000)}])
    with pytest.raises(ValueError, match="leave no room"):
        collator.longest_text(2, 2)
