import gzip
import json
from dataclasses import replace

import pytest

from weftformer.routes.judging import Library, Transformation, library_of, load_library
from weftformer.routes.judging.library_files import combined, named
from weftformer.routes.training.extraction import (
    NO_MAPS,
    UNREADABLE,
    Extraction,
    build,
    core_of,
    is_sound,
    make_library,
    read_records,
    record_of,
    write,
)
from weftformer.routes.tree import ATOM_MAP

# an amide coupling with its agents, in two spellings
COUPLING = "[CH3:1][C:2](=[O:3])[OH:9].[NH2:4][CH2:5][CH3:6]>CN(C)C=O.[K+]>[CH3:1][C:2](=[O:3])[NH:4][CH2:5][CH3:6]"
AMONG = "[CH3:1][C:2](=[O:3])O.[NH2:4][CH2:5][CH3:6].CN(C)C=O>>[CH3:1][C:2](=[O:3])[NH:4][CH2:5][CH3:6]"
ETHER = "[CH3:1][CH2:2]Br.[OH:3][CH2:4][CH3:5]>>[CH3:1][CH2:2][O:3][CH2:4][CH3:5]"


def test_a_record_keeps_the_maps_of_the_product_alone():
    record = record_of(COUPLING, agents=("Cl",), source="US1")
    assert record.mapped.split(">>")[0] == "[CH3:1][C:2](=[O:3])[OH].[NH2:4][CH2:5][CH3:6]"
    assert (record.product, record.reactants) == ("CCNC(C)=O", "CC(=O)O.CCN")
    assert (record.agents, record.source) == (("Cl", "CN(C)C=O", "[K+]"), "US1")
    assert record_of(AMONG).agents == ("CN(C)C=O",) and record_of(AMONG).reactants == record.reactants


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[CH4:1]>>[CH4:1].O", "several products"), ("CCO", "expected reactants>>product"),
     ("[CH3:1]Q>>[CH3:1]Q", "is not a molecule")],
)  # fmt: skip
def test_a_reaction_that_is_no_record_says_why(text, reason):
    with pytest.raises(ValueError, match=reason):
        record_of(text)


def test_files_of_reactions_are_read_in_three_forms(tmp_path):
    row = {"id": "a", "mapped": AMONG, "class": 2, "agents": ["O"]}
    forms = {
        "table.csv": f"id,rxn_smiles,class,agents\na,{AMONG},2,O\nb,CC>>CC,,\n",
        "lines.jsonl": f"{json.dumps(row)}\n{json.dumps({'id': 'b', 'mapped': 'CC>>CC'})}\n",
    }
    for name, text in forms.items():
        (tmp_path / name).write_text(text)
        one, other = read_records(tmp_path / name)
        assert (one.source, one.reaction_class, one.agents) == ("a", 2, ("O", "CN(C)C=O"))
        assert (other.mapped, other.product, other.source) == ("", "CC", "b")
    (tmp_path / "lines.rsmi.gz").write_bytes(gzip.compress(f"{AMONG}\n{COUPLING}\n".encode()))
    assert [one.reactants for one in read_records(tmp_path / "lines.rsmi.gz")] == ["CC(=O)O.CCN"] * 2
    (tmp_path / "other.jsonl").write_text('{"text": "a"}')
    with pytest.raises(ValueError, match="no column with reactions"):
        list(read_records(tmp_path / "other.jsonl"))


