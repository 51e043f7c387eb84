"""Stocks: files of several kinds, queries in any SMILES, and caches beside the files."""

import gc
import gzip
import logging
import os
import pickle
import re
import weakref
from dataclasses import replace
from urllib.error import URLError

import numpy as np
import pytest
from rdkit import Chem

from weftformer.routes import Candidate, Plan, Route, Stock
from weftformer.routes.chemistry.forms import OTHER_ANOMER, OTHER_SALT, OTHER_TAUTOMER, STEREOISOMER
from weftformer.routes.chemistry.molecules import canonical_smiles
from weftformer.routes.commands.plan import described
from weftformer.routes.drawing.picture import route_picture
from weftformer.routes.pages.page import routes_page
from weftformer.routes.ranking import rank
from weftformer.routes.stock import stock as stock_module
from weftformer.routes.stock.offers import ZINC, Offer
from weftformer.routes.stock.stock import as_stock, with_own

# ethanol, benzene, acetic acid
KEYS = ["LFQSCWFLJHTTHZ-UHFFFAOYSA-N", "UHOVQNZJYSORNB-UHFFFAOYSA-N", "QTBSBXVTEAMEQO-UHFFFAOYSA-N"]


def read(path, **settings):
    return Stock.from_file(path, progress=False, **settings)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.smi", "OCC ethanol\nC1=CC=CC=C1\tbenzene\n\nCC(O)=O\n"),
        ("table.csv", 'id,SMILES,price\n1,OCC,"1,50"\n2,c1ccccc1,2\n3,CC(O)=O,3\n'),
        ("table.tsv", "smiles\tid\nOCC\t1\nc1ccccc1\t2\nCC(O)=O\t3\n"),
        ("excel.csv", '\ufeff"smiles","price"\n"OCC","1"\n"c1ccccc1","2"\n"CC(O)=O",""\n'),
        ("semicolons.csv", 'id;smiles;"name, long"\n1;OCC;"a, b"\n2;c1ccccc1;b\n3;CC(O)=O;c\n'),
        ("tokens.txt", "C C O\nc 1 c c c c c 1\nC C ( = O ) O\n"),
        ("extended.smi", "CCO |$a;;$| ethanol\nc1ccccc1 |f:0.1|\tbenzene\n[CH3:1][C:2](=O)O |r| x, y\n"),
        ("pubchem.csv", "CanonicalSMILES,IsomericSMILES\nCCO,OCC\nx,c1ccccc1\n,CC(O)=O\n"),
        ("keys.txt", "\n".join(KEYS)),
        ("keys.csv", "name,InChIKey\n" + "".join(f"x,{key}\n" for key in KEYS)),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_every_kind_are_read(tmp_path, name, text, packed):
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = read(path)
    assert len(found) == 3 and found.num_bad == 0
    assert all(smiles in found for smiles in ("CCO", "C(C)O", "c1ccccc1", "CC(=O)O"))
    assert "CCCO" not in found and "no molecule" not in found and "" not in found


def test_bad_lines_are_counted_and_shown(tmp_path, caplog):
    path = tmp_path / "list.smi"
    path.write_text(f"CCO\nCCC\nnonsense!\n{'C' * 2000}\nC1CC\n{'C' * 2001}\n")
    with caplog.at_level(logging.WARNING):
        found = read(path)
    assert len(found) == 3 and found.num_bad == 3 and found.bad_lines[:2] == ["nonsense!", "C1CC"]
    assert "C" * 2000 in found and "C" * 2001 not in found
    assert "3 lines are not molecules" in caplog.text and "nonsense!" in caplog.text


def test_cache_is_used_until_the_file_changes(tmp_path, monkeypatch):
    path = tmp_path / "list.smi"
    path.write_text("CCO\nxx\nCCC\n")
    first = read(path)
    monkeypatch.setattr(stock_module, "read_entries", lambda *_: pytest.fail("the file was read again"))
    again = read(path)
    assert len(again) == len(first) == 2 and "CCC" in again and again.bad_lines == ["xx"]
    monkeypatch.undo()
    path.write_text("CCO\nCCC\nCCCC\nCCCCC\n")
    assert len(read(path)) == 4
    (tmp_path / "list.smi.weft-stock.npz").write_bytes(b"damaged")
    assert len(read(path)) == 4


