"""What the planner takes from the family: nothing else in `routes` imports models, tokenizers or training.

Each name is imported on first use, so that commands answer `--help` at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_names

if TYPE_CHECKING:
    from ..configuration import WeftConfig
    from ..configuration.version import __version__
    from ..hub import metric_result
    from ..hub.card import writes_routes
    from ..hub.loading import load
    from ..inference.search import BatchSearch, is_continuous
    from ..inference.texts import disable_padding
    from ..modeling import WeftForConditionalGeneration
    from ..modeling.decoding import ContinuousSearch
    from ..tokenization import (
        PRODUCT_LENGTH,
        build_route_tokenizer,
        encode_checked,
        encode_route,
        encode_source,
        source_text,
    )
    from ..tokenization.checks import shown
    from ..training import WeftTrainer, WeftTrainingArguments
    from ..training.batching import PairCollator
    from ..training.checkpoints import check_same_model, output_lock, resumable
    from ..training.encoding import longest
    from ..training.fitting import fit, start
    from ..training.options import TrainingOptions, common_option, option
    from ..training.sources import TrainedSources, source_key

__getattr__, __all__ = lazy_names(__package__, __file__)
