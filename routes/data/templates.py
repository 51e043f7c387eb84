"""The reactions of the synthetic routes.

The order of `TEMPLATES` is one retrosynthetic priority rule: of all reactions that could have made a molecule, the
first in the list counts as the last step. Functional group changes come first, because a free acid, amine or aniline
would not have survived the steps before. Then come bonds whose reacting groups survive all other steps (aryl halides,
alkynes), then the other bonds, and protections last. So a product shows how it was made. A model that is trained on
the routes has to learn this.

For the same reason, no two templates make the same bond. Amides come from acids, and aryl esters from acid chlorides.
N-aryl bonds come from activated halides where there is activation, and from bromides elsewhere. N-CH2-aryl bonds come
from aldehydes, and other N-CH2 bonds from bromides. Aromatic acids are protected as methyl esters, and aliphatic acids
as ethyl esters. Benzylamines come from nitriles, anilines from nitro compounds, and other amines from Boc derivatives.
"""

from __future__ import annotations

from .groups import ACTIVATED_CARBOCYCLE, ACTIVATED_HETEROCYCLE, site
from .reactions import Template

_ALKYL_AMINES = ("primary_amine", "benzyl_amine", "ring_amine", "chain_amine")
_ALL_AMINES = (*_ALKYL_AMINES, "aniline")
_BROMIDES = ("benzyl_bromide", "alkyl_bromide")

_FUNCTIONAL_GROUP_CHANGES = (
    Template(
        "methyl ester hydrolysis",
        forward=f"{site('methyl_ester', map_number=1)}(=[O:2])[O:3][CH3]>>[C:1](=[O:2])[O:3]",
        reverse="[CX3;$(Cc):1](=[O:2])[OX2H1:3]>>[C:1](=[O:2])[O:3]C",
        roles=(("methyl_ester",),),
        tolerates=("phenol", "alcohol"),
        forbids=("ethyl_ester", "other_ester"),
    ),
    Template(
        "ethyl ester hydrolysis",
        forward=f"{site('ethyl_ester', map_number=1)}(=[O:2])[O:3][CH2][CH3]>>[C:1](=[O:2])[O:3]",
        reverse="[CX3;$(C[CX4]),$(C[CX3]=C):1](=[O:2])[OX2H1:3]>>[C:1](=[O:2])[O:3]CC",
        roles=(("ethyl_ester",),),
        tolerates=("phenol", "alcohol"),
        forbids=("methyl_ester", "other_ester"),
    ),
    Template(
        "nitro reduction",
        forward="[c:1][N+](=O)[O-]>>[c:1]N",
        reverse="[c:1][NX3H2]>>[c:1][N+](=O)[O-]",
        roles=(("nitro",),),
        tolerates=("phenol", "alcohol"),
        forbids=("aryl_iodide", "alkyne"),
    ),
    Template(
        "nitrile reduction",
        forward=f"{site('nitrile', map_number=1)}#[N:2]>>[CH2:1]-[NH2:2]",
        reverse="[CX4H2;$(Cc):1]-[NX3H2:2]>>[C:1]#[N:2]",
        roles=(("nitrile",),),
        tolerates=("phenol", "alcohol"),
        forbids=("nitro", "aryl_bromide", "aryl_iodide", "ketone", "alkyne"),
    ),
    Template(
        "Boc removal",
        forward=f"{site('boc_amine', map_number=1)}C(=O)OC([CH3])([CH3])[CH3]>>[N:1]",
        reverse=f"{site('primary_amine', 'ring_amine', map_number=1)}>>[N:1]C(=O)OC(C)(C)C",
        roles=(("boc_amine",),),
        tolerates=("phenol", "alcohol"),
        forbids=("other_boc",),
    ),
    Template(
        "carbonyl reduction",
        forward=f"{site('aldehyde', 'ketone', map_number=1)}=[O:2]>>[C:1]-[O:2]",
        reverse="[CX4;H1,H2;$(Cc):1]-[OX2H1:2]>>[C:1]=[O:2]",
        roles=(("aldehyde", "ketone"),),
    ),
    Template(
        "sulfide oxidation",
        forward=f"{site('sulfide', map_number=1)}>>[S:1](=O)=O",
        reverse="[SX4;$(S(c)[CX4H2]):1](=O)=O>>[S:1]",
        roles=(("sulfide",),),
        tolerates=("alcohol",),
    ),
)