def test_a_stock_that_nobody_uses_is_freed():
    stock = Stock(["CCO"])
    copy = with_own(stock, ["CCN"])
    assert all(smiles in copy for smiles in ("OCC", "CCN")) and "CCC" not in copy and "OCC" in stock
    references = [weakref.ref(stock), weakref.ref(copy)]
    del stock, copy
    gc.collect()
    assert [reference() for reference in references] == [None, None]


DAMAGE = {
    "order": lambda arrays: {"hashes": arrays["hashes"][::-1]},
    "duplicate": lambda arrays: {"hashes": arrays["hashes"][[0, 0, *range(1, len(arrays["hashes"]))]]},
    "shape": lambda arrays: {"hashes": arrays["hashes"][None]},
    "type": lambda arrays: {"hashes": arrays["hashes"].astype(np.int64)},
    "other molecules": lambda arrays: {"hashes": arrays["hashes"] + np.uint64(1)},
    "prices": lambda arrays: {"prices": np.full_like(arrays["prices"], np.nan)},
    "fewer prices": lambda arrays: {"prices": arrays["prices"][:-1]},
    "places": lambda arrays: {"starts": arrays["starts"][::-1]},
    "places outside": lambda arrays: {"starts": arrays["starts"] + np.uint64(9**9)},
    "text": lambda arrays: {"text": arrays["text"][:-1]},
    "kind": lambda arrays: {"facts": np.array(str(arrays["facts"]).replace("smiles", "inchikey"))},
    "missing": lambda arrays: {"facts": np.array("{}")},
    "objects": lambda arrays: {"hashes": np.array([{}], dtype=object)},
}


# Only the digest can tell these from another stock.
PLAUSIBLE = ("other molecules", "prices", "places", "kind", "objects")


@pytest.mark.parametrize(
    ("damage", "digest"),
    [(damage, "old") for damage in DAMAGE] + [(damage, "new") for damage in DAMAGE if damage not in PLAUSIBLE],
)
def test_a_damaged_cache_is_not_used(tmp_path, damage, digest):
    path, cache = tmp_path / "list.csv", tmp_path / "list.csv.weft-stock.npz"
    path.write_text("smiles,price_usd\nCCO,3\nCCC,5\nCCN.Cl,7\n")
    read(path)
    arrays = dict(np.load(cache))
    changed = arrays | DAMAGE[damage](arrays)
    if digest == "new":  # as if it had been written like this
        del changed["digest"]
        changed["digest"] = np.array(stock_module._digest(changed))
    np.savez(cache.open("wb"), **changed)
    found = read(path)
    assert len(found) == 3 and "CCCC" not in found and found.num_bad == 0
    assert [found.offer(smiles).price for smiles in ("CCO", "CCC", "CCN")] == [3, 5, 7]
    with np.load(cache) as rebuilt:
        assert rebuilt["digest"] == arrays["digest"]


@pytest.mark.parametrize("place", [b"PK\x01\x02", b"PK\x03\x04", b"NUMPY"])
@pytest.mark.parametrize("offset", range(0, 30, 3))
def test_a_cache_with_a_wrong_byte_is_not_used(tmp_path, place, offset):
    path, cache = tmp_path / "list.smi", tmp_path / "list.smi.weft-stock.npz"
    path.write_text("CCO\nCCC\nCCN.Cl\n")
    read(path)
    data = bytearray(cache.read_bytes())
    for found in re.finditer(re.escape(place), bytes(data)):
        data[found.start() + offset] ^= 0x5A
    cache.write_bytes(data)
    stock = read(path)
    assert len(stock) == 3 and "CCO" in stock and "CCCC" not in stock and stock.offer("CCN").form == "HCl salt"


