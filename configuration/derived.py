"""Fields that are numbers before anybody gives one: each follows from others for as long as it is None."""

from collections.abc import Callable
from typing import Any


class Derived:
    """A field of a configuration that is kept as it was given and read as a number.

    What is None stays None inside, so that the number follows when other fields change: when tables are resized, when a
    stack gets other heads, in the view that `get_text_config` gives of one stack.

    Args:
        number: configuration -> the number that follows, for the stack whose heads are its `num_attention_heads`.
        says_it_all: configuration -> whether that number says of the whole model what None says. Only then may it stand in a
            file in None's place.
    """

    def __init__(self, number: Callable[[Any], int], says_it_all: Callable[[Any], bool]):
        self.number = number
        self.says_it_all = says_it_all

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, config: Any, owner: type | None = None) -> int | None:
        if config is None:
            return None  # what a dataclass takes for the default
        given = vars(config).get(self.name)
        return self.number(config) if given is None else given

    def __set__(self, config: Any, value: int | None) -> None:
        vars(config)[self.name] = value

    def __delete__(self, config: Any) -> None:
        vars(config).pop(self.name, None)


def _heads_are_alike(config: Any) -> bool:
    return config.encoder_attention_heads == config.decoder_attention_heads


def _heads_share_the_width(config: Any) -> bool:
    heads, width = config.encoder_attention_heads, config.d_model
    # a file's fields are not checked yet
    is_number = isinstance(heads, int) and isinstance(width, int) and heads > 0
    return is_number and width % heads == 0 and _heads_are_alike(config)


# Any, which a field of any type may have as its default
DERIVED: dict[str, Any] = {
    # of two tables a number says that each has a vocabulary of its own
    "decoder_vocab_size": Derived(
        lambda config: config.vocab_size, lambda config: config.share_encoder_decoder_embeddings is True
    ),
    "num_key_value_heads": Derived(lambda config: config.encoder_attention_heads, _heads_are_alike),
    "head_dim": Derived(lambda config: config.d_model // config.encoder_attention_heads, _heads_share_the_width),
}


def superfluous(config: Any) -> set[str]:
    """The fields that hold just the number they would have if nothing had been given."""
    return {
        name
        for name, field in DERIVED.items()
        if field.says_it_all(config) and vars(config).get(name) == field.number(config)
    }
