"""What the guide shows of the JSON interface is answered: every `curl` of it, on runs of those names."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import serving
import synthetic_study
import tiny_runs
import translators

from headstart.serve.application import _REQUESTS

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
LINES = re.findall(r"^curl .*", GUIDE, re.MULTILINE)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guide")
    made = {
        "base": tiny_runs.path_of("causal"),
        "tuned": tiny_runs.path_of("classification"),
        "french": translators.path_of(),
    }
    for name, path in made.items():
        shutil.copytree(path, directory / name)
    (directory / "mine").mkdir()
    synthetic_study.write(directory / "mine", synthetic_study.study(budgets=(50,), seeds=2))
    (directory / "mine" / "report.html").write_text("a report")
    with serving.serving(*(directory / name for name in [*made, "mine"])) as found:
        yield found


@pytest.mark.parametrize("line", LINES)
def test_every_curl_is_answered(served, line):
    words = [word for word in shlex.split(line)[1:] if word != "-N"]
    path = words[0].removeprefix("localhost:8000")
    options = list(zip(words[1::2], words[2::2], strict=True))
    headers = dict(value.split(": ", 1) for flag, value in options if flag == "-H")
    body = next((value for flag, value in options if flag == "-d"), None)
    answer = served.ask("POST" if body else "GET", path, body and body.encode(), headers)
    assert answer.status == 200, answer.body


def test_every_route_is_in_the_guide():
    for route in ("runs", *_REQUESTS, "studies/mine/report"):
        assert any(f"/api/{route} " in f"{line} " for line in LINES), route