def test_a_folder_in_place_of_the_cache_is_left_alone(tmp_path, caplog):
    (tmp_path / "list.smi").write_text("CCO\n")
    (tmp_path / "list.smi.weft-stock.npz").mkdir()
    assert "CCO" in read(tmp_path / "list.smi") and "cannot be written" in caplog.text


FORMS = [
    # the molecule, what the stock has, which form that is
    ("CCN", "CCN.Cl", "HCl salt"),
    ("CCN", "CC[NH3+].[Br-]", "HBr salt"),
    ("CCN.Cl", "CCN", OTHER_SALT),
    ("CC(=O)O", "CC(=O)[O-].[Na+]", "sodium salt"),
    ("NCC(=O)O", "[NH3+]CC(=O)[O-]", OTHER_SALT),
    ("N#CCc1ccncc1", "Cl.N#CCc1ccncc1.O", OTHER_SALT),
    ("Oc1ccccn1", "O=c1cccc[nH]1", OTHER_TAUTOMER),
    ("C[Mg+]", "C[Mg]Br", "MeMgBr"),
    ("[I-]", "[K]I", "KI"),
    ("[N-]=[N+]=[N-]", "[Na+].[N-]=[N+]=[N-]", "NaN3"),
    ("CC(=O)CC(C)=O", "CC(=O)C=C(C)O", OTHER_TAUTOMER),
    ("O=C1CC=NN1", "Oc1cc[nH]n1", OTHER_TAUTOMER),
    ("OC[C@H]1OC(O)[C@H](O)[C@@H](O)[C@@H]1O", "OC[C@H]1O[C@@H](O)[C@H](O)[C@@H](O)[C@@H]1O", OTHER_ANOMER),
    ("OC[C@H]1O[C@H](O)[C@H](O)[C@@H](O)[C@@H]1O", "O=C[C@H](O)[C@@H](O)[C@H](O)[C@H](O)CO", OTHER_ANOMER),
    ("O=C(CO)[C@@H](O)[C@H](O)[C@H](O)CO", "OC[C@@]1(O)OC[C@@H](O)[C@@H](O)[C@@H]1O", OTHER_ANOMER),
    ("[18OH]C1CCCCO1", "OCCCCC=[18O]", OTHER_ANOMER),
    ("C[C@H]1OC(OC(C)=O)[C@H](O)[C@@H]1O", "C[C@H]1O[C@@H](OC(C)=O)[C@H](O)[C@@H]1O", STEREOISOMER),
    ("CC=CC[C@H](N)C(=O)O", "C/C=C/C[C@H](N)C(=O)O", STEREOISOMER),
    ("OC1CCCC[18O]1", "[18OH]CCCCC=O", OTHER_ANOMER),
    ("C[C@H](N)C(=O)OC", "C[C@H](N)C(=O)OC.Cl", "HCl salt"),
    ("CCN", "CCN.CCN.O=C(O)C(=O)O", "salt with oxalic acid"),
    ("CCN", "CCN.O=C(O)[C@H](O)[C@@H](O)C(=O)O", "salt with tartaric acid"),
    ("CCN", "CC[NH3+].O=C([O-])/C=C/C(=O)O", "salt with maleic or fumaric acid"),
    ("CCN", "CC[NH3+].F[B-](F)(F)F", "salt with tetrafluoroboric acid"),
    ("CCN", "CC[NH3+].O=C([O-])/C=C/C(=O)O.O", OTHER_SALT),
    ("NCCCC[C@H](N)C(=O)O", "NCCCC[C@H](N)C(=O)O.Cl", "HCl salt"),  # an acid of salts itself
    ("CC(=O)N[C@@H](C)C(=O)O", "CC(=O)N[C@@H](C)C(=O)O.C1CCC(NC2CCCCC2)CC1", "salt with dicyclohexylamine"),
    ("CCCC(=O)O", "CCCC(=O)[O-].CCCC[N+](CCCC)(CCCC)CCCC", "salt with tetrabutylammonium"),
]
DIFFERENT = [
    ("C[C@H](N)C(=O)OC", "C[C@@H](N)C(=O)OC.Cl"),
    ("C[C@H](N)C(=O)OC", "CC(N)C(=O)OC.Cl"),
    ("CC(N)C(=O)OC", "C[C@H](N)C(=O)OC"),  # a racemate
    ("CC(O)C(O)C(O)[C@H](O)CO", "C[C@H](O)[C@H](O)[C@H](O)[C@H](O)CO"),  # eight isomers
    ("C[C@H]1CCCCC1=O", "CC1=C(O)CCCC1"),
    ("C/C(=N\\O)c1ccccc1", "CC(N=O)c1ccccc1"),
    ("CO", "C[O-].[Na+]"),  # a base
    ("CO[C@H]1CCCCO1", "CO[C@@H]1CCCCO1"),  # glycosides stay as they are
    ("OC[C@H]1OC(O)[C@H](O)[C@@H](O)[C@@H]1O", "OC[C@H]1OC(O)[C@H](O)[C@@H](O)[C@H]1O"),  # glucose, galactose
    ("O=C1OC(O)C=C1", "O=CC=CC(=O)O"),
    ("[2H]OC1CCCCO1", "O=CCCCCO"),  # deuterium moves too
    ("[H-].[Na+]", "[Cl-].[Na+]"),
    ("[Na+].[I-]", "[K+].[I-]"),
    ("[Na+]", "[Cl-].[Na+]"),
    ("[Cl-]", "[Cl-].[Cl-].[Zn+2]"),
    ("CCN", "CCN.CCCCCCCCO"),  # a mixture
    ("O=C(O)C(=O)O", "CCN.O=C(O)C(=O)O"),
    ("C1CCC(NC2CCCCC2)CC1", "CCCC(=O)O.C1CCC(NC2CCCCC2)CC1"),
    ("C/C=C/C(C)=O", "C=CCC(C)=O"),  # hydrogens of carbon alone move
    ("CCC1=CC(=O)C=CC1=O", "C=Cc1cc(O)ccc1O"),  # hydrogens of carbon move to oxygen
    ("O=C1C=CC(=O)CC1", "Oc1ccc(O)cc1"),
    ("CC(C)=NO", "CC(C)N=O"),
]


