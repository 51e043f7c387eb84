"""A Weft as syntheseus' model of reactions: what it proposes, and that searches of syntheseus run with it."""

import math

import pytest

pytest.importorskip("syntheseus", reason="needs syntheseus: pip install weftformer[syntheseus]")

from syntheseus import Molecule

from weftformer.routes import Candidate, PlanSettings, Route
from weftformer.routes.planning.one_step import WeftReactionModel

AMIDE, AMINE = "CC(=O)NCc1ccccc1", "NCc1ccccc1"


@pytest.fixture
def model(chain_planner):
    return WeftReactionModel(chain_planner.model, chain_planner.tokenizer, beams=3, use_library=False)


def told(reactions):
    return [(sorted(one.smiles for one in reaction.reactants), reaction.product.smiles) for reaction in reactions]


@pytest.mark.parametrize("batch_size", [1, 16])
def test_reactions_of_several_molecules_equal_reactions_alone(model, batch_size, monkeypatch):
    monkeypatch.setattr(model, "batch_size", batch_size)
    # the vocabulary of routes lacks platinum
    molecules = [Molecule(AMIDE), Molecule("[Pt]"), Molecule(AMINE)]
    together = model(molecules)
    assert told(together[0])[0] == (["CC(=O)O", AMINE], AMIDE) and told(together[2])[0][1] == AMINE
    assert together[1] == []
    for molecule, found in zip(molecules, together, strict=True):
        [alone] = model([molecule])
        assert told(alone) == told(found)
        scores = [one.metadata["log_probability"] for one in alone]
        assert [one.metadata["log_probability"] for one in found] == pytest.approx(scores, abs=2e-4)
        assert scores == sorted(scores, reverse=True)
    assert told(model([molecules[0]], num_results=1)[0]) == told(together[0])[:1]
    mapped = Molecule("[CH3:1][C:2](=[O:3])NCc1ccccc1", canonicalize=False)
    assert [reactants for reactants, _ in told(model([mapped])[0])] == [one for one, _ in told(together[0])]


def test_the_probability_of_a_reaction_is_its_mean_over_the_texts_of_a_molecule(model, monkeypatch):
    acid, ester, rare = ("CC(=O)O", AMINE), (AMINE, "CCOC(C)=O"), ("O", AMIDE)
    answers = iter([{acid: 0.5, ester: 0.3, acid[::-1]: 0.2}, {ester: 0.4, rare: 0.0}])
    asked = []

    def candidates(texts):
        asked.extend(texts)
        return [
            [
                Candidate("", math.log(p) if p else -1e4, 1, Route(AMIDE, tuple(map(Route, of))))
                for of, p in one.items()
            ]
            for one in answers
        ]

    monkeypatch.setattr(model, "settings", PlanSettings(num_augmentations=2))
    monkeypatch.setattr(model, "_candidates", candidates)
    [found] = model([Molecule(AMIDE)], num_results=3)
    assert asked[0] == AMIDE and Molecule(asked[1]) == Molecule(AMIDE) and asked[1] != AMIDE
    assert told(found) == [(sorted(ester), AMIDE), (sorted(acid), AMIDE), (sorted(rare), AMIDE)]
    assert [one.metadata["probability"] for one in found] == pytest.approx([0.35, 0.25, 0.0])


def test_the_library_proposes_too(chain_planner):
    model = WeftReactionModel(chain_planner.model, chain_planner.tokenizer, beams=5)
    [found] = model([Molecule(AMIDE)])
    acid, chloride = (sorted(["CC(=O)O", AMINE]), AMIDE), (sorted(["CC(=O)Cl", AMINE]), AMIDE)
    assert (
        acid in told(found)[:3] and chloride in told(found)[:3] and len(found) == 5
    )  # the model proposes the acid alone
    shares = [one.metadata["probability"] for one in found]
    assert shares == sorted(shares, reverse=True) and sum(shares) <= 1.0