@pytest.mark.parametrize(
    ("reaction", "agents"),
    [
        (COUPLING, ("CN(C)C=O", "[K+]")),  # the library knows it
        (AMONG, ("CN(C)C=O",)),
        # a change that nobody recorded is mapped by the common substructures
        ("[CH3:1][CH2:2][Si](C)(C)C.[NH2:3][c:4]1[cH:5][cH:6][s:7][cH:8]1>>[CH3:1][CH2:2][NH:3][c:4]1[cH:5][cH:6][s:7][cH:8]1", ()),
    ],
)  # fmt: skip
def test_a_reaction_without_atom_maps_gets_those_of_its_transformation(reaction, agents):
    record, extraction = record_of(reaction), Extraction()
    bare = record_of(ATOM_MAP.sub("", reaction))
    [mapped] = extraction.mapped(bare)
    assert bare.mapped == "" and (mapped.product, mapped.reactants) == (record.product, record.reactants)
    assert set(mapped.agents) == set(agents)
    assert extraction.template(mapped)[0].core == extraction.template(record)[0].core


def test_a_library_has_what_its_reactions_share_and_their_reagents(tmp_path):
    (tmp_path / "own.rsmi").write_text("\n".join((AMONG, COUPLING, ETHER, "CC>>CCl", "C>>")))
    rows, problems = make_library(tmp_path / "own.rsmi", progress=False)
    assert problems == {NO_MAPS: ["row 4"], UNREADABLE: ["row 5"]} and [one.count for _, one in rows] == [2, 1]
    (key, coupling), _ = rows
    assert key == "O1" and coupling.examples[0].smiles == "CC(=O)O.CCN>>CCNC(C)=O"
    assert coupling.reagents == (("", 2), ("CN(C)C=O", 2))
    path = tmp_path / "own.jsonl.gz"
    write(rows, path)
    again = load_library(path)
    assert list(again.rows()) == rows
    assert again.match("CCCNC(C)=O", ["CCCN", "CC(=O)O"]).transformation == coupling
    path.write_bytes(gzip.compress(b'{"a": 1}\n'))
    with pytest.raises(ValueError, match="is not a library of transformations"):
        load_library(path)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        *((*case, "is not a library of transformations: line 1 is") for case in (
            (0, 1), (1, 5), (1, None), (1, "[C:1]" * 500), (2, "1"), (2, True), (2, -1), (2, 1.5), (3, "2"), (4, [["C>>C", 3]]),
            (4, [[1, "x"]]), (4, [["C>>C"]]), (4, 7), (5, 5), (5, "\ud800"), (6, []), (6, 7), (7, [["CO", "2"]]), (7, 1),
        )),
        # templates and examples are read before they are needed
        *((*case, "RDKit cannot read the transformation") for case in (
            (1, "nonsense"), (1, "[C:1"), (1, "[C:1]>>[C:1"), (6, "C"), (6, "[C>>C"), (4, [["CBr", "US1"]]),
            (4, [["C1>>CO", None]]),
        )),
    ],
)  # fmt: skip
def test_fields_of_a_library_have_their_types(tmp_path, place, value, words):
    fields = ["O1", "[C:1]-[OH]>>[C:1]-Br", 2, 3, [["CBr>>CO", "US1"]], "hydrolysis", None, [["", 2]]]
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(fields) + "\n")
    assert len(load_library(path)) == 1
    fields[place] = value
    path.write_text(json.dumps(fields) + "\n")
    with pytest.raises(ValueError, match=rf"own\.jsonl.*{words}"):
        library_of(str(path))


def test_a_library_of_earlier_releases_is_read(tmp_path):
    (tmp_path / "old.jsonl").write_text(
        '["O1","A>>B",3,2,[["CC>>CC","US1"]],"coupling",{"":3}]\n["O1","C>>D",1,null,[]]\n'
    )
    first, second = (one for _, one in load_library(tmp_path / "old.jsonl").rows())
    assert (first.name, first.core, first.reagents) == ("coupling", None, ())
    assert (second.name, second.count) == (None, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("CC>>CCl\nCC>>CC", "uncertain atom maps or no template"), ("nothing", "there is no reaction that can be read"),
     ("[CH3:1][CH3:2]>>[CH3:1][CH3:2]", "no template reproduces")],
)  # fmt: skip
def test_a_file_without_transformations_says_what_to_do(tmp_path, text, reason):
    (tmp_path / "a").write_text(text)
    with pytest.raises(ValueError, match=reason):
        make_library(tmp_path / "a", progress=False)


