"""The evaluation of planned routes."""
