"""``backoff-ctrl demo --kubeconfig``: run the comparison on a real cluster, and clean up afterwards."""

from __future__ import annotations

import asyncio
import dataclasses
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import click
from rich.progress import Progress

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.kube.cluster.finding import ReachError, find_place
from backoff_ctrl.k8s.lab.replay.clients import Run
from backoff_ctrl.k8s.lab.replay.over_http import run_over_http
from backoff_ctrl.k8s.lab.replay.rooms import Rooms
from backoff_ctrl.k8s.lab.replay.workload import Workload

_HANGUP: Final = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
_ENDING: Final = (signal.SIGTERM, *_HANGUP)
"""What ends the command as Ctrl-C does, with everything cleaned up."""


@contextmanager
def on_cluster_of(
    kubeconfig: str | None, context: str | None, progress: Progress
) -> Iterator[Callable[[Workload, str, float, Callable[[], object]], Run]]:
    """Yield a function that runs one client on the cluster. However the block ends, its namespaces are deleted.

    Raises ``BadInput`` if the cluster cannot be used.
    """
    arguments = (("--kubeconfig", kubeconfig and str(Path(kubeconfig).expanduser())), ("--context", context))
    given = [word for option, value in arguments if value is not None for word in (option, value)]
    try:
        place = find_place(None, kubeconfig, context, None)
        with _handling(_ENDING, _as_ctrl_c), Rooms(place) as rooms:
            try:
                yield partial(_run_on_cluster, rooms=rooms)
            except BaseException:
                try:
                    _delete(rooms)
                finally:
                    _report_left(rooms, given)
                raise
            # The comparison is complete: no error here loses its results. The first Ctrl-C ends the wait
            # for the deletion, the second one the deleting.
            try:
                _delete(rooms)
                if not rooms.left:  # otherwise the server did not answer a moment ago
                    _await_gone(rooms, progress)
            except KeyboardInterrupt:
                with suppress(KeyboardInterrupt):
                    _delete(rooms)
            _report_left(rooms, given)
            if rooms.going:
                _say(f"still being deleted by the cluster: {', '.join(rooms.going)}")
    except ReachError as error:
        raise BadInput(str(error)) from error


def _run_on_cluster(
    workload: Workload, client: str, factor: float, on_placed: Callable[[], object], rooms: Rooms
) -> Run:
    """Run one client in new namespaces. Raises ``ReachError`` if the cluster can't be used, or ``ReplayError``."""
    there, names = rooms.furnish(client.replace("_", "-"), workload)
    work = run_over_http(rooms.place, client, there, factor, on_placed, namespaces=list(names))
    run = asyncio.run(work)
    return dataclasses.replace(run, usage=[(when, names[space], used) for when, space, used in run.usage])


def _delete(rooms: Rooms) -> None:
    """Delete the namespaces. Ctrl-C interrupts this; a closed terminal, which sends SIGHUP twice, does not."""
    if rooms.left:
        _say(f"deleting {len(rooms.left)} namespace{'s' if len(rooms.left) > 1 else ''} ...")
    with _handling(_HANGUP, signal.SIG_IGN):
        rooms.clear()


def _await_gone(rooms: Rooms, progress: Progress) -> None:
    task = progress.add_task("cleaning up", total=None)
    with suppress(ReachError):  # _report_left names the namespaces that are left
        rooms.await_gone()
    progress.update(task, total=1, completed=1)


def _report_left(rooms: Rooms, given: Sequence[str]) -> None:
    """Print which namespaces could not be deleted, and the kubectl command that deletes them."""
    if rooms.left:
        kubectl = shlex.join(["kubectl", *given, "delete", "namespace", "-l", rooms.selector])
        _say(f"not deleted: {', '.join(rooms.left)}; delete them with: {kubectl}")


def _say(line: str) -> None:
    """Print a line on stderr. If that is closed, cleaning up continues all the same."""
    with suppress(OSError):
        click.echo(line, err=True)


def _as_ctrl_c(_: int, __: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)  # handled by Python or by the event loop, whichever handles Ctrl-C now


@contextmanager
def _handling(signals: Iterable[signal.Signals], handler: Callable[..., None] | signal.Handlers) -> Iterator[None]:
    """Install a signal handler for the block. It has no effect in other threads than the main one."""
    ours = threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, handler) for each in signals} if ours else {}
    try:
        yield
    finally:
        for each, previous in before.items():
            signal.signal(each, previous)
