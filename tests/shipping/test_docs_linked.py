"""A reader finds every page from docs/README.md, and no link of a page leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")), ROOT / "helm" / "backoff-ctrl" / "README.md"]
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)


def links_of(page: Path) -> list[str]:
    """Return where the links of a page lead, but for those to other sites."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """To a file of the checkout, and to a heading of it."""
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), link
        if anchor:
            assert anchor in anchors_of(there), link


def test_every_page_can_be_reached_from_the_index() -> None:
    """By at most three links. The example package has a README of its own, which its page names."""
    reached = front = {DOCS / "README.md"}
    for _ in range(3):
        found = {(page.parent / link.partition("#")[0]).resolve() for page in front for link in links_of(page)}
        front = {page for page in found if page.suffix == ".md" and page.exists()} - reached
        reached = reached | front
    pages = {page for page in DOCS.rglob("*.md") if "examples" not in page.parts}
    assert pages - reached == set()
