"""What is written of plans is read again, in every form."""

import csv
import json
import math
import re
from dataclasses import replace

import pytest
from rdkit import Chem
from rdkit.Chem import AllChem

from weftformer.routes import Candidate, Plan, Route, Stock, read_routes
from weftformer.routes.commands.plan import described
from weftformer.routes.files.plan_files import read_plans
from weftformer.routes.files.streams import PLAN_FORMS, write_plans
from weftformer.routes.pages.page import routes_page
from weftformer.routes.ranking import complete, rank

ESTER = Route("COC(C)=O", (Route("CC(=O)O", (Route("CC(C)O"), Route("O"))), Route("CO")))
SHORT = Route("COC(C)=O", (Route("CC(=O)O"), Route("CO")))
CHIRAL = Route(r"C/C=C/C(=O)N[C@@H](C)C(=O)O", (Route(r"C/C=C/C(=O)O"), Route("C[C@H](N)C(=O)O")))
# acetic acid is made in one place and bought in another: reactions alone cannot say that
MIXED = Route("CC(=O)OC(C)=O", (Route("CC(=O)O", (Route("CC(C)O"), Route("O"))), Route("CC(=O)O")))


def plan_of(target: str, name: str, *routes: Route) -> Plan:
    candidates = [Candidate(r.to_string(), -1.5 - i, 2, r) for i, r in enumerate(routes)]
    candidates.append(Candidate("{'smiles", -0.5, 1, problem='the text was not finished, "really"'))
    plan = rank(target, candidates, Stock(["CO", "CC(C)O", "O"]), by_score=True)
    return replace(plan, id=name, seconds=0.25, evidence="any", library=None)


PLANS = [
    plan_of("COC(C)=O", "the ester", SHORT, ESTER),
    Plan("C(", problem="'C(' is not a molecule", id="7"),
    plan_of("CCO", 'x, "y"'),
    plan_of(CHIRAL.smiles, "chiral", CHIRAL),
]


def table(tmp_path, plans, form="csv") -> list[dict]:
    """Return the rows of a table of plans."""
    assert write_plans(tmp_path / "a.csv", plans, form) == []
    with (tmp_path / "a.csv").open(newline="") as file:
        return list(csv.DictReader(file))


READ = [form for form in PLAN_FORMS if form not in ("summary", "sdf", "rdf")]


@pytest.mark.parametrize("name", ["plans", "plans.gz"])
@pytest.mark.parametrize("form", READ)
def test_every_form_is_read_again(tmp_path, form, name):
    assert write_plans(tmp_path / name, PLANS, form) == []
    assert [route.canonical() for route in read_routes(tmp_path / name)] == [
        route.canonical() for route in (SHORT, ESTER, CHIRAL)
    ]
    plans = [plan for plan, _ in read_plans(tmp_path / name)]
    found = {plan.target: plan.routes for plan in plans}
    assert [candidate.rank for candidate in plans[0].distinct] == [1, 2]
    assert found["COC(C)=O"] == [SHORT, ESTER] and list(found)[-1] == CHIRAL.smiles
    if form in ("json", "jsonl", "csv", "aizynthfinder"):  # they name targets without a route too
        assert found["CCO"] == []


GOOD, BAD = SHORT.to_dict(), {"smiles": "COC(C)=O", "children": [{"name": "x"}]}


@pytest.mark.parametrize(
    ("content", "ranks"),
    [
        ({"a": [{"type": "mol", **BAD}, {"type": "mol", **GOOD}]}, [0, 2]),
        ([[{}, None, GOOD, {"smiles": 7}]], [0, 0, 3, 0]),
        ([BAD, GOOD], [0, 2]),
        ({"schema": {}, "data": [{"target": "COC(C)=O", "trees": [BAD, 7, GOOD]}]}, [0, 0, 3]),
        ({"t": [{"rank": 1, "failure": {"code": "x"}}, {"rank": 2, "route": {"target": GOOD}}]}, [0, 2]),
        ({"t": [{"rank": 1, "route": {"target": BAD}}, {"rank": 2, "route": {"target": GOOD}}]}, [0, 2]),
    ],
)
def test_a_malformed_candidate_keeps_its_rank(tmp_path, content, ranks):
    (tmp_path / "a.json").write_text(json.dumps(content))
    ((plan, _),) = read_plans(tmp_path / "a.json")
    assert plan.target == "COC(C)=O" and [candidate.rank for candidate in plan.candidates] == ranks
    assert all((candidate.problem is None) == (candidate.rank > 0) for candidate in plan.candidates)


@pytest.mark.parametrize("content", [[7], [[7]]])
def test_candidates_of_an_unknown_target_are_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"a\.json, .*\[0\]"):
        read_plans(tmp_path / "a.json")


