"""Which group reacts, and which stays: protecting groups, sites of halides, nucleophiles and reagents."""

import json
from importlib.resources import files

import pytest

from weftformer.routes import judge
from weftformer.routes.chemistry.groups import patterns
from weftformer.routes.chemistry.reactivity import REACTIVITY

TABLE = json.loads(files("weftformer.routes.chemistry").joinpath(REACTIVITY).read_text(encoding="utf-8"))
CONDITIONS = ("with", "without", "reacting", "forms", "elsewhere", "beside")
TBS = "[Si](C)(C)C(C)(C)C"
TRITYL = "C(c1ccccc1)(c1ccccc1)c1ccccc1"
BOC = "CC(C)(C)OC(=O)"
MCPBA, BORATE, NBS = "O=C(OO)c1cccc(Cl)c1", "COB(OC)OC", "O=C1CCC(=O)N1Br"

REFUSED = {
    "TBDPS before TBS": (f"OCCCO{TBS}", [f"CC(C)(C)[Si](OCCCO{TBS})(c1ccccc1)c1ccccc1"]),
    "methyl ether before benzyl ether": ("Oc1ccc(OCc2ccccc2)cc1", ["COc1ccc(OCc2ccccc2)cc1"]),
    "methyl ester before acetate": ("CC(=O)OCCCC(=O)O", ["CC(=O)OCCCC(=O)OC"]),
    "tert-butyl ester before Boc": (f"{BOC}NCCC(=O)O", [f"{BOC}NCCC(=O)OC(C)(C)C"]),
    "NBS beside an aniline": ("Nc1ccc(CBr)cc1", ["Cc1ccc(N)cc1", NBS]),
    "an ester beside a ketone": ("COC(=O)c1ccc(C(C)(C)O)cc1", ["COC(=O)c1ccc(C(C)=O)cc1", "C[Mg]Br"]),
    "acetylation of a secondary alcohol beside a primary one": ("CC(CCO)OC(C)=O", ["CC(O)CCO", "CC(=O)Cl"]),
    "one of two different acids": ("O=C(O)CCC(C)C(=O)Nc1ccccc1", ["CC(CCC(=O)O)C(=O)O", "Nc1ccccc1"]),
    "demethylation beside an epoxide": ("Oc1cccc(C2CO2)c1", ["COc1cccc(C2CO2)c1"]),
    "mCPBA beside a sulfide": ("c1ccc(SCC2CO2)cc1", ["C=CCSc1ccccc1", MCPBA]),
    "mCPBA beside an amine": ("C1CCN(CC2CO2)CC1", ["C=CCN1CCCCC1", MCPBA]),
    "a borate beside an aldehyde": ("O=Cc1ccc(B(O)O)cc1", ["O=Cc1ccc(Br)cc1", BORATE]),
    "position 2 of a quinazoline": ("Clc1nc(NCc2ccccc2)nc2ccccc12", ["Clc1nc(Cl)c2ccccc2n1", "NCc1ccccc1"]),
    "position 2 of a nitropyrimidine": ("CNc1ncc([N+](=O)[O-])c(Cl)n1", ["O=[N+]([O-])c1cnc(Cl)nc1Cl", "CN"]),
    "an alcohol on a bare aryl chloride": ("CC(N)COc1c(C)cccc1C", ["CC(N)CO", "Cc1cccc(C)c1Cl"]),
}
UNCLEAR = {
    "a chloroformate on an arene": ("CCOC(=O)c1ccc(OC)cc1", ["CCOC(=O)Cl", "COc1ccccc1"]),
    "MOM off, Boc kept": (f"{BOC}Nc1ccc(O)cc1", ["COCOc1ccc(NC(=O)OC(C)(C)C)cc1"]),
    "Boc off, MOM kept": ("COCOc1ccc(CN)cc1", ["COCOc1ccc(CNC(=O)OC(C)(C)C)cc1"]),
    "benzylation of Boc-serine": (f"{BOC}N[C@@H](COCc1ccccc1)C(=O)O", [f"{BOC}N[C@@H](CO)C(=O)O", "BrCc1ccccc1"]),
    "an enol": ("OC1=CCCCC1", ["COC1=CCCCC1"]),
    "a primary enamine": ("NC1=CCCCC1", ["CC(C)(C)OC(=O)NC1=CCCCC1"]),
    "an amine that closes on a ketone": ("CC(=O)CCCN", ["CC(=O)CCCNC(=O)OC(C)(C)C"]),
    "nitrous acid beside a secondary amine": ("Brc1ccc(N2CCNCC2)cc1", ["Nc1ccc(N2CCNCC2)cc1", "Br"]),
    "Mitsunobu reaction of a tertiary alcohol": ("CC(C)(C)Oc1ccccc1", ["CC(C)(C)O", "Oc1ccccc1"]),
    "an alcohol with an amine": ("CCN(Cc1ccccc1)Cc1cccnc1", ["CCO", "c1ccc(CNCc2cccnc2)cc1"]),
    "position 3 of a pyridine": ("CNc1ccc(Br)nc1", ["Brc1ccc(Br)nc1", "CN"]),
}
MILD = {
    "trityl off, Boc kept": (f"{BOC}NCCN", [f"{BOC}NCCN{TRITYL}"]),
    "Boc off, tert-butyl ester kept": ("CC(C)(C)OC(=O)CCN", ["CC(C)(C)OC(=O)CCNC(=O)OC(C)(C)C"]),
    "TBS off, TBDPS kept": (
        "CC(C)(C)[Si](OCCCO)(c1ccccc1)c1ccccc1", [f"CC(C)(C)[Si](OCCCO{TBS})(c1ccccc1)c1ccccc1"],
    ),
    "acetate off, methyl ester kept": ("COC(=O)CCCO", ["CC(=O)OCCCC(=O)OC"]),
}  # fmt: skip
FINE = {
    "Boc off, methyl ester kept": ("COC(=O)CCN", ["COC(=O)CCNC(=O)OC(C)(C)C"]),
    "benzyl ether off, methyl ether kept": ("COc1ccc(O)cc1", ["COc1ccc(OCc2ccccc2)cc1"]),
    "position 4 of a quinazoline": ("Clc1nc(NCc2ccccc2)c2ccccc2n1", ["Clc1nc(Cl)c2ccccc2n1", "NCc1ccccc1"]),
    "position 2 of a pyridine": ("CNc1ccc(Br)cn1", ["Brc1ccc(Br)nc1", "CN"]),
    "an amine that no ring brings to its ketone": ("CC(=O)c1ccc(CN)cc1", ["CC(=O)c1ccc(CNC(=O)OC(C)(C)C)cc1"]),
    "NBS beside a nitrile": ("N#Cc1ccc(CBr)c(Cl)c1", ["Cc1ccc(C#N)cc1Cl", NBS]),
    "epoxide of an ether": ("c1ccc(OCC2CO2)cc1", ["C=CCOc1ccccc1", MCPBA]),
    "a borate beside an ether": ("COc1ccc(B(O)O)cc1", ["COc1ccc(Br)cc1", BORATE]),
    "an amine beside a trifluoromethyl group": (
        "CC(C)C[C@H](NC(c1ccc(C(=O)N2CCN(C)CC2)cc1)C(F)(F)F)C(=O)NCC#N",
        ["CC(C)C[C@H](NC(c1ccc(C(=O)O)cc1)C(F)(F)F)C(=O)NCC#N", "CN1CCNCC1"],
    ),
    "one amine of piperazine": ("O=C(c1ccccc1)N1CCNCC1", ["O=C(O)c1ccccc1", "C1CNCCN1"]),
    "one acid of suberic acid": ("O=C(O)CCCCCCC(=O)Nc1ccccc1", ["O=C(O)CCCCCCC(=O)O", "Nc1ccccc1"]),
    "an aldehyde beside an ester": (
        "COC(=O)c1ccc(C(O)c2ccc(F)cc2)cc1", ["COC(=O)c1ccc(C=O)cc1", "Fc1ccc([Mg]Br)cc1"],
    ),
    "an alcohol on a fluoronaphthalene": ("CCOc1cccc2ccccc12", ["CCO", "Fc1cccc2ccccc12"]),
    "an imide that closes": ("O=C1c2ccccc2C(=O)N1c1ccccc1", ["O=C(O)c1ccccc1C(=O)Nc1ccccc1"]),
    "a succinimide that closes": ("O=C1CCC(=O)N1c1ccccc1", ["O=C(O)CCC(=O)Nc1ccccc1"]),
    "a glycoside of a lactol": ("COC1CCCCO1", ["OC1CCCCO1", "CO"]),
}  # fmt: skip


