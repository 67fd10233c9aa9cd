"""A reader finds every page from docs/README.md, and no link leads nowhere: of a page, or of the code to a page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.pages import PAGES, ROOT, TRACKED, text_of, without_blocks

LINK = re.compile(r"""\]\(<?([^)\s>]+)[^)]*\)|^ *\[[^\]]+\]: +(\S+)|\b(?:href|src)="([^"]+)\"""", re.MULTILINE)
"""In running text, as a definition below it, or in HTML."""
NAMED = re.compile(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?")
FILES = {ROOT / path for path in TRACKED}
PLACES = FILES | {folder for path in FILES for folder in path.parents if folder.is_relative_to(ROOT)}
"""What a clone has; a folder that only a build makes is no place to link to."""
SOURCES = [
    path
    for path in TRACKED
    if path not in PAGES
    and not path.startswith("tests/data/")
    and path.endswith((".py", ".toml", ".yaml", ".txt", "file"))
]


def links_of(page: str) -> list[str]:
    """Return where the links of a page lead, but for those to other sites."""
    found = ["".join(each) for each in LINK.findall(without_blocks(page))]
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def place_of(page: str, link: str) -> Path:
    """Return what a link leads to."""
    path = link.partition("#")[0]
    return ((ROOT / page).parent / path).resolve() if path else ROOT / page


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings; the second of the same words ends with -1."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page.relative_to(ROOT).as_posix()), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    again = {f"{word}-{number}" for word, times in Counter(words).items() for number in range(1, times)}
    return {*words, *again}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """To a file or a folder that a clone has, and to a heading of it."""
    for link in links_of(page):
        there = place_of(page, link)
        assert there in PLACES, link
        if anchor := link.partition("#")[2]:
            assert anchor in anchors_of(there), link


def test_the_code_names_pages_that_there_are() -> None:
    """In help, errors, alerts, values and comments; what it says of a heading is there, too."""
    wrong = []
    for source in SOURCES:
        for name, anchor in NAMED.findall(text_of(source)):
            page = ROOT / name
            if page not in FILES or (anchor and anchor not in anchors_of(page)):
                wrong.append(f"{source}: {name}#{anchor}")
    assert wrong == []


def test_every_page_can_be_reached_from_the_index() -> None:
    """From docs/README.md, or from a page that can be; a link to a folder leads to its README."""
    reached: set[str] = set()
    front = {"docs/README.md"}
    while front:
        reached |= front
        places = {place_of(page, link) for page in front for link in links_of(page)}
        places |= {place / "README.md" for place in places}
        front = {page for page in PAGES if ROOT / page in places} - reached
    assert set(PAGES) - reached == set()
