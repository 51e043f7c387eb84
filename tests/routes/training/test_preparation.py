"""Route files become a data set, and nothing is lost without a word."""

import gzip
import json

import datasets
import pytest

from weftformer.routes import Route, read_routes, training_pairs, write_routes
from weftformer.routes.chemistry.molecules import canonical_route, canonical_smiles
from weftformer.routes.files.formats import to_reaction_tree
from weftformer.routes.training.preparation import REASONS, Preparation, prepare
from weftformer.tokenization import build_route_tokenizer, encode_route

from ..trees import made

AMIDE = Route("CCNC(C)=O", (Route("CC(=O)O"), Route("CCN")))
ESTER = Route("COC(C)=O", (Route("CC(=O)O", (Route("CC=O"), Route("O"))), Route("CO")))
# RDKit writes these two otherwise
ALCOHOL = Route("OCC", (Route("C=C"), Route("O")))


def rows(folder) -> list[dict]:
    return datasets.load_from_disk(str(folder)).to_list()


def written(tmp_path, *routes: Route, name: str = "routes.jsonl"):
    write_routes(tmp_path / name, routes)
    return tmp_path / name


def test_rows_are_those_of_training_pairs_of_canonical_routes(tmp_path):
    turned = Route(ESTER.smiles, ESTER.children[::-1])
    path = written(tmp_path, AMIDE, ESTER, ALCOHOL, turned)
    report = prepare([path], tmp_path / "out")
    canonical = Route("CCO", ALCOHOL.children)
    assert rows(tmp_path / "out") == training_pairs([AMIDE, ESTER, canonical])
    assert (report.read, report.kept, report.rows, report.sources) == (4, 3, 3, {str(path): 3})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "routes.jsonl"]


def test_every_reason_is_counted_with_file_and_index(tmp_path):
    routes = [
        made("CCO", "C(C"), made("CCO", made("CC=O", "OCC")), made("CCN.Cl", "CCN", "Cl"), made("CCO", "[U]$[U]"),
        made("C" * 29, "C" * 40), made("C" * 30, "C"), made("CCF", "C"), made("C(C)NC(C)=O", "NCC", "CC(=O)O"),
    ]  # fmt: skip
    lines = [json.dumps({"route": AMIDE.to_dict()}), "broken", '{"target": "CCO", "trees": []}', '{"smiles": "CCO"}']
    lines += [route.to_string() for route in routes]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    settings = Preparation(max_target_length=70, max_source_length=31)
    held_out = written(tmp_path, Route("FCC", (Route("F"),)), Route("C(", (Route("O"),)), name="test.jsonl")
    report = prepare([path], tmp_path / "out", settings, exclude=[held_out])
    assert {reason: found["count"] for reason, found in report.dropped.items()} == dict.fromkeys(REASONS, 1)
    assert report.read == len(lines) and report.kept == 1
    places = [found["examples"][0]["index"] for found in report.dropped.values()]
    assert places == [f"line {number}" for number in range(2, 13)]
    assert "'$' at index" in report.dropped["unknown_character"]["examples"][0]["why"]
    assert report.dropped["unreadable_molecule"]["examples"][0]["why"].startswith("'C(C'")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["dropped"] == report.dropped
    # a test target used on the way to another is no reason
    assert prepare([written(tmp_path, Route("CF", (Route("CCF"),)))], tmp_path / "b", exclude=[held_out]).kept == 1


def rows_of(path, out, settings) -> list[dict]:
    prepare([path], out, settings)
    return rows(out)


DIESTER = made("COC(=O)COC(C)=O", made("COC(=O)CO", "O=C(O)CO", "CO"), made("CC(=O)O", "CC=O", "O"))
LONG = made("CCNC(=O)COC(C)=O", DIESTER, "CCN")


def test_each_molecule_that_is_made_is_a_target(tmp_path):
    path = written(tmp_path, LONG, ESTER)
    report = prepare([path], tmp_path / "out", Preparation(sub_routes=True))
    data = rows(tmp_path / "out")
    # acetic acid is made alike in both
    steps = {"CCNC(=O)COC(C)=O": 3, "COC(=O)COC(C)=O": 2, "COC(=O)CO": 1, "CC(=O)O": 1, "COC(C)=O": 2}
    assert [(row["source"], row["n_steps"]) for row in data] == list(steps.items())
    assert (report.read, report.kept, report.dropped["duplicate"]["count"]) == (6, 5, 1)
    assert report.dropped["duplicate"]["examples"][0]["index"] == "line 2, sub-route 1"
    assert Route.from_string(data[1]["target"]) == LONG.children[0]
    # each reaction may be a route of one step too
    steps = [part.last_step().to_string() for part in LONG.sub_routes()]
    expected = [LONG.to_string(), *steps, ESTER.to_string(), ESTER.last_step().to_string()]
    assert [row["target"] for row in rows_of(path, tmp_path / "b", Preparation(single_steps=True))] == expected


