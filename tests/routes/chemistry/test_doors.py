"""What a drawing says is read, refused or remarked in the same way wherever molecules come in."""

import io
from pathlib import Path

import pytest
from rdkit import Chem

from weftformer.routes import Stock, judge
from weftformer.routes.chemistry.double_bonds import wrong_marks
from weftformer.routes.chemistry.molecules import canonical_smiles
from weftformer.routes.files.formats import Part, parts_of
from weftformer.routes.files.targets import targets_in
from weftformer.routes.planning.requests import one_target
from weftformer.routes.planning.settings import Constraints, PlanSettings

CIS = "C[C@H]1CCCC[C@H]1O"


def sd_file(smiles: str, groups: str = "", version: str = "V3000") -> str:
    """Return an SD file of a molecule, with stereo groups in place of those that RDKit writes."""
    molecule = Chem.MolFromSmiles(smiles)
    Chem.rdDepictor.Compute2DCoords(molecule)
    block = Chem.MolToV3KMolBlock(molecule) if version == "V3000" else Chem.MolToMolBlock(molecule)
    if groups:
        collection = f"M  V30 BEGIN COLLECTION\nM  V30 {groups}\nM  V30 END COLLECTION\n"
        block = block.replace("M  V30 END CTAB", f"{collection}M  V30 END CTAB")
    return f"{block}$$$$\n"


# Inputs that say what the configurations of stereocentres are relative to each other, or that they are racemic.
RELATIVE = {
    "a line": (f"{CIS} |&1:1,6| a\n", "x.smi"),
    "one of two enantiomers": (f"{CIS} |o1:1,6|\n", "x.smi"),
    "a racemate": (f"{CIS} |r|\ta\n", "x.smi"),
    "one centre": ("C[C@H](N)c1ccccc1 |&1:1|\n", "x.smi"),
    "mixed groups": (f"{CIS} |o1:1,&2:6|\n", "x.smi"),
    "a table": (f'id,smiles\na,"{CIS} |&1:1,6|"\n', "x.csv"),
    "a table without quotes": (f"smiles,id\n{CIS} |&1:1,6|,a\n", "x.csv"),
    "a column of its own": (f'id,smiles,CXSMILES\na,{CIS},"{CIS} |o1:1,6|"\n', "x.csv"),
    "tabs": (f"id\tcx_smiles\na\t{CIS} |&1:1,6|\n", "x.tsv"),
    "STERAC": (sd_file(CIS, "MDLV30/STERAC1 ATOMS=(2 2 7)"), "x.sdf"),
    "STEREL": (sd_file(CIS, "MDLV30/STEREL1 ATOMS=(2 2 7)"), "x.sdf"),
    "STEREL of one centre": (sd_file("C[C@H](N)c1ccccc1", "MDLV30/STEREL1 ATOMS=(1 2)"), "x.sdf"),
}


def test_a_cached_stock_remarks_a_relative_configuration(tmp_path, caplog):
    (tmp_path / "x.smi").write_text(f"{CIS} |&1:1,6|\nCCO\n{CIS} |o1:1,6|\n")
    first = Stock.from_file(tmp_path / "x.smi", progress=False)
    caplog.clear()
    again = Stock.from_file(tmp_path / "x.smi", progress=False)
    assert vars(again).keys() == vars(first).keys() and again.flattened == first.flattened
    assert "relative configuration: 2" in caplog.text and "has a relative configuration" in caplog.text


@pytest.mark.parametrize(
    "use",
    [
        lambda smiles: PlanSettings(have=(smiles,)).have,
        lambda smiles: Constraints(forbidden=(smiles,)).forbidden,
        lambda smiles: (Constraints(required_leaf=smiles).required_leaf,),
        lambda smiles: tuple(part.route.smiles for part in parts_of({"smiles": smiles}, "", Part(""))),
    ],
    ids=["have", "forbidden", "required leaf", "route file"],
)
def test_a_setting_and_a_route_file_remark_a_relative_configuration(caplog, use):
    assert use(f"{CIS} |&1:1,6|") == ("CC1CCCCC1O",) and "relative configuration" in caplog.text
    caplog.clear()
    assert use(CIS) == (canonical_smiles(CIS),) and not caplog.records


ABSOLUTE = {
    "an absolute line": (f"{CIS} |a:1,6| a\n", "x.smi"),
    "an extension that says nothing of them": (f"{CIS} |$;;a;;;;;$| a\n", "x.smi"),
    "an absolute table": (f'id,smiles\na,"{CIS} |a:1,6|"\n', "x.csv"),
    "STEABS": (sd_file(CIS, "MDLV30/STEABS ATOMS=(2 2 7)"), "x.sdf"),
    "V2000": (sd_file(CIS, version="V2000"), "x.sdf"),
    "nothing to lose": ("CC1CCCCC1O |&1:1,6|\n", "x.smi"),
}


@pytest.mark.parametrize("case", [*RELATIVE, *ABSOLUTE])
def test_a_relative_configuration_is_remarked_and_an_absolute_one_is_read(tmp_path, caplog, case):
    text, name = (RELATIVE | ABSOLUTE)[case]
    (target,) = targets_in(io.BytesIO(text.encode()), name)
    assert target.id in ("a", "1") and target.problem is None
    smiles, remarks = one_target(target.smiles, "error")
    (tmp_path / name).write_text(text)
    stock = Stock.from_file(tmp_path / name, cache=False, progress=False)
    assert smiles in stock and str(stock).startswith("1 molecules")
    if case in RELATIVE:
        assert "@" not in smiles and "relative configuration" in remarks[0]
        assert CIS not in stock and "relative configuration: 1" in caplog.text
    else:
        assert remarks == () and not caplog.records
        assert smiles == canonical_smiles(CIS if "@" in text or name == "x.sdf" else "CC1CCCCC1O")


