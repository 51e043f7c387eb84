"""What training a Weft model adds to the Trainer's loop."""

from accelerate.utils import extract_model_from_parallel
from transformers import TrainerCallback


class RouterBiasCallback(TrainerCallback):
    """Moves the routers' selection biases once after each optimizer step (Wang et al. 2024, arXiv:2408.15664).

    Not after each micro-batch: the load that counts is that of the whole accumulated batch, over all processes. Does
    nothing for models without `router_bias_update_rate`. Every process must have the callback, as the loads are summed
    over processes.
    """

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        model = extract_model_from_parallel(model, keep_torch_compile=False)
        if hasattr(model, "get_base_model"):  # PEFT
            model = model.get_base_model()
        model.update_router_biases()
