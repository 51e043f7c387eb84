"""Weft's additions to transformers' `generate`: defaults for inputs, checks before the first step, other searches."""

import inspect
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, cast

import torch
from transformers import Cache, DynamicCache, GenerationMixin, LogitsProcessor, LogitsProcessorList
from transformers.generation import GenerateBeamEncoderDecoderOutput, GenerateEncoderDecoderOutput, GenerationMode

from .attention import new_cache, repeated_cache, self_attention_cache
from .checks import as_encoder_outputs, check_ids, mask_of_pads, names_of
from .transformers_names import CACHE, ENCODE, HasCache, named_arguments, rename_cache


class RefuseNonFiniteScores(LogitsProcessor):
    """Raises a ValueError if scores are NaN or infinite, because they would be decoded to ids that look valid.

    Reading from a device waits for all its work. The record of the scores therefore stays on the device. It is read
    after the first step, which detects damaged weights, and by [`raise_if_nonfinite`].
    """

    def __init__(self):
        # by device, because an assistant model may be on another one: whether all scores so far were finite
        self._is_finite: dict[torch.device, torch.Tensor] = {}

    def __call__(self, input_ids: torch.LongTensor | None, scores: torch.FloatTensor) -> torch.FloatTensor:
        # processors set single tokens to -inf to forbid them; NaN, +inf and a row of -inf alone are errors
        is_finite = scores.amax(dim=-1).isfinite()  # the maximum of a row with a NaN is NaN
        if scores.device.type != "cpu":
            # sampling from NaN fails an assertion on the device, and the process can then no longer use the device
            scores = cast(torch.FloatTensor, scores.masked_fill(~is_finite[:, None], 0.0))
        is_first = scores.device not in self._is_finite
        all_finite = is_finite.all()
        self._is_finite[scores.device] = all_finite if is_first else all_finite & self._is_finite[scores.device]
        if is_first:
            self.raise_if_nonfinite()
        return scores

    def select_sources(self, sources: list[int], beams: int) -> None:
        """Do nothing. Sources may leave the batch, because the record is of all rows together."""

    def raise_if_nonfinite(self) -> None:
        """Read the record. Raise a ValueError if any scores so far were not finite."""
        if not all(map(bool, self._is_finite.values())):
            raise ValueError(
                "The scores are NaN or infinite: damaged weights, a narrow dtype (try float32), or forbidden tokens."
            )


class _WithoutCuDNN:
    """Turns the attention of cuDNN off while any thread generates.

    cuDNN would make a new plan for each length, which takes longer than the attention itself.
    """

    def __init__(self):
        self._lock, self._users, self._was_on = Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._was_on = torch.backends.cuda.cudnn_sdp_enabled()
                torch.backends.cuda.enable_cudnn_sdp(False)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                torch.backends.cuda.enable_cudnn_sdp(self._was_on)


without_cudnn = _WithoutCuDNN()


@dataclass
class WeftGenerateOutput(HasCache, GenerateEncoderDecoderOutput):
    """The output of greedy search and sampling, whose cache is both `cache` and `past_key_values`."""


@dataclass
class WeftGenerateBeamOutput(HasCache, GenerateBeamEncoderDecoderOutput):
    """The output of beam search, whose cache is both `cache` and `past_key_values`."""


_OUTPUTS = {GenerateEncoderDecoderOutput: WeftGenerateOutput, GenerateBeamEncoderDecoderOutput: WeftGenerateBeamOutput}


class DecoderChoice(NamedTuple):
    """The way in which `generate` writes a text.

    Args:
        name: `"compiled"` for a compiled search, `"cached"` for Weft's own search in Python, the fast path, or
            `"transformers"` for the loop of transformers.
        reason: why it is not a faster way, or why it is the fastest.
    """

    name: str
    reason: str


