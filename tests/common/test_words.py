"""Words of messages."""

import pytest

from weftformer.common.words import first_line


@pytest.mark.parametrize(
    ("error", "expected"), [(ValueError("\n a cause\nand more"), "a cause"), (TimeoutError(" "), "TimeoutError")]
)
def test_an_error_is_named_by_its_first_line_or_its_class(error, expected):
    assert first_line(error) == expected
