"""The page's files by themselves: all there, all local, and none that makes markup or code out of text."""

import re

import pytest

from headstart.serve.application import PAGE

SCRIPTS = sorted(PAGE.glob("*.js"))
# Ways to make markup or code out of text.
MAKERS = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setTimeout\(['\"`]")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_make_neither_markup_nor_code_out_of_text(path):
    assert MAKERS.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_files_name_no_other_machine(path):
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?:|\burl\((?!#)|@import|//[a-z]+\.[a-z]+/", text) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_what_is_imported_is_there_and_used(path):
    text = path.read_text(encoding="utf-8")
    for names, file in re.findall(r'^import \{ (.*) \} from "\./(.*)";$', text, re.MULTILINE):
        there = (PAGE / file).read_text(encoding="utf-8")
        for name in names.split(", "):
            assert re.search(rf"export (async )?(function|const|class) {name}\b", there), (name, file)
            assert len(re.findall(rf"\b{name}\b", text)) > 1, name


def test_the_page_has_no_script_of_its_own_and_every_place_that_is_looked_for():
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert (
        re.findall(r"<script(?! type=\"module\" src=\"page/page\.js\"></script>)|\son[a-z]+=|javascript:", page) == []
    )
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    scripts = "".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    assert set(re.findall(r'\bby\("([^"]+)"\)', scripts)) <= set(ids)
    assert set(re.findall(r'\b(?:for|aria-controls|aria-labelledby|aria-describedby)="([^"]+)"', page)) <= set(ids)
