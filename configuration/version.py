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


def with_later_fields(saved: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration's file, those that came later with what the Weft of then did.

    Args:
        saved: what the file holds.
        given: what is to replace it.
    """
    is_saved = "transformers_version" in saved  # and not written by hand: then the defaults hold
    fields = saved | given
    if is_saved and saved.get("expert_capacity_factor") is not None and "expert_capacity_mode" not in fields:
        fields = fields | {"expert_capacity_mode": "always"}
    if is_saved and "infer_attention_mask" not in fields:
        pad, ends = fields.get("pad_token_id", 0), fields.get("eos_token_id", 2)
        # pads were always taken for the mask; that this hid the end of a source too, where both are one, was a mistake
        is_told = pad is not None and pad not in (ends if isinstance(ends, list) else [ends])
        return fields | {"infer_attention_mask": is_told}
    return fields


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