@pytest.mark.parametrize(("product", "reactants"), REFUSED.values(), ids=REFUSED)
def test_a_step_against_the_order_is_refused(product, reactants):
    step = judge(product, reactants)
    assert step.state == "no precedent" and step.is_objected, step.findings


@pytest.mark.parametrize(("product", "reactants"), UNCLEAR.values(), ids=UNCLEAR)
def test_an_unclear_order_ranks_lower(product, reactants):
    step = judge(product, reactants)
    assert step.state == "precedented" and step.is_misplaced, step.findings


@pytest.mark.parametrize(("product", "reactants"), MILD.values(), ids=MILD)
def test_a_slower_removal_is_a_note(product, reactants):
    step = judge(product, reactants)
    assert step.state == "precedented" and not step.is_misplaced
    assert any("has to be mild" in remark for remark in step.remarks)


@pytest.mark.parametrize(("product", "reactants"), FINE.values(), ids=FINE)
def test_the_other_way_round_is_fine(product, reactants):
    step = judge(product, reactants)
    assert (step.state, step.remarks) == ("precedented", ())


def test_the_table_names_groups_that_exist():
    names = set(TABLE["protecting_groups"])
    for rule in (*TABLE["rules"], *TABLE["stereo_rules"]):
        assert rule.keys() <= {*CONDITIONS, "steps", "molecules", "why", "effect"}
        for condition in CONDITIONS:
            names.update(rule.get(condition, ()))
    assert names <= patterns().keys()
