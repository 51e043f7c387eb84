"""What a drawing says is read, refused or remarked in the same way wherever molecules come in."""

import io

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


# A compound, and other notations of it.
NOTATIONS = (
    ("CCOCC.FB(F)F", "CC[O+](CC)[B-](F)(F)F", "CCO(CC)->B(F)(F)F", "FB(F)(F)<-O(CC)CC", "CC[O](CC)->[B](F)(F)F"),
    ("B.CSC", "C[S+](C)[BH3-]", "CS(C)->B", "CS(C)->[BH3]", "[BH3-][S+](C)C"),
    ("B.C1CCOC1", "[BH3-][O+]1CCCC1", "B<-O1CCCC1", "C1CCO(->[BH3])C1"),
    ("B.c1ccncc1", "[BH3-][n+]1ccccc1", "c1ccn(->B)cc1", "c1ccn(->[BH3])cc1"),
    ("B.CN(C)C", "C[N+](C)(C)[BH3-]", "CN(C)(C)->B", "C[N](C)(C)->[BH3]"),
    ("B.CC(C)(C)N", "CC(C)(C)[NH2+][BH3-]", "CC(C)(C)[NH2]->[BH3]", "CC(C)(C)N->B"),
    ("B.c1ccc(P(c2ccccc2)c2ccccc2)cc1", "[BH3-][P+](c1ccccc1)(c1ccccc1)c1ccccc1", "B<-P(c1ccccc1)(c1ccccc1)c1ccccc1"),
    ("B.CCNCC", "CC[NH+](CC)[BH3-]"),
    ("CO.FB(F)F", "C[OH+][B-](F)(F)F"),
    ("CC#N.FB(F)F", "CC#[N+][B-](F)(F)F", "CC#N->B(F)(F)F"),
    ("CCOCC.[Al+3].[Cl-].[Cl-].[Cl-]", "CCOCC.Cl[Al](Cl)Cl", "CC[O+](CC)[Al-](Cl)(Cl)Cl", "CCO(CC)->[Al](Cl)(Cl)Cl"),
    ("C1CCOC1.[Al+3].[Cl-].[Cl-].[Cl-]", "C1CCOC1.Cl[Al](Cl)Cl", "Cl[Al-](Cl)(Cl)[O+]1CCCC1"),
    ("CN(C)C.[AlH3]", "CN(C)C.[Al+3].[H-].[H-].[H-]", "C[N+](C)(C)[AlH3-]", "CN(C)(C)->[AlH3]"),
    ("C1CN2CCN1CC2.[CH3][Al]([CH3])[CH3].[CH3][Al]([CH3])[CH3]", "C[Al](C)C.C[Al](C)C.C1CN2CCN1CC2",
     "C[Al-](C)(C)[N+]12CC[N+](CC1)(CC2)[Al-](C)(C)C"),
    ("BrB(Br)Br.CSC", "CSC.BrB(Br)Br", "C[S+](C)[B-](Br)(Br)Br"),
    ("CSC.ClB(Cl)Cl", "ClB(Cl)Cl.CSC", "C[S+](C)[B-](Cl)(Cl)Cl"),
    ("C[N+](C)(C)[O-]", "CN(C)(C)=O", "CN(C)(C)->O", "CN(C)(C)->[O]"),
    ("[O-][n+]1ccccc1", "O=n1ccccc1", "O<-n1ccccc1", "c1ccn(->O)cc1", "[O]<-n1ccccc1"),
    ("C[N+](=O)[O-]", "CN(=O)=O", "CN(=O)->O", "C[N+]([O-])=O", "C[N](=O)=O"),
    ("CS(C)=O", "C[S+](C)[O-]", "CS(C)->O"),
    ("CP(C)(C)=O", "CP(C)(C)->O", "C[P+](C)(C)[O-]"),
    ("CS(C)(=O)=O", "CS(C)(->O)->O", "C[S+2](C)([O-])[O-]"),
    ("CN=[N+]=[N-]", "CN=N#N", "C[N-][N+]#N", "CN=[N]#[N]"),
    ("C=[N+]=[N-]", "C=N#N", "[CH2-][N+]#N"),
    ("CCOC(=O)C=[N+]=[N-]", "CCOC(=O)[CH-][N+]#N", "CCOC(=O)C=N#N"),
    ("[C-]#[N+]CC", "CC[N+]#[C-]"),
    ("CC#[N+][O-]", "CC#N=O", "CC#N->O"),
    ("C/C=[N+](/C)[O-]", "C/C=N(/C)=O"),
    ("CO[N+](=O)[O-]", "CON(=O)=O"),
    ("C=P(C)(C)C", "[CH2-][P+](C)(C)C"),
    ("CC(=O)C=P(C)(C)C", "CC(=O)[CH-][P+](C)(C)C", "CC([O-])=C[P+](C)(C)C"),
    ("CCOC(=O)C=P(c1ccccc1)(c1ccccc1)c1ccccc1", "CCOC(=O)[CH-][P+](c1ccccc1)(c1ccccc1)c1ccccc1",
     "CCOC([O-])=C[P+](c1ccccc1)(c1ccccc1)c1ccccc1"),
    ("C=S(C)C", "C[S+](C)[CH2-]"),
    ("C=S(C)(C)=O", "C[S+](C)(=O)[CH2-]", "[CH2-][S+](C)(C)=O"),
    ("CN=S(C)C", "C[S+](C)[N-]C"),
    ("CS(C)(=N)=O", "N=S(C)(C)=O", "C[S+](C)(=O)[NH-]", "C[S+](C)([NH-])=O", "C[S+](C)([O-])=N"),
    ("CN=P(C)(C)C", "C[N-][P+](C)(C)C"),
    ("O=Ic1ccccc1", "[O-][I+]c1ccccc1"),
    ("CC(C)[N-]C(C)C.[Li+]", "CC(C)N([Li])C(C)C", "[Li]N(C(C)C)C(C)C"),
    ("C[Si](C)(C)[N-][Si](C)(C)C.[K+]", "C[Si](C)(C)N([K])[Si](C)(C)C"),
    ("[NH2-].[Na+]", "N[Na]", "[Na]N"),
    ("CC(C)(C)[NH-].[Li+]", "CC(C)(C)N[Li]"),
    ("C[N-]C.C[N-]C.C[N-]C.C[N-]C.[Ti+4]", "CN([Ti](N(C)C)(N(C)C)N(C)C)C"),
    ("CC1(C)CCCC(C)(C)[N-]1.[Cl-].[Cl-].[Li+].[Mg+2]", "CC1(C)CCCC(C)(C)[N-]1.[Cl-].[Li+].[Mg+2].[Cl-]",
     "CC1(C)CCCC(C)(C)N1[Mg]Cl.[Li]Cl", "CC1(C)CCCC(C)(C)N1[Mg]Cl.[Li+].[Cl-]"),
    ("C[Si](C)(C)[N-][Si](C)(C)C.[Br-].[Mg+2]", "C[Si](C)(C)[N-][Si](C)(C)C.[Mg+2].[Br-]",
     "C[Si](C)(C)N([Mg]Br)[Si](C)(C)C"),
    ("C[Si](C)(C)[N-][Si](C)(C)C.C[Si](C)(C)[N-][Si](C)(C)C.[Zn+2]",
     "C[Si](C)(C)N([Zn]N([Si](C)(C)C)[Si](C)(C)C)[Si](C)(C)C"),
    ("[AlH4-].[Li+]", "[Al+3].[H-].[H-].[H-].[H-].[Li+]", "[Li+].[AlH3].[H-]"),
    ("[2H][Al-]([2H])([2H])[2H].[Li+]", "[Al+3].[2H-].[2H-].[2H-].[2H-].[Li+]"),
    ("CC(C)[CH2][AlH][CH2]C(C)C", "CC(C)C[AlH]CC(C)C", "CC(C)C[Al+]CC(C)C.[H-]"),
    ("CN1CC(=O)OB(c2ccccc2)OC(=O)C1", "C[N+]12CC(=O)O[B-]1(c1ccccc1)OC(=O)C2"),
    ("[Na+].[OH-]", "O[Na]"),
    ("[CH3-].[Na+]", "C[Na]"),
    ("C[NH-].[Na+]", "[Na]NC"),
)  # fmt: skip


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


