"""Counts the words that hide their subject or object: ``python -m tools.words`` compares their rate with its ceiling.

The words are pronouns for an unnamed party (nobody, whoever, nothing, ...) and verbs without an object (told, said).
Prose counts: docstrings, comments and texts of the product, and the pages. The ceiling is ``tool.words.ceiling`` in
pyproject.toml, words per 1,000 lines; lower it whenever the rate falls. ``--report`` adds the rate of each folder,
``--lines`` the lines of the given folders or files.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_COUNTED: Final = (
    "*.md",
    "docs/**/*.md",
    "backoff_ctrl/*.py",
    "backoff_ctrl/engine/**/*.py",
    "k8s/**/*.py",
    "api/**/*.py",
)
# Not names in code marks or braces, nor the `none` of a table's cell, nor Python's `None`.
_WORD: Final = re.compile(
    r"(?<![{`])\b(?:[Nn]obody|[Ss]omebody|[Ww]hoever|[Ww]hatever|[Nn]othing|none(?! \|)|[Tt]old|[Ss]aid)\b"
)
_PROSE: Final = re.compile(
    r'"""(?:\\.|.)*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.DOTALL
)  # code is formatted by ruff: no other quotes


@dataclass(frozen=True, slots=True)
class Found:
    """The words of one file."""

    name: str
    lines: int
    hits: tuple[tuple[int, tuple[str, ...], str], ...]
    """For each line with such words: its number, the words, its text."""

    @property
    def words(self) -> int:
        """Return how many words there are."""
        return sum(len(words) for _, words, _ in self.hits)


def found(root: Path, path: Path) -> Found:
    """Return the words in a file's prose."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    by_line: dict[int, list[str]] = {}
    for start, prose in _prose(path, text):
        for match in _WORD.finditer(prose):
            number = text.count("\n", 0, start + match.start())
            by_line.setdefault(number, []).append(match[0].lower())
    hits = ((number + 1, tuple(words), lines[number].strip()) for number, words in by_line.items())
    return Found(path.relative_to(root).as_posix(), len(lines), tuple(hits))


def _prose(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Return the parts of a file that people read, with their offsets. A string without a space is a name."""
    if path.suffix == ".md":
        yield 0, text
        return
    for match in _PROSE.finditer(text):
        if " " in match[0]:
            yield match.start(), match[0]


def per_thousand(files: Iterable[Found]) -> float:
    """Return words per 1,000 lines, to one decimal place."""
    read = list(files)
    return round(1000 * sum(each.words for each in read) / max(sum(each.lines for each in read), 1), 1)


def worst(files: Iterable[Found]) -> list[str]:
    """Return the lines with the most such words, the worst first."""
    lines = ((len(words), f"{each.name}:{number}: {text}") for each in files for number, words, text in each.hits)
    return [line for _, line in sorted(lines, key=lambda one: -one[0])]


def counted(root: Path) -> list[Found]:
    """Return what is found in the product and its pages; links to folders are not followed."""
    paths = sorted({path for pattern in _COUNTED for path in root.glob(pattern)})
    return [found(root, path) for path in paths]


def main(arguments: list[str] | None = None) -> int:
    """Return 1 where the rate is above its ceiling."""
    parser = argparse.ArgumentParser(prog="python -m tools.words", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    parser.add_argument("--report", action="store_true", help="print the rate of each folder")
    parser.add_argument("--lines", nargs="+", metavar="PATH", help="print the lines below these paths")
    asked = parser.parse_args(arguments)
    files = counted(asked.root)
    ceiling = tomllib.loads((asked.root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["words"]["ceiling"]
    rate = per_thousand(files)
    verdict = f"{rate} such words per 1,000 lines"
    shown = _folders(files) if asked.report else []
    if asked.lines:
        shown += worst(each for each in files if each.name.startswith(tuple(asked.lines)))
    if rate > ceiling:
        shown += worst(files)[:10]
        verdict += f", the ceiling is {ceiling}: name the subject and the object"
    elif rate < ceiling - 0.2:
        verdict += f": lower the ceiling, {ceiling}"
    sys.stdout.write("\n".join([*shown, verdict, ""]))
    return int(rate > ceiling)


def _folders(files: list[Found]) -> list[str]:
    """Return a line for each room, the worst rate first, and how often each word is used."""
    rooms: dict[str, list[Found]] = {}
    for each in files:
        rooms.setdefault("/".join(Path(each.name).parent.parts[:3]) or ".", []).append(each)
    words = Counter(word for each in files for _, line, _ in each.hits for word in line)
    return [
        *(
            f"{per_thousand(members):6} {sum(each.words for each in members):5} {room}"
            for room, members in sorted(rooms.items(), key=lambda one: -per_thousand(one[1]))
        ),
        ", ".join(f"{word} {count}" for word, count in words.most_common()),
    ]


if __name__ == "__main__":
    sys.exit(main())
