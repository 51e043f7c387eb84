"""A route on one line of reactions."""

import pytest

from weftformer.routes import Route
from weftformer.routes.files.reaction_lines import from_reaction_line, to_reaction_line

from ..trees import made

ESTER = Route("COC(C)=O", (Route("CC(=O)O", (Route("CC=O"), Route("O"))), Route("CO")))
MADE = Route("CC", (Route("C"), Route("[H][H]")))


@pytest.mark.parametrize(
    "line",
    [
        "CC(=O)O.CO>>COC(C)=O CC=O.O>>CC(=O)O",  # the target first
        "CC=O.O>[Cr]>CC(=O)O  CC(=O)O.CO>OS(=O)(=O)O.O>COC(C)=O\tpatent 7, 81 %",  # agents, a name
        "CC=O.O>>CC(=O)O CC=O.O>>CC(=O)O CC(=O)O.CO>>COC(C)=O",  # one of them twice
        "COC(C)=O>0.5>CC(=O)O.CO|CC(=O)O>1e-05>CC=O.O",  # Retro*
    ],
)
def test_lines_of_others(line):
    assert from_reaction_line(line) == ESTER
    assert to_reaction_line(ESTER) == "CC=O.O>>CC(=O)O CC(=O)O.CO>>COC(C)=O"


def test_atom_maps_are_taken_off_and_tell_reactants_from_agents():
    line = "[CH3:1][C:2](=[O:3])[OH:9].[CH3:4][OH:5].OS(=O)(=O)O.[Na+:8]>>[CH3:1][C:2](=[O:3])[O:5][CH3:4]"
    assert from_reaction_line(line) == made("[CH3][C](=[O])[O][CH3]", "[CH3][C](=[O])[OH]", "[CH3][OH]")
    # without maps in the product nobody can tell
    assert from_reaction_line("C.[Na+:8]>>CO") == Route("CO", (Route("C"), Route("[Na+]")))


@pytest.mark.parametrize(
    ("line", "reactants", "product"),
    [
        ("C.O>>CO |f:0.1|", ["C.O"], "CO"),
        ("CCl.[Na+].O.[OH-]>CC.N>CO |$a$,f:1.3,4.5,^1:2|\tUS1\t1999", ["CCl", "[Na+].[OH-]", "O"], "CO"),
        ("CN>>CN.Cl |f:1.2|", ["CN"], "CN.Cl"),  # a salt
        ("CCO>0.58>CC=O.[H][H]", ["CC=O", "[H][H]"], "CCO"),  # Retro*
        # an agent with an atom of the product is a reactant
        ("[NH2:4][CH3:5]>[CH3:1][C:2](=[O:3])OC.[Na+]>[CH3:1][C:2](=[O:3])[NH:4][CH3:5]",
         ["[NH2][CH3]", "[CH3][C](=[O])OC"], "[CH3][C](=[O])[NH][CH3]"),
        # the fragment bonds of RXN4Chemistry join the parts of a molecule
        ("BrCc1ccccc1.[Na+]~[N-]=[N+]=[N-]>>[N-]=[N+]=NCc1ccccc1", ["BrCc1ccccc1", "[Na+].[N-]=[N+]=[N-]"],
         "[N-]=[N+]=NCc1ccccc1"),
    ],
)  # fmt: skip
def test_agents_extensions_and_scores_are_read(line, reactants, product):
    route = from_reaction_line(line)
    assert (route.leaves(), route.smiles) == (reactants, product)


def test_reactions_with_atom_maps_need_not_spell_a_molecule_alike():
    oxidation = "[CH3:1][CH:2]=[O:3].[OH2:4]>>[CH3:1][C:2](=[O:3])[OH:4]"
    ester = "[OH:1][C:2](=[O:3])[CH3:4].[CH3:5][OH:6]>>[CH3:4][C:2](=[O:3])[O:6][CH3:5]"
    acid = made("[CH3][C](=[O])[OH]", "[CH3][CH]=[O]", "[OH2]")
    assert from_reaction_line(f"{oxidation} {ester}") == made("[CH3][C](=[O])[O][CH3]", acid, "[CH3][OH]")
    # the other way round the ester comes first, and with it another spelling
    assert from_reaction_line(f"{ester} {oxidation}").children[0].smiles == "[OH][C](=[O])[CH3]"
    # what RDKit cannot read is compared as it is written
    assert from_reaction_line("[CH3:1]C>>[CH5:1]C [CH5:1]C>>[CH3:1]O") == made("[CH3]O", made("[CH5]C", "[CH3]C"))


@pytest.mark.parametrize(
    "route",
    [
        Route("CCO", (Route("[Na+].[OH-]"), Route("CCCl"), Route("C(C.O)C"))),
        Route("N[Pt]", (Route("N->[Pt]"), Route("[Pt]<-N"))),  # arrows of bonds
        Route("CCCC", (MADE, MADE)),  # made alike in two places
    ],
)
def test_round_trips(route):
    assert from_reaction_line(to_reaction_line(route)) == route


def test_a_molecule_used_twice_is_made_in_both_places():
    line = "C.[H][H]>>CC CC.O>>CCO CC.CCO>>CCCC"
    assert from_reaction_line(line) == Route("CCCC", (MADE, Route("CCO", (MADE, Route("O")))))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no reaction found"),
        ("C.O>>CO yield", "reaction 2: expected reactants>>product, found 'yield'"),
        ("CC(=O)OCC>>CC(=O)Cl.CCO", "reaction 1: .* is written backwards"),
        ("[CH4:1].O>>[CH3:2]O", "reaction 1: according to the atom maps, no reactant has an atom of the product"),
        (">>CO", "reaction 1: expected"),
        ("C.O>>CO C>>CC", "do not form one route: CO, CC are made but not used"),
        ("C>>CC CC>>C", "form a cycle"),
        ("C>>CC CC>>C N.O>>NO", "CC is not used in it"),
        ("C>>CC O>>CC CC>>CCC", "CC is made in two ways"),
        (" ".join(f"{'C' * i}>>{'C' * (i + 1)}" for i in range(1, 80)), "more reactions in a row"),
        (" ".join(f"{'C' * i}.{'C' * i}>>{'C' * (i + 1)}" for i in range(1, 40)), "more than 10000 molecules"),
    ],
)
def test_invalid_reaction_lines_are_refused(line, message):
    with pytest.raises(ValueError, match=message):
        from_reaction_line(line)
