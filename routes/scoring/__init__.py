"""How good planned routes are."""
