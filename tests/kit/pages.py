"""What the pages have their readers type: fenced blocks, the commands in them, and words in code marks."""

from __future__ import annotations

import re
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_LISTED: Final = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()
TRACKED: Final = [path for path in _LISTED if (ROOT / path).is_file()]
PAGES: Final = [
    path for path in TRACKED if path.endswith(".md") and not path.startswith((".github/", "tests/", "k8s/"))
]
"""All that people read, by paths in the checkout."""
KUBERNETES: Final = re.compile(r"v1|(apps|batch)/v1|[a-z.]+\.k8s\.io/v1")
"""The ``apiVersion`` of what every API server knows."""
_FENCED: Final = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_SPAN: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A fenced block, without the indent of a list that it stands in."""

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Typed:
    """A command as it is typed, without its comment, and what the page shows that it prints."""

    where: str
    command: str
    printed: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.command}"


def text_of(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def without_blocks(page: str) -> str:
    """Return the text of a page between its fenced blocks."""
    return _FENCED.sub("", text_of(page))


def blocks(page: str, *kinds: str) -> list[Block]:
    """Return the fenced blocks of a page, of these kinds alone where some are named."""
    text = text_of(page)
    found = [
        Block(page, text.count("\n", 0, each.start()) + 1, each[2], textwrap.dedent(each[3]))
        for each in _FENCED.finditer(text)
    ]
    return [block for block in found if not kinds or block.kind in kinds]


def typed_in(block: Block) -> list[Typed]:
    """Return the commands of a block: lines after ``$ `` with what they print, or every line of a `bash` block."""
    if block.kind == "bash":
        return [Typed(str(block), line) for line in block.text.splitlines() if line]
    before, *commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not before, f"{block} begins with what no command prints"
    split = (each.partition("\n") for each in commands)
    return [Typed(str(block), re.sub(r"\s+# .*", "", line).strip(), printed) for line, _, printed in split]


def typed(page: str) -> list[Typed]:
    """Return all commands of a page's blocks, in their order."""
    return [each for block in blocks(page, "console", "bash") for each in typed_in(block)]


def spans(page: str) -> list[str]:
    """Return what stands in code marks between the blocks of a page, each on one line."""
    return [" ".join(found.split()) for found in _SPAN.findall(without_blocks(page))]
