"""The evaluation of planned routes."""

# The conditions of a model besides the target, as options and as column names.
CONDITIONS = {
    "steps": "told steps",
    "nothing": "told nothing",
    "steps+material": "told steps and starting material",
    "material": "told starting material",
}
