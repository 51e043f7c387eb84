import pytest

from weftformer.routes.chemistry.reagents import compounds, reagent_name
from weftformer.routes.judging import JudgedStep
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
        (["[I-]"], ["[I-]"]), (["[Na+]"], []), (["[Pd+2]", "CCO"], ["[Pd+2]", "ethanol"]),
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
    assert JudgedStep("C", ("O",), reagents=sets).usual_reagents == "DMF, NaH (7 of 14); methanol (5); water (1)"
    # what an earlier file may have: a number of reactions without sets
    assert JudgedStep("C", ("O",), reagents=(ReagentSet("", 3),)).usual_reagents is None
    assert most_common_sets({}) == () and JudgedStep("C", ("O",)).usual_reagents is None
    one = Transformation("A>>B", 20, reagents=sets).plus(
        Transformation("A>>B", 3, reagents=most_common_sets({"CO": 3}))
    )
    assert one.reagents[0] == ("", 17) and ("CO", 8) in one.reagents