_LATE_BONDS = (
    Template(
        "Suzuki coupling",
        forward="[c:1]Br.[c:2]B([OX2H1])[OX2H1]>>[c:1]-[c:2]",
        reverse="[c:1]!@-[c:2]>>[c:1]Br.[c:2]B(O)O",
        roles=(("aryl_bromide",), ("boronic_acid",)),
        purchased=(1,),
        forbids=("aryl_iodide",),
        weight=2.0,
    ),
    Template(
        "Sonogashira coupling",
        forward=f"[c:1]I.{site('terminal_alkyne', map_number=2)}>>[c:1]-[C:2]",
        reverse="[c:1]!@-[CX2;$(C#[CX2H0]):2]>>[c:1]I.[C:2]",
        roles=(("aryl_iodide",), ("terminal_alkyne",)),
    ),
    Template(
        "azide-alkyne cycloaddition",
        forward="[#6:6][NX2:1]=[N+:2]=[N-:3].[CX2H1:4]#[CX2:5]>>[#6:6]-[n+0:1]1[n+0:2][n+0:3][c:5][cH:4]1",
        reverse="[#6:6]-!@[n:1]1[n:2][n:3][c:5][cH:4]1>>[#6:6]-[N:1]=[N+:2]=[N-:3].[CH:4]#[C:5]",
        roles=(("azide",), ("terminal_alkyne",)),
        purchased=(0,),
    ),
    Template(
        "Buchwald amination",
        forward=f"{site('neutral_bromide', map_number=1)}Br.{site('ring_amine', map_number=2)}>>[c:1]-[N:2]",
        reverse="[c:1]!@-[NX3;R;$(N([CX4])[CX4]):2]>>[c:1]Br.[N:2]",
        roles=(("neutral_bromide",), ("ring_amine",)),
        forbids=("aryl_iodide",),
    ),
)

