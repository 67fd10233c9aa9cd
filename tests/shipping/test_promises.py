"""docs/promises.md: each promise names tests that exist, and the code calls promises by their names."""

from __future__ import annotations

import re

import pytest

from tests.kit.pages import ROOT, TRACKED, text_of

PROMISES = re.split(r"^### ", (ROOT / "docs" / "promises.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
HELD_BY = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")


@pytest.mark.parametrize("promise", PROMISES, ids=[each.partition("\n")[0] for each in PROMISES])
def test_each_promise_names_tests_that_exist(promise: str) -> None:
    """At least one, by its function and file."""
    named = HELD_BY.findall(promise)
    assert named
    for name, file in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), name


def test_promises_are_called_by_their_names() -> None:
    """A number says nothing to a reader of the code, or of a page."""
    sources = [path for path in TRACKED if path.endswith((".py", ".md")) and not path.startswith("tests/data/")]
    numbered = [path for path in sources if re.search(r"\b[Ll]aws? [0-9]", text_of(path))]
    assert numbered == []
