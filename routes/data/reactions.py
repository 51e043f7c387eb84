"""Reaction templates: how reactants make a product, how a product is taken apart, and which reactants are suitable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from rdkit import Chem, rdBase
from rdkit.Chem import rdChemReactions

from .groups import REACTIVE_GROUPS


@dataclass(frozen=True)
class Template:
    """
    One reaction, in both directions.

    Args:
        name (`str`):
            The name in reports and tests.
        forward (`str`):
            Reaction SMARTS from the reactants to one product.
        reverse (`str`):
            Reaction SMARTS of the disconnection. It gives the reactants in the order of `forward`.
        roles (`tuple[tuple[str, ...], ...]`):
            For each reactant, the groups of `groups.GROUPS` that may react. The reactant must have exactly one such
            site.
        purchased (`tuple[int, ...]`, *optional*, defaults to `()`):
            The positions of reactants that are always building blocks.
        tolerates (`tuple[str, ...]`, *optional*, defaults to `()`):
            Reactive groups that a reactant may have in addition.
        forbids (`tuple[str, ...]`, *optional*, defaults to `()`):
            Latent groups that a reactant must not have.
        weight (`float`, *optional*, defaults to 1.0):
            How often the template is drawn, relative to the others.
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
        """Return whether a molecule with these groups (`groups.count_groups`) can be reactant number `role`.

        The molecule must have exactly one site that reacts, and no other group that would react or be damaged.
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
        """Return the canonical SMILES of the product, or None if there is none or several distinct products."""
        outcomes = _outcomes(self._forward_reaction, reactants)
        return outcomes[0][0] if len(outcomes) == 1 else None

    def undo(self, product: Chem.Mol) -> list[tuple[str, ...]]:
        """Return every distinct set of reactants from the reverse pattern, as canonical SMILES in the order of roles.

        This method does not check whether the reactants are suitable; see `accepts`.
        """
        return _outcomes(self._reverse_reaction, (product,))


def canonical_smiles(molecule: Chem.Mol) -> str | None:
    """Return a SMILES that does not change when it is read and written again, or None for an impossible molecule."""
    return _canonical(Chem.MolToSmiles(molecule))


# Cached, because different molecules give the same fragments.
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