_OTHER_BONDS = (
    Template(
        "urea formation",
        forward=f"{site('isocyanate', map_number=1)}(=[O:2])=[N:3].{site(*_ALKYL_AMINES, map_number=4)}"
        ">>[C:1](=[O:2])(-[N:3])-[N:4]",
        reverse="[CX3:1](=[O:2])(!@-[NX3H1;$(Nc):3])!@-[NX3;$(N[CX4]):4]>>[C:1](=[O:2])=[N:3].[N:4]",
        roles=(("isocyanate",), _ALKYL_AMINES),
        purchased=(0,),
        tolerates=("terminal_alkyne",),
    ),
    Template(
        "carbamate from isocyanate",
        forward=f"{site('isocyanate', map_number=1)}(=[O:2])=[N:3].{site('alcohol', map_number=4)}"
        ">>[C:1](=[O:2])(-[N:3])-[O:4]",
        reverse="[CX3:1](=[O:2])(!@-[NX3H1;$(Nc):3])!@-[OX2;$(O[CX4]):4]>>[C:1](=[O:2])=[N:3].[O:4]",
        roles=(("isocyanate",), ("alcohol",)),
        purchased=(0,),
        tolerates=("terminal_alkyne",),
    ),
    Template(
        "carbamate from chloroformate",
        forward=f"{site('chloroformate', map_number=1)}(=[O:2])([O:3])Cl.{site(*_ALKYL_AMINES, map_number=4)}"
        ">>[C:1](=[O:2])([O:3])-[N:4]",
        reverse="[CX3:1](=[O:2])([OX2:3])!@-[NX3;$(N[CX4]):4]>>[C:1](=[O:2])([O:3])Cl.[N:4]",
        roles=(("chloroformate",), _ALKYL_AMINES),
        purchased=(0,),
        tolerates=("terminal_alkyne",),
        weight=0.5,
    ),
    Template(
        "sulfonamide formation",
        forward=f"{site('sulfonyl_chloride', map_number=1)}(=[O:2])(=[O:3])Cl.{site(*_ALL_AMINES, map_number=4)}"
        ">>[S:1](=[O:2])(=[O:3])-[N:4]",
        reverse="[SX4:1](=[O:2])(=[O:3])!@-[NX3:4]>>[S:1](=[O:2])(=[O:3])Cl.[N:4]",
        roles=(("sulfonyl_chloride",), _ALL_AMINES),
        purchased=(0,),
        tolerates=("terminal_alkyne",),
        weight=1.5,
    ),
    Template(
        "amide coupling",
        forward=f"{site('acid', map_number=1)}(=[O:2])[OX2H1].{site(*_ALL_AMINES, map_number=3)}>>[C:1](=[O:2])-[N:3]",
        reverse="[CX3;$(C[#6]):1](=[O:2])!@-[NX3:3]>>[C:1](=[O:2])O.[N:3]",
        roles=(("acid",), _ALL_AMINES),
        tolerates=("terminal_alkyne",),
        weight=3.0,
    ),
    Template(
        "phenol acylation",
        forward=f"{site('acid_chloride', map_number=1)}(=[O:2])Cl.{site('phenol', map_number=3)}>>[C:1](=[O:2])-[O:3]",
        reverse="[CX3;$(C[#6]):1](=[O:2])!@-[OX2;$(Oc):3]>>[C:1](=[O:2])Cl.[O:3]",
        roles=(("acid_chloride",), ("phenol",)),
        purchased=(0,),
        weight=0.5,
    ),
    Template(
        "esterification",
        forward=f"{site('acid', map_number=1)}(=[O:2])[OX2H1].{site('alcohol', map_number=3)}>>[C:1](=[O:2])-[O:3]",
        # Ethyl esters are protected acids and are bought. If they were made here, the hydrolysis would form a circle.
        reverse="[CX3;$(C[#6]):1](=[O:2])!@-[OX2;$(O[CX4]);!$(O[CH2][CH3]):3]>>[C:1](=[O:2])O.[O:3]",
        roles=(("acid",), ("alcohol",)),
        tolerates=("terminal_alkyne",),
    ),
    Template(
        "Horner-Wadsworth-Emmons olefination",
        forward="[c:1][CX3H1:2]=O.[CH2:3](P(=O)(OCC)OCC)[C:4](=[O:5])[O:6]>>[c:1]/[CH:2]=[CH:3]/[C:4](=[O:5])[O:6]",
        reverse="[c:1][CX3H1:2]=[CX3H1:3][CX3:4](=[O:5])[OX2:6]"
        ">>[c:1][CH:2]=O.[CH2:3](P(=O)(OCC)OCC)[C:4](=[O:5])[O:6]",
        roles=(("aldehyde",), ("phosphonate",)),
        purchased=(1,),
        weight=0.5,
    ),
    Template(
        "reductive amination",
        forward=f"{site('aldehyde', map_number=1)}=O.{site('primary_amine', 'ring_amine', map_number=2)}"
        ">>[CH2:1]-[N:2]",
        reverse="[CX4H2;$(Cc):1]!@-[NX3:2]>>[CH:1]=O.[N:2]",
        roles=(("aldehyde",), ("primary_amine", "ring_amine")),
        tolerates=("alcohol", "terminal_alkyne"),
        forbids=("ketone",),
        weight=1.5,
    ),
    Template(
        "N-alkylation",
        forward=f"{site('ring_amine', map_number=1)}.{site('alkyl_bromide', map_number=2)}Br>>[N:1]-[C:2]",
        reverse="[NX3;R:1]!@-[CX4H2;!$(Cc):2]>>[N:1].[C:2]Br",
        roles=(("ring_amine",), ("alkyl_bromide",)),
        purchased=(1,),
        tolerates=("alcohol", "terminal_alkyne"),
        forbids=("sulfonamide",),
    ),
    Template(
        "Williamson ether formation",
        forward=f"{site('phenol', map_number=1)}.{site(*_BROMIDES, map_number=2)}Br>>[O:1]-[C:2]",
        reverse="[OX2;$(Oc):1]!@-[CX4H2:2]>>[O:1].[C:2]Br",
        roles=(("phenol",), _BROMIDES),
        purchased=(1,),
        tolerates=("aldehyde", "alcohol", "terminal_alkyne"),
        forbids=("sulfonamide",),
        weight=2.0,
    ),
    Template(
        "thioether formation",
        forward=f"{site('thiol', map_number=1)}.{site(*_BROMIDES, map_number=2)}Br>>[S:1]-[C:2]",
        reverse="[SX2;$(Sc):1]!@-[CX4H2:2]>>[S:1].[C:2]Br",
        roles=(("thiol",), _BROMIDES),
        purchased=(1,),
        tolerates=("terminal_alkyne",),
        weight=0.7,
    ),
    Template(
        "SNAr of an aryl fluoride",
        forward=f"{site('snar_fluoride', map_number=1)}F"
        f".{site('primary_amine', 'benzyl_amine', 'ring_amine', map_number=2)}>>[c:1]-[N:2]",
        reverse=f"[c;{ACTIVATED_CARBOCYCLE}:1]!@-[NX3:2]>>[c:1]F.[N:2]",
        roles=(("snar_fluoride",), ("primary_amine", "benzyl_amine", "ring_amine")),
        tolerates=("alcohol", "terminal_alkyne"),
    ),
    Template(
        "SNAr of a heteroaryl chloride",
        forward=f"{site('snar_chloride', map_number=1)}Cl"
        f".{site('primary_amine', 'benzyl_amine', 'ring_amine', map_number=2)}>>[c:1]-[N:2]",
        reverse=f"[c;{ACTIVATED_HETEROCYCLE}:1]!@-[NX3:2]>>[c:1]Cl.[N:2]",
        roles=(("snar_chloride",), ("primary_amine", "benzyl_amine", "ring_amine")),
        tolerates=("alcohol", "terminal_alkyne"),
    ),
)