NABD4, LIALD4 = "[2H][B-]([2H])([2H])[2H].[Na+]", "[2H][Al-]([2H])([2H])[2H].[Li+]"
D2, D2O = "[2H][2H]", "[2H]O[2H]"
# Labelled products, and the reactants with the reagent that supplies the label.
LABELLED = {
    "NaBD4 ketone": ("[2H]C(C)(O)c1ccccc1", ["CC(=O)c1ccccc1", NABD4]),
    "NaBD4 aldehyde": ("[2H]C(O)c1ccccc1", ["O=Cc1ccccc1", NABD4]),
    "NaBD4 ions": ("[2H]C(O)c1ccccc1", ["O=Cc1ccccc1", "[2H][B-]([2H])([2H])[2H]"]),
    "LiAlD4 ester": ("[2H]C([2H])(O)c1ccccc1", ["CCOC(=O)c1ccccc1", LIALD4]),
    "LiAlD4 ester ions": ("[2H]C([2H])(O)c1ccccc1", ["CCOC(=O)c1ccccc1", "[Al+3].[2H-].[2H-].[2H-].[2H-].[Li+]"]),
    "LiAlD4 acid": ("[2H]C([2H])(O)c1ccccc1", ["O=C(O)c1ccccc1", LIALD4]),
    "LiAlD4 amide": ("[2H]C([2H])(NC)c1ccccc1", ["CNC(=O)c1ccccc1", LIALD4]),
    "LiAlD4 diester": ("[2H]C([2H])(O)CCC([2H])([2H])O", ["CCOC(=O)CCC(=O)OCC", LIALD4]),
    "LiAlD4 nitrile": ("[2H]C([2H])(N)c1ccccc1", ["N#Cc1ccccc1", LIALD4]),
    "BD3": ("[2H]C([2H])(O)c1ccccc1", ["O=C(O)c1ccccc1", "[2H]B([2H])[2H]"]),
    "BD3 THF": ("[2H]C([2H])(O)c1ccccc1", ["O=C(O)c1ccccc1", "[2H]B([2H])[2H].C1CCOC1"]),
    "NaBD3CN": ("[2H]C(c1ccccc1)N1CCCCC1", ["O=Cc1ccccc1", "C1CCNCC1", "[2H][B-]([2H])([2H])C#N.[Na+]"]),
    "NaBD(OAc)3": ("[2H]C(c1ccccc1)N1CCCCC1", ["O=Cc1ccccc1", "C1CCNCC1", "[2H][B-](OC(C)=O)(OC(C)=O)OC(C)=O.[Na+]"]),
    "D2 alkene": ("[2H]C(C)C([2H])c1ccccc1", ["CC=Cc1ccccc1", D2]),
    "D2 alkyne 4": ("[2H]C([2H])(C)C([2H])([2H])c1ccccc1", ["CC#Cc1ccccc1", D2]),
    "D2 aryl bromide": ("[2H]c1ccc(OC)cc1", ["COc1ccc(Br)cc1", D2]),
    "BuLi/D2O": ("[2H]c1ccc(OC)cc1", ["COc1ccc(Br)cc1", D2O]),
    "BuLi/MeOD": ("[2H]c1ccc(OC)cc1", ["COc1ccc(Br)cc1", "[2H]OC"]),
    "K13CN alkyl": ("N#[13C]Cc1ccccc1", ["BrCc1ccccc1", "[K+].[13C-]#N"]),
    "K13C15N": ("[15N]#[13C]Cc1ccccc1", ["BrCc1ccccc1", "[K+].[13C-]#[15N]"]),
    "Cu13CN aryl": ("N#[13C]c1ccc(OC)cc1", ["Brc1ccc(OC)cc1", "[13C-]#N.[Cu+]"]),
    "18O amide2": ("NC(=[18O])c1ccccc1", ["N#Cc1ccccc1", "[18OH2]"]),
    "18O ester hydrolysis": ("[18OH]C(=O)c1ccccc1", ["COC(=O)c1ccccc1", "[18OH2]"]),
    "H218O2 epoxide": ("c1ccc(C2C[18O]2)cc1", ["C=Cc1ccccc1", "[18OH][18OH]"]),
    "15NH3": ("[15NH2]C(=O)c1ccccc1", ["O=C(Cl)c1ccccc1", "[15NH3]"]),
    "NaBT4": ("[3H]C(O)c1ccccc1", ["O=Cc1ccccc1", "[3H][B-]([3H])([3H])[3H].[Na+]"]),
    "T2": ("[3H]C(C)C([3H])c1ccccc1", ["CC=Cc1ccccc1", "[3H][3H]"]),
    "Bu3SnD": ("[2H]c1ccc(OC)cc1", ["COc1ccc(Br)cc1", "[2H][Sn](CCCC)(CCCC)CCCC"]),
    "Et3SiD": ("[2H]C(C)c1ccccc1", ["CC(O)c1ccccc1", "[2H][Si](CC)(CC)CC"]),
    "18F alkyl": ("[18F]CCOc1ccccc1", ["Cc1ccc(S(=O)(=O)OCCOc2ccccc2)cc1", "[18F-].[K+]"]),
}
# The same without a recorded transformation.
UNRECORDED = {
    "LiAlD4 triester 6D": ("[2H]C([2H])(O)C(C([2H])([2H])O)C([2H])([2H])O", ["CCOC(=O)C(C(=O)OCC)C(=O)OCC", LIALD4]),
    "H/D acetophenone": ("[2H]C([2H])([2H])C(=O)c1ccccc1", ["CC(=O)c1ccccc1", D2O]),
    "TFA-d arene": ("[2H]c1c([2H])c(OC)c([2H])c([2H])c1OC", ["COc1ccc(OC)cc1", "[2H]OC(=O)C(F)(F)F"]),
    "Grignard D2O": ("[2H]c1ccccc1", ["[Mg+]c1ccccc1", D2O]),
    "two 13CN": ("N#[13C]CCC[13C]#N", ["BrCCCBr", "[K+].[13C-]#N"]),
    "18O nitrile hydrolysis": ("[18OH]C(=[18O])c1ccccc1", ["N#Cc1ccccc1", "[18OH2]"]),
    "18O sulfone": ("CS(=[18O])(=[18O])c1ccccc1", ["CSc1ccccc1", "[18OH][18OH]"]),
    "13CO2 Grignard": ("O=[13C](O)c1ccccc1", ["[Mg+]c1ccccc1", "O=[13C]=O"]),
    "CD3I twice": ("[2H]C([2H])([2H])N(c1ccccc1)C([2H])([2H])[2H]", ["Nc1ccccc1", "[2H]C([2H])([2H])I"]),
}
FROM_NOWHERE = {
    "none": ("[2H]C(O)c1ccccc1", ["O=Cc1ccccc1"]),
    "H": ("[2H]C(O)c1ccccc1", ["O=Cc1ccccc1", "[BH4-].[Na+]"]),
    "mono": ("[2H]C([2H])([2H])Oc1ccccc1", ["Oc1ccccc1", "[2H]CI"]),
    "13C2": ("[13CH3][13CH2]Oc1ccccc1", ["Oc1ccccc1", "[13CH3]CI"]),
    "13C": ("N#[13C]Cc1ccccc1", ["BrCc1ccccc1", "[K+].[C-]#N"]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*LABELLED, *UNRECORDED, *FROM_NOWHERE])
def test_a_labelled_reagent_reacts_like_the_reagent_and_supplies_the_isotope(name):
    judgement = judge(*(LABELLED | UNRECORDED | FROM_NOWHERE)[name])
    if name in FROM_NOWHERE:
        assert judgement.state == "fails" and judgement.reason in ("2H missing", "13C missing")
    elif name in LABELLED:
        assert judgement.state == "precedented" and judgement.precedents and judgement.remarks == ()
    else:
        assert judgement.state != "fails" and not any("isotope" in remark for remark in judgement.remarks)
