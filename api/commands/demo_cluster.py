"""``backoff-ctrl demo --kubeconfig``: the comparison on a real cluster, and what has to be true before and after."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from api.exits import BadInput
from k8s.places import ReachError, find_place
from k8s.replay.demonstration import run_on_cluster
from k8s.replay.rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from rich.progress import Progress

    from api.commands.demo import RunOne


_ENDING: Final = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


@contextmanager
def on_cluster_of(kubeconfig: str | None, context: str | None, progress: Progress) -> Iterator[RunOne]:
    """Give what runs one client there. Whatever ends the block, the namespaces made in it are deleted.

    Raises ``BadInput`` where the cluster can't be used.
    """
    try:
        place = find_place(None, kubeconfig, context, None)
        with _ended_politely(), Rooms(place) as rooms:
            try:
                yield partial(run_on_cluster, rooms=rooms)
            except BaseException:
                _clear(rooms)
                raise
            _clear(rooms)
            task = progress.add_task("cleaning up", total=None)
            there = rooms.await_gone()
            progress.update(task, total=1, completed=1)
            if there:
                click.echo(f"still being deleted by the cluster: {', '.join(there)}", err=True)
    except ReachError as error:
        raise BadInput(str(error)) from error


def _clear(rooms: Rooms) -> None:
    """Delete the namespaces; a second Ctrl-C must not leave half of them."""
    with _undisturbed():
        rooms.clear()
    if rooms.left:
        click.echo(
            f"could not delete {', '.join(rooms.left)}: do it with kubectl delete namespace -l {rooms.selector}",
            err=True,
        )


@contextmanager
def _ended_politely() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does: with everything cleaned up."""

    def as_interrupt(_: int, __: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)  # whoever handles Ctrl-C at this moment: Python or the event loop

    with _handling(_ENDING, as_interrupt):
        yield


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hear no signal that would end the command."""
    with _handling((signal.SIGINT, *_ENDING), signal.SIG_IGN):
        yield


@contextmanager
def _handling(signals: Iterable[signal.Signals], handler: Callable[..., None] | signal.Handlers) -> Iterator[None]:
    """Handle signals so in the block. Only a main thread can; elsewhere they are the program's that called us."""
    ours = threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, handler) for each in signals} if ours else {}
    try:
        yield
    finally:
        for each, previous in before.items():
            signal.signal(each, previous)
