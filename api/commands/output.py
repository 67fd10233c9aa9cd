"""``-o``, as with kubectl: the forms in which a command prints what it has found. ``--json`` is ``-o json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import wraps
from typing import Any, Final, TypeVar

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.kube.answers.printing import printable

R = TypeVar("R")
DOCUMENT: Final = ("json", "yaml")
"""The forms of one document."""
LIST: Final = (*DOCUMENT, "name", "wide")
"""The forms of a list: also the names alone, and a table with all columns, uncut."""


def output_options(*forms: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return what adds ``-o`` and ``--json``; the command gets ``output``, None for what people read."""
    words = {"name": "name: only names", "wide": "wide: all columns, uncut"}
    more = "".join(f"; {words[each]}" for each in forms if each in words)
    decorators = (
        click.option("-o", "--output", type=click.Choice(forms), help=f"Print it in another form{more}."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document only on stdout, as -o json."),
    )

    def add(command: Callable[..., R]) -> Callable[..., R]:
        @wraps(command)
        def run(*arguments: Any, as_json: bool, output: str | None, **options: Any) -> R:
            if as_json and output not in {None, "json"}:
                raise BadInput(f"--json is -o json: give only one of --json and -o {output}")
            return command(*arguments, output="json" if as_json else output, **options)

        for option in decorators:
            option(run)
        return run

    return add


def written(found: Any, output: str, *, default: Callable[[Any], Any] = asdict) -> str:
    """Return what was found as JSON or YAML; ``default`` is that of ``json.dumps``."""
    text = json.dumps(found, default=default, indent=2)
    if output == "json":
        return text
    import yaml  # noqa: PLC0415 - 20 ms, only where it is asked for

    lines: str = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True)
    return lines.rstrip("\n")


def names(found: Iterable[str]) -> None:
    """Print names, each once, in their order."""
    for each in dict.fromkeys(found):
        click.echo(printable(each))
