"""The version of Weft that wrote a folder, and whether this version can read it."""

from typing import Any

__version__ = "0.1.0"

# The number of the file format. Raise it only if an older Weft would read a newer file wrongly: because a field has
# another meaning, or weights have other names. Do not raise it for new fields: an older Weft warns of them and ignores
# them, and can still read the folder.
FORMAT = 1

# Whether this is code that travels with weights, not the installed package. That code stays the same while
# transformers changes, so it warns of unknown keywords, for which the package raises an error.
IS_EXPORTED = __name__.partition(".")[0] != "weftformer"


def version_fields() -> dict[str, Any]:
    """Return the fields that record in a file which version of Weft wrote it."""
    return {"weft_version": __version__, "weft_format": FORMAT}


def without_version(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a file without those of [`version_fields`].

    Raises:
        ValueError: a later Weft wrote the file, in a format that this version cannot read.
    """
    others = dict(fields)
    file_format, version = others.pop("weft_format", FORMAT), others.pop("weft_version", "unknown")
    if not isinstance(file_format, int) or isinstance(file_format, bool) or not 1 <= file_format <= FORMAT:
        raise ValueError(
            f"Weft {version} wrote this configuration in format {file_format!r}, and Weft {__version__} reads formats "
            f"up to {FORMAT}: pip install -U weftformer."
        )
    return others
