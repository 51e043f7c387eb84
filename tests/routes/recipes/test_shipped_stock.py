"""The included stock: which molecules of recorded reactions it has."""

import gzip
import json

import pytest

from weftformer.routes import Stock
from weftformer.routes.stock.offers import LABELLED

shipped_stock = pytest.importorskip("weftformer.routes.recipes.shipped_stock")
Entry = shipped_stock.Entry


@pytest.mark.parametrize(
    ("entry", "num_made", "is_kept"),
    [
        (Entry("CNC(=O)CCl", 13, False), 0, True),
        (Entry("CNC(=O)CCl", 1, False), 0, False),  # nobody but one patent
        (Entry("CNC(=O)CCl", 13, False), 5, False),  # an intermediate, if ZINC20 does not have it
        (Entry("CNC(=O)CCl", 1, True), 5, True),
        (Entry("COc1cc2ncnc(Oc3ccc(N)cc3)c2cc1OC", 39, False), 0, False),  # an advanced intermediate
        (Entry("COc1cc2ncnc(Oc3ccc(N)cc3)c2cc1OC", 2, True), 0, False),
        (Entry("COc1ccc(P2(=S)SP(=S)(c3ccc(OC)cc3)S2)cc1", 310, False), 0, True),  # Lawesson's reagent
        (Entry("CC(C)(C)OC(=O)N1CCC(C(=O)O)CC1", 12, False), 1, True),  # Boc does not count
        (Entry("CC(O)Cl", 3, False), 0, False),
        (Entry("OCC[CH2][Mg][Br]", 9, False), 0, False),
        (Entry("C[CH2][Mg][Br]", 106, False), 1, True),
        (Entry("[2H]C([2H])([2H])I", 0, False), 0, True),  # listed
        (Entry("CC(C)C[C@@H](CO)NC(=O)OC(C)(C)C", 0, True), 0, True),  # Boc-leucinol
        (Entry("CC(C)C[C@@H](CO)NC(=O)OC(C)(C)C", 0, False), 0, False),
        (Entry("[2H]c1ccc(Br)cc1", 2, True), 0, False),
        (Entry("FF", 40, True), 0, False),
        (Entry("N#[N+]c1ccccc1", 40, True), 0, False),
        (Entry("[N-]=[N+]=NC(=O)c1ccccc1", 40, True), 0, False),
    ],
)
def test_what_suppliers_list_is_kept(entry, num_made, is_kept):
    assert shipped_stock.is_listed(entry, num_made) == is_kept


@pytest.mark.parametrize(
    ("ion", "salt"),
    [
        ("[N-]=[N+]=[N-]", "[N-]=[N+]=[N-].[Na+]"),
        ("[I-]", "[I-].[K+]"),
        ("[Br-]", "[Br-].[K+]"),
        ("C[CH2][Mg+]", "C[CH2][Mg+].[Br-]"),
        ("C[CH](C)[Mg+]", "C[CH](C)[Mg+].[Cl-]"),  # not the lithium of the turbo Grignard reagent
        ("CCN", "CCN"),
    ],
)
def test_an_ion_has_the_salt_on_its_label(ion, salt):
    assert shipped_stock.salt_of(ion) == salt


def test_the_table_is_a_stock(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shipped_stock.molbloom, "buy", lambda smiles, catalog: smiles == "CCN")
    monkeypatch.setattr(shipped_stock, "listed", lambda: frozenset(["[2H]O[2H]"]))
    acids, amines = ("CC(=O)O", "CC(=O)[O-].[Na+]"), ("CCN", "CCN.Cl")
    rows = [("CCNC(C)=O", [acid, amine]) for acid in acids for amine in amines]
    rows += [("CCN", ["CC#N"])] * 2
    lines = [json.dumps({"product": product, "reactants": reactants}) for product, reactants in rows]
    (tmp_path / "reactions.jsonl").write_text("\n".join(lines))
    out = tmp_path / "stock.csv.gz"
    shipped_stock.main([str(tmp_path / "reactions.jsonl"), "--out", str(out), "--sample", "1"])
    assert gzip.decompress(out.read_bytes()).decode() == (
        f"smiles,reactions,zinc\nCC(=O)O,4,\nCCN,4,1\n[2H]O[2H],0,{LABELLED}\n"
    )
    assert capsys.readouterr().out.endswith(f"3 molecules are in {out}, 1 in ZINC20.\n")
    stock = Stock.from_file(out, progress=False)
    assert stock.offer("[2H]O[2H]").description == LABELLED
    assert [(offer.kind, offer.reactions) for offer in map(stock.offer, ("CC(=O)O", "CCN"))] == [
        ("common", 4),
        ("sold", 4),
    ]
