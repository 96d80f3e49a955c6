"""The shapes of requests: strict about types, bounds and unknown keys."""

import pytest
from pydantic import ValidationError

from headstart.serve import messages
from headstart.serve.messages import ClassifyBatchRequest, ClassifyRequest, GenerateRequest, TranslateRequest

REQUESTS = [kind for name, kind in vars(messages).items() if name.endswith("Request")]


@pytest.mark.parametrize("kind", REQUESTS)
def test_the_example_of_every_request_is_one(kind):
    for example in kind.model_config["json_schema_extra"]["examples"]:
        assert kind.model_validate(example).model_dump(exclude_unset=True) == example


@pytest.mark.parametrize("kind", REQUESTS)
def test_an_unknown_key_is_refused(kind):
    example = kind.model_config["json_schema_extra"]["examples"][0]
    with pytest.raises(ValidationError, match="extra_forbidden"):
        kind.model_validate({**example, "colour": "blue"})


@pytest.mark.parametrize(
    ("kind", "field", "good", "bad"),
    [
        (GenerateRequest, "max_tokens", [1, 512], [0, 513, 1.5, "9", True]),
        (GenerateRequest, "temperature", [0, 100], [-0.1, 101, float("nan"), float("inf")]),
        (GenerateRequest, "top_p", [0.1, 1], [0, 1.1]),
        (GenerateRequest, "seed", [0, 2**63 - 1], [-1, 2**63]),
        (TranslateRequest, "beam", [1, 10], [0, 11]),
        (ClassifyRequest, "text", ["", "x" * 20_000], [None, 7, "x" * 20_001]),
        (ClassifyBatchRequest, "texts", [["x"] * 64], [[], ["x"] * 65, "x", [5], ["x" * 20_001]]),
        (ClassifyRequest, "attribution", ["none", "gradient"], ["magic"]),
    ],
)
def test_bounds_are_kept(kind, field, good, bad):
    example = kind.model_config["json_schema_extra"]["examples"][0]
    for value in good:
        assert getattr(kind.model_validate({**example, field: value}), field) == value
    for value in bad:
        with pytest.raises(ValidationError):
            kind.model_validate({**example, field: value})
