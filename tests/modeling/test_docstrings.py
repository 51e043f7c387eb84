"""The docstrings of `forward` describe every argument, and their examples print what they show."""

import doctest
import inspect
import re

import pytest

from weftformer import WeftConfig, WeftDecoder, WeftEncoder, WeftForConditionalGeneration, WeftModel

CLASSES = [WeftEncoder, WeftDecoder, WeftModel, WeftForConditionalGeneration]


@pytest.mark.parametrize("owner", CLASSES)
def test_every_argument_is_documented(owner):
    text = inspect.getdoc(owner.forward)
    arguments = text[text.index("Args:") : text.index("Returns:")]
    documented = re.findall(r"^    ([a-z_, ]+?)(?: \(.*?\))?: ", arguments, re.MULTILINE)
    named = [name for entry in documented for name in entry.split(", ")]
    # decorators of transformers hide it
    taken = inspect.signature(inspect.unwrap(owner.forward)).parameters
    assert sorted(named) == sorted(set(taken) - {"self", "kwargs"})
    assert "Raises:" in text


@pytest.mark.parametrize("documented", [WeftConfig, *(owner.forward for owner in CLASSES)])
def test_examples_of_docstrings_run(documented):
    text = inspect.getdoc(documented).replace("```python", "").replace("```", "")
    example = doctest.DocTestParser().get_doctest(text, {}, documented.__name__, None, 0)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
