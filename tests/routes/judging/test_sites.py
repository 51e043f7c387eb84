"""Which site reacts: the choices of a step, their features beside a simple reference, and what the weights know."""

import zlib

import numpy
import pytest
from rdkit import Chem

from weftformer.routes import judge
from weftformer.routes.chemistry.changes import changes, environments, without_maps
from weftformer.routes.chemistry.step import MappedStep
from weftformer.routes.judging.objections import site_probability
from weftformer.routes.judging.sites import BITS, Environments, Sites, choices

GOLDEN, MIXER, BELOW = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 1 << 64


def choices_of(mapped):
    reactants, product = map(Chem.MolFromSmiles, mapped.split(">>"))
    return reactants, list(choices(reactants, product, changes(reactants, product)))


def near_of(reactants):
    return Environments(reactants, environments(without_maps(reactants)))


def of_choice(reactants, choice):
    return choice.kind, [reactants.GetAtomWithIdx(place).GetAtomMapNum() for place in choice.candidates]


@pytest.mark.parametrize(
    ("mapped", "expected"),
    [
        # an amine and an alcohol, and the oxygen atom of the acyl chloride
        (
            "[OH:1][CH2:2][NH2:3].Cl[C:4]([CH3:5])=[O:6]>>[OH:1][CH2:2][NH:3][C:4]([CH3:5])=[O:6]",
            [("binds", [3, 1, 6])],
        ),
        # the two oxygen atoms of an acid are one site, as are those that symmetry makes equal
        ("[CH3:1][C:2](=[O:3])[OH:4].[CH3:5]I>>[CH3:1][C:2](=[O:3])[O:4][CH3:5]", []),
        ("[NH2:1][CH2:2][CH2:3][NH2:4].[CH3:5]I>>[NH2:1][CH2:2][CH2:3][NH:4][CH3:5]", []),
        # positions of an arene, without those that symmetry makes equal
        (
            "[CH3:1][c:2]1[cH:3][cH:4][cH:5][cH:6][cH:7]1.Br[Br:8]>>[CH3:1][c:2]1[cH:3][cH:4][c:5]([Br:8])[cH:6][cH:7]1",
            [("aromatic CH", [5, 3, 4])],
        ),
        # a ring closes: atoms that the tether does not reach are none
        (
            "[NH2:1][CH2:2][CH2:3][CH2:4][CH:5]([NH2:9])[CH2:6][C:7](=[O:8])O"
            ">>[NH:1]1[CH2:2][CH2:3][CH2:4][CH:5]([NH2:9])[CH2:6][C:7]1=[O:8]",
            [("binds", [1, 9])],
        ),
    ],
)
def test_what_could_have_reacted(mapped, expected):
    reactants, found = choices_of(mapped)
    assert [of_choice(reactants, choice) for choice in found if choice.kind in ("binds", "aromatic CH")] == expected


def mixed(number):
    number = number * MIXER % BELOW
    return (number ^ number >> 29) * GOLDEN % BELOW


def features_of(reactants, choice, place):
    """The numbers of the features of a candidate, one after the other."""
    numbers, distances = environments(without_maps(reactants)).tolist(), Chem.GetDistanceMatrix(reactants)
    kind, general, particular = (zlib.crc32(repr(key).encode()) for key in choice.context)
    atom, relation = choice.candidates[place], 200 + choice.rings[place]
    pairs = [(mixed(number * 31 + radius), key) for radius, number in enumerate(numbers[atom])
             for key in (kind, general, particular)]  # fmt: skip
    near = [(other, int(bonds)) for other, bonds in enumerate(distances[atom]) if 0 < bonds <= 5]
    pairs += [(mixed(numbers[other][1] * 37 + bonds + 100), key) for other, bonds in near for key in (kind, general)]
    pairs += [(mixed(relation), kind), (mixed(relation), general)]
    pairs += [(mixed(number + relation * 1009), kind) for number in numbers[atom][1:3]]
    return sorted(mixed(number + key * GOLDEN % BELOW) >> 64 - BITS for number, key in pairs)


def test_the_features_are_those_of_a_simple_loop():
    mapped = "[OH:1][CH2:2][NH2:3].Cl[C:4]([CH3:5])=[O:6]>>[OH:1][CH2:2][NH:3][C:4]([CH3:5])=[O:6]"
    reactants, [choice] = choices_of(mapped)
    features, candidates = near_of(reactants).features(choice)
    for place in range(2):
        assert sorted(features[candidates == place]) == features_of(reactants, choice, place)


def test_probabilities_are_a_softmax_of_whole_sums():
    mapped = "[OH:1][CH2:2][NH2:3].Cl[C:4]([CH3:5])=[O:6]>>[OH:1][CH2:2][NH:3][C:4]([CH3:5])=[O:6]"
    reactants, [choice] = choices_of(mapped)
    near, weights = near_of(reactants), numpy.zeros(1 << BITS, numpy.int8)
    assert Sites(weights, 0.1).probabilities(choice, near) == pytest.approx([1 / 3] * 3)
    features, candidates = near.features(choice)
    only = set(features[candidates == 0]).difference(features[candidates == 1])
    weights[[*only]] = 2
    sums = [sum(2 for feature in features[candidates == place] if feature in only) for place in range(3)]
    shares = numpy.exp(0.1 * numpy.array(sums))
    assert Sites(weights, 0.1).probabilities(choice, near) == pytest.approx((shares / shares.sum()).tolist())


def test_a_protecting_group_is_as_probable_as_its_reagents():
    """An ester beside a Boc group: the reagents, which a step may not list, choose."""
    step = MappedStep(
        "CC(C)(C)OC(=O)NCC(=O)O", "[CH3:1][C:2]([CH3:3])([CH3:4])[O:5][C:6](=[O:7])[NH:8][CH2:9][C:10](=[O:11])[O:12]C"
    )
    assert [choice.kind for choice in choices(step.reactants, step.molecule, step.changes)] == ["released"]
    assert site_probability(step) == 1.0


def test_sites_of_the_partner_could_react_too():
    anhydride = judge("CCC(=O)OC(=O)c1ccccc1", ["CCC(=O)O", "O=C(O)c1ccccc1"])
    assert any("take place at" in remark for remark in anhydride.remarks)
