"""The options of a command as they were typed, for hints: what a hint prints can be pasted into any terminal."""

from __future__ import annotations

import shlex
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

FILES: Final = frozenset({"config", "files", "kubeconfig", "store", "token_file"})
"""Options that name files: a relative path would lead elsewhere from another folder."""
NO_FILES: Final = frozenset({"-", "cluster"})
"""Values of these that are no files: stdin, and the store in the cluster."""


def words_typed(
    context: click.Context,
    *,
    only: Container[str] | None = None,
    without: Container[str] = (),
    instead: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return the options that the command of ``context`` was given, in the order of its help.

    ``only`` these, or ``without`` these; ``instead`` has values that count in place of what was typed.
    """
    words: list[str] = []
    for option in context.command.params:
        name = option.name or ""
        if not isinstance(option, click.Option) or name in without or (only is not None and name not in only):
            continue
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = (instead or {}).get(name, context.params.get(name))
        spelling = max(option.opts, key=len)
        if option.is_flag:
            words += [spelling] if value else []
            continue
        given: Sequence[Any] = value if option.multiple else [value]
        words += [word for each in given for word in (spelling, _whole(name, str(each)))]
    return words


def pasted(command: str, *words: str) -> str:
    """Return a command with these words, as a shell reads them."""
    return " ".join([command, *map(shlex.quote, words)])


def _whole(name: str, value: str) -> str:
    return str(Path(value).expanduser().absolute()) if name in FILES and value not in NO_FILES else value
