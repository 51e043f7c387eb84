from ..modeling import WeftPreTrainedModel
from .card import Facts, Measured, build_card
from .export import export_code
from .facts import converted_card, facts_of, upload_with_card
from .trained import measured, trained_card

# Models know nothing of this room, and their code travels without it: what is pushed from here gets its card from here.
WeftPreTrainedModel._upload_modified_files = upload_with_card

__all__ = ["Facts", "Measured", "build_card", "converted_card", "export_code", "facts_of", "measured", "trained_card"]