class WeftGenerationMixin(GenerationMixin):
    """`generate` with the plain path of decoding, and attributes through which the installed package extends it."""

    @property
    def fast_path(self) -> Any:
        """The fast path (`decoding/dispatch.py`), which only the installed package has."""
        return None if self.config.package is None else self.config.package.fast_path

    def decoder_for(self, inputs=None, generation_config=None, logits_processor=None, **kwargs) -> DecoderChoice:
        """Return which of three ways `generate` would take for a request, and why.

        Args:
            inputs, generation_config, logits_processor, kwargs: the arguments of [`generate`].

        Example:

        ```python
        >>> import torch
        >>> from weftformer import WeftConfig, WeftForConditionalGeneration

        >>> model = WeftForConditionalGeneration(WeftConfig(vocab_size=20, d_model=32)).eval()
        >>> model.decoder_for(torch.tensor([[5, 6, 7]]), use_cache=False)
        DecoderChoice(name='transformers', reason='the cache is turned off (use_cache=False)')
        ```
        """
        if self.fast_path is None:
            reason = (
                "this is the code beside the weights (pip install weftformer, and import weftformer before loading)"
            )
            return DecoderChoice("transformers", reason)
        if kwargs.get("custom_generate") is not None:
            return DecoderChoice("transformers", "another search is given (custom_generate)")
        source = kwargs.pop("input_ids", None) if inputs is None else inputs
        with torch.no_grad():
            choice = self.fast_path.decoder_for(self, source, generation_config, logits_processor or (), kwargs)
        return DecoderChoice(*choice)

    @torch.no_grad()  # without it, `generate.__wrapped__` keeps gradients, as in transformers
    def generate(self, inputs=None, generation_config=None, logits_processor=None, *args, **kwargs):
        r"""Generate target ids as `GenerationMixin.generate` does, in all of its modes. The following arguments are
        new or differ:

        Args:
            attention_mask (`torch.Tensor` of shape `(batch, source)`, *optional*): 1 for source tokens and 0 for pads.
                Defaults to a mask of the pads in the source. If there is no pad token, or it is also an end token, all
                tokens count.
            condition_values (`torch.Tensor` of shape `(batch, num_condition_features)`, *optional*): numbers that
                scale the learned vectors added at every source position.
            decoder_input_ids (`torch.LongTensor` of shape `(batch, prefix)`, *optional*): ids that each target begins
                with. Shorter prefixes are padded on the left.
            decoder_attention_mask (`torch.Tensor` of shape `(batch, prefix)`, *optional*): 1 for the tokens of the
                prefixes and 0 for pads.
            position_ids (`torch.LongTensor` of shape `(source,)` or `(batch, source)`, *optional*): positions of the
                source, see [`WeftEncoder.forward`].
            only_sequences (`bool`, *optional*, defaults to `False`): whether `return_dict_in_generate=True` requests
                only the sequences, `beam_indices` and, with `output_scores=True`, `sequences_scores`. The fast path
                then keeps no step scores, logits or cache, and sources leave the batch when their search is over. The
                plain path ignores this argument.
            cache (`Cache`, *optional*): keys and values to continue from, as in an earlier output. `past_key_values`
                is another name for it.
            custom_generate (`str` or `Callable`, *optional*): another search. `"sqrt_length"` is the beam search of
                DirectMultiStep, in the installed package.

        Returns:
            `torch.LongTensor` of shape `(batch * num_return_sequences, length)`, or a `ModelOutput` with
            `return_dict_in_generate=True`.

        Raises:
            ValueError: the learned position table is too short for the request, an input is not allowed, the scores of
                a step are not finite, or `assistant_early_exit` is given.
        """
        package = self.config.package
        if package is not None and package.parallel.is_fully_sharded(self):
            # a process that has finished still has a part of the weights that the others need; the Trainer sets this
            # only for its own FSDP
            kwargs["synced_gpus"] = torch.distributed.get_world_size() > 1
            if "generate" not in self.__dict__:
                package.parallel.gather_for_generate(self)
                return self.generate(inputs, generation_config, logits_processor, *args, **kwargs)
        kwargs = rename_cache(kwargs, CACHE)
        kwargs.pop("labels", None)  # Seq2SeqTrainer passes its whole batch
        source = inputs if inputs is not None else kwargs.get("input_ids")
        generation_config = self._choose_search(generation_config, kwargs)
        self._check_ids(source, kwargs)
        self._complete_inputs(source, generation_config, kwargs)
        if self.fast_path is not None and not args and not torch.is_grad_enabled():
            texts = self.fast_path.compiled_texts(self, source, generation_config, logits_processor or (), kwargs)
            if texts is not None:
                return texts
        return self._generate_guarded(inputs, generation_config, logits_processor or [], *args, **kwargs)

    def _choose_search(self, generation_config: Any, kwargs: dict[str, Any]) -> Any:
        """Replace the name of Weft's other search by the search. Return the settings of a request."""
        search = kwargs.get("custom_generate")
        if search == "sqrt_length":
            if self.config.package is None:
                raise ValueError(
                    'custom_generate="sqrt_length" needs weftformer: install it, and import it before loading.'
                )
            kwargs["custom_generate"] = self.config.package.sqrt_length_search
        elif search is not None and not getattr(search, "takes_fast_path", False):
            configs = [config for config in (generation_config, self.generation_config) if config is not None]
            has_cache = kwargs.get(CACHE) is not None or "cache_implementation" in kwargs
            # another search may rely on this cache, so it is the default unless the caller names one
            if has_cache or any(config.cache_implementation for config in configs):
                return generation_config
            if generation_config is None:
                kwargs["cache_implementation"] = "dynamic"
            else:
                generation_config = copy(generation_config)
                generation_config.cache_implementation = "dynamic"
        return generation_config

    def _check_ids(self, source: Any, kwargs: dict[str, Any]) -> None:
        """Raise a ValueError if a vocabulary lacks an id.

        Every request is checked, because a bad id may make the device unusable. `forward` checks only the first batch.
        """
        sizes = {"input_ids": self.config.vocab_size, "decoder_input_ids": self.config.target_vocab_size}
        for name, ids in (("input_ids", source), ("decoder_input_ids", kwargs.get("decoder_input_ids"))):
            if isinstance(ids, torch.Tensor) and ids.ndim == 2 and ids.numel() and not ids.is_floating_point():
                check_ids(ids, sizes[name], name)

    def _complete_inputs(self, source: Any, generation_config: Any, kwargs: dict[str, Any]) -> None:
        """Add masks that are not given, and bring other inputs into the form that transformers expects."""
        if kwargs.get("encoder_outputs") is not None:
            # a copy: `generate` expands it for the beams in place
            kwargs["encoder_outputs"] = as_encoder_outputs(kwargs["encoder_outputs"])
        if kwargs.get("attention_mask") is None and isinstance(source, torch.Tensor) and source.ndim == 2:
            ends = self.config.eos_token_id, (generation_config or self.generation_config).eos_token_id
            kwargs["attention_mask"] = mask_of_pads(source, self.config.pad_token_id, *ends)
        positions = kwargs.get("position_ids")
        if positions is not None and (positions.ndim == 1 or positions.shape[0] == 1):
            kwargs["position_ids"] = positions.view(1, -1).expand(self._batch_size(source, kwargs), -1)
        cache, prefix = kwargs.get(CACHE), kwargs.get("decoder_input_ids")
        if cache is not None and prefix is not None and prefix.shape[1] > cache.get_seq_length() > 0:
            # without a mask of this length, transformers takes all ids as new ones and adds them to the cache
            kwargs.setdefault("decoder_attention_mask", torch.ones_like(prefix))

    def _generate_guarded(self, inputs, generation_config, processors, *args, **kwargs):
        """Call transformers' `generate`, and raise a ValueError if the scores of a step are not finite."""
        guard = RefuseNonFiniteScores()
        # before the user's processors, so that their scores are not taken for the model's
        processors = LogitsProcessorList([guard, *processors])
        try:
            with without_cudnn if self.device.type == "cuda" else nullcontext():
                generate = inspect.unwrap(super().generate.__func__)
                output = generate(self, inputs, generation_config, processors, *args, **kwargs)
        except RuntimeError:
            guard.raise_if_nonfinite()  # sampling from NaN fails with an error that does not name the cause
            raise
        guard.raise_if_nonfinite()
        if (kind := _OUTPUTS.get(type(output))) is not None:
            output.__class__ = kind
        return output

    def _prepare_generation_config(self, *args, **kwargs):
        only_sequences = kwargs.pop("only_sequences", None)
        settings, model_kwargs = super()._prepare_generation_config(*args, **kwargs)
        if only_sequences is not None:
            settings.only_sequences = only_sequences
        return settings, model_kwargs

    def _validate_model_kwargs(self, model_kwargs: dict[str, Any]) -> None:
        """Refuse arguments that nothing reads, as transformers does, which does not know all that something reads."""
        names = names_of(self) | self.added_inputs()
        super()._validate_model_kwargs({name: model_kwargs[name] for name in model_kwargs.keys() - names})

    def _encode(self, *args, **kwargs):
        """Call the encoder without the inputs that only the model or its decoder reads."""
        encode = getattr(super(), ENCODE)
        arguments = named_arguments(encode, args, kwargs)
        names = {"logits_to_keep", "encoder_attention_mask"} | self.added_inputs()
        names -= names_of(self.get_encoder())
        model_kwargs = arguments["model_kwargs"]
        encoder_kwargs = {name: value for name, value in model_kwargs.items() if name not in names}
        return model_kwargs | encode(**arguments | {"model_kwargs": encoder_kwargs})

    def _prepare_cache_for_generation(self, *args, **kwargs) -> None:
        arguments = named_arguments(super()._prepare_cache_for_generation, args, kwargs)
        names = ("generation_config", "model_kwargs", "generation_mode", "batch_size")
        if arguments.keys() >= set(names):
            settings, inputs, mode, batch = (arguments[name] for name in names)
            if isinstance(cache := inputs.get(CACHE), Cache):
                is_dynamic = isinstance(self_attention_cache(cache), DynamicCache)
                if mode == GenerationMode.ASSISTED_GENERATION and not is_dynamic:
                    raise ValueError(
                        "Assisted decoding needs a `cache` that can be cropped: give a DynamicCache, or none."
                    )
                repeats = max(settings.num_beams or 1, settings.num_return_sequences or 1)
                inputs[CACHE] = repeated_cache(cache, batch, repeats)
            elif self.fast_path is not None:
                request = self.fast_path.prepared_request(self, settings, inputs, mode, batch)
                if request is not None:
                    inputs[CACHE] = request
                    return
        super()._prepare_cache_for_generation(*args, **kwargs)

    def _validate_generation_mode(self, *args, **kwargs):
        super()._validate_generation_mode(*args, **kwargs)
        arguments = named_arguments(super()._validate_generation_mode, args, kwargs)
        is_beam_sample = arguments.get("generation_mode") == GenerationMode.BEAM_SAMPLE
        if is_beam_sample and "streamer" in arguments.get("generation_mode_kwargs", ()):
            raise ValueError("`streamer` cannot be used with beam search: set `num_beams` to 1.")
        reason = "is for decoder-only models: leave it out for this encoder-decoder"
        settings = [("guidance_scale", 1, reason), ("prefill_chunk_size", None, reason)]
        if self.config.has_two_vocabularies:
            sizes = f"of {self.config.vocab_size} source and {self.config.target_vocab_size} target tokens"
            reason = f"compares source ids with target ids, but this model has two vocabularies, {sizes}: leave it out"
            settings += [("encoder_repetition_penalty", 1, reason), ("encoder_no_repeat_ngram_size", 0, reason)]
        for name, value, reason in settings:
            setting = getattr(arguments.get("generation_config"), name, None)
            if setting not in (None, value):
                raise ValueError(f"{name}={setting} {reason}.")

    def _prepare_decoder_input_ids_for_generation(self, *args, **kwargs):
        """Return the ids that the targets begin with.

        transformers adds the start token if no row has it in column 0. In rows that are padded on the left, it comes
        after the pads.
        """
        arguments = named_arguments(super()._prepare_decoder_input_ids_for_generation, args, kwargs)
        model_kwargs, start = arguments.get("model_kwargs", {}), arguments.get("decoder_start_token_id")
        ids, mask = model_kwargs.get("decoder_input_ids"), model_kwargs.get("decoder_attention_mask")
        if ids is not None and mask is not None and mask.shape == ids.shape and start is not None:
            first = ids.gather(1, mask.long().argmax(dim=1, keepdim=True))
            if (first == start.view(-1, 1)).any():
                return model_kwargs.pop("decoder_input_ids"), model_kwargs
        return super()._prepare_decoder_input_ids_for_generation(*args, **kwargs)

    @staticmethod
    def _batch_size(source: Any, kwargs: dict[str, Any]) -> int:
        for value in (source, kwargs.get("inputs_embeds"), kwargs.get("attention_mask")):
            if isinstance(value, torch.Tensor):
                return value.shape[0]
        outputs = kwargs.get("encoder_outputs")
        return 1 if outputs is None else outputs[0].shape[0]

    def compute_transition_scores(self, sequences, scores, beam_indices=None, normalize_logits=False) -> torch.Tensor:
        r"""Return the scores of the generated tokens, as in transformers, with the size of the target vocabulary.

        Args:
            sequences (`torch.LongTensor` of shape `(batch * num_return_sequences, length)`): the generated sequences.
            scores (`tuple` of `torch.FloatTensor` of shape `(batch * num_beams, vocabulary)`): scores of each step.
            beam_indices (`torch.LongTensor` of shape `(batch * num_return_sequences, length)`, *optional*): the beam
                of each token. Only beam search has it.
            normalize_logits (`bool`, *optional*, defaults to `False`): whether to apply a log-softmax to the scores
                first.

        Returns:
            `torch.Tensor` of shape `(batch * num_return_sequences, length)`: the scores, 0 after the end of a beam.
        """
        return super(WeftGenerationMixin, self._with_target_vocabulary()).compute_transition_scores(
            sequences, scores, beam_indices, normalize_logits
        )

    def _sample(self, *args, **kwargs):
        return self._search(super()._sample, args, kwargs)

    def _beam_search(self, *args, **kwargs):
        return self._search(super(WeftGenerationMixin, self._with_target_vocabulary())._beam_search, args, kwargs)

    def _search(self, plain_search: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Search on the fast path if the cache is its own, else as transformers does."""
        decode = getattr(kwargs.get(CACHE), "decode", None)
        if decode is not None and kwargs.get("synced_gpus"):  # a finished process repeats passes until all have
            decode, kwargs[CACHE] = None, new_cache(self.config)
        if decode is None:
            return plain_search(*args, **kwargs)
        kwargs.pop("synced_gpus", None)
        return decode(self, *args, **kwargs)

    def _reorder_cache(self, cache, beam_idx):
        """Reorder the cache of beam search, except the keys and values of the source, which all of its beams share.

        A search that moves rows to other sources needs `cache.reorder_cache` itself.
        """
        cast(Cache, self_attention_cache(cache)).reorder_cache(beam_idx)
        return cache

    def _optimize_model_for_decode(self, *args, **kwargs):
        """Return a context that does nothing, because the experts choose their own implementation (`moe.py`)."""
        return nullcontext()

    def _with_target_vocabulary(self) -> "WeftGenerationMixin":
        """Return this model for transformers code that reads `vocab_size` as the size of the target vocabulary.

        If the two vocabularies differ in size, return a twin with its own configuration, because other requests may be
        reading the model's.
        """
        if self.config.vocab_size == self.config.target_vocab_size:
            return self
        twin = object.__new__(type(self))  # `copy` would call the class that FSDP2 makes, which builds another module
        twin.__dict__.update(self.__dict__)
        twin.config = copy(self.config)
        twin.config.vocab_size = self.config.target_vocab_size
        return twin

    def _get_logits_processor(self, *args, **kwargs):
        return super(WeftGenerationMixin, self._with_target_vocabulary())._get_logits_processor(*args, **kwargs)

    def _get_candidate_generator(self, *args, **kwargs):
        arguments = named_arguments(super()._get_candidate_generator, args, kwargs)
        layer = getattr(arguments.get("generation_config"), "assistant_early_exit", None)
        if layer is not None:
            # transformers would write it to the configuration, but no layer of this model reads it there
            raise ValueError(
                f"assistant_early_exit={layer}: this model cannot skip layers. Use an `assistant_model` instead."
            )
        model = self._with_target_vocabulary()
        return super(WeftGenerationMixin, model)._get_candidate_generator(*args, **kwargs)

    def _validate_generated_length(self, *args, **kwargs):
        super()._validate_generated_length(*args, **kwargs)
        arguments = named_arguments(super()._validate_generated_length, args, kwargs)
        length, prefix = (
            getattr(arguments.get("generation_config"), "max_length", None),
            arguments.get("input_ids_length", 1),
        )
        limit = self.config.max_target_positions
        # the decoder never reads the last token
        if self.config.has_position_table and length is not None and length - 1 > limit:
            raise ValueError(
                f"{length} tokens are too many for {limit} positions: at most max_new_tokens={limit + 1 - prefix}."
            )

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        """Return the inputs of the next forward pass, as in transformers.

        Arguments that only the encoder or `generate` reads are left out.
        """
        kwargs = rename_cache(kwargs, CACHE)
        for name in ("condition_values", "tokenizer", "assistant_tokenizer"):
            kwargs.pop(name, None)
        if self.config.cross_attention_position_type == "none":
            kwargs.pop("position_ids", None)
        cache, mask = kwargs.get(CACHE), kwargs.get("decoder_attention_mask")
        if kwargs.get("next_sequence_length") is None and cache is not None and mask is not None:
            # assisted decoding takes all ids as new ones in its first step
            past = cache.get_seq_length()
            if 0 < past < input_ids.shape[1] == mask.shape[1]:
                kwargs["next_sequence_length"] = input_ids.shape[1] - past
        inputs = super().prepare_inputs_for_generation(input_ids, **kwargs)
        # PEFT 0.21 replaces `past_key_values` by a prefix if it is empty
        inputs |= dict.fromkeys((CACHE, "past_key_values"), kwargs.get(CACHE))
        return inputs

    @staticmethod
    def create_masks_for_generate(*args, attention_mask: torch.Tensor | None = None, **kwargs) -> torch.Tensor | None:
        """Return a 2-D mask with a column for each token that a static cache has room for.

        transformers would pass a 4-D mask, but positions are counted from a 2-D mask.
        """
        if attention_mask is None:
            return None
        columns = kwargs[CACHE].get_max_length() - attention_mask.shape[1]
        return torch.nn.functional.pad(attention_mask, (0, columns))


setattr(WeftGenerationMixin, ENCODE, WeftGenerationMixin._encode)
