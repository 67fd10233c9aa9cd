"""The commands of the README that lead from an empty cluster to the first gated create."""

from __future__ import annotations

import re
from typing import Final

from tests.cluster.shipping.rendering import ROOT

NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven")


def commands() -> list[str]:
    """Return the commands of the README; it says how many they are."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"(\w+) commands lead to the first gated create.*?```console\n(.*?)```", text, re.DOTALL)
    lines = re.findall(r"^\$ ((?:.*\\\n)*.*)$", found[1], re.MULTILINE)
    assert NUMBERS[len(lines)] == found[0].lower()
    return [each.replace("\\\n", " ").replace("REGISTRY", "registry.example/team") for each in lines]
