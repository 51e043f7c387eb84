"""Records of patents that no chemist would run."""

import pytest

pytest.importorskip("rdchiral")

from weftformer.routes.chemistry.reactivity import vanished_group
from weftformer.routes.chemistry.step import MappedStep
from weftformer.routes.judging import load_library
from weftformer.routes.judging.ranker import Ranker
from weftformer.routes.recipes.doubtful import doubt
from weftformer.routes.recipes.shipped_routes import remove_doubtful
from weftformer.routes.training.extraction import make_library, write

RING = "[c:2]1[cH:3][cH:4][c:5]([CH3:8])[cH:6][cH:7]1"
BARE = RING.replace("[c:2]1", "[cH:2]1")
DOUBTFUL = {
    "fluorine": f"F{RING}>>{BARE}", "a hydroxy or alkoxy group of an arene": f"CO{RING}>>{BARE}",
    "a nitro group": f"O=[N+]([O-]){RING}>>{BARE}", "a cyano group of an arene": f"N#C{RING}>>{BARE}",
    "an acyl group of an arene": f"CC(=O){RING}>>{BARE}", "an alkyl group of an arene": f"CC{RING}>>{BARE}",
    "a hydroxy or alkoxy group of a carbon that nothing activates": "O[CH2:1][CH2:2][CH3:3]>>[CH3:1][CH2:2][CH3:3]",
    "an amino group of a carbon that nothing activates": "N[CH2:1][CH2:2][CH3:3]>>[CH3:1][CH2:2][CH3:3]",
}  # fmt: skip
SOUND = {
    "hydrodehalogenation": f"Cl{RING}>>{BARE}", "deamination": f"N{RING}>>{BARE}", "decarboxylation": f"OC(=O){RING}>>{BARE}",
    "desulfonylation": f"OS(=O)(=O){RING}>>{BARE}", "protodeboronation": f"OB(O){RING}>>{BARE}",
    "a benzylic alcohol": "O[CH2:1][c:2]1[cH:3][cH:4][cH:5][cH:6][cH:7]1>>[CH3:1][c:2]1[cH:3][cH:4][cH:5][cH:6][cH:7]1",
    "a tertiary alcohol": "O[C:1]([CH3:2])([CH3:3])[CH3:4]>>[CH:1]([CH3:2])([CH3:3])[CH3:4]",
    "a fluoride that is substituted": f"F{RING}.[NH2:1][CH3:9]>>[NH:1]([CH3:9]){RING}",
    "an N-alkyl group": "C[CH2][N:1]([CH3:2])[CH3:3]>>[NH:1]([CH3:2])[CH3:3]",
    "the methyl group of an ester": "C[O:1][C:2](=[O:3])[CH3:4]>>[OH:1][C:2](=[O:3])[CH3:4]",
}  # fmt: skip