def test_molecules_are_read_once(monkeypatch):
    """Reading them takes most of the time of a large stock."""
    calls, names = [], ["COc1ccccc1OC", "O=C1OCCC1", "CC(=O)OC", "O=[N+]([O-])c1ccccc1", "COC(=O)[C@@H]1CCCN1"]
    read_smiles = Chem.MolFromSmiles
    monkeypatch.setattr(Chem, "MolFromSmiles", lambda *given: calls.append(given) or read_smiles(*given))
    assert len(Stock(names)) == len(calls) == len(names)


@pytest.mark.parametrize(("smiles", "sold", "form"), FORMS)
def test_other_forms_are_in_stock(tmp_path, smiles, sold, form):
    (tmp_path / "list.smi").write_text(f"{sold}\nCCCCO\n")
    for stock in (read(tmp_path / "list.smi"), read(tmp_path / "list.smi")):  # the second is from the cache
        offer = stock.offer(smiles)
        assert (offer.form, offer.sold_as) == (form, canonical_smiles(sold)) and smiles in stock
        assert offer.description == f"as {form} ({offer.sold_as})"
    assert smiles not in read(tmp_path / "list.smi", is_strict=True)
    both = Stock([sold, smiles])
    assert both.offer(smiles) == Offer(smiles)  # the molecule itself comes first


@pytest.mark.parametrize(("smiles", "sold"), DIFFERENT)
def test_other_compounds_are_not_in_stock(smiles, sold):
    assert smiles not in Stock([sold]) and sold not in Stock([smiles])


