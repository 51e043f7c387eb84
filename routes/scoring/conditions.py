"""What a model is told besides the target: as it is typed, and as a column is called."""

CONDITIONS = {
    "steps": "told steps",
    "nothing": "told nothing",
    "steps+material": "told steps and starting material",
    "material": "told starting material",
}
