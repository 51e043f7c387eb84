"""The rules of a step, which the search and the judgement of a route share."""

import pytest

from weftformer.routes import Constraints, judge
from weftformer.routes.chemistry.faults import step_fault
from weftformer.routes.planning.constraints import START, ConstrainedGrammar, Text
from weftformer.tokenization import build_route_tokenizer

from ..trees import made

# a product, its reactants, and the reason why the step fails
STEPS = {
    "nothing missing": ("CC(=O)NCc1ccccc1", ["CC(=O)O", "NCc1ccccc1"], None),
    "oxidant not drawn": ("CS(C)(=O)=O", ["CSC"], None),
    "brominating agent not drawn": ("Brc1ccccc1", ["c1ccccc1"], None),
    "carbon dioxide not drawn": ("O=C(O)c1ccccc1", ["Brc1ccccc1"], None),
    "more than a reagent missing": ("NCCCCCCCCc1ccccc1", ["CCN"], "12 C missing"),
    "two reagents missing": ("CCCl", ["[SiH4]"], "2 C, 1 Cl missing"),
    # a reagent alone does not make a product
    "all atoms missing": ("CO", ["N"], "1 C, 1 O missing"),
    "unreadable product": ("CCO(C)(C)C", ["CCO"], "CCO(C)(C)C cannot be read"),
    "made from itself": ("CCO", ["OCC", "C"], "CCO is made from itself"),
    "made from itself, with a backslash": (r"F/C=C\F", [r"F\C=C/F"], r"F/C=C\F is made from itself"),
    "isotope from nowhere": ("[2H]C([2H])([2H])Oc1ccccc1", ["Oc1ccccc1", "CI"], "2H missing"),
    "isotope in the ring": ("Oc1cc[13cH]cc1", ["Brc1ccccc1"], "13C missing"),
    "isotope of a reactant": ("[2H]C([2H])([2H])Oc1ccccc1", ["Oc1ccccc1", "[2H]C([2H])([2H])I"], None),
    "unreadable reactant": ("CCO", ["C1CC"], "C1CC cannot be read"),
}


@pytest.mark.parametrize(("product", "reactants", "reason"), STEPS.values(), ids=STEPS)
def test_search_and_judgement_accept_the_same_steps(product, reactants, reason):
    fault = step_fault(product, reactants)
    assert (fault and fault.text) == reason
    assert (judge(product, reactants).state == "fails") == (reason is not None)
    tokenizer = build_route_tokenizer()
    grammar, text = ConstrainedGrammar(tokenizer, [1], Constraints()), Text(START)
    for token in tokenizer(made(product, *reactants).to_string(), add_special_tokens=False).input_ids:
        text = grammar.after(text, token, 1)
        if text.broken:
            break
    assert (text.state is None) == (reason is not None)
    assert text.broken == (fault and fault.rule)


@pytest.mark.parametrize(
    ("product", "reactants", "fails"),
    [
        ("CC(=O)Cl.Nc1ccccc1", ["CC(=O)Cl", "Nc1ccccc1"], True),
        ("CC(=O)Nc1ccccc1", ["CC(=O)Nc1ccccc1.CCO"], True),
        ("CCNC", ["CCNC.Cl"], False),
    ],
)
def test_a_mixture_is_not_made_from_its_parts(product, reactants, fails):
    assert (step_fault(product, reactants) is not None) == (judge(product, reactants).state == "fails") == fails


def test_rules_that_are_switched_off_are_not_broken():
    rules = Constraints(acyclic=False, atoms_supplied=False)
    assert step_fault("CCO", ["CCO"], rules=rules) is None
    assert step_fault("CCCCCl", ["C"], rules=rules) is None


def test_a_step_without_reactants_lacks_all_atoms():
    assert step_fault("CCO", []) == ("no reactant", "fails", "atoms_supplied")
