"""Settings become dataclasses strictly: unknown keys, wrong types and missing ones are named."""

from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.config import build, read_toml, to_toml
from headstart.errors import UserError


@dataclass(frozen=True)
class Inner:
    size: int
    kind: Literal["small", "large"] = "small"


@dataclass(frozen=True)
class Outer:
    rate: float = 0.1
    names: list[str] = field(default_factory=list)
    inner: Inner | None = None
    share_weights: bool = False


def test_a_nested_file_is_built():
    data = {"rate": 1, "names": ["a"], "inner": {"size": 3, "kind": "large"}, "share-weights": True}
    assert build(Outer, data, "s.toml") == Outer(1.0, ["a"], Inner(3, "large"), True)
    assert isinstance(build(Outer, {"rate": 1}, "s.toml").rate, float)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rtae": 1.0}, "unknown key 'rtae'.*\n.*did you mean 'rate'"),
        ({"rate": "fast"}, "s.toml: rate: 'fast' is not of the expected type.*\n.*float"),
        ({"rate": True}, "rate: True is not"),
        ({"share_weights": 1}, "share_weights: 1 is not"),
        ({"names": ["a", 3]}, r"names\[1\]: 3 is not"),
        ({"inner": {"kind": "small"}}, "inner: missing key 'size'"),
        (
            {"inner": {"size": 3, "kind": "lrage"}},
            "'lrage' is not one of its values.*\n.*did you mean 'large'",
        ),
        ({"inner": {"size": 3.5}}, "size: 3.5 is not"),
    ],
)
def test_what_does_not_fit_is_named(data, message):
    with pytest.raises(UserError, match=message):
        build(Outer, data, "s.toml")


def test_a_file_that_is_not_utf8_gives_the_offset(tmp_path):
    path = tmp_path / "s.toml"
    path.write_bytes(b'name = "\xe9"')
    with pytest.raises(UserError, match="not UTF-8 at byte 8"):
        read_toml(path)


plain = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
)  # fmt: skip
tables = st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), plain)


@given(tables, tables)
def test_what_is_written_as_toml_is_read_back(tmp_path_factory, values, table):
    path = tmp_path_factory.mktemp("toml") / "s.toml"
    data = {**{f"v_{key}": value for key, value in values.items()}, "table": table}
    path.write_text(to_toml({**data, "nothing": None}), encoding="utf-8", newline="")
    assert read_toml(path) == data
