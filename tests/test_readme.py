"""What README and guide show can be typed: every command line is understood, every file that is named is there."""

import re
import shlex
from pathlib import Path

import pytest

from headstart.cli.main import application

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", README + GUIDE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    re.search(r"headstart .*", line)[0]
    for block in BLOCKS
    for line in block.splitlines()
    if re.search(r"(^|\| |&& )headstart [a-z]", line)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command):
    words = shlex.split(command, comments=True)[1:]
    application(words).parse_args(words, exit_on_error=False, print_error=False)


def test_the_walk_is_there():
    verbs = {command.split()[1] for command in COMMANDS}
    assert {
        "plan",
        "data",
        "tokenizer",
        "pretrain",
        "finetune",
        "compare",
        "predict",
        "selftest",
        "explain",
    } <= verbs


@pytest.mark.parametrize(
    "place", re.findall(r"^((?:headstart|tests|benchmarks|docs|examples)/\S*)", README, re.MULTILINE)
)
def test_every_place_is_there(place):
    assert (ROOT / place).exists()


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md", "docs/results.md"])
def test_every_link_leads_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    places = [place for place in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in place]
    missing = [place for place in places if not ((ROOT / page).parent / place).exists()]
    assert missing == []
