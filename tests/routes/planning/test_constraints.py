"""Whatever the model would like to write, what comes out keeps the rules, and nothing that keeps them is lost."""

from functools import cache

import numpy as np
import pytest
import torch

from weftformer import WeftConfig, WeftForConditionalGeneration
from weftformer.routes import NO_CONSTRAINTS, Constraints, Route, Stock
from weftformer.routes.chemistry.faults import REAGENTS
from weftformer.routes.chemistry.groups import unstable_kind
from weftformer.routes.chemistry.molecules import canonical_or_given, canonical_route, missing_atoms, read_molecule
from weftformer.routes.planning import constraints
from weftformer.routes.planning import model_search as search
from weftformer.routes.planning.constraints import ConstrainedGrammar
from weftformer.routes.planning.grammar import START, RouteGrammar
from weftformer.routes.planning.planner import RoutePlanner
from weftformer.tokenization import build_route_tokenizer

ALL = Constraints()
TARGET = "CO"


class SmallTokenizer:
    """Tokens enough for small routes: few enough that all of them can be written."""

    def __init__(self, characters):
        self.words = ["<s>", "<p>", "?", "{", "'smiles':", "'children':", "'", "[", "]", "}", ",", *characters]
        self.letters = set(characters)
        self.bos_token_id, self.pad_token_id, self.eos_token_id = 0, 1, 2
        self.all_special_ids = [0, 1, 2]

    def __len__(self):
        return len(self.words)

    def convert_ids_to_tokens(self, ids):
        return [self.words[index] for index in ids]

    def ids(self, text):
        found = []
        while text:
            word = next(word for word in sorted(self.words, key=len, reverse=True) if text.startswith(word))
            found.append(self.words.index(word))
            text = text[len(word) :]
        return found


class Plain:
    """The grammar alone, row by row: what a processor that remembers rows and masks is held against."""

    def __init__(self, tokenizer, limit):
        self.grammar, self.limit = RouteGrammar(tokenizer), limit

    def __call__(self, rows, scores):
        masks = []
        for row in rows.tolist():
            state = START
            for token in row:
                state = self.grammar.after(state, token, self.limit)
            masks.append(self.grammar.allowed(state, self.limit))
        return scores + torch.from_numpy(np.stack(masks))


def beginning(target):
    return f"{{'smiles':'{target}','children':[{{'smiles':'"


def all_texts(processor, tokenizer, target, letters):
    """Every route that a processor lets through, of at most so many letters in all molecules but the target."""
    words, rows, found = tokenizer.words, [[0, *tokenizer.ids(beginning(target))]], set()
    begun = len(rows[0])

    def is_small(row):
        # a bracket that is no list's would be one of a SMILES
        after = {"[": "'children':", "]": "}"}.get(words[row[-1]])
        return words[row[-2]] == after or (
            after is None and sum(words[token] in tokenizer.letters for token in row[begun:]) <= letters
        )

    while rows:
        scores = processor(torch.tensor(rows), torch.zeros(len(rows), len(tokenizer)))
        grown = []
        for row, allowed in zip(rows, scores.numpy(), strict=True):
            for token in np.flatnonzero(allowed > -1e5).tolist():
                if token == tokenizer.eos_token_id:
                    found.add("".join(words[index] for index in row[1:]))
                elif is_small([*row, token]):
                    grown.append([*row, token])
        rows = grown
    return found


def repeats(route, above):
    """Whether a molecule is made from itself."""
    name = canonical_or_given(route.smiles)
    return name in above or any(repeats(child, (*above, name)) for child in route.children)


def lacks(step):
    """Whether the reactants lack atoms of the product that no single reagent supplies, where all can be read."""
    made, *used = (read_molecule(one) for one in (step.smiles, *(child.smiles for child in step.children)))
    if None in (made, *used):
        return False
    missing = missing_atoms(made.atoms, used)
    return bool(missing) and (missing not in REAGENTS.values() or missing == made.atoms)


def keeps(rules, text, stock=None):
    """The rules as one reads them, for a whole route."""
    route = Route.from_string(text)
    parsed = list(map(read_molecule, route.molecules()))
    if rules.readable and not all(molecule and not unstable_kind(molecule.canonical) for molecule in parsed):
        return False
    if rules.acyclic and repeats(route, ()):
        return False
    if rules.atoms_supplied and any(lacks(step) for step in route.steps()):
        return False
    if not rules.readable:
        return True
    molecules = route.molecules()[1:]
    if rules.forbidden_substructures and any("C=O" in smiles or "O=C" in smiles for smiles in molecules):
        return False
    route = canonical_route(route)
    if rules.only_purchasable and stock.missing(route):
        return False
    if rules.required_leaf and rules.required_leaf not in route.leaves():
        return False
    return not set(rules.forbidden) & set(route.molecules()[1:])


