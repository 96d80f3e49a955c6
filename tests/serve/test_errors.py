"""What a request is refused with."""

import json
import math

import pytest
from pydantic import BaseModel, Field, ValidationError

from headstart.errors import IntegrityError, TryAgain, UserError
from headstart.serve.errors import RequestError, as_json, busy, error_for, invalid_field


def test_the_body_says_what_is_wrong_and_how_to_mend_it():
    refused = RequestError(418, "no \x1b[2J coffee", "ask for tea")
    assert json.loads(refused.body) == {"error": {"what": "no \\x1b[2J coffee", "fix": "ask for tea"}}


def test_a_long_message_is_cut():
    assert len(RequestError(400, "x" * 10_000).error["what"]) == 600


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("wrong"), 400),
        (IntegrityError("broken"), 400),
        (TryAgain("full"), 503),
        (MemoryError(), 503),
        (RequestError(404, "gone"), 404),
    ],
)
def test_every_error_that_a_client_should_know_of_has_a_status(error, status):
    assert error_for(error).status == status


def test_an_error_that_only_a_programmer_can_mend_is_none():
    assert error_for(ZeroDivisionError()) is None


def test_directories_are_not_told():
    refused = error_for(UserError("cannot read /srv/models/books/config.toml", where="/srv/models/books"))
    assert refused.what == "books: cannot read config.toml"


def test_whoever_is_put_off_is_told_when_to_come_back():
    assert (busy("much to do").status, busy("much to do").headers) == (503, {"Retry-After": "1"})


class Asked(BaseModel):
    """Stands for the body of a request."""

    count: int = Field(ge=1, le=512)
    text: str = Field(max_length=3)


@pytest.mark.parametrize(
    ("given", "what", "fix"),
    [
        ({"text": "ab"}, "count is missing", "give it"),
        ({"count": 0, "text": "ab"}, "count is too small", "give 1 or more"),
        ({"count": 9_999, "text": "ab"}, "count is too large", "give 512 at most"),
        ({"count": 1, "text": "abcd"}, "text is longer than 3 characters", "give a shorter one"),
        ({"count": 1, "text": 7}, "text is not a string", "give a string"),
    ],
)
def test_a_field_that_is_wrong_is_named_with_its_bound(given, what, fix):
    with pytest.raises(ValidationError) as caught:
        Asked.model_validate(given)
    refused = invalid_field(caught.value.errors()[0])
    assert (refused.status, refused.what, refused.fix) == (422, what, fix)


def test_numbers_that_are_not_finite_are_null():
    raw = as_json({"a": math.inf, "b": [math.nan, 1.5], "c": -math.inf})
    assert json.loads(raw) == {"a": None, "b": [None, 1.5], "c": None}
