"""The public names of `weftformer`, and the registration of the family with transformers."""

from types import SimpleNamespace

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .configuration import WeftConfig
from .configuration.configuration_weft import register_preset  # noqa: F401, a public name
from .configuration.version import __version__  # noqa: F401
from .hub import export_code
from .hub.card import replace_default_card
from .hub.export import check_code, saving
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
from .modeling.decoding.sqrt_length import sqrt_length_search


def register() -> None:
    """Make the family known to transformers, and give its classes the parts that only the package has.

    The code that travels with weights does not have these parts, so the classes do not import them: splitting over
    processes, the fast path of decoding, DirectMultiStep's search, the writing of that code, and the model card.
    """
    WeftConfig.package = SimpleNamespace(
        parallel=parallel,
        fast_path=dispatch,
        sqrt_length_search=sqrt_length_search,
        export_code=export_code,
        check_code=check_code,
        saving=saving,
        replace_default_card=replace_default_card,
    )
    AutoConfig.register("weft", WeftConfig, exist_ok=True)
    AutoModel.register(WeftConfig, WeftModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(WeftConfig, WeftForConditionalGeneration, exist_ok=True)
