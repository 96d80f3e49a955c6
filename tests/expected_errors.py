"""What a test expects of an error: its type, its stable code and the names in it, not its wording."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headstart.errors import Code, HeadstartError, UserError


@contextmanager
def refused(
    code: Code, *names: str, by: type[HeadstartError] = UserError
) -> Iterator[pytest.ExceptionInfo[HeadstartError]]:
    """The block raises an error with this code that says these names: flags, files, values, numbers."""
    with pytest.raises(by) as caught:
        yield caught
    assert caught.value.code == code
    for name in names:
        assert name in caught.value.text
