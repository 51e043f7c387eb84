"""The earlier place of [`chemistry.molecules`], for code that imports from here."""

from .chemistry.molecules import canonical_smiles, drawn_smiles, one_molecule, rooted_smiles

__all__ = ["canonical_smiles", "drawn_smiles", "one_molecule", "rooted_smiles"]