PHENYL = "[c:2]1[cH:3][cH:4][cH:5][cH:6][cH:7]1"
IMPOSSIBLE = {
    "bromide on an arene": f"[Br-:1].{BARE}>>[Br:1]{RING}",
    "HCl on an amine": "[ClH:1].[CH3:2][NH:3][CH3:4]>>[CH3:2][N:3]([Cl:1])[CH3:4]",
    "oxygen of THF": f"C1CC[O:1]C1.N#[CH0:8]{PHENYL}>>[O:1]=[CH:8]{PHENYL}",
    "oxygen of methanol": f"C[OH:1].Br{PHENYL}>>[OH:1]{PHENYL}",
    "chlorine of chloroform": f"Cl[CH](Cl)[Cl:1].O[CH2:8]{PHENYL}>>[Cl:1][CH2:8]{PHENYL}",
    "cyanide of DMF": f"C[N:1](C)[CH:8]=O.Br{PHENYL}>>[N:1]#[C:8]{PHENYL}",
    "ethyl group of ether": f"CCO[CH2:8][CH3:9].[OH:1]{PHENYL}>>[CH3:9][CH2:8][O:1]{PHENYL}",
    "methyl group of dichloromethane": f"Cl[CH2:8]Cl.[OH:1]{PHENYL}>>[CH3:8][O:1]{PHENYL}",
    "nitrogen of triethylamine": f"CC[N:1](CC)CC.O[C:8](=[O:9]){PHENYL}>>[NH2:1][C:8](=[O:9]){PHENYL}",
    "nitrogen of HOBt": f"O[N:1]1N=Nc3ccccc31.O[C:8](=[O:9]){PHENYL}>>[NH2:1][C:8](=[O:9]){PHENYL}",
    "nitrogen of cyanoborohydride": f"[BH3-]C#[N:1].O=[C:8]([CH3:9]){PHENYL}>>[NH2:1][CH:8]([CH3:9]){PHENYL}",
    "carbon of cyanoborohydride": f"[BH3-][C:1]#N.[NH:8]([CH3:9]){PHENYL}>>[CH3:1][N:8]([CH3:9]){PHENYL}",
    "carbon of pyridine": f"c3nccc[cH:1]3.[OH:8]{PHENYL}>>[CH3:1][O:8]{PHENYL}",
    "oxygen of sulfuric acid for an aldehyde": f"O=S(=O)(O)[OH:1].O=C{PHENYL}>>[OH:1]{PHENYL}",
    "oxygen of phosphate for an acid": f"O=P([O-])(O)[OH:1].[CH:8](=[O:9]){PHENYL}>>[OH:1][C:8](=[O:9]){PHENYL}",
    "oxygen of carbonate for a sulfoxide": f"[O-]C(=O)[O-:1].[S:8]([CH3:9]){PHENYL}>>[O:1]=[S:8]([CH3:9]){PHENYL}",
}  # fmt: skip
POSSIBLE = {
    "bromine": f"[Br:1]Br.{BARE}>>[Br:1]{RING}",
    "HBr and an alcohol": f"[BrH:1].O[CH2:8]{PHENYL}>>[Br:1][CH2:8]{PHENYL}",
    "HCl and a quinone": "[ClH:1].[O:2]=[C:3]1[CH:4]=[CH:5][C:6](=[O:7])[CH:8]=[CH:9]1>>[OH:2][c:3]1[c:4]([Cl:1])[cH:5][c:6]([OH:7])[cH:8][cH:9]1",
    "acetone to an acetal": "[CH3:1][C:2]([CH3:3])=O.[OH:4][CH2:5][CH2:6][OH:7]>>[CH3:1][C:2]1([CH3:3])[O:4][CH2:5][CH2:6][O:7]1",
    "methylene of dichloromethane": "Cl[CH2:1]Cl.[OH:2][CH2:3][CH2:4][OH:5]>>[CH2:1]1[O:2][CH2:3][CH2:4][O:5]1",
    "DMF to an aldehyde": f"CN(C)[CH:8]=[O:1].Br{PHENYL}>>[O:1]=[CH:8]{PHENYL}",
    "methanol to an ester": "[CH3:1][OH:2].O[C:3](=[O:4])[CH3:5]>>[CH3:1][O:2][C:3](=[O:4])[CH3:5]",
    "water": f"[OH2:1].N#[C:8]{PHENYL}>>[O:1]=[CH:8]{PHENYL}",
    "DPPA in the Curtius rearrangement": f"[N:1](=[N+]=[N-])P(=O)(c3ccccc3)c3ccccc3.OC(=O){PHENYL}>>[NH2:1]{PHENYL}",
    "chloride of a Ghosez reagent": f"CC(C)=C(N(C)C)[Cl:1].O[C:8](=[O:9]){PHENYL}>>[Cl:1][C:8](=[O:9]){PHENYL}",
    "carbonate of a hydrolysis": f"[O-]C(=O)[O-:1].CO[C:8](=[O:9]){PHENYL}>>[OH:1][C:8](=[O:9]){PHENYL}",
    "sulfuric acid in a sulfonation": f"O[S:1](=[O:8])(=[O:9])[OH:10].{BARE}>>[S:1](=[O:8])(=[O:9])([OH:10]){RING}",
    "sulfuric acid in a hydration": f"O=S(=O)(O)[OH:1].[CH2:9]=[CH:8]{PHENYL}>>[CH3:9][CH:8]([OH:1]){PHENYL}",
    "formic acid in a ring": "[CH:1](=O)O.[NH2:2][c:3]1[cH:4][cH:5][cH:6][cH:7][c:8]1[NH2:9]"
    ">>[cH:1]1[n:2][c:3]2[cH:4][cH:5][cH:6][cH:7][c:8]2[nH:9]1",
    "CCl4 in the Appel reaction": f"ClC(Cl)(Cl)[Cl:1].O[CH2:8]{PHENYL}>>[Cl:1][CH2:8]{PHENYL}",
}  # fmt: skip


