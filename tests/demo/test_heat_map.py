"""The tables: each number in its cell, none that a browser takes for a tag."""

import re

import torch

from weftformer.demo.attention import LayerExperts, Look
from weftformer.demo.heat_map import expert_map, heat_map

WEIGHTS = torch.tensor([[[[0.5, 0.25, 0.25], [0.001, 0.0, 0.999]], [[0.1, 0.2, 0.7], [0.0, 1.0, 0.0]]]])
FOUND = Look(
    source=["C", "<s>", "'long'"],
    read=["<s>", "N"],
    written=["N", '"'],
    attention_LHTS=WEIGHTS,
    encoder=[],
    decoder=[LayerExperts(1, torch.tensor([[2, 0], [8, 1]]), torch.tensor([[0.75, 0.2], [0.6, 0.1]]))],
)


def rows(html):
    return [re.findall(r"<td([^>]*)>", row) for row in re.findall(r"<tr>(.*?)(?=<tr>|</tbody>)", html)]


def test_each_weight_is_in_its_cell():
    first, second = rows(heat_map(FOUND, layer=0, head=0))
    said = [re.search('aria-label="(.*?)"', cell)[1] for cell in first]
    assert said == [
        "N (1) looks at C (1): 50.0 %",
        "N (1) looks at &lt;s&gt; (2): 25.0 %",
        "N (1) looks at &#39;long&#39; (3): 25.0 %",
    ]
    assert second[:2] == ["", ""]  # under 0.5 %
    # the darkest is the largest
    assert [re.search("--w:([0-9]+)", cell)[1] for cell in (*first, second[2])] == ["50", "25", "25", "100"]


def test_the_mean_and_a_head():
    assert "N (1) looks at C (1): 30.0 %" in heat_map(FOUND)
    html = heat_map(FOUND, head=1)
    assert "N (1) looks at C (1): 10.0 %" in html and "&#34; (2) looks at &lt;s&gt; (2): 100.0 %" in html


def test_tokens_head_columns_and_rows():
    html = heat_map(FOUND)
    assert re.findall(r"<th scope=col(?: class=weft-short)?><span>(.*?)</span>", html) == [
        "C",
        "&lt;s&gt;",
        "&#39;long&#39;",
    ]
    assert re.findall(r"<th scope=row><span>(.*?)</span>", html) == ["N", "&#34;"]
    assert "<s>" not in html


def test_experts_of_each_token():
    html = expert_map(FOUND)
    assert "Encoder" not in html and "Decoder" in html and "layer 2" in html
    assert (
        'aria-label="&lt;s&gt;: expert 3 (75 %), expert 1 (20 %)"><b style="--hue:140">3</b><b style="--hue:210">1</b>'
        in html
    )
    assert 'aria-label="N: expert 9 (60 %), expert 2 (10 %)"' in html
    assert "<s>" not in html


def test_a_dense_model_says_so():
    assert "dense" in expert_map(Look(FOUND.source, FOUND.read, FOUND.written, WEIGHTS, [], []))
