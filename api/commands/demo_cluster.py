"""``backoff-ctrl demo --kubeconfig``: the comparison on a real cluster, and what has to be true before and after."""

from __future__ import annotations

import shlex
import signal
import threading
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.cluster.finding import ReachError, find_place
from backoff_ctrl.k8s.replay.demonstration import run_on_cluster
from backoff_ctrl.k8s.replay.rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from rich.progress import Progress

    from backoff_ctrl.k8s.replay.demonstration import Run
    from backoff_ctrl.k8s.replay.workload import Workload

    RunOne = Callable[[Workload, str, float, Callable[[int], object]], Run]


_HANGUP: Final = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
_ENDING: Final = (signal.SIGTERM, *_HANGUP)


@contextmanager
def on_cluster_of(kubeconfig: str | None, context: str | None, progress: Progress) -> Iterator[RunOne]:
    """Give what runs one client there. Whatever ends the block, the namespaces made in it are deleted.

    Raises ``BadInput`` where the cluster can't be used.
    """
    arguments = (("--kubeconfig", kubeconfig and str(Path(kubeconfig).expanduser())), ("--context", context))
    given = [word for option, value in arguments if value is not None for word in (option, value)]
    try:
        place = find_place(None, kubeconfig, context, None)
        with _ended_politely(), Rooms(place) as rooms:
            try:
                yield partial(run_on_cluster, rooms=rooms)
            except BaseException:
                try:
                    _delete(rooms)
                finally:
                    _tell_left(rooms, given)
                raise
            _finish(rooms, given, progress)
    except ReachError as error:
        raise BadInput(str(error)) from error


def _finish(rooms: Rooms, given: Sequence[str], progress: Progress) -> None:
    """Clean up after a comparison that is complete: nothing that happens here costs its results.

    The first Ctrl-C ends the wait, the second the deleting.
    """
    try:
        _delete(rooms)
        _await_gone(rooms, progress)
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            _delete(rooms)
    _tell_left(rooms, given)
    if rooms.going:
        _say(f"still being deleted by the cluster: {', '.join(rooms.going)}")


def _delete(rooms: Rooms) -> None:
    """Delete the namespaces. Ctrl-C ends it; a terminal that closes, and says so twice, does not."""
    if rooms.left:
        _say(f"deleting {len(rooms.left)} namespace{'s' if len(rooms.left) > 1 else ''} ...")
    with _handling(_HANGUP, signal.SIG_IGN):
        rooms.clear()


def _await_gone(rooms: Rooms, progress: Progress) -> None:
    """Wait until they are gone, as far as the cluster says so."""
    if rooms.left:  # the server was not there a moment ago
        return
    task = progress.add_task("cleaning up", total=None)
    with suppress(ReachError):
        rooms.await_gone()
    progress.update(task, total=1, completed=1)


def _tell_left(rooms: Rooms, given: Sequence[str]) -> None:
    """Say what could not be deleted, and the command that does it, on the same cluster."""
    if rooms.left:
        kubectl = shlex.join(["kubectl", *given, "delete", "namespace", "-l", rooms.selector])
        _say(f"not deleted: {', '.join(rooms.left)}: do it with {kubectl}")


def _say(line: str) -> None:
    """Say it on stderr, if anybody is there: cleaning up goes on without."""
    with suppress(OSError):
        click.echo(line, err=True)


@contextmanager
def _ended_politely() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does: with everything cleaned up."""

    def as_interrupt(_: int, __: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)  # whoever handles Ctrl-C at this moment: Python or the event loop

    with _handling(_ENDING, as_interrupt):
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