@pytest.mark.parametrize(
    ("smarts", "sound"),
    [
        ("[C:1]-[C@H;D3;+0:2](-[C:3])-[NH:4]-[C:5]>>[C:1]-[C@H;D3;+0:2](-[C:3])-[NH2:4].Br-[C:5]", True),
        ("[C:1]-[C@H;D3;+0:2](-[C:3])-[NH:4]-[C:5]>>[C:1]-[C@@H;D3;+0:2](-[C:3])-[NH2:4].Br-[C:5]", False),
        ("[C:1]-[C@H;D3;+0:2](-[C:3])-[NH:4]-[C:5]>>[C:3]-[C@@H;D3;+0:2](-[C:1])-[NH2:4].Br-[C:5]", True),
        ("[C:1]-[C@H;D3;+0:2](-[C:3])-[NH:4]-[C:5]>>[C:1]-[CH;D3;+0:2](-[C:3])-[NH2:4].Br-[C:5]", False),
        # the centre itself changes
        ("[C:1]-[C@H;D3;+0:2](-[C:3])-[OH:4]>>[C:1]-[C;H0;D3;+0:2](-[C:3])=[O:4]", True),
        # the oxygen atom of an aryl ether is that of the phenol
        ("[C:4]-[O:5]-[c;H0:1](:[c:2]):[c:3]>>O-[c;H0:1](:[c:2]):[c:3].[C:4]-[OH;D1;+0:5]", False),
        # a carbon atom of a carbonate, tert-butoxide, triethylamine or toluene
        ("[C:2]-[C:1](=[O:3])-[OH:4]>>[C:2]-Br.O-[C:1](=[O:3])-[O-:4]", False),
        ("[C:2]=[CH2;D1;+0:1]>>C-C(-C)(-[CH3;D1;+0:1])-[O-].O=[C:2]", False),
        ("[O:2]-[CH3;D1;+0:1]>>C-C-N(-C-C)-[CH3;D1;+0:1].[OH:2]", False),
        ("[C:2]-[CH3;D1;+0:1]>>C-[Si](-C)(-[N-])-[CH3;D1;+0:1].[C:2]-[H]", False),
        ("[c:2]-[CH3;D1;+0:1]>>Br-[c:2].c1:c:c:c:c:c:1-[CH3;D1;+0:1]", False),
        # the boronic acid was mapped to its other meta position
        (
            "[c:8]:[c;H0;D3:1](-[c;H0;D3:7](:[c:5]):[c:6]:[cH;D2;+0:4]):[c:3]>>Br-[c;H0;D3:1](:[c:8]):[c:3].O-B(-O)-[c;H0;D3:4]:[c:6]:[cH;D2;+0:7]:[c:5]",
            False,
        ),
        # one substitution inverts a stereocentre
        ("[C:2]-[C@H;D3;+0:1](-[C:3])-[S;D2:4]-[C:5]>>[C:2]-[C@H;D3;+0:1](-[C:3])-Br.[SH:4]-[C:5]", False),
        ("[C:2]-[C@H;D3;+0:1](-[C:3])-[S;D2:4]-[C:5]>>[C:2]-[C@@H;D3;+0:1](-[C:3])-Br.[SH:4]-[C:5]", True),
        # carbon dioxide leaves, a nitrogen molecule leaves
        ("[C:2]-[CH3;D1;+0:1]>>[C:2]-[CH2;D2;+0:1]-C(-O)=O", True),
        ("[O:2]-[CH3;D1;+0:1]>>[OH:2].[CH2;D1;+0:1]=[N+]=[N-]", True),
    ],
)
def test_a_template_keeps_what_it_does_not_change(smarts, sound):
    assert is_sound(smarts) == sound