def test_a_form_of_the_target_is_no_starting_material():
    stock = Stock(["O=c1cccc[nH]1", "CN.Cl"])
    assert [stock.without("Oc1ccccn1")(one) for one in ("Oc1ccccn1", "O=c1cccc[nH]1", "CN")] == [False, False, True]
    anomer = "C[C@H]1O[C@@H](OC)[C@H](O)[C@@H]1O"
    assert [Stock([anomer]).without(one)("C[C@H]1OC(OC)[C@H](O)[C@@H]1O") for one in (anomer, "CN")] == [False, True]
    assert Stock(["O=c1cccc[nH]1"], is_strict=True).without("Oc1ccccn1")("O=c1cccc[nH]1")


PRICES = """Catalog No;Structure;Price (EUR);Supplier
A-1;CCO;12.50;"Acme; Ltd"
A-2;OCC;8.00;Other
B-1;CCN.Cl;1250.00;Acme
B-2;c1ccccc1;on request;Acme
;CCC;;
x;C1CC;1;
"""


def test_prices_vendors_and_numbers_are_kept(tmp_path):
    (tmp_path / "list.csv").write_text(PRICES)
    for stock in (read(tmp_path / "list.csv"), read(tmp_path / "list.csv")):
        assert str(stock) == "4 molecules (salts or mixtures: 1, lines that are not molecules: 1)"
        assert stock.offer("C(O)C") == Offer("C(O)C", price=8.0, unit="EUR", vendor="Other", catalogue_number="A-2")
        assert stock.offer("NCC").description == "as HCl salt (CCN.Cl), 1,250.00 EUR, Acme, B-1"
        assert stock.offer("c1ccccc1").description == "Acme, B-2" and stock.offer("CCC") == Offer("CCC")
    route = Route("CC", tuple(map(Route, ("CCO", "CCN", "c1ccccc1", "CCC", "CCO", "CCCC"))))
    (one,) = rank("CC", [Candidate("", 0.0, None, route)], stock).candidates
    assert one.missing == ("CCCC",) and one.price == 1258.0 and len(one.offers) == 3
    assert one.price_in_words == "1,258.00 EUR for 2 of 5 starting materials, one listed pack of each"
    assert Candidate.from_dict(one.to_dict()) == one and one.to_dict()["offers"][1]["form"] == "HCl salt"


def test_prices_of_grams_are_told_from_those_of_packs(tmp_path):
    (tmp_path / "list.csv").write_text("smiles,ppg\nCCO,12.5\nCCN,2.5\n")
    (plan,) = rank(
        "CC", [Candidate("", 0.0, None, Route("CC", (Route("CCO"), Route("CCN"))))], read(tmp_path / "list.csv")
    ).candidates
    assert plan.price_in_words == "15.00 per g for 2 of 2 starting materials, one gram of each"


def test_common_molecules_rank_behind_sold_ones(tmp_path):
    (tmp_path / "list.csv").write_text("smiles,reactions,zinc\nCC(=O)Cl,392,\nCC(=O)O,57,1\nNCc1ccccc1,1,1\n")
    for stock in (read(tmp_path / "list.csv"), read(tmp_path / "list.csv")):
        assert [stock.offer(smiles) for smiles in ("CC(=O)Cl", "CC(=O)O")] == [
            Offer("CC(=O)Cl", kind="common", reactions=392), Offer("CC(=O)O", vendor=ZINC, reactions=57)
        ]  # fmt: skip
    routes = [Route("CC(=O)NCc1ccccc1", (Route(acid), Route("NCc1ccccc1"))) for acid in ("CC(=O)Cl", "CC(=O)O")]
    candidates = [Candidate("", -0.9 * cost, 1, route) for cost, route in enumerate(routes)]
    first, second = best = rank("CC(=O)NCc1ccccc1", candidates, stock).candidates
    assert [one.route for one in best] == routes[::-1] and first.purchasable and second.purchasable
    assert (first.sold, second.sold, second.common) == (True, False, ("CC(=O)Cl",))
    improbable = [candidates[0], replace(candidates[1], score=-1.1)]
    assert [one.route for one in rank("CC(=O)NCc1ccccc1", improbable, stock).candidates] == routes
    assert rank("CC(=O)NCc1ccccc1", candidates, with_own(stock, ["CC(=O)Cl"])).candidates[0].route == routes[0]
    assert Candidate.from_dict(second.to_dict()) == second and not second.to_dict()["sold"]
    assert second.offers[0].description == "used by 392 recorded reactions, no seller listed"
    assert [candidate.sold for candidate in candidates] == [None, None]
    text = described(Plan("CC(=O)NCc1ccccc1", best), 2)
    assert "purchasable, 1 widely used" in text and "◦ CC(=O)Cl\n" in text and "1 sold, ◦ 1 widely used" in text
    kinds = [card.kind for card in route_picture(second.route, second.missing, second.steps, second.common).cards]
    assert kinds == ["target", "common", "in-stock"]
    page = routes_page([Plan("CC(=O)NCc1ccccc1", best)])
    assert "✓ purchasable, 1 widely used" in page and '<li class="common">' in page and "392 recorded" in page


