"""What the demos show in the same way: a progress display, and where the picture is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from backoff_ctrl.k8s.lab.replay.picture import PictureError


def progress_display() -> Progress:
    """Return a progress display on stderr that disappears at the end."""
    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_interactive)


def draw_and_say(draw: Callable[[Path], None], picture: Path) -> None:
    """Draw the picture. If that can't be done, only say so: the figures are printed anyway."""
    try:
        draw(picture)
    except PictureError as error:
        click.echo(str(error), err=True)
    except OSError as error:
        click.echo(f"no picture: cannot write {picture}: {error.strerror}", err=True)
    else:
        click.echo(f"The picture is in {picture}.", err=True)
