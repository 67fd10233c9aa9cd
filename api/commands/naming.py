"""``KIND/NAME``, as lists and ``-o name`` print it, taken as an argument."""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "namespaces"
QUOTA: Final = "resourcequotas"
TASK: Final = "tasks.backoff-ctrl.dev"


def is_called(kind: str, word: str) -> bool:
    """Return whether ``word`` names a kind, ``jobs.batch`` say: ``job``, ``Job``, ``jobs``, ``job.batch``."""
    plural, _, group = kind.lower().partition(".")
    base, _, given = word.lower().partition(".")
    return base in {plural, singular(plural)} and given in {"", group}


def singular(plural: str) -> str:
    return f"{plural[:-3]}y" if plural.endswith("ies") else plural.removesuffix("s")


def plain(text: str, kind: str) -> str:
    """Return the name in ``KIND/NAME`` where the kind is this one; any other text as it is."""
    word, slash, name = text.partition("/")
    return name if slash and is_called(kind, word) else text


def split_task(text: str) -> tuple[str | None, str]:
    """Return the namespace, if it is given, and the name: of ``train``, ``task/train`` or ``team/train``."""
    namespace, slash, name = plain(text, TASK).rpartition("/")
    return (namespace or None, name) if slash else (None, name)