def test_an_sd_file_is_a_stock(tmp_path):
    field = "> <{}>\n{}\n\n"
    about = field.format("Price", "8") + field.format("Currency", "EUR") + field.format("Catalog_Number", "C-1")
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles(smiles)) for smiles in ("OC(=O)c1ccccc1", "CCO")]
    (tmp_path / "catalogue.sdf").write_text(f"{blocks[0]}{about}$$$$\n{blocks[1]}$$$$\nx\n\n\nno counts\n$$$$\n")
    stock = read(tmp_path / "catalogue.sdf")
    assert len(stock) == 2 and stock.num_bad == 1 and "CCO" in stock
    offer = stock.offer("O=C(O)c1ccccc1")
    assert (offer.price, offer.unit, offer.catalogue_number) == (8.0, "EUR", "C-1")


def test_a_bloom_filter_is_a_stock(tmp_path):
    molbloom = pytest.importorskip("molbloom")
    bloom = molbloom.CustomFilter(100, 1000, "mine")
    for smiles in ("CCN", "c1ccccc1", "CC(=O)O"):
        bloom.add(molbloom.canon(smiles))
    bloom.save(str(tmp_path / "mine.bloom"))
    stock = Stock.from_file(tmp_path / "mine.bloom")
    for one in (stock, pickle.loads(pickle.dumps(stock))):
        assert "NCC" in one and "c1ccccc1" in one and "CCCCCC" not in one and "no molecule" not in one
        assert one.size is None and one and one.offer("CC[NH3+].[Cl-]").form == OTHER_SALT
    assert "CC[NH3+].[Cl-]" not in Stock.from_file(tmp_path / "mine.bloom", is_strict=True)
    mini = Stock.from_file("zinc-instock-mini")
    assert "CC(=O)O" in mini and "C12C3C4C1C5C2C3C45N=[N+]=[N-]" not in mini
    with pytest.raises(FileNotFoundError):
        Stock.from_file(tmp_path / "none.bloom")


def test_a_catalogue_that_cannot_be_downloaded_is_named(monkeypatch):
    molbloom = pytest.importorskip("molbloom")

    def buy(smiles, catalog):
        raise URLError("no internet")

    monkeypatch.setattr(molbloom, "buy", buy)
    with pytest.raises(OSError, match=r"^zinc-instock .*no internet.*Use zinc-instock-mini"):
        Stock.from_file("zinc-instock")


