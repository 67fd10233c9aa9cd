"""Exit codes (0 done, 1 what was asked for failed, 2 wrong usage or bad input) and errors that end a command."""

from __future__ import annotations

from typing import IO, Any

import click

DONE = 0
FAILED = 1
BAD_INPUT = 2


class _ExitMessage(click.ClickException):
    """Ends a command with one line on stderr, without click's usage lines."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message to stderr, or to ``file``."""
        click.echo(f"backoff-ctrl: {self.format_message()}", file=file, err=file is None)


class Failed(_ExitMessage):
    """The command ran, but what was asked for failed. Exit code 1."""

    exit_code = FAILED


class BadInput(_ExitMessage):
    """The input cannot be used. The message names the option or field and says what to do. Exit code 2."""

    exit_code = BAD_INPUT
