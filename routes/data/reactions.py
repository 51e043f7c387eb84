"""A reaction template: how a product is made from its reactants, how it is taken apart, and when that is sensible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from rdkit import Chem, rdBase
from rdkit.Chem import rdChemReactions

from .groups import REACTIVE_GROUPS


@dataclass(frozen=True)
class Template:
    """One reaction, as reactants -> product and as product -> reactants.

    Args:
        name: for reports and tests.
        forward: reaction SMARTS, one product.
        reverse: reaction SMARTS of the disconnection; gives the reactants in the order of `forward`.
        roles: for each reactant the groups of `groups.GROUPS` that may react; it must have exactly one such site.
        purchased: positions of reactants that are always building blocks, never grown.
        tolerates: reactive groups that a reactant may have besides.
        forbids: latent groups that a reactant must not have.
        weight: how often it is drawn, relative to the others.
    """

    name: str
    forward: str
    reverse: str
    roles: tuple[tuple[str, ...], ...]
    purchased: tuple[int, ...] = ()
    tolerates: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    weight: float = 1.0

    @cached_property
    def _forward_reaction(self) -> rdChemReactions.ChemicalReaction:
        return _compile(self.forward)

    @cached_property
    def _reverse_reaction(self) -> rdChemReactions.ChemicalReaction:
        return _compile(self.reverse)

    def accepts(self, role: int, counts: Mapping[str, int]) -> bool:
        """Whether a molecule with these groups (`groups.count_groups`) can be reactant number `role`.

        It can when the reacting group is there exactly once and no other group would react or be harmed.
        """
        wanted = self.roles[role]
        if sum(counts.get(group, 0) for group in wanted) != 1:
            return False
        return not any(
            group in self.forbids or (group in REACTIVE_GROUPS and group not in self.tolerates)
            for group in counts
            if group not in wanted
        )

    def run(self, reactants: tuple[Chem.Mol, ...]) -> str | None:
        """Canonical SMILES of the product, or `None` when there is none or more than one distinct product."""
        outcomes = _outcomes(self._forward_reaction, reactants)
        return outcomes[0][0] if len(outcomes) == 1 else None

    def undo(self, product: Chem.Mol) -> list[tuple[str, ...]]:
        """Every distinct set of reactants, as canonical SMILES in the order of the roles, that the pattern gives.

        Whether they are fit for the reaction is not checked here; see `accepts`.
        """
        return _outcomes(self._reverse_reaction, (product,))


def canonical_smiles(molecule: Chem.Mol) -> str | None:
    """SMILES that stays the same when it is read and written again; `None` for an impossible molecule."""
    return _canonical(Chem.MolToSmiles(molecule))


# The fragments that molecules are cut into are the same ones again and again.
@lru_cache(maxsize=20_000)
def _canonical(smiles: str) -> str | None:
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
    return None if molecule is None else Chem.MolToSmiles(molecule)


def _compile(smarts: str) -> rdChemReactions.ChemicalReaction:
    reaction = rdChemReactions.ReactionFromSmarts(smarts)
    reaction.Initialize()
    return reaction


def _outcomes(reaction: rdChemReactions.ChemicalReaction, molecules: tuple[Chem.Mol, ...]) -> list[tuple[str, ...]]:
    found: dict[tuple[str, ...], None] = {}
    for products in reaction.RunReactants(molecules):
        smiles = tuple(canonical_smiles(product) for product in products)
        if all(smiles):
            found[tuple(text for text in smiles if text)] = None
    return list(found)
