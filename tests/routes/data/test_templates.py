"""Every template with reactants and product written out, run forward and backward."""

import pytest

pytest.importorskip("rdkit")

from rdkit import Chem

from weftformer.routes.data.groups import GROUPS, REACTIVE_GROUPS, count_groups
from weftformer.routes.data.templates import TEMPLATES

BY_NAME = {template.name: template for template in TEMPLATES}
REACTIONS = [
    ("methyl ester hydrolysis", "COC(=O)c1ccc(-c2ccccc2)cc1", "O=C(O)c1ccc(-c2ccccc2)cc1"),
    ("ethyl ester hydrolysis", "CCOC(=O)COc1ccc(F)cc1", "O=C(O)COc1ccc(F)cc1"),
    ("ethyl ester hydrolysis", "CCOC(=O)/C=C/c1ccccc1", "O=C(O)/C=C/c1ccccc1"),
    ("nitro reduction", "O=[N+]([O-])c1ccc(N2CCOCC2)cc1", "Nc1ccc(N2CCOCC2)cc1"),
    ("nitrile reduction", "N#Cc1ccc(-c2ccsc2)cc1", "NCc1ccc(-c2ccsc2)cc1"),
    ("Boc removal", "CC(C)(C)OC(=O)N1CCN(C(=O)C2CC2)CC1", "O=C(C1CC1)N1CCNCC1"),
    ("Boc removal", "CC(C)(C)OC(=O)NCCNC(C)=O", "CC(=O)NCCN"),
    ("carbonyl reduction", "O=Cc1ccc(OCc2ccccc2)cc1", "OCc1ccc(OCc2ccccc2)cc1"),
    ("carbonyl reduction", "CC(=O)c1ccc(-c2ccccc2)cc1", "CC(O)c1ccc(-c2ccccc2)cc1"),
    ("sulfide oxidation", "CCCSc1ccccc1", "CCCS(=O)(=O)c1ccccc1"),
    ("Suzuki coupling", "COC(=O)c1ccc(Br)cc1.OB(O)c1cccnc1", "COC(=O)c1ccc(-c2cccnc2)cc1"),
    ("Sonogashira coupling", "CC(=O)c1ccc(I)cc1.C#CC1CC1", "CC(=O)c1ccc(C#CC2CC2)cc1"),
    ("azide-alkyne cycloaddition", "[N-]=[N+]=NCc1ccccc1.C#Cc1ccc(F)cc1", "Fc1ccc(-c2cn(Cc3ccccc3)nn2)cc1"),
    ("Buchwald amination", "COC(=O)c1cccc(Br)c1.C1COCCN1", "COC(=O)c1cccc(N2CCOCC2)c1"),
    ("urea formation", "O=C=Nc1ccccc1.NCc1ccccc1", "O=C(NCc1ccccc1)Nc1ccccc1"),
    ("urea formation", "O=C=Nc1ccc(Cl)cc1.C1COCCN1", "O=C(Nc1ccc(Cl)cc1)N1CCOCC1"),
    ("carbamate from isocyanate", "O=C=Nc1ccccc1.OC1CCCC1", "O=C(Nc1ccccc1)OC1CCCC1"),
    ("carbamate from chloroformate", "O=C(Cl)OCc1ccccc1.C1CCNC1", "O=C(OCc1ccccc1)N1CCCC1"),
    ("sulfonamide formation", "Cc1ccc(S(=O)(=O)Cl)cc1.Nc1ccccc1", "Cc1ccc(S(=O)(=O)Nc2ccccc2)cc1"),
    ("amide coupling", "CC(=O)O.NCc1ccccc1", "CC(=O)NCc1ccccc1"),
    ("amide coupling", "O=C(O)c1ccccc1.CNCc1ccccc1", "CN(Cc1ccccc1)C(=O)c1ccccc1"),
    ("phenol acylation", "CC(=O)Cl.N#Cc1ccc(O)cc1", "CC(=O)Oc1ccc(C#N)cc1"),
    ("esterification", "O=C(O)c1ccco1.OC1CCCC1", "O=C(OC1CCCC1)c1ccco1"),
    (
        "Horner-Wadsworth-Emmons olefination",
        "O=Cc1ccc(F)cc1.CCOC(=O)CP(=O)(OCC)OCC",
        "CCOC(=O)/C=C/c1ccc(F)cc1",
    ),
    ("reductive amination", "O=Cc1ccncc1.NC1CC1", "c1cc(CNC2CC2)ccn1"),
    ("reductive amination", "O=Cc1ccncc1.C1COCCN1", "c1cc(CN2CCOCC2)ccn1"),
    ("N-alkylation", "c1ccc(N2CCNCC2)cc1.C#CCBr", "C#CCN1CCN(c2ccccc2)CC1"),
    ("Williamson ether formation", "O=Cc1ccc(O)cc1.BrCc1ccccc1", "O=Cc1ccc(OCc2ccccc2)cc1"),
    ("thioether formation", "Sc1ccccn1.BrCC1CC1", "c1ccc(SCC2CC2)nc1"),
    ("SNAr of an aryl fluoride", "O=[N+]([O-])c1ccccc1F.NCc1ccco1", "O=[N+]([O-])c1ccccc1NCc1ccco1"),
    ("SNAr of a heteroaryl chloride", "Clc1ncccn1.C1CSCCN1", "c1cnc(N2CCSCC2)nc1"),
    ("Boc protection", "NCc1cccc(Br)c1.CC(C)(C)OC(=O)OC(=O)OC(C)(C)C", "CC(C)(C)OC(=O)NCc1cccc(Br)c1"),
    ("methyl ester formation", "O=C(O)c1cccc(I)c1.CO", "COC(=O)c1cccc(I)c1"),
]
# Reactants that a chemist would not put into the flask, and why.
REFUSED = [
    ("amide coupling", 1, "NCCNC"),  # two amines
    ("amide coupling", 0, "O=C(O)c1ccc(O)cc1"),  # free phenol
    ("amide coupling", 1, "NCCO"),  # free alcohol
    ("amide coupling", 0, "O=C(O)c1ccc(F)c([N+](=O)[O-])c1"),  # the amine would displace the fluoride
    ("sulfonamide formation", 1, "NCC(=O)O"),  # free acid
    ("Suzuki coupling", 0, "Brc1ccc(Br)cc1"),  # two bromides
    ("Suzuki coupling", 0, "Brc1ccc(I)cc1"),  # the iodide is faster
    ("Williamson ether formation", 0, "O=C(O)c1ccc(O)cc1"),  # the acid would be alkylated
    ("Williamson ether formation", 0, "CS(=O)(=O)Nc1ccc(O)cc1"),  # so would the sulfonamide
    ("reductive amination", 1, "C1CNCCN1"),  # two equal amines: the second reacts as well
    ("nitro reduction", 0, "O=[N+]([O-])c1cccc([N+](=O)[O-])c1"),  # which one?
    ("methyl ester hydrolysis", 0, "COC(=O)c1ccc(OC(C)=O)cc1"),  # the phenyl ester goes first
    ("Boc removal", 0, "CC(C)(C)OC(=O)NCc1ccc(N2CCN(C(=O)OC(C)(C)C)CC2)cc1"),  # both Boc groups would leave
    ("nitrile reduction", 0, "N#Cc1ccc([N+](=O)[O-])cc1"),  # the nitro group is reduced too
    ("SNAr of a heteroaryl chloride", 0, "Clc1ccnc(Cl)n1"),  # regioisomers
    ("Buchwald amination", 0, "Brc1ccc(I)cc1"),
]


