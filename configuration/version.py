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
    """Return the fields that say in a file which Weft wrote it."""
    return {"weft_version": __version__, "weft_format": FORMAT}


def with_later_fields(saved: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a file, where fields that its Weft did not have yet get values for its behaviour.

    Args:
        saved: the fields of the file.
        given: fields that replace them.
    """
    is_saved = "transformers_version" in saved  # a file written by hand gets today's defaults
    fields = saved | given
    if is_saved and "infer_attention_mask" not in fields:
        pad, ends = fields.get("pad_token_id", 0), fields.get("eos_token_id", 2)
        # an older Weft always inferred the mask from pads; if pad and end were the same token, it wrongly masked ends
        # too
        is_inferred = pad is not None and pad not in (ends if isinstance(ends, list) else [ends])
        return fields | {"infer_attention_mask": is_inferred}
    return fields


# Fields of earlier versions that are gone, each with the value that changed nothing.
REMOVED = {
    "cross_attention_hidden_size": None,
    "expert_capacity_mode": "always",
    "n_shared_experts": 0,
    "routed_scaling_factor": 1.0,
    "router_sequence_aux_loss_coef": 0.0,
    "scoring_func": "softmax",
}


def without_removed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without those that Weft no longer has.

    Raises:
        ValueError: one of them has a value that changed the model.
    """
    fields = {name: value for name, value in fields.items() if name != "label_smoothing"}  # it changed training alone
    if fields.get("expert_capacity_factor", 1.0) is None:  # a mode of no limit
        fields.pop("expert_capacity_mode", None)
    for name, without_effect in REMOVED.items():
        if fields.get(name, without_effect) != without_effect:
            # what was limited in training alone has no limit where the model is used
            more = "; give `expert_capacity_factor=None` for no limit" if name == "expert_capacity_mode" else ""
            raise ValueError(
                f"{name}={fields[name]!r} is not allowed: Weft no longer has `{name}`, and computes as with "
                f"{name}={without_effect!r}. Leave it out{more}."
            )
    return {name: value for name, value in fields.items() if name not in REMOVED}


def without_version(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a file without those of [`version_fields`], which old files do not have.

    Raises:
        ValueError: a later Weft wrote the file, in a format that this version cannot read.
    """
    rest = dict(fields)
    found, version = rest.pop("weft_format", FORMAT), rest.pop("weft_version", "unknown")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= FORMAT:
        raise ValueError(
            f"The configuration has format {found!r} and was written by Weft {version}, but Weft {__version__} reads formats "
            f"up to {FORMAT}: upgrade Weft with `pip install -U weftformer`."
        )
    return rest