def test_a_stock_in_python_and_a_judgement_remark_a_relative_configuration(caplog):
    assert CIS not in Stock([f"{CIS} |&1:1,6|"]) and "relative configuration" in caplog.text
    for step in (("CC1CCCCC1=O", [f"{CIS} |&1:1,6|"]), (f"{CIS} |o1:1,6|", ["CC1CCCCC1=O"])):
        assert any("relative configuration" in remark for remark in judge(*step).remarks)


WRONG_MARKS = {
    r"F/C(\Cl)=C/F": "contradict", r"F\C(/Cl)=C/F": "contradict", "F/C=C(/F)/Cl": "contradict",
    r"[H]\C(/C)=C/C": "contradict", "C/C=C/1CCCC/1": "contradict", "C/1=C/CCCCCC/1": "contradict",
    "F/C=C/1.Br/1": "contradict", "F/C=C/%10.Br/%10": "contradict", r"C/C(\F)=N/O": "contradict",
    "C1=C/CCCC/1": "ring of 6", "C1CCCC/C=C/1": "ring of 7", "F/C1=C(/F)CCCC1": "ring of 6",
    "C1/N=N/CC1": "ring of 5", r"C1=C/C=C\CC/1": "ring of 6", "C1=C/CCCC/1 |a|": "ring of 6",
    r"CC/C=C/C[C@H]1CC/C=C(/C)\CC1": None,
    # double bonds and rings that have room for them, or whose marks are those of a neighbour
    r"C1=C\CCCC/1": None, r"C/1=C/CCCC\1": None, "C1CCCCC/C=C/1": None, r"C/1=C/CCCCCC\1": None, "F/C(/Cl)=C/F": None,
    "F/C=C(F)/Cl": None, "F/C=CF": None, "C/C=C/1CCCC1/C": None, r"F/C1=C(\F)CCCC1": None, "C/c1ccccc1/C": None,
    "F/C=C/C1=C(/C=C/F)CCCC1": None, "C(/C=C/F)(/C=C/F)=C(/C=C/F)/C=C/F": None, r"O/N=C1/C=CC(=N\O)C=C1": None,
}  # fmt: skip


@pytest.mark.parametrize(("smiles", "said"), WRONG_MARKS.items())
def test_marks_of_double_bonds_that_cannot_be_are_refused(tmp_path, smiles, said):
    plain = smiles.split()[0]
    if said is None:
        assert wrong_marks(plain) is None
        assert {wrong_marks(Chem.MolToSmiles(Chem.MolFromSmiles(plain), doRandom=True)) for _ in range(20)} == {None}
        return
    for text, name in ((f"{smiles}\n", "x.smi"), (f'id,smiles\na,"{smiles}"\n', "x.csv")):
        (target,) = targets_in(io.BytesIO(text.encode()), name)
        with pytest.raises(ValueError, match=said):
            one_target(target.smiles, "error")
        (tmp_path / name).write_text(text + ("CCO\nCCN\n" if name == "x.smi" else "b,CCO\nc,CCN\n"))
        stock = Stock.from_file(tmp_path / name, cache=False, progress=False)
        assert (len(stock), stock.num_bad) == (2, 1) and plain not in stock
    for step in ((plain, ["CCO"]), ("CCO", [plain])):
        judged = judge(*step)
        assert judged.state == "fails" and said in judged.reason


# Each line has a compound and other notations of it.
LINES = (Path(__file__).parent / "notations.smi").read_text(encoding="utf-8").splitlines()
NOTATIONS = [line.split() for line in LINES]


@pytest.mark.parametrize("spellings", NOTATIONS, ids=lambda spellings: spellings[0])
def test_a_compound_is_one_molecule_of_a_stock_in_all_notations(tmp_path, spellings):
    assert {canonical_smiles(spelling) for spelling in spellings} == {spellings[0]}
    (tmp_path / "list.smi").write_text("CCO\n" + "".join(f"{spelling} name\n" for spelling in spellings))
    rows = "".join(f'"{spelling}",{number}\n' for number, spelling in enumerate(spellings))
    (tmp_path / "table.csv").write_text(f"smiles,id\nCCO,x\n{rows}")
    stocks = [Stock.from_file(tmp_path / name, cache=False, is_strict=True) for name in ("list.smi", "table.csv")]
    assert [len(stock) for stock in stocks] == [2, 2]
    stocks += [Stock([spelling], is_strict=True) for spelling in spellings]
    assert all(spelling in stock for spelling in spellings for stock in stocks)


@pytest.mark.parametrize("version", ["V2000", "V3000"])
def test_a_complex_of_an_sd_file_is_one_molecule_of_a_stock(tmp_path, version):
    for spellings in NOTATIONS[:6]:
        (tmp_path / "x.sdf").write_text("".join(sd_file(spelling, version=version) for spelling in spellings[:2]))
        stock = Stock.from_file(tmp_path / "x.sdf", cache=False, progress=False, is_strict=True)
        assert spellings[0] in stock and len(stock) == 1