def mols(smiles: str) -> tuple[Chem.Mol, ...]:
    return tuple(Chem.MolFromSmiles(text) for text in smiles.split("."))


@pytest.mark.parametrize(("name", "reactants", "product"), REACTIONS)
def test_forward_and_backward(name, reactants, product):
    template, product = BY_NAME[name], Chem.CanonSmiles(product)
    assert template.run(mols(reactants)) == product
    wanted = tuple(Chem.CanonSmiles(smiles) for smiles in reactants.split("."))
    for role, reactant in enumerate(mols(reactants)):
        assert template.accepts(role, count_groups(reactant))
    assert wanted in template.undo(Chem.MolFromSmiles(product))


@pytest.mark.parametrize(("name", "reactants", "product"), REACTIONS)
def test_no_other_template_makes_the_same_product_of_fit_reactants(name, reactants, product):
    """Where the literal reactants are fit for another template too, that one must give something else."""
    for template in TEMPLATES:
        parts = mols(reactants)
        if template.name == name or len(parts) != len(template.roles):
            continue
        if all(template.accepts(role, count_groups(part)) for role, part in enumerate(parts)):
            assert template.run(parts) != Chem.CanonSmiles(product)


def test_every_template_is_shown_above():
    assert len(BY_NAME) == len(TEMPLATES) >= 15
    assert {name for name, _, _ in REACTIONS} == set(BY_NAME)


@pytest.mark.parametrize(("name", "role", "smiles"), REFUSED)
def test_selectivity(name, role, smiles):
    assert not BY_NAME[name].accepts(role, count_groups(Chem.MolFromSmiles(smiles)))


def test_group_names_exist():
    for template in TEMPLATES:
        assert {group for role in template.roles for group in role} <= set(GROUPS)
        assert set(template.forbids) <= set(GROUPS) - set(REACTIVE_GROUPS)
        assert set(template.tolerates) <= set(REACTIVE_GROUPS)
        assert set(template.purchased) <= set(range(len(template.roles)))


def test_heavy_atoms_of_the_product_come_from_the_reactants_or_the_reagent():
    """What each template adds to or takes from the reactants is the by-product a chemist expects."""
    change = {}
    for name, reactants, product in REACTIONS:
        count = Chem.MolFromSmiles(product).GetNumHeavyAtoms() - Chem.MolFromSmiles(reactants).GetNumHeavyAtoms()
        assert change.setdefault(name, count) == count
    assert change == {
        "methyl ester hydrolysis": -1,
        "ethyl ester hydrolysis": -2,
        "nitro reduction": -2,
        "nitrile reduction": 0,
        "Boc removal": -7,
        "carbonyl reduction": 0,
        "sulfide oxidation": 2,
        "Suzuki coupling": -4,
        "Sonogashira coupling": -1,
        "azide-alkyne cycloaddition": 0,
        "Buchwald amination": -1,
        "urea formation": 0,
        "carbamate from isocyanate": 0,
        "carbamate from chloroformate": -1,
        "sulfonamide formation": -1,
        "amide coupling": -1,
        "phenol acylation": -1,
        "esterification": -1,
        "Horner-Wadsworth-Emmons olefination": -9,
        "reductive amination": -1,
        "N-alkylation": -1,
        "Williamson ether formation": -1,
        "thioether formation": -1,
        "SNAr of an aryl fluoride": -1,
        "SNAr of a heteroaryl chloride": -1,
        "Boc protection": -8,
        "methyl ester formation": -1,
    }
