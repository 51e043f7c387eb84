"""What training a Weft model adds to the Trainer's loop."""

from typing import Any

from accelerate.utils import extract_model_from_parallel
from transformers import TrainerCallback

from ..hub import export_code
from ..modeling import WeftPreTrainedModel


def weft_model(model) -> Any:
    """The Weft model itself, without what compilation, processes or an adapter wrap around it."""
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT


class RouterBiasCallback(TrainerCallback):
    """Moves the routers' selection biases after each optimizer step (Wang et al. 2024, arXiv:2408.15664), under DeepSpeed.

    Its optimizer holds copies of the weights. Where the optimizer holds the weights themselves, routers notice its steps and
    have moved their biases already: the callback then changes nothing. Nor does it for models without
    `router_bias_update_rate`. Every process must have the callback, as the loads are summed over processes.
    """

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        weft_model(model).update_router_biases()


class PushCodeCallback(TrainerCallback):
    """Puts the model's code where the Trainer pushes from while it trains (`hub_strategy`).

    There the Trainer copies configuration and weights of the checkpoint, and not the code that the configuration names.
    [`WeftTrainer`] has this callback; give it to another Trainer that pushes before training ends.
    """

    def on_push_begin(self, args, state, control, model=None, **kwargs):
        model = extract_model_from_parallel(model, keep_torch_compile=False)
        # of an adapter (PEFT) no configuration of Weft is pushed
        if state.is_world_process_zero and isinstance(model, WeftPreTrainedModel):
            export_code(args.output_dir)
