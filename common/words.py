"""Words that texts and pages share."""


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, such as `1 step` or `1,024 steps`."""
    return f"{number:{',' if isinstance(number, int) else 'g'}} {noun}{'' if number == 1 else 's'}"


def first_line(error: object) -> str:
    """Return the first line of an error's message, or the name of its class if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
