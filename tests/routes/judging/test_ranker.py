"""The ranker of transformations: its sums, its order, its file, and what a library proposes with it."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
import yaml

from weftformer.routes.judging import Library, Transformation, shipped_library
from weftformer.routes.judging import library as library_module
from weftformer.routes.judging.library_files import UsersLibrary
from weftformer.routes.judging.ranker import BITS, LARGEST, Ranker, fingerprint
from weftformer.routes.judging.transformation import Example
from weftformer.routes.training.aizynthfinder import write_aizynthfinder

AMIDE, AMINE = "CC(=O)NCc1ccccc1", "NCc1ccccc1"
# an amide from an acid, from an acid chloride, from an acid by another template, and an ether that the amide is not
TEMPLATES = [
    "[C:1](=[O:2])-[NH:3]>>[C:1](=[O:2])-[OH].[NH2:3]",
    "[C:1](=[O:2])-[NH:3]>>[C:1](=[O:2])-Cl.[NH2:3]",
    "[CH3:4]-[C:1](=[O:2])-[NH:3]>>[CH3:4]-[C:1](=[O:2])-[OH].[NH2:3]",
    "[CH2:1]-[O:2]-[CH2:3]>>[CH2:1]-Br.[OH:2]-[CH2:3]",
]
DIFFERENCES = ["O1", "Cl1", "O1", "Br1"]
ACID, CHLORIDE = ("CC(=O)O", AMINE), ("CC(=O)Cl", AMINE)


def tensors(num_classes, hidden=24, seed=0):
    random = torch.Generator().manual_seed(seed)
    return {
        "input.weight": (8 * torch.randn(BITS, hidden, generator=random)).half(),
        "input.bias": (8 * torch.randn(hidden, generator=random)).half(),
        "output.weight": torch.randint(-LARGEST, LARGEST + 1, (num_classes, hidden), generator=random).to(torch.int8),
        "output.scale": torch.rand(num_classes, generator=random) / 500,
        "output.bias": torch.randn(num_classes, generator=random),
        "places": torch.arange(num_classes, dtype=torch.int32),
    }


def ranker_of(logits):
    """A ranker that has the same logits for each molecule."""
    of_none = tensors(len(logits)) | {"output.bias": torch.tensor(logits)}
    return Ranker(of_none | {"output.scale": torch.zeros(len(logits))})


def library_of(*logits, own=None, rows=None):
    rows = rows or [(key, Transformation(smarts, 5)) for key, smarts in zip(DIFFERENCES, TEMPLATES, strict=True)]
    ranker = (ranker_of(list(logits)), [one for _, one in rows]) if logits else None
    library = Library(rows, ranker=ranker)
    return library if own is None else UsersLibrary(library, list(own.rows()))


@pytest.mark.parametrize("smiles", [AMIDE, "O", "CC(C)(C)OC(=O)N1CCN(c2ccc(C(=O)Nc3ccccc3F)cn2)CC1"])
def test_the_sums_are_exact_whatever_the_number_of_threads(smiles):
    parts = tensors(20_000, hidden=1024)
    ranker, threads = Ranker(parts), torch.get_num_threads()
    found = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            found.append(ranker.ranked(smiles, 300))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]
    bits = numpy.array(fingerprint(smiles), dtype=bool)
    hidden = parts["input.weight"].double().numpy()[bits].sum(0) + parts["input.bias"].double().numpy()
    whole = hidden.round().clip(0, LARGEST).astype(numpy.int64)
    sums = parts["output.weight"].numpy().astype(numpy.int64) @ whole
    logits = sums * parts["output.scale"].double().numpy() + parts["output.bias"].double().numpy()
    order = numpy.argsort(-logits, kind="stable")[:300]
    assert [number for number, _ in found[0]] == order.tolist()
    expected = numpy.exp(logits - numpy.logaddexp.reduce(logits))[order]
    assert [share for _, share in found[0]] == pytest.approx(expected.tolist())


def test_equal_classes_come_in_their_order():
    assert [number for number, _ in ranker_of([0.0, 1.0] * 500).ranked("CC", 4)] == [1, 3, 5, 7]


def test_a_ranker_belongs_to_its_library(tmp_path):
    file, ranker = tmp_path / "ranker.safetensors", Ranker(tensors(3))
    ranker.save(file, TEMPLATES[:3])
    assert Ranker.load(file, TEMPLATES).ranked(AMIDE, 3) == ranker.ranked(AMIDE, 3)
    for others in (TEMPLATES[::-1], TEMPLATES[:2]):
        with pytest.raises(ValueError, match=r"belongs to another library|is not a ranker"):
            Ranker.load(file, others)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(ValueError, match=f"{file} is not a ranker"):
        Ranker.load(file, TEMPLATES)
    with pytest.raises(FileNotFoundError):
        Ranker.load(tmp_path / "none", TEMPLATES)


@pytest.fixture
def any_site(monkeypatch):
    """Let the sites of all steps be certain."""
    monkeypatch.setattr(library_module, "site_probability", lambda step: 1.0)


def test_a_proposal_is_as_probable_as_its_site(monkeypatch):
    library = library_of(*torch.tensor([0.25, 0.4, 0.3, 0.05]).log().tolist())
    monkeypatch.setattr(library_module, "site_probability", lambda step: 0.5 if "Cl" in step.mapped else 1.0)
    assert library.propose(AMIDE, 9) == [(ACID, pytest.approx(0.55)), (CHLORIDE, pytest.approx(0.2))]


@pytest.mark.usefixtures("any_site")
def test_the_same_reactants_by_several_transformations_add_up():
    shares = torch.tensor([0.25, 0.4, 0.3, 0.05])
    library = library_of(*shares.log().tolist())
    assert library.propose(AMIDE, 9) == [(ACID, pytest.approx(0.55)), (CHLORIDE, pytest.approx(0.4))]
    # the most probable of them is tried first, and nothing after enough reactants
    assert library.propose(AMIDE, 1) == [(CHLORIDE, pytest.approx(0.4))]
    # nothing is tried after enough of the probability
    sure = library_of(*torch.tensor([0.997, 0.002, 0.0005, 0.0005]).log().tolist())
    assert sure.propose(AMIDE, 9) == [(ACID, pytest.approx(0.997))]


@pytest.mark.usefixtures("any_site")
def test_what_the_ranker_does_not_know_is_as_probable_as_its_examples_are_similar():
    near, far = (Example(f"C.C>>{product}", None) for product in (AMIDE, "CCCCCCCC(=O)NCCCCCC"))
    core, example_of = "[C:1]-[NH:3]>>[C:1]-[OH].[NH2:3]", (near, far, near, near)
    rows = [
        (difference, Transformation(smarts, count, core=core if smarts != TEMPLATES[1] else None, examples=(example,)))
        for difference, smarts, count, example in zip(DIFFERENCES, TEMPLATES, (5, 1, 1, 1), example_of, strict=True)
    ]
    library = Library(rows, ranker=(ranker_of([1.0]), [rows[0][1]]))
    assert [reactants for reactants, _ in library.propose(AMIDE, 9)] == [ACID]
    # no other reaction makes the change to the acid chloride
    [(reactants, share)] = library.rare.propose(AMIDE, 9)
    assert reactants == ACID and share > 0.5
    dissimilar = Library([rows[0], (rows[2][0], replace(rows[2][1], examples=(far,)))])
    assert dissimilar.rare.propose(AMIDE, 9)[0][1] < 0.01


@pytest.mark.usefixtures("any_site")
def test_all_sites_at_once_have_half_of_the_probability():
    nitro = "[NH2;D1;+0:1]-[c:2]>>O=[N+;H0;D3:1](-[O-])-[c:2]"
    library = Library([("O2", Transformation(nitro, 30))])
    both, one = "O=[N+]([O-])c1ccc([N+](=O)[O-])cc1", "Nc1ccc([N+](=O)[O-])cc1"
    assert library.propose("Nc1ccc(N)cc1", 9) == [((one,), 0.5), ((both,), 0.5)]
    assert library.propose("Nc1ccccc1", 9) == [(("O=[N+]([O-])c1ccccc1",), 1.0)]
    # an improbable transformation takes place at one site
    far = Transformation(nitro, 1, examples=(Example("CCC=O>>CCCO", None),))
    assert [reactants for reactants, _ in Library([("O2", far)], by_similarity=True).propose("Nc1ccc(N)cc1", 9)] == [
        (one,)
    ]
    # a search counts each equivalent
    acyl = "[CH3:1]-[C:2](=[O:3])-[NH;D2;+0:4]-[c:5]>>Cl-[C:2](-[CH3:1])=[O:3].[NH2;D1;+0:4]-[c:5]"
    proposed = Library([("Cl1", Transformation(acyl, 30))]).propose("CC(=O)Nc1ccc(NC(C)=O)cc1", 9)
    assert (("CC(=O)Cl", "CC(=O)Cl", "Nc1ccc(N)cc1"), 0.5) in proposed


@pytest.mark.usefixtures("any_site")
def test_a_library_without_a_ranker_proposes_the_most_common_first():
    rows = [("O1", Transformation(TEMPLATES[0], 30)), ("Cl1", Transformation(TEMPLATES[1], 10))]
    assert Library(rows).propose(AMIDE, 9) == [(ACID, 0.75), (CHLORIDE, 0.25)]


def test_own_reactions_come_first_those_of_similar_molecules_before_others():
    def own(*products):
        return Library(
            (key, Transformation(smarts, 1, examples=(Example(f"C.C>>{product}", None),)))
            for key, smarts, product in zip(DIFFERENCES, TEMPLATES, products, strict=False)
        )

    far, near = "CCCCCCCC(=O)NCCCCCC", "CC(=O)NCc1ccccc1C"
    for products, expected in (((far, near), [CHLORIDE, ACID]), ((near, far), [ACID, CHLORIDE])):
        proposed = library_of(-9.0, -9.0, -9.0, 0.0, own=own(*products)).propose(AMIDE, 9)
        assert [reactants for reactants, _ in proposed] == expected
    # an own reaction is at least as probable as any other
    [(first, share), (second, other)] = library_of(-1.0, 0.0, -9.0, -9.0, own=own(far)).propose(AMIDE, 9)
    assert (first, second) == (ACID, CHLORIDE) and share >= other > 0.5


def test_the_included_ranker_knows_the_molecule():
    library = shipped_library()
    firsts = {
        "CCN(CC)CC(=O)Nc1c(C)cccc1C": ("CCNCC", "Cc1cccc(C)c1NC(=O)CCl"),  # lidocaine, as it is made
        "CC(C)(C)OC(=O)NCc1ccccc1": ("CC(C)(C)OC(=O)OC(=O)OC(C)(C)C", AMINE),
        "c1ccc(-c2ccncc2)cc1": ("Brc1ccncc1", "OB(O)c1ccccc1"),
    }
    for smiles, expected in firsts.items():
        proposed = library.propose(smiles, 40)
        assert expected in [reactants for reactants, _ in proposed[:5]]
        shares = [share for _, share in proposed]
        assert shares == sorted(shares, reverse=True) and sum(shares) > 0.5


def test_files_of_aizynthfinder_have_the_same_probabilities(tmp_path):
    onnx = pytest.importorskip("onnx.reference")
    rows = [("O1", Transformation(TEMPLATES[0], 30, name="amide coupling")), ("Cl1", Transformation(TEMPLATES[1], 10))]
    ranker = Ranker(tensors(2))
    write_aizynthfinder(Library(rows, ranker=(ranker, [one for _, one in rows])), ["OCC", "CCO", "?"], tmp_path / "a")
    config = yaml.safe_load((tmp_path / "a" / "config.yml").read_text())
    policy, templates = config["expansion"]["weft"]
    with open(templates, newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert [row["retro_template"] for row in table] == TEMPLATES[:2] and table[0][""] == "0"
    [shares] = onnx.ReferenceEvaluator(policy).run(None, {"fingerprint": numpy.array([fingerprint(AMIDE)], "float32")})
    expected = sorted(ranker.ranked(AMIDE, 2))
    assert shares[0].tolist() == pytest.approx([share for _, share in expected], rel=1e-5)
    assert Path(config["stock"]["weft"]).read_text().split() == ["LFQSCWFLJHTTHZ-UHFFFAOYSA-N"]
    with pytest.raises(ValueError, match="has no ranker"):
        write_aizynthfinder(Library(rows), [], tmp_path)