def test_ids_ranks_and_groups_are_in_tables(tmp_path):
    rows = table(tmp_path, PLANS)
    assert [(row["id"], row["rank"], row["group"]) for row in rows] == [
        ("the ester", "1", "1"), ("the ester", "2", "1"), ("7", "", ""), ('x, "y"', "", ""), ("chiral", "1", "1"),
    ]  # fmt: skip
    first, second, unread, nothing, _ = rows
    assert first["reactions"] == "CC(=O)O.CO>>COC(C)=O" and first["purchasable"] == "false"
    assert first["missing"] == "CC(=O)O" and second["purchasable"] == "true" and second["fails_because"] == ""
    assert unread["problem"] == "'C(' is not a molecule" and "not finished" in nothing["problem"]
    write_plans(tmp_path / "a.txt", PLANS, "reactions")
    line = "CC(C)O.O>>CC(=O)O CC(=O)O.CO>>COC(C)=O\tthe ester\t2\t-2.5"
    assert (tmp_path / "a.txt").read_text().splitlines()[1] == line


def test_remarks_about_steps_are_in_tables(tmp_path):
    diester = Route("COC(=O)Cc1ccc(C(=O)O)cc1", (Route("COC(=O)Cc1ccc(C(=O)OC)cc1"),))
    remarks = [row["remarks"] for row in table(tmp_path, [plan_of(diester.smiles, "1", diester), PLANS[0]])]
    assert remarks == ["step 1: the same transformation also makes 1 other product here", "", ""]


def test_routes_that_reactions_cannot_express_are_left_out(tmp_path):
    plans = [plan_of(MIXED.smiles, "1", MIXED), PLANS[0]]
    (why,) = write_plans(tmp_path / "a.txt", plans, "reactions")
    assert "reactions alone" in why
    assert list(read_routes(tmp_path / "a.txt")) == [SHORT, ESTER]
    table(tmp_path, plans)
    assert list(read_routes(tmp_path / "a.csv")) == [MIXED, SHORT, ESTER]
    with pytest.raises(ValueError, match="form must be one of json, jsonl"):
        write_plans(tmp_path / "a", plans, "askcos")


def test_a_summary_has_a_line_for_each_target(tmp_path):
    plans = [*PLANS, replace(rank("CO", [Candidate("", -1.0, 1, SHORT)]), id="=A1")]
    ester, unread, nothing, chiral, unknown = table(tmp_path, plans, "summary")
    # the second route is the first that can be bought
    assert (ester["solved"], ester["routes"], ester["rank"], ester["steps"]) == ("true", "2", "2", "2")
    assert ester["precedented_steps"] == "1" and float(ester["confidence"]) == pytest.approx(math.exp(-2.5 / 2), 1e-3)
    assert (unread["solved"], unread["problem"], unread["steps"]) == ("false", "'C(' is not a molecule", "")
    assert nothing["solved"] == chiral["solved"] == "false" and chiral["rank"] == "1" and chiral["seconds"] == "0.25"
    assert (unknown["solved"], unknown["id"]) == ("", "'=A1")


