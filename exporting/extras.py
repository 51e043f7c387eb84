"""Checks of optional packages."""

from importlib.util import find_spec


def needed(*packages: str) -> None:
    """Check that packages are installed.

    Raises:
        ValueError: one of them is not installed.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ValueError(f"This needs {' and '.join(missing)}: pip install 'weftformer[export]'.")
