"""What README and guide show can be typed: every command line is understood, every file that is named is there."""

import re
import shlex
from pathlib import Path

import pytest

from headstart.cli.main import application, run

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


def test_plan_prints_the_sentence_of_the_guide(capsys):
    command, sentence = re.search(
        r"^headstart (plan .*)\n```\n\n.*\n\n```\n(does not fit .*)\n```", GUIDE, re.MULTILINE
    ).groups()
    assert run(shlex.split(command)) == 1
    assert sentence in capsys.readouterr().out


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
    "path", re.findall(r"^((?:headstart|tests|benchmarks|docs|examples)/\S*)", README, re.MULTILINE)
)
def test_every_path_is_there(path):
    assert (ROOT / path).exists()


PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    missing = []
    for path, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        if "://" in path:
            continue
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(f"{path}#{anchor}")
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"\b((?:headstart|tests|benchmarks|examples)/[\w/-]+\.(?:py|toml))\b", text)
    assert [path for path in named if not (ROOT / path).exists()] == []
