"""How a command ends: 0 done, 1 the thing asked about failed, 2 wrong use or bad input; with a sentence."""

from __future__ import annotations

from typing import IO, Any

import click

DONE = 0
FAILED = 1
BAD_INPUT = 2


class _Sentence(click.ClickException):
    """An end with one sentence on stderr, without the usage lines."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence."""
        click.echo(f"backoff-ctrl: {self.format_message()}", file=file, err=file is None)


class Failed(_Sentence):
    """What was asked about failed; the sentence says what."""

    exit_code = FAILED


class BadInput(_Sentence):
    """The input cannot be used; the sentence names the field and says what to do."""

    exit_code = BAD_INPUT
