"""What a drawing says is read, refused or remarked in the same way wherever molecules come in."""

import io

import pytest
from rdkit import Chem

from weftformer.routes import Stock, judge
from weftformer.routes.chemistry.double_bonds import wrong_marks
from weftformer.routes.chemistry.molecules import canonical_smiles
from weftformer.routes.files.targets import targets_in
from weftformer.routes.planning.requests import one_target

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
