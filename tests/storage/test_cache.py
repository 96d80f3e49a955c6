"""Where the cache is."""

from pathlib import Path

import pytest

from headstart.storage.cache import cache_directory


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HEADSTART_CACHE": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/headstart"),
        ({"XDG_CACHE_HOME": ""}, "/home/ada/.cache/headstart"),
        ({}, "/home/ada/.cache/headstart"),
    ],
)
def test_our_variable_comes_before_the_platforms(environment, expected, monkeypatch):
    for name in ("HEADSTART_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/ada", **environment}.items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == Path(expected)