AMIDE_CORE = "[C:1]-[N&H1&D2&+0:2]-[C&H0&D3&+0:3]=[O&D1&H0:4]>>[C:1]-[N&H2&D1&+0:2].[O&D1&H0:4]=[C&H0&D3&+0:3]-[O]"


@pytest.mark.parametrize(
    ("smarts", "core"),
    [
        # an alkyl or an aryl group beside the carbonyl group is the same, an amine and an amide are not
        ("[C:4]-[NH;D2;+0:5]-[C;H0;D3;+0:1](=[O;D1;H0:2])-[c:3]>>O-[C;H0;D3;+0:1](=[O;D1;H0:2])-[c:3].[C:4]-[NH2;D1;+0:5]",
         AMIDE_CORE),
        # nor do the numbers and the order of the text matter
        ("[C:1]-[C;H0;D3;+0:3](=[O;D1;H0:2])-[NH;D2;+0:9]-[C:8]>>[C:8]-[NH2;D1;+0:9].O-[C;H0;D3;+0:3](-[C:1])=[O;D1;H0:2]",
         AMIDE_CORE),
        ("[C:3]-[C@H;D3;+0:1](-[O;H0;D2;+0:5]-[c:6])-[C:2]>>O-[C@@H;D3;+0:1](-[C:2])-[C:3].[OH;D1;+0:5]-[c:6]",
         "[C&H1&D3&+0:1]-[O&H0&D2&+0:2]-[c:3]>>[C&H1&D3&+0:1]-[O].[O&H1&D1&+0:2]-[c:3]"),
        ("[O;D1;H0:3]=[C:2]-[OH;D1;+0:1]>>C-[O;H0;D2;+0:1]-[C:2]=[O;D1;H0:3]",
         "[O&D1&H0:1]=[C:2]-[O&H1&D1&+0:3]>>[C]-[O&H0&D2&+0:3]-[C:2]=[O&D1&H0:1]"),
    ],
)  # fmt: skip
def test_the_core_has_what_changes_and_the_functional_groups(smarts, core):
    assert core_of(smarts) == core


def test_libraries_are_combined():
    rows = [("O1", Transformation("A>>B", 5, 2, core="k", name="amide coupling"))]
    more = [("O1", Transformation("A>>B", 2, core="k")), ("O1", Transformation("C>>D", 7))]
    (_, first), (_, second) = combined(rows, more)
    assert (first.smarts, first.count, first.name) == ("A>>B", 7, "amide coupling")
    assert second.smarts == "C>>D"


def test_names_come_from_the_same_change_in_the_example(tmp_path):
    (tmp_path / "own.rsmi").write_text(f"{AMONG}\n{ETHER}")
    rows, _ = make_library(tmp_path / "own.rsmi", progress=False)
    found = {key: (one.name, one.reaction_class) for key, one in rows}
    assert found == {"O1": ("amide coupling", 2), "Br1": ("Williamson ether formation", 1)}
    # by the core: the amide of another amine and another acid
    other = AMONG.replace("[CH2:5][CH3:6]", "[CH:5]([CH3:6])[CH3:7]").replace("[CH3:1]", "[CH3:1][CH2:8]")
    (tmp_path / "other.rsmi").write_text(other)
    more, _ = make_library(tmp_path / "other.rsmi", progress=False)
    nameless = [(key, replace(one, name=None)) for key, one in more]
    like = Library([(key, replace(one, name="a coupling")) for key, one in rows])
    assert more[0][1].smarts != rows[0][1].smarts and named(nameless, like)[0][1].name == "a coupling"
    assert named(nameless, Library([]))[0][1].name is None


def test_a_reaction_without_change_has_no_template():
    assert Extraction().template(record_of("[CH3:1][CH3:2]>>[CH3:1][CH3:2]")) == [None]
    records = [record_of(ETHER)]
    assert list(build(records, [None])) == []
