import base64
import hashlib
import html
import re
from html.parser import HTMLParser

from weftformer.routes import Route
from weftformer.routes.judging import judge_route
from weftformer.routes.pages.page import routes_page
from weftformer.routes.plans import Candidate, Plan

AMIDE = Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1")))
LONGER = Route("CC(=O)NCc1ccccc1", (Route("CC(=O)Cl"), Route("NCc1ccccc1", (Route("N#Cc1ccccc1"),))))
TURNED = Route(AMIDE.smiles, AMIDE.children[::-1])
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;"


def candidate(route, rank, missing=(), **fields):
    fields |= {"missing": missing, "rank": rank, "steps": judge_route(route)}
    return Candidate(route.to_string(), -1.5 * rank, route.depth, route, **fields)


CANDIDATES = [
    candidate(AMIDE, 1),
    Candidate("{'smiles':'CC(", -2.25, 2, problem='position 14: expected "\'"', rank=2),
    candidate(TURNED, 3),  # the first one again
    candidate(LONGER, 4, missing=("CC(=O)Cl",)),
]
PLANS = [
    Plan("c1ccccc1CNC(C)=O", CANDIDATES),
    Plan("C1CC", problem="'C1CC' is not a molecule that RDKit can read."),
    Plan("CCO", [Candidate("x", -1.0, None, problem="no text", rank=1)]),
]


class Page(HTMLParser):
    """Tags with their attributes and the text after each."""

    def __init__(self, text):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]

    def values(self, name):
        return [attributes[name] for _, attributes in self.tags if name in attributes]


def text_of(page):
    return html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.S)))


def test_is_well_formed_and_asks_for_nothing():
    text = routes_page(PLANS, about={"model": "<m>", "date": "2026-11-23"})
    foot = " ".join(text_of(text[text.index("<footer") :]).split())
    assert "Model <m> Date 2026-11-23 Made with weftformer" in foot
    page = Page(text)
    assert page.open == []
    ids = page.values("id")
    assert len(ids) == len(set(ids)) and {"t1", "t2", "t3", "t1-r1", "t1-r2", "m0", "said"} <= set(ids)
    assert {reference.removeprefix("#") for reference in page.values("href") if reference != "data:,"} <= set(ids)
    assert page.values("src") == [] and "@import" not in text and "url(" not in text
    assert set(re.findall(r'https?://[^"\s]+', text)) == {"http://www.w3.org/2000/svg"}
    # the policy allows the page's own style and script only
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.S)
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()}'"


def test_summaries_of_routes_on_the_page():
    text = routes_page(PLANS)
    summaries = [re.sub(r"<[^>]*>", " ", line) for line in re.findall(r"<summary>(.*?)</summary>", text)]
    assert [" ".join(summary.split()) for summary in summaries] == [
        "Sort and filter",
        "What to buy 4 starting materials of the routes shown",
        "Rank 1 ✓ purchasable 1 of 1 step recorded score \N{MINUS SIGN}1.50 1 reaction · depth 1 · 2 starting materials",
        "3 recorded examples",
        "Rank 2 ✕ 1 not in stock 2 of 2 steps recorded score \N{MINUS SIGN}6.00 2 reactions · depth 2 · 2 starting materials",
        *["3 recorded examples"] * 2,
        *["1 candidate is not a route"] * 2,
    ]
    words = " ".join(text_of(text).split())
    assert "Not planned. 'C1CC' is not a molecule that RDKit can read." in words and "No route was found." in words
    assert "3 targets · 2 distinct routes · 1 purchasable (all starting materials in stock)" in words
    assert "Target 1 of 3 CC(=O)NCc1ccccc1 Copy SMILES 2 routes, 1 purchasable" in words
    assert "✕ not in stock CC(=O)Cl" in words and "✓ sold N#Cc1ccccc1" in words


def test_hostile_text_stays_text():
    plans = [
        Plan(HOSTILE, [candidate(AMIDE, 1), Candidate(HOSTILE, -1.0, 1, problem=HOSTILE, rank=2)]),
        Plan("CCO", problem=HOSTILE),
        Plan("CCO", [candidate(Route("C<script>", (Route("C<b>"), Route("</script>"))), 1, missing=("</script>",))]),
    ]
    text = routes_page(plans, title=HOSTILE)
    page = Page(text)
    assert len(page.all("script")) == 1 and page.all("img") == [] and page.open == []
    assert page.all("b") == [] and text.count("</script>") == 1
    assert text_of(text).count(HOSTILE) >= 6
    assert page.values("data-copy")[0] == HOSTILE


def test_steps_on_the_page():
    odd = Route(AMIDE.smiles, (Route("CC(C)=O"), Route("NCc1ccccc1", (Route("CCO"),)), Route("CCN")))
    text = routes_page([Plan(AMIDE.smiles, [candidate(LONGER, 1), candidate(odd, 2)])])
    steps = [(kind, " ".join(text_of(words).split())) for kind, words in re.findall(
        r'<li class="([\w-]+)"><span class="number">(.*?)(?:<details|</li>)', text)]  # fmt: skip
    assert [kind for kind, _ in steps] == ["in-stock", "in-stock", "missing", "unknown"]
    assert re.fullmatch(r"Step 1 nitrile reduction \d+ recorded Usual reagents: .*", steps[0][1])
    assert re.fullmatch(r"Step 2 amide from an acid chloride \d+ recorded Usual reagents: .*", steps[1][1])
    assert steps[2:] == [
        ("missing", "Step 1 fails: 5 C, 1 N missing"), ("unknown", "Step 2 not recorded no atom of CCN is needed"),
    ]  # fmt: skip
    assert text.count('class="examples"') == 2 and "0 of 2 steps recorded" in text
    assert ["data-recorded" in row for row in re.findall(r'<li class="route".*?>', text)] == [True, False]
