"""Which Weft wrote a folder, and whether this one can read it."""

from typing import Any

__version__ = "0.1.0"

# The number of what files look like, raised only when an older Weft would read a newer file wrongly: a field means something
# else, or weights have other names. A version that adds fields does not raise it, since an older Weft names them in a warning
# and leaves them out; refusing every newer version would lock people out of folders that they can read.
FORMAT = 1

# Whether this is code that travels with weights, and not the installed package. It stays as it is while transformers goes on
# and hands over words that it does not know yet, so it warns of them where the package refuses them.
IS_EXPORTED = __name__.partition(".")[0] != "weftformer"


def version_fields() -> dict[str, Any]:
    """What a configuration's file says of the Weft that wrote it."""
    return {"weft_version": __version__, "weft_format": FORMAT}


def without_version(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration's file without those of [`version_fields`]. Files of before there were any have none.

    Raises:
        ValueError: a later Weft wrote the file, in a format that this one does not know.
    """
    rest = dict(fields)
    found, version = rest.pop("weft_format", FORMAT), rest.pop("weft_version", "unknown")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= FORMAT:
        raise ValueError(
            f"The configuration is of Weft {version}, format {found!r}, and this is Weft {__version__}, which reads formats "
            f"up to {FORMAT}: upgrade it with `pip install -U weftformer`."
        )
    return rest
