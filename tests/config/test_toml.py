"""Settings become dataclasses strictly: unknown keys, wrong types and missing ones are named."""

from dataclasses import dataclass, field
from typing import Literal

import pytest
from expected_errors import refused
from hypothesis import given
from hypothesis import strategies as st

from headstart.config.schema import build
from headstart.config.toml import read_toml, to_toml


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
    ("data", "code", "names"),
    [
        ({"rtae": 1.0}, "unknown-name", ("s.toml", "'rtae'", "'rate'")),
        ({"rate": "fast"}, "bad-value", ("s.toml: rate: 'fast'", "float")),
        ({"rate": True}, "bad-value", ("rate: True",)),
        ({"share_weights": 1}, "bad-value", ("share_weights: 1",)),
        ({"names": ["a", 3]}, "bad-value", ("names[1]: 3",)),
        ({"inner": {"kind": "small"}}, "missing", ("inner", "'size'")),
        ({"inner": {"size": 3, "kind": "lrage"}}, "bad-value", ("kind: 'lrage'", "'large'")),
        ({"inner": {"size": 3.5}}, "bad-value", ("size: 3.5",)),
    ],
)
def test_what_does_not_fit_is_named(data, code, names):
    with refused(code, *names):
        build(Outer, data, "s.toml")


def test_a_file_that_is_not_utf8_gives_the_offset(tmp_path):
    path = tmp_path / "s.toml"
    path.write_bytes(b'name = "\xe9"')
    with refused("bad-text", "s.toml", "byte 8"):
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