def test_molecules_and_reactions_for_other_programs(tmp_path):
    odd = Route("CCO", (Route("C("), Route("O")))
    plans = [*PLANS, plan_of("CCO", "odd", odd)]
    assert write_plans(tmp_path / "a.sdf", plans, "sdf") == ["RDKit cannot read C("]
    told = []
    for one in Chem.SDMolSupplier(str(tmp_path / "a.sdf")):
        fields = one.GetPropsAsDict(autoConvertStrings=False)
        told.append((Chem.MolToSmiles(one), *map(fields.get, ("id", "role", "routes", "in_stock", "stock"))))
        assert fields["solved"] == str(fields["id"] == "the ester").lower()
    assert told[:6] == [
        ("COC(C)=O", "the ester", "target", "1; 2", None, None),
        ("CC(=O)O", "the ester", "starting material", "1", "false", None),
        ("CO", "the ester", "starting material", "1; 2", "true", "sold"),
        ("CC(=O)O", "the ester", "intermediate", "2", None, None),
        ("CC(C)O", "the ester", "starting material", "2", "true", "sold"),
        ("O", "the ester", "starting material", "2", "true", "sold"),
    ]  # fmt: skip
    assert told[6][:3] == (Chem.CanonSmiles(CHIRAL.smiles), "chiral", "target")  # its stereochemistry is drawn
    phenol = plan_of("COc1ccccc1", "ring", Route("COc1ccccc1", (Route("[O-]c1ccccc1.[Na+]"), Route("CI"))))
    (why,) = write_plans(tmp_path / "a.rdf", [*plans, phenol], "rdf")
    head, *records = (tmp_path / "a.rdf").read_text().split("$RFMT\n")
    assert head.startswith("$RDFILE 1\n") and "molecule of C(.O>>CCO" in why
    blocks = [AllChem.ReactionFromRxnBlock(record.partition("$DTYPE")[0], sanitize=True) for record in records]
    sides = [[map(Chem.MolToSmiles, side) for side in (one.GetReactants(), one.GetProducts())] for one in blocks]
    assert [[list(map(Chem.CanonSmiles, side)) for side in block] for block in sides] == [
        [["CC(=O)O", "CO"], ["COC(C)=O"]], [["CC(C)O", "O"], ["CC(=O)O"]],
        [[Chem.CanonSmiles(one.smiles) for one in CHIRAL.children], [Chem.CanonSmiles(CHIRAL.smiles)]],
        [["[Na+].[O-]c1ccccc1", "CI"], ["COc1ccccc1"]],
    ]  # fmt: skip
    assert dict(re.findall(r"\$DTYPE (\w+)\n\$DATUM (.*)", records[0])) | {"precedents": "?", "reagents": "?"} == {
        "id": "the ester", "solved": "true", "routes": "1; 2", "reaction": "CC(=O)O.CO>>COC(C)=O", "name": "esterification",
        "class": "acylation", "evidence": "recorded", "state": "precedented", "precedents": "?", "reagents": "?",
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 2])
def test_every_file_of_plans_is_read(tmp_path, count):
    # an id may have any characters, and fields in front of the others too
    plans = [plan_of("COC(C)=O", "a\u2028b\u0085c\u000cd", SHORT), plan_of(CHIRAL.smiles, "\u2029", CHIRAL)][:count]
    rows = [{"comment": '[a] "salt" {b}'} | plan.to_dict() for plan in plans]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for text in (json.dumps(rows, indent=1), lines, json.dumps({"plans": rows})):
        (tmp_path / "plans").write_text(text)
        assert [plan for plan, _ in read_plans(tmp_path / "plans")] == plans


@pytest.mark.parametrize(
    ("text", "written"),
    [("=HYPERLINK(1)", "'=HYPERLINK(1)"), ("\tC", "'\tC"), ("-x", "'-x"), ("-7", "-7"), ("CC=O", "CC=O")],
)
def test_formulas_are_escaped_in_tables(tmp_path, text, written):
    first, second, _ = table(tmp_path, [Plan(text, id=text, problem="no molecule"), PLANS[0]])
    assert (first["id"], first["target"]) == (written, written) and second["score"] == "-1.5"


def test_targets_of_one_id_have_keys_of_their_own_for_retrocast(tmp_path):
    write_plans(tmp_path / "plans.json", [Plan("CCO", [], id="a")] * 3, "retrocast")
    assert json.loads((tmp_path / "plans.json").read_text()) == {"a": [], "a-2": [], "a-3": []}


BOUGHT, ABSENT = "O", ("CC(C)O", "CO")
STOCKS = {
    "list.smi": "O\n", "keys.txt": "XLYOFNOQVPJJNP-UHFFFAOYSA-N\n", "prices.csv": "smiles,price,vendor\nO,3,a\nC,,b\n",
}  # fmt: skip


@pytest.mark.parametrize("source", [*STOCKS, "Stock", "jsonl", "aizynthfinder"])
def test_text_table_and_page_say_which_materials_are_in_stock(tmp_path, source):
    stock = Stock([BOUGHT])
    if source in STOCKS:
        (tmp_path / source).write_text(STOCKS[source])
        stock = Stock.from_file(tmp_path / source, progress=False)
    plan = rank("COC(C)=O", [Candidate(ESTER.to_string(), -1.0, 2, ESTER)], stock)
    if source in PLAN_FORMS:
        write_plans(tmp_path / "plans", [plan], source)
        ((plan, _),) = read_plans(tmp_path / "plans")
        plan = replace(plan, candidates=list(map(complete, plan.candidates)))
    lines = [line for line in described(plan, 1).splitlines() if line.startswith(("├", "│", "└"))]
    assert [line.split()[-1] for line in lines if "•" in line] == [BOUGHT] and "• 1 sold" in described(plan, 1)
    (row,) = table(tmp_path, [plan])
    assert set(row["missing"].split()) == set(ABSENT) and row["purchasable"] == "false"
    page = "".join(routes_page([plan]))
    kinds = re.findall(r'<li class="(in-stock|missing|unknown)"><span class="badge">.*?<code>(.*?)</code>', page)
    assert {smiles: kind for kind, smiles in kinds} == {BOUGHT: "in-stock"} | dict.fromkeys(ABSENT, "missing")
