import re
from xml.etree import ElementTree

import pytest

from weftformer.routes import Route
from weftformer.routes.drawing.picture import LOOKS, route_picture
from weftformer.routes.drawing.svg import picture_svg, route_svg

ROUTE = Route(
    "CC(=O)NCc1ccc(OC)cc1",
    (Route("CC(=O)O"), Route("NCc1ccc(OC)cc1", (Route("N#Cc1ccc(O)cc1"), Route("CI"))), Route("CCN")),
)
SVG = "{http://www.w3.org/2000/svg}"


def parsed(*arguments, **settings):
    return ElementTree.fromstring(picture_svg(route_picture(*arguments, **settings)))


def cards(root):
    """Kind, SMILES and frame of every molecule."""
    groups = [group for group in root.iter(f"{SVG}g") if group.get("class", "").startswith("molecule")]
    titles = [group.find(f"{SVG}title").text.split(",")[0] for group in groups]
    kinds = [group.get("class").split()[1] for group in groups]
    return list(zip(kinds, titles, [group.find(f"{SVG}rect") for group in groups], groups, strict=True))


def words(group):
    return [text.text for text in group.iter(f"{SVG}text")]


def test_leaves_have_the_colour_of_the_stock():
    found = cards(parsed(ROUTE, missing=["CI"]))
    assert [(kind, smiles) for kind, smiles, *_ in found] == [
        ("target", "CC(=O)NCc1ccc(OC)cc1"), ("in-stock", "CC(=O)O"), ("intermediate", "NCc1ccc(OC)cc1"),
        ("in-stock", "N#Cc1ccc(O)cc1"), ("missing", "CI"), ("in-stock", "CCN"),
    ]  # fmt: skip
    for kind, _, frame, group in found:
        assert (frame.get("fill"), frame.get("stroke")) == (LOOKS[kind].fill, LOOKS[kind].edge)
        # not by colour alone
        assert words(group) == {"target": ["target"], "intermediate": []}.get(kind, [LOOKS[kind].label])
        assert (frame.get("stroke-dasharray") is not None) == (kind == "missing")
        marks = [path.get("d") for path in group.iter(f"{SVG}path") if path.get("class") == "mark"]
        assert [mark.count("M") for mark in marks] == {"in-stock": [1], "missing": [2]}.get(kind, [])
    # molecules are compared as RDKit reads them; an empty list means that nothing is missing
    other = cards(parsed(ROUTE, missing=["IC", "OC(C)=O"]))
    assert [smiles for kind, smiles, *_ in other if kind == "missing"] == ["CC(=O)O", "CI"]
    assert {kind for kind, *_ in cards(parsed(ROUTE, missing=()))} == {"target", "in-stock", "intermediate"}
    assert "unknown" in {kind for kind, *_ in cards(parsed(ROUTE))}


def test_every_reaction_has_an_arrow_to_its_product():
    drawn = route_picture(ROUTE)
    assert [reaction.smiles for reaction in drawn.reactions] == [
        "N#Cc1ccc(O)cc1.CI>>NCc1ccc(OC)cc1", "CC(=O)O.NCc1ccc(OC)cc1.CCN>>CC(=O)NCc1ccc(OC)cc1",
    ]  # fmt: skip
    for reaction, product, reactants in zip(drawn.reactions, (2, 0), ((3, 4), (1, 2, 5)), strict=True):
        box = drawn.cards[product].box
        assert box.right < reaction.tip[0] < box.right + 10 < reaction.joint[0] and reaction.tip[1] == box.middle
        ends = [(drawn.cards[i].box.x, drawn.cards[i].box.middle) for i in reactants]
        assert list(reaction.branches) == ends and reaction.joint[0] < ends[0][0]
        assert reaction.joint[1] == reaction.tip[1]
    groups = [group for group in parsed(ROUTE).iter(f"{SVG}g") if group.get("class") == "reaction"]
    assert [words(group) for group in groups] == [["step 1"], ["step 2"]]
    for group, reaction in zip(groups, drawn.reactions, strict=True):
        lines, head = (path.get("d") for path in group.iter(f"{SVG}path"))
        assert lines.count("M") == len(reaction.branches) + 1
        assert head.startswith(f"M{reaction.tip[0]:.1f}".removesuffix(".0"))


NAMED = Route("CC(=O)NCc1ccccc1", (Route("CC(=O)O"), Route("NCc1ccccc1", (Route("N#Cc1ccccc1"),))))


@pytest.mark.parametrize("route", [ROUTE, NAMED, Route("CCO")])
def test_labels_and_cards_do_not_overlap(route):
    drawn = route_picture(route)
    boxes = [(card.box.x, card.box.y, card.box.right, card.box.bottom) for card in drawn.cards]
    for reaction in drawn.reactions:
        for (x, y), text in zip(reaction.label_places, [f"step {reaction.number}", *reaction.lines], strict=True):
            width = 5.4 * len(text)
            boxes.append((x - width / 2, y - 8, x + width / 2, y + 2))
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0 and right <= drawn.width and top >= 0 and bottom <= drawn.height
        for other in boxes[:i]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]


def test_a_picture_stands_alone():
    svg = route_svg(ROUTE, missing=["CI"])
    assert " id=" not in svg and re.findall(r'https?://[^"]+', svg) == ["http://www.w3.org/2000/svg"]
    root = ElementTree.fromstring(svg)
    ground = root.find(f"{SVG}rect")  # white, on dark pages too
    assert ground.get("fill") == "#ffffff" and float(ground.get("width")) == float(root.get("width")) - 1
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert not root.findall(".//*[@tabindex]") and not root.findall(".//*[@data-smiles]")


def test_text_in_place_of_a_molecule():
    svg = route_svg(Route("CCO", (Route("C<>C(1"), Route("CO"))), missing=["C<>C(1"])
    assert "C&lt;&gt;C(1" in svg and "C<" not in svg
    _, (kind, _, _, group), _ = cards(ElementTree.fromstring(svg))
    assert kind == "missing" and words(group) == ["C<>C(1", "not in stock, not drawn"]
    assert group.find(f"{SVG}g") is None