def test_reactions_for_a_model_that_predicts_products(tmp_path):
    bromide = Route("Clc1ccc(Br)cc1", (Route("Nc1ccc(Br)cc1"),))
    path = written(tmp_path, LONG, LONG, bromide)
    # the acid is an intermediate, made from other reactants
    held_out = written(tmp_path, Route("CCOC(C)=O", (Route("CC(O)=O", (Route("CC#N"),)), Route("CCO"))), name="test")
    report = prepare([path], tmp_path / "out", Preparation(forward=True, aligned=3), exclude=[held_out])
    data = rows(tmp_path / "out")
    # the acid is held out, and the second route repeats the first
    assert (report.kept, report.dropped["excluded"]["count"], report.dropped["duplicate"]["count"]) == (4, 2, 3)
    assert len({row["target"] for row in data}) == len(data) == 12
    for row, part in zip(data[:9:3], LONG.sub_routes(), strict=False):
        assert canonical_smiles(row["target"]) == part.smiles
        assert tuple(sorted(map(canonical_smiles, row["source"].split(".")))) == part.reactants
    assert (data[0]["source"], data[0]["target"]) == ("CCN.COC(=O)COC(C)=O", LONG.smiles)  # canonical at first
    # of a route to an excluded target, the other reactions are kept
    held_out = written(tmp_path, Route(LONG.smiles, (Route("C"),)), name="test")
    report = prepare([path], tmp_path / "other", Preparation(forward=True), exclude=[held_out])
    assert (report.kept, report.dropped["excluded"]["count"]) == (4, 2)
    # the part that does not react is written alike
    assert data[9]["source"].endswith("c1ccc(Br)cc1") and data[9]["target"].endswith("c1ccc(Br)cc1")


def test_atom_maps_hide_no_excluded_reaction(tmp_path):
    ether = {"product": "[CH3:1][O:2][CH3:3]", "reactants": ["[CH3:1][OH:2]", "[CH3:3]I", "[Na+:9]"]}
    amine = {"product": "[CH3:1][NH2:2]", "reactants": ["[CH3:1]I", "[NH3:2]", "[Na+:9]"]}
    path, held_out = tmp_path / "reactions.jsonl", tmp_path / "held.txt"
    path.write_text(f"{json.dumps(ether)}\n{json.dumps(amine)}\n")
    held_out.write_text("CO.CCl>>COC\n")
    report = prepare([path], tmp_path / "out", Preparation(forward=True), exclude=[held_out])
    assert report.dropped["excluded"]["count"] == 1
    assert rows(tmp_path / "out") == [{"source": "CI.N", "target": "CN", "n_steps": 1}]


@pytest.mark.parametrize(
    ("by", "held_out", "left"),
    [
        # as a target: the route to it, and all parts of that
        ("target", LONG.smiles, []),
        # as a sub-target: no target of its own any more
        ("target", "COC(=O)CO", ["CCNC(=O)COC(C)=O", "COC(=O)COC(C)=O", "CC(=O)O"]),
        # nor in the text of another
        ("made", "OCC(OC)=O", []),
        ("made", "CCN", ["CCNC(=O)COC(C)=O", "COC(=O)COC(C)=O", "COC(=O)CO", "CC(=O)O"]),
    ],
)
def test_excluded_targets_are_not_targets_of_sub_routes(tmp_path, by, held_out, left):
    test = written(tmp_path, Route(held_out, (Route("C"),)), name="test")
    path = written(tmp_path, LONG, AMIDE)
    prepare([path], tmp_path / "out", Preparation(sub_routes=True, exclude_by=by, aligned=3), exclude=[test])
    targets = [canonical_smiles(row["source"]) for row in rows(tmp_path / "out")]
    assert list(dict.fromkeys(targets)) == [*left, AMIDE.smiles]


def test_aligned_texts(tmp_path):
    path = written(tmp_path, LONG, Route("c1ccccc1OC", (Route("COS(=O)(=O)C"), Route("Oc1ccccc1"))))
    report = prepare([path], tmp_path / "out", Preparation(aligned=4, starting_material="random"))
    data, originals = rows(tmp_path / "out"), [canonical_route(route).canonical() for route in read_routes(path)]
    assert report.kept == 2 and len(data) == 8 and len({row["target"] for row in data}) == 8
    for row, smiles in zip(data, [LONG.smiles] * 4 + ["COc1ccccc1"] * 4, strict=True):
        text = Route.from_string(row["target"])
        assert row["source"] == text.smiles and canonical_smiles(text.smiles) == smiles
        assert canonical_smiles(row["starting_material"]) == row["starting_material"]  # as a planner tells it
        assert canonical_route(text).canonical() in originals
    assert [data[0]["source"], data[4]["source"]] == [LONG.smiles, "COc1ccccc1"]
    # texts that are too long are left out one by one
    lengths = [len(encode_route(build_route_tokenizer(), row["target"])) for row in data[:4]]
    assert len(set(lengths)) > 1
    fitting = rows_of(path, tmp_path / "b", Preparation(aligned=4, max_target_length=sorted(lengths)[2]))
    assert [row["target"] for row in fitting[:-4]] == [
        row["target"] for row, length in zip(data, lengths, strict=False) if length <= sorted(lengths)[2]
    ]


def test_a_failed_preparation_keeps_the_old_folder(tmp_path):
    good = written(tmp_path, AMIDE)
    broken = tmp_path / "b.json.gz"
    broken.write_bytes(gzip.compress(json.dumps([[to_reaction_tree(AMIDE)]] * 300).encode())[:-30])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"b\.json\.gz is damaged or cut off"):
        prepare([good, broken], tmp_path / "out", workers=1)
    assert sorted(tmp_path.iterdir()) == before
    prepare([good], tmp_path / "out")
    with pytest.raises(ValueError, match="exists and is not empty"):
        prepare([good], tmp_path / "out")
    with pytest.raises(ValueError, match="cut off"):
        prepare([broken], tmp_path / "out", workers=1, overwrite=True)
    assert rows(tmp_path / "out") == training_pairs([AMIDE])
    prepare([written(tmp_path, ESTER)], tmp_path / "out", overwrite=True)
    assert rows(tmp_path / "out") == training_pairs([ESTER])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.json.gz", "out", "routes.jsonl"]
    # of other people's folders and files, none is overwritten
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    for folder in (tmp_path / "mine", good):
        with pytest.raises(ValueError, match=r"is not overwritten: report\.json is missing"):
            prepare([good], folder, overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").exists()