@pytest.mark.parametrize(
    "damaged",
    [
        lambda whole: whole[: len(whole) // 2], lambda whole: whole[:16], lambda whole: b"CCO\n" * 50, lambda whole: b"",
        lambda whole: whole + b"\0", lambda whole: whole[:12] + b"\xff\xff\xff\x7f" + whole[16:],
        lambda whole: whole[:10] + bytes(8), lambda whole: whole[:6] + bytes(4) + whole[10:],
    ],
)  # fmt: skip
def test_a_damaged_bloom_filter_is_refused_before_molbloom_reads_it(tmp_path, damaged):
    molbloom = pytest.importorskip("molbloom")
    path = tmp_path / "mine.bloom"
    molbloom.CustomFilter(100, 1000, "mine").save(str(path))
    assert "CCO" not in Stock.from_file(path)
    path.write_bytes(damaged(path.read_bytes()))
    with pytest.raises(ValueError, match=r"mine\.bloom is not a whole"):
        Stock.from_file(path)


def test_a_stock_is_given_as_a_file_a_name_or_smiles(tmp_path):
    (tmp_path / "stock.smi").write_text("CCO\n")
    for stock in (["OCC"], tmp_path / "stock.smi", str(tmp_path / "stock.smi"), Stock(["CCO"]), "paroutes"):
        given = as_stock(stock)
        assert given is not None and "CCO" in given
    assert as_stock(None) is None
    with pytest.raises(FileNotFoundError, match="paroute"):
        as_stock("paroute")


def test_a_column_is_chosen_by_name(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text("smiles,My Form\nCCO,CCN\n")
    assert "CCO" in read(path) and "CCN" in read(path, column="my_form") and "CCO" not in read(path, column="my form")
    with pytest.raises(ValueError, match=r"list\.csv has no column 'mol': its first line is 'smiles,My Form'"):
        read(path, column="mol")


@pytest.mark.parametrize(
    "text", ["12.50 EUR/g", "$3", "10-20 USD", "12,50", '"1,250.00"', "on request", "0", "-5", "(5.00)", "nan", "inf"]
)
def test_a_price_is_a_number(tmp_path, caplog, text):
    """No number is guessed from another text, of which the first is shown."""
    (tmp_path / "list.csv").write_text(f"smiles;price;currency\nCCO;{text};EUR\nC;x;EUR\nO;2e1;EUR\nCC;;EUR\n")
    stock = read(tmp_path / "list.csv")
    assert [stock.offer(one).price for one in ("CCO", "C", "O", "CC")] == [None, None, 20.0, None]
    assert stock.offer("CCO") == Offer("CCO") and stock.offer("O").unit == "EUR"
    (record,) = caplog.records
    assert record.args[1] == text.strip('"')


@pytest.mark.parametrize(
    ("table", "unit"),
    [
        ("smiles,Price 1,Currency 1\nCCO,10,EUR", "EUR"),
        ("smiles,Currency,Pricing note,Price\nCCO,EUR,7,10", "EUR"),
        ("smiles,price_currency,list_price\nCCO,EUR,10", "EUR"),
        ("smiles,price_usd,currency\nCCO,10,", "USD"),
        ("smiles;Preis (EUR);Lieferant\nCCO;10.00;", "EUR"),
        ("smiles,ppg\nCCO,10", "per g"),
        ("smiles,EM_ppg,SA_ppg\nCCO,,10\nCCN,1,\nCCC,1,2", "per g"),
        ("smiles,SA_ppg,EM_ppg\nCCO,12,10", "per g"),
        ("smiles,price_per_gram,currency\nCCO,10,USD", "USD per g"),
        ("smiles,Price (EUR/g)\nCCO,10", "EUR per g"),
        ('[{"smiles": "CCO", "ppg": 10, "note": null}]', "per g"),
    ],
)
def test_prices_have_the_currency_of_their_row(tmp_path, table, unit):
    (tmp_path / "list.csv").write_text(table)
    assert read(tmp_path / "list.csv").offer("CCO") == Offer("CCO", price=10.0, unit=unit)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "file is empty"),
        (b'{"a": 1,\n"b": [2, 3],\n"c": "hello"}\n', "file is not a stock: it is JSON"),
        (b'[{"name": "ethanol"}]', "file is not a stock: it is JSON"),
        (b"\x89PNG\xff\xfe\x00", "file"),
        (gzip.compress(b"C" * 99, mtime=0)[:-9], "file is damaged"),
        *((b"smiles,name\nCCO,a\n" + rows, "a quote not closed.*line 3")
          for rows in (b'CCN,"b\nCCC,c\n', b'CCN,"b\nCCC,c\nCCCC,"d\n', b'CCN,"b\nCCC,c"\n', b'CCN,"b')),
    ],
)  # fmt: skip
def test_files_of_another_kind_are_refused(tmp_path, content, words):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]