def step_of(mapped):
    """Return a mapped reaction with the numbers of the product's atoms."""
    reactants, product = mapped.split(">>")
    from rdkit import Chem

    molecule = Chem.MolFromSmiles(product)
    numbers = [atom.GetAtomMapNum() for atom in molecule.GetAtoms()]
    for atom in molecule.GetAtoms():
        atom.SetAtomMapNum(0)
    canonical = Chem.MolToSmiles(molecule)
    order = list(molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
    places = {numbers[index]: place + 1 for place, index in enumerate(order)}
    before = Chem.MolFromSmiles(reactants)
    for atom in before.GetAtoms():
        atom.SetAtomMapNum(places.get(atom.GetAtomMapNum(), 0))
    return MappedStep(canonical, Chem.MolToSmiles(before))


@pytest.mark.parametrize(("group", "reaction"), DOUBTFUL.items(), ids=DOUBTFUL)
def test_no_reaction_replaces_some_groups_by_hydrogen(group, reaction):
    assert vanished_group(step_of(reaction)) == group


@pytest.mark.parametrize("reaction", SOUND.values(), ids=SOUND)
def test_reactions_that_remove_a_group_are_sound(reaction):
    assert vanished_group(step_of(reaction)) is None


@pytest.mark.parametrize("reaction", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_halide_ion_and_a_solvent_do_not_give_what_they_cannot(reaction):
    assert doubt(step_of(reaction))


@pytest.mark.parametrize("reaction", [*POSSIBLE.values(), *SOUND.values()], ids=[*POSSIBLE, *SOUND])
def test_what_halides_and_solvents_can_give_is_sound(reaction):
    assert doubt(step_of(reaction)) is None


def test_doubtful_records_leave_the_library_and_its_ranker(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "all.smi").write_text("\n".join([*SOUND.values(), *DOUBTFUL.values(), *IMPOSSIBLE.values()]))
    rows, _ = make_library(tmp_path / "all.smi", progress=False)
    rows = [(key, row) for key, row in rows]
    write(rows, tmp_path / "transformations.jsonl.gz")
    size = len(rows)
    tensors = {
        "input.weight": torch.zeros(2048, 2), "input.bias": torch.zeros(2),
        "output.weight": torch.zeros(size, 2, dtype=torch.int8), "output.scale": torch.arange(float(size)),
        "output.bias": torch.arange(float(size)), "places": torch.arange(size, dtype=torch.int32),
    }  # fmt: skip
    Ranker(tensors).save(tmp_path / "ranker.safetensors", [row.smarts for _, row in rows])
    number, count = remove_doubtful(tmp_path / "transformations.jsonl.gz")
    library = load_library(tmp_path / "transformations.jsonl.gz", tmp_path / "ranker.safetensors")
    assert len(library) == size - number and number == count > 10
    # each class still has the row that it had
    bias = {row.smarts: float(place) for place, (_, row) in enumerate(rows)}
    ranker, classes = library.ranker
    assert [bias[transformation.smarts] for transformation in classes] == ranker.tensors["output.bias"].tolist()
