"""The public names of `weftformer`, and the registration of the family with transformers."""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .configuration import WeftConfig
from .configuration.version import __version__  # noqa: F401
from .hub import export_code
from .hub.card import upload_with_card
from .modeling import (  # noqa: F401, public names
    WeftDecoder,
    WeftEncoder,
    WeftForConditionalGeneration,
    WeftModel,
    WeftPreTrainedModel,
    WeftStack,
    fast_decoding,
    parallel,
)
from .modeling.decoding import dispatch


def register() -> None:
    """Make the family known to transformers, and give its classes the parts that the package has for them.

    The code that travels with weights does not have these parts, so the classes do not import them: splitting over
    processes, the fast path of decoding, the writing of that code, and the model card.
    """
    AutoConfig.register("weft", WeftConfig, exist_ok=True)
    AutoModel.register(WeftConfig, WeftModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(WeftConfig, WeftForConditionalGeneration, exist_ok=True)
    parallel.install(WeftPreTrainedModel, WeftStack)
    WeftForConditionalGeneration.fast_path = dispatch
    WeftConfig.code_exporter = staticmethod(export_code)
    WeftPreTrainedModel._upload_modified_files = upload_with_card