@cache
def free_texts(limit, letters):
    """Every route of these sizes that the grammar allows."""
    tokenizer = SmallTokenizer("CO=")
    free = all_texts(Plain(tokenizer, limit), tokenizer, TARGET, letters)
    assert len(free) > 200 and {Route.from_string(text).depth for text in free} == set(range(1, limit + 1))
    return free


@pytest.mark.parametrize(
    "rules",
    [
        NO_CONSTRAINTS,
        ALL,
        Constraints(acyclic=False, atoms_supplied=False),
        Constraints(readable=False, acyclic=False),
        Constraints(only_purchasable=True),
        Constraints(required_leaf="C=O"),
        Constraints(required_leaf="C", atoms_supplied=False),
        Constraints(forbidden=("C=O", "C")),
        Constraints(atoms_supplied=False, forbidden_substructures=("C=O",)),
    ],
)
@pytest.mark.parametrize(("limit", "letters"), [(1, 4), (2, 3)])
def test_grammar_allows_exactly_the_routes_that_keep_the_rules(rules, limit, letters):
    tokenizer = SmallTokenizer("CO=")
    stock = Stock(["C", "C=O", "O"])
    free = free_texts(limit, letters)
    found = all_texts(ConstrainedGrammar(tokenizer, [limit], rules, stock), tokenizer, TARGET, letters)
    assert found == {text for text in free if keeps(rules, text, stock)}


def read_by(rules, children, product="c1ccccc1"):
    """What is known of a text with these reactants of a product."""
    tokenizer = build_route_tokenizer()
    grammar = ConstrainedGrammar(tokenizer, [2], rules)
    molecules = ",".join(f"{{'smiles':'{smiles}'}}" for smiles in children)
    text = constraints.Text(constraints.START)
    for token in tokenizer(f"{{'smiles':'{product}','children':[{molecules}", add_special_tokens=False).input_ids:
        text = grammar.after(text, token, 2)
        if text.state is None:
            break
    return text


@pytest.mark.parametrize(
    ("children", "is_allowed"),
    [
        (["C"] * 5, True),
        (["C"] * 6, False),
        (["C" * 56], True),
        (["C" * 30, "C" * 30], False),
        # atoms are counted, not characters
        (["[13CH2]([13CH2][13CH2][13CH2][13CH3])[13CH2][13CH2][13CH3]"], True),
    ],
)
def test_a_reaction_is_not_far_larger_than_its_product(children, is_allowed):
    assert read_by(ALL, children).broken == (None if is_allowed else "size_limited")
    assert read_by(Constraints(size_limited=False), children).broken is None


class Eager(ConstrainedGrammar):
    """Reads every molecule that may end, likely or not: what reading the likely ones is held against."""

    def _likely_ends(self, ends, *others):
        return [index for index, end in enumerate(ends) if end is None]


def restless(seed=0):
    """A model that has learned nothing; some tokens it likes more than others, so that it comes to an end."""
    torch.manual_seed(seed)
    config = WeftConfig.from_preset(
        "dms-tiny", d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_target_positions=110, lm_head_bias=True,
    )  # fmt: skip
    tokenizer = build_route_tokenizer()
    model = WeftForConditionalGeneration(config)
    with torch.no_grad():
        for word, value in ({"'": 4.0, "}": 4.0, "]": 4.0, "?": 4.0, "C": 4.0, "O": 3.0, "N": 3.0}).items():
            model.lm_head.bias[tokenizer.convert_tokens_to_ids([word])] = value
    return RoutePlanner(model, tokenizer)


@pytest.mark.parametrize("beams", [1, 9])
def test_checking_likely_ends_equals_checking_all(beams, monkeypatch):
    # when a text is given up depends on when it is read
    monkeypatch.setattr(constraints, "is_beyond_repair", lambda smiles: False)
    planner, settings = restless(2), {"n_steps": [1, 3], "beams": beams, "progress": False, "max_new_tokens": 60}
    lazy = planner.plan(["CCO", "CCCCN"], **settings)
    monkeypatch.setattr(search, "ConstrainedGrammar", Eager)
    eager = planner.plan(["CCO", "CCCCN"], **settings)
    # why a search found nothing is counted among what was read
    found, expected = ([(c.text, c.score) for plan in plans for c in plan.candidates] for plans in (lazy, eager))
    assert found == expected
