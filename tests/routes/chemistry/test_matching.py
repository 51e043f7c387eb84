"""RDKit ends what it is given from outside, or is not given it."""

import itertools

import pytest
from rdkit import Chem

from weftformer.routes import Constraints, judge
from weftformer.routes.chemistry import skeleton
from weftformer.routes.chemistry.matching import SearchTooLong, bounded_search
from weftformer.routes.drawing import depiction
from weftformer.routes.judging import shipped_library, templates, two_at_once
from weftformer.routes.planning.constraints import broken_by_user
from weftformer.routes.planning.settings import PlanSettings

# A cage whose rings all have an even number of atoms, and odd rings, which it has not: RDKit searches for hours.
CAGE = (
    "C1CC2CC3CCCC4C5CCC6C7CCC8C9CCCC%10CC%11CC(C)C%12CCC%13C%14CCC%15C%16CCC1C1C2C(C34)C2C5C6C3C(C%15C%14C4C5C%13C%12"
    "C%11C(C%109)C5C8C7C43)C2C%161"
)
RING = "*1" + "~*" * 43 + "~*1"
LARGE_RING = "C1" + "C" * 43 + "C1"


def clique(size):
    """Return a SMILES of atoms that are all bound to each other."""
    numbers = {}
    for pair in ((a, b) for a in range(size) for b in range(a + 2, size)):
        numbers[pair] = f"%({len(numbers) + 10})"
    return "".join(f"[U]{''.join(text for pair, text in numbers.items() if at in pair)}" for at in range(size))


@pytest.mark.parametrize("smarts", [RING, f"[$({RING})]", f"C[$([$({RING})])]"])
def test_a_search_ends_and_the_next_one_is_answered(smarts):
    molecule, pattern = Chem.MolFromSmiles(CAGE), Chem.MolFromSmarts(smarts)
    for _ in range(2):  # what the first one leaves behind would keep the second
        with pytest.raises(SearchTooLong):
            molecule.HasSubstructMatch(pattern, bounded_search(maxMatches=1))
    assert molecule.HasSubstructMatch(Chem.MolFromSmarts("C1CCCCC1"), bounded_search())
    assert not molecule.HasSubstructMatch(Chem.MolFromSmarts("CN"), bounded_search())


def test_a_search_without_end_counts_as_a_match():
    rules = Constraints(forbidden_substructures=(RING,))
    assert broken_by_user(CAGE, rules) == "forbidden_substructures"
    assert broken_by_user("CCO", rules) is None


def test_a_substructure_that_takes_too_long_is_refused_with_the_target(planner):
    settings = PlanSettings(constraints=Constraints(forbidden_substructures=(RING,)))
    with pytest.raises(ValueError, match="substructures take too long"):
        planner.requests([CAGE], settings)
    [request] = planner.requests(["CCO"], settings)
    assert request.problem is None


def test_foreign_molecules_are_judged_proposed_and_drawn_in_time():
    assert judge(LARGE_RING, [CAGE, "C"]).state == "no precedent"
    assert skeleton.sources(LARGE_RING, (CAGE,)) is None
    assert depiction._common_part(LARGE_RING, CAGE) is None
    assert skeleton.sources("C(N(=O)=O)" * 60, ("C(N(=O)=O)" * 30,)) is None
    assert shipped_library().propose(clique(14), 5) == []


def test_a_count_of_work_and_no_clock_ends_the_search_for_sources(monkeypatch):
    steroid, acid = "CCC(=O)C1CCC2C3CCC4=CC(=O)CCC4(C)C3CCC12C", "CC(C)C1=CC2=CCC3C(C)(C(=O)O)CCCC3(C)C2CC1"
    skeleton.sources.cache_clear()
    monkeypatch.setattr("time.monotonic", itertools.count(0.0, 1000.0).__next__)
    assert skeleton.sources(steroid, (acid,)) is not None
    skeleton.sources.cache_clear()
    monkeypatch.setattr(skeleton, "_MOST_WORK", 10_000)
    assert skeleton.sources(steroid, (acid,)) is None
    skeleton.sources.cache_clear()


def test_a_peptide_of_ten_residues_has_few_transformations_applied(monkeypatch):
    applied, outcomes = [], templates.outcomes
    for module in (templates, two_at_once):
        monkeypatch.setattr(module, "outcomes", lambda *of: applied.append(of) or outcomes(*of))
    monkeypatch.setattr(two_at_once, "_MOST_APPLIED", 1000)
    sides = ["C", "Cc1ccccc1", "CC(C)C", "CO", "CCSC", "C(C)C", "CC(N)=O", "Cc1ccc(O)cc1", "CCC(=O)O", "CCCCN"]
    residues = [f"N[C@@H]({side})C(=O)" for side in sides]
    whole, parts = (
        "".join(residues) + "O",
        ["".join(residues[at]) + "O" for at in (slice(3), slice(3, 6), slice(6, 10))],
    )
    two_at_once.two_at_once(whole, parts, shipped_library())
    assert 0 < len(applied) <= 1000 // len(whole)
