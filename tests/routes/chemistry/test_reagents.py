import json
from importlib.resources import files

import pytest
from rdkit import Chem

from weftformer.routes.chemistry.reagents import (
    REAGENTS_FILE,
    compounds,
    is_solvent,
    reagent_name,
    role_of,
    usual_in_words,
)
from weftformer.routes.judging.transformation import ReagentSet, Transformation, most_common_sets


@pytest.mark.parametrize(
    ("agents", "names"),
    [
        (["[K+]", "O=C([O-])[O-]", "CN(C)C=O"], ["K2CO3", "DMF"]),  # solvents last
        (["CN(C)C=O", "[H-]", "[Na+]"], ["NaH", "DMF"]),
        # a cation serves several anions
        (["[Na+]", "[OH-]", "[Cl-]", "O"], ["NaCl", "NaOH", "water"]),
        (["CN(C)C(On1nnc2cccnc21)=[N+](C)C", "F[P-](F)(F)(F)(F)F", "CCN(C(C)C)C(C)C"], ["DIPEA", "HATU"]),
        (["[Al+3]", "[H-]", "[Li+]"], ["LiAlH4"]),
        (["[Al+3]", "[H-]", "[Li+]", "[Na+]", "[OH-]"], ["LiAlH4", "NaOH"]),  # and not NaH
        # salts without a name have the amounts that their charges need
        (["[Mg+2]", "[Br-]"], ["[Br-].[Br-].[Mg+2]"]),
        # an anion alone stays, a cation alone belongs to a reactant, unless it is a metal such as palladium
        (["[I-]"], ["iodide"]), (["[Na+]"], []), (["[Pd+2]", "CCO"], ["palladium(II)", "ethanol"]),
        (["not a molecule", "CO", "CO"], ["methanol"]), ([], []),
    ],
)  # fmt: skip
def test_ions_are_put_together(agents, names):
    found = compounds(agents)
    assert sorted(map(reagent_name, found)) == sorted(names)
    assert [reagent_name(one) for one in found][-1:] == names[-1:]
    assert compounds(list(reversed(agents))) == found


def test_the_usual_reagents_are_those_of_the_reactions_that_have_some():
    sets = most_common_sets({"CO": 5, "CN(C)C=O [H-].[Na+]": 7, "O": 1, "CCO": 1})
    assert (sets[0], [one.num_reactions for one in sets]) == (("", 14), [14, 7, 5, 1, 1])
    assert usual_in_words(sets, "C", ("O",)) == "NaH, DMF (7 of 14)"
    assert usual_in_words(sets, "C", ("O",), is_of_kind=True) == "NaH, DMF (7 of 14 of this kind)"
    # what an earlier file may have: a number of reactions without sets
    assert usual_in_words((ReagentSet("", 3),), "C", ("O",)) is None
    assert most_common_sets({}) == () and usual_in_words((), "C", ("O",)) is None
    one = Transformation("A>>B", 20, reagents=sets).plus(
        Transformation("A>>B", 3, reagents=most_common_sets({"CO": 3}))
    )
    assert one.reagents[0] == ("", 17) and ("CO", 8) in one.reagents


def test_the_table_has_each_compound_once():
    table = json.loads(files("weftformer.routes.chemistry").joinpath(REAGENTS_FILE).read_text(encoding="utf-8"))
    compounds_of = [(name, smiles, role) for role, names in table.items() for name, smiles in names.items()]
    canonical = {Chem.CanonSmiles(smiles): (name.rstrip(), role) for name, smiles, role in compounds_of}
    assert len(canonical) == len(compounds_of) == len({name for name, *_ in compounds_of}) > 500
    assert all((reagent_name(smiles), role_of(smiles)) == known for smiles, known in canonical.items())
    assert is_solvent("O") and is_solvent("ClCCl") and not is_solvent("CC(=O)O") and role_of("CCCCCCCCCC") == "reagent"


AMINE, AMIDE = "NCc1ccccc1", "CC(=O)NCc1ccccc1"
STEPS = {"coupling": (AMIDE, ("CC(=O)O", AMINE)), "cleavage": (AMINE, ("CC(C)(C)OC(=O)NCc1ccccc1",))}
EDC, HOBT, BASE, DCM = "CCN=C=NCCCN(C)C", "On1nnc2ccccc21", "CCN(CC)CC", "ClCCl"
SODIUM_HYDROXIDE, HYDROGEN, PALLADIUM = "[Na+].[OH-]", "[H][H]", "[Pd]"


@pytest.mark.parametrize(
    ("step", "counts", "text"),
    [
        # salts of the amine, water and brine are no reagents, and equal sets are one
        ("coupling", {"Cl": 32, f"{EDC} Cl {HOBT} {DCM}": 3, f"{EDC} {HOBT} {DCM} O": 2}, "EDC, HOBt, DCM (5 of 37)"),
        ("coupling", {f"Cl {BASE} {DCM}": 4, f"[Cl-].[Na+] {BASE} {DCM}": 3}, "triethylamine, DCM (7 of 7)"),
        ("coupling", {"O=C(O)C(F)(F)F": 4, "[Cl-]": 3, f"{BASE}": 2}, "triethylamine (2 of 9)"),
        # but nothing else was recorded
        ("coupling", {"Cl O": 4}, "HCl, water (4 of 4)"),
        # an acid that does something, and one that neutralises
        ("cleavage", {f"O=C(O)C(F)(F)F {DCM}": 9, "Cl C1COCCO1": 4}, "TFA, DCM (9 of 13); HCl, 1,4-dioxane (4)"),
        ("cleavage", {f"Cl {SODIUM_HYDROXIDE} CO": 2, f"{SODIUM_HYDROXIDE} CO O": 3}, "NaOH, methanol (5 of 5)"),
        # solvents alone are told if nothing else is usual, and roles decide the order
        ("cleavage", {"CO": 9, f"{HYDROGEN} {PALLADIUM} CO": 2}, "palladium, hydrogen, methanol (2 of 11)"),
        ("cleavage", {"CO": 9, "CCCCCCCCCC O=[Mn]=O": 1}, "methanol (9 of 10)"),
        ("cleavage", {"CO": 2, "CCCCCCCCCC O=[Mn]=O": 1}, "MnO2, CCCCCCCCCC (1 of 3)"),
        ("cleavage", {"[Na+].[Na+].O=C([O-])[O-] COCCOC [Pd] c1ccc(P(c2ccccc2)c2ccccc2)cc1": 1},
         "palladium, PPh3, Na2CO3, DME (1 of 1)"),
    ],
)  # fmt: skip
def test_usual_reagents_are_read_by_role(step, counts, text):
    sets = {" ".join(Chem.CanonSmiles(one) for one in smiles.split()): number for smiles, number in counts.items()}
    assert usual_in_words(most_common_sets(sets), *STEPS[step]) == text
