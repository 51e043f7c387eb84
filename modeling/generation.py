"""What Weft adds to transformers' `generate`: inputs that are safe to forget, and refusals before the first step."""

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from typing import Any, ClassVar, cast

import torch
from transformers import Cache, GenerationMixin, LogitsProcessor, LogitsProcessorList

from .attention import new_cache
from .checks import check_ids, mask_of_pads
from .transformers_names import fit_to_transformers


class RefuseNonFiniteScores(LogitsProcessor):
    """Stops a generation whose scores are NaN or infinite; they would decode to ids that look valid.

    Whoever reads a device waits for all its work. What was seen stays there, and is read after the first step, which tells
    of damaged weights, and by [`look`] at the end.
    """

    def __init__(self):
        # For each device and number of rows that scores came with: which rows are finite as yet, for how many calls they
        # were, and the length at each call. An assistant's scores may come from a device of its own.
        self._seen: dict[tuple[torch.device, int], tuple[torch.Tensor, torch.Tensor, list[int]]] = {}

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        # -inf is how processors forbid single tokens; NaN, +inf and a row of nothing but -inf are never meant.
        is_finite = scores.amax(dim=-1).isfinite()  # the highest of a row with a NaN is NaN
        if scores.device.type != "cpu":
            # to draw from NaN ends in an assertion on the device, after which the process cannot use it any more
            scores = cast(torch.FloatTensor, scores.masked_fill(~is_finite[:, None], 0.0))
        key = (scores.device, len(scores))
        is_first = key not in self._seen
        if is_first:
            self._seen[key] = (torch.ones_like(is_finite), torch.zeros_like(is_finite, dtype=torch.long), [])
        finite_so_far, calls, lengths = self._seen[key]
        finite_so_far &= is_finite
        calls += finite_so_far
        lengths.append(input_ids.shape[-1])
        if is_first:
            self.look()
        return scores

    def look(self) -> None:
        """Raise the error if any scores so far were not finite."""
        for _, calls, lengths in self._seen.values():
            finite_calls = calls.tolist()
            first = min(finite_calls)
            if first < len(lengths):
                raise ValueError(
                    f"The scores of the next token are NaN or infinite in row {finite_calls.index(first)}, at length "
                    f"{lengths[first]}: the weights are damaged, or the dtype is too narrow for them (try bfloat16 or "
                    "float32)."
                )


def _comes_with_the_package() -> Callable:
    raise ValueError(
        'custom_generate="sqrt_length" comes with the installed package, and this is the code beside the weights: pip install '
        "weftformer, and import weftformer before the model is loaded."
    )