# Both reactants are bought: a grown molecule has its protecting groups from the start, and their removal cannot form a
# circle with the protection.
_PROTECTIONS = (
    Template(
        "Boc protection",
        forward=f"{site('primary_amine', 'benzyl_amine', 'ring_amine', map_number=1)}"
        ".C(=O)(OC(C)(C)C)O[C:2](=[O:3])[O:4][C:5]>>[N:1]-[C:2](=[O:3])[O:4][C:5]",
        reverse="[NX3:1]!@-[CX3:2](=[O:3])[O:4][C:5]([CH3])([CH3])[CH3]"
        ">>[N:1].C(=O)(OC(C)(C)C)O[C:2](=[O:3])[O:4][C:5](C)(C)C",
        roles=(("primary_amine", "benzyl_amine", "ring_amine"), ("anhydride",)),
        purchased=(0, 1),
        tolerates=("alcohol", "terminal_alkyne"),
        weight=0.4,
    ),
    Template(
        "methyl ester formation",
        forward="[CX3;$(Cc):1](=[O:2])[OX2H1].[CH3:3][OX2H1:4]>>[C:1](=[O:2])-[O:4][C:3]",
        reverse="[CX3;$(Cc):1](=[O:2])!@-[OX2:4][CH3:3]>>[C:1](=[O:2])O.[CH3:3][OH:4]",
        roles=(("acid",), ("methanol",)),
        purchased=(0, 1),
        tolerates=("phenol",),
        weight=0.3,
    ),
)

TEMPLATES: tuple[Template, ...] = (*_FUNCTIONAL_GROUP_CHANGES, *_LATE_BONDS, *_OTHER_BONDS, *_PROTECTIONS)