@fit_to_transformers
class WeftGenerationMixin(GenerationMixin):
    """The plain path of decoding, and the doors to what the installed package adds to it."""

    # The fast path (`decoding_dispatch.py`), where the installed package has put it: code that travels with weights has none.
    fast_path: ClassVar[Any] = None
    # What `custom_generate` may name beside a repository on the Hub: name to what loads the search.
    searches: ClassVar[dict[str, Callable[[], Callable]]] = {"sqrt_length": _comes_with_the_package}

    def generate(self, inputs=None, generation_config=None, logits_processor=None, *args, **kwargs):
        """As `GenerationMixin.generate`, in all its modes, and:

        - a missing `attention_mask` is inferred from `pad_token_id`, as transformers does for decoders alone: unless that
          is an end too;
        - `condition_values` (batch, features) goes to the encoder, once;
        - `custom_generate="sqrt_length"` searches as DirectMultiStep does (with the installed package);
        - `decoder_input_ids` with `decoder_attention_mask` is a forced prefix, left-padded where rows differ in length;
        - `position_ids`, `position_mask`, `decoder_position_ids`, `decoder_position_mask` may be (T,) or (batch, T).

        Raises:
            ValueError: the request cannot fit the learned positions, an input is not allowed, the scores of a step are
                not finite, or layers are to be left out (`assistant_early_exit`).
        """
        if self.parallelism is not None and self.parallelism.is_fully_sharded(self):
            # who has finished still holds a part of the weights; the Trainer asks for this only of its own FSDP
            kwargs["synced_gpus"] = torch.distributed.get_world_size() > 1
            if "generate" not in self.__dict__:
                self.parallelism.gather_for_generate(self)
                return self.generate(inputs, generation_config, logits_processor, *args, **kwargs)
        kwargs.pop("labels", None)  # Seq2SeqTrainer hands its whole batch over
        if kwargs.get("custom_generate") in self.searches:
            kwargs["custom_generate"] = self.searches[kwargs["custom_generate"]]()
        elif kwargs.get("custom_generate") is not None:
            kwargs.setdefault("cache_implementation", "dynamic")  # it may do with the cache what only that one can
        source = inputs if inputs is not None else kwargs.get("input_ids")
        if kwargs.get("attention_mask") is None and isinstance(source, torch.Tensor) and source.ndim == 2:
            ends = self.config.eos_token_id, (generation_config or self.generation_config).eos_token_id
            kwargs["attention_mask"] = mask_of_pads(source, self.config.pad_token_id, *ends)
        # once a request, which a bad id must not cost the device: the model itself reads those of its first batch alone
        sizes = {"input_ids": self.config.vocab_size, "decoder_input_ids": self.config.target_vocab_size}
        for name, ids in (("input_ids", source), ("decoder_input_ids", kwargs.get("decoder_input_ids"))):
            if isinstance(ids, torch.Tensor) and ids.ndim == 2 and ids.numel() and not ids.is_floating_point():
                check_ids(ids, sizes[name], name)
        for name in ("position_ids", "position_mask", "decoder_position_ids", "decoder_position_mask"):
            value = kwargs.get(name)
            if value is not None and (value.ndim == 1 or value.shape[0] == 1):
                kwargs[name] = value.view(1, -1).expand(self._batch_size(source, kwargs), -1)
        cache, prefix = kwargs.get("past_key_values"), kwargs.get("decoder_input_ids")
        if cache is not None and prefix is not None and prefix.shape[1] > cache.get_seq_length() > 0:
            # without a mask of its length transformers takes a whole sequence for one that follows the cache
            kwargs.setdefault("decoder_attention_mask", torch.ones_like(prefix))
        if isinstance(states := kwargs.get("encoder_outputs"), dict):
            kwargs["encoder_outputs"] = type(states)(**states)  # beams are written into it
        # first of the given ones: what a later processor forbids is not the model's fault
        refusal = RefuseNonFiniteScores()
        processors = LogitsProcessorList([refusal, *(logits_processor or [])])
        try:
            output = super().generate(inputs, generation_config, processors, *args, **kwargs)
        except RuntimeError:
            refusal.look()  # to draw from NaN fails without a word of where they come from
            raise
        refusal.look()
        return output

    def _prepare_cache_for_generation(
        self, generation_config, model_kwargs, generation_mode, batch_size, *args, **kwargs
    ) -> None:
        if self.fast_path is not None:
            request = self.fast_path.prepared_request(
                self, generation_config, model_kwargs, generation_mode, batch_size
            )
            if request is not None:
                model_kwargs["past_key_values"] = request
                return
        super()._prepare_cache_for_generation(
            generation_config, model_kwargs, generation_mode, batch_size, *args, **kwargs
        )

    @staticmethod
    def _batch_size(source: Any, kwargs: dict[str, Any]) -> int:
        for value in (source, kwargs.get("inputs_embeds"), kwargs.get("attention_mask")):
            if isinstance(value, torch.Tensor):
                return value.shape[0]
        outputs = kwargs.get("encoder_outputs")
        return 1 if outputs is None else outputs[0].shape[0]

    def compute_transition_scores(self, sequences, scores, beam_indices=None, normalize_logits=False) -> torch.Tensor:
        """As in transformers, which takes the source's vocabulary for the target's."""
        scores_RTV = torch.stack(scores, dim=1)
        if normalize_logits:
            scores_RTV = scores_RTV.log_softmax(dim=-1)
        if beam_indices is None:
            beam_indices = torch.arange(len(scores_RTV), device=sequences.device)[:, None].expand(-1, len(scores))
        steps = torch.arange(int((beam_indices >= 0).sum(dim=-1).max()), device=sequences.device)
        beams_RT = beam_indices[:, : len(steps)]
        tokens_RT = sequences[:, sequences.shape[1] - len(steps) :]
        return scores_RTV[beams_RT.clamp(min=0), steps, tokens_RT].masked_fill(beams_RT < 0, 0.0)

    def _takes_fast_path(self, model_kwargs: dict[str, Any], synced_gpus: bool) -> bool:
        """Whether a request was prepared for the fast path and may take it; one that may not gets an ordinary cache."""
        is_prepared = self.fast_path is not None and self.fast_path.is_fast(model_kwargs)
        if is_prepared and synced_gpus:  # those who have finished go on with whole forward passes until all have
            model_kwargs["past_key_values"] = new_cache(self.config)
        return is_prepared and not synced_gpus

    def _sample(self, *args, synced_gpus: bool = False, **kwargs):
        if self._takes_fast_path(kwargs, synced_gpus):
            return self.fast_path.sample(self, *args, **kwargs)
        return super()._sample(*args, synced_gpus=synced_gpus, **kwargs)

    def _beam_search(self, *args, synced_gpus: bool = False, **kwargs):
        if self._takes_fast_path(kwargs, synced_gpus):
            return self.fast_path.beam_search(self, *args, **kwargs)
        model = self._twin_of_the_target()
        return super(WeftGenerationMixin, model)._beam_search(*args, synced_gpus=synced_gpus, **kwargs)

    def _optimize_model_for_decode(self):
        """Nothing: transformers puts "batched_mm" into the configuration meanwhile, which other requests read.

        On an accelerator `model.set_experts_implementation("batched_mm")` says so for all of them.
        """
        return nullcontext()

    def _twin_of_the_target(self) -> "WeftGenerationMixin":
        """This model, for what reads `vocab_size` of the configuration, the source's, and means the target's.

        With a vocabulary for each a twin that has a configuration of its own: other requests may read the model's meanwhile.
        """
        if self.config.vocab_size == self.config.target_vocab_size:
            return self
        twin = object.__new__(type(self))  # `copy` would ask FSDP2's class, which makes other modules
        twin.__dict__.update(self.__dict__)
        twin.config = copy(self.config)
        twin.config.vocab_size = self.config.target_vocab_size
        return twin

    def _get_logits_processor(self, *args, **kwargs):
        return super(WeftGenerationMixin, self._twin_of_the_target())._get_logits_processor(*args, **kwargs)

    def _get_candidate_generator(self, generation_config, *args, **kwargs):
        if generation_config.assistant_early_exit is not None:
            # transformers would write it to the configuration, and no layer would read it there
            raise ValueError(
                f"assistant_early_exit={generation_config.assistant_early_exit}: this model cannot leave out layers; give a "
                "smaller model as `assistant_model`, or `prompt_lookup_num_tokens`."
            )
        model = self._twin_of_the_target()
        return super(WeftGenerationMixin, model)._get_candidate_generator(generation_config, *args, **kwargs)

    def _validate_generated_length(self, generation_config, input_ids_length, has_default_max_length):
        super()._validate_generated_length(generation_config, input_ids_length, has_default_max_length)
        config = self.config
        # the last token is written and never read
        needed, limit = generation_config.max_length - 1, config.max_target_positions
        has_table = config.position_embedding_type == "learned" or config.uses_attention_positions("additive")
        if has_table and needed > limit:
            raise ValueError(
                f"A prefix of {input_ids_length} tokens and max_new_tokens={generation_config.max_length - input_ids_length} "
                f"do not fit the learned position table of {limit} rows (`max_target_positions`): ask for at most "
                f"max_new_tokens={limit + 1 - input_ids_length}."
            )

    def prepare_inputs_for_generation(self, input_ids, past_key_values: Cache | None = None, **kwargs):
        """As in transformers; positions follow the decoder's mask, and what only the encoder or `generate` reads is left out."""
        for name in ("condition_values", "tokenizer", "assistant_tokenizer"):
            kwargs.pop(name, None)
        if self.config.cross_attention_position_type == "none":
            kwargs.pop("position_ids", None)
            kwargs.pop("position_mask", None)
        mask = kwargs.get("decoder_attention_mask")
        if kwargs.get("decoder_position_ids") is None and mask is not None and mask.ndim == 2:
            kwargs["decoder_position_ids"] = (mask.long().cumsum(dim=-1) - 1).clamp(min=0)
        position_ids, position_mask = kwargs.get("decoder_position_ids"), kwargs.pop("decoder_position_mask", None)
        if position_mask is not None:  # tokens written since the prefix have positions
            position_mask = torch.nn.functional.pad(
                position_mask, (0, input_ids.shape[1] - position_mask.shape[1]), value=True
            )
        inputs = super().prepare_inputs_for_generation(input_ids, past_key_values=past_key_values, **kwargs)
        new = inputs["decoder_input_ids"].shape[1]
        if position_mask is not None:
            inputs["decoder_position_mask"] = position_mask[:, -new:]
        if self.config.has_relative_self_attention:
            inputs |= self._key_positions(position_ids, position_mask, past_key_values)
        return inputs

    @staticmethod
    def _key_positions(position_ids, position_mask, past_key_values) -> dict[str, torch.Tensor]:
        """Positions of all keys, cached ones included, as long as the cache's buffers where those are static."""
        given = {"decoder_key_position_ids": position_ids, "decoder_key_position_mask": position_mask}
        static = past_key_values is not None and past_key_values.is_compileable
        length = past_key_values.get_max_length() if static else 0
        return {
            name: torch.nn.functional.pad(value, (0, max(length - value.shape[1], 0)))
            for name, value in given.items()
            if value is not None
        }
