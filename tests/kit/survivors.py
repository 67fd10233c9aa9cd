"""Ends what a run has started and left behind, after Ctrl-C too: servers, proxies, commands that wait for a server.

Where tests start a process in a session of its own, Ctrl-C does not reach it; and one that waits for a server which is
gone does not end by itself. So a run goes on in a child (Linux alone): its parent adopts whatever the run's processes
leave, as an init does, and ends what is still there when the run is over, politely first.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_AFTER_CTRL_C: Final = (4, 2)
"""Whole seconds for the run to end after Ctrl-C, then for the child alone."""
_BY_THEMSELVES: Final = 2.0
_POLITELY: Final = 3.0
_KILLED: Final = 3.0
"""Seconds: less in all than the ten after which nothing may be left."""
_POLL: Final = 0.02
_SUBREAPER: Final = 36
_END_WITH_PARENT: Final = 1
"""PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG of ``prctl(2)``."""
_GUARDIAN: Final = b"control_plane/guardian.py"
"""It ends by itself once its writer is gone, and removes a folder before."""


def go_on_in_a_child() -> None:
    """Return in a child of this process; this one ends what the child leaves, and then as the child did."""
    if sys.platform != "linux":
        return
    sys.stdout.flush()
    sys.stderr.flush()
    prctl = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        prctl(_END_WITH_PARENT, signal.SIGINT, 0, 0, 0)
        return
    _end_soon_after_ctrl_c(child)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda given, _: os.kill(child, given))
    pid = status = 0
    while pid != child:
        pid, status = os.waitpid(-1, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.alarm(0)
    for command in end_descendants():
        os.write(2, f"left behind by the tests, and ended: {command}\n".encode())
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _end_soon_after_ctrl_c(child: int) -> None:
    """Let Ctrl-C, which the child has as well, end what is left after a while; guardians go by themselves."""
    first, then = _AFTER_CTRL_C
    spared = {child}

    def kill(*_: object) -> None:
        for pid, command in _living(reap=False).items():
            if pid not in spared and _GUARDIAN not in command:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        spared.clear()
        signal.alarm(then)

    signal.signal(signal.SIGALRM, kill)
    signal.signal(signal.SIGINT, lambda *_: signal.alarm(first))


def end_descendants() -> list[str]:
    """End all processes that this one has started or adopted; return the commands of those that had to be told."""
    if _gone(_living, _BY_THEMSELVES):
        return []

    def others() -> dict[int, bytes]:
        return {pid: command for pid, command in _living().items() if _GUARDIAN not in command}

    named = [command.replace(b"\0", b" ").decode(errors="replace")[:200] for command in others().values()]
    for whose, number, patience in (
        (others, signal.SIGTERM, _POLITELY),
        (others, signal.SIGKILL, _KILLED),
        (_living, signal.SIGKILL, _KILLED),
    ):
        for pid in whose():
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if _gone(whose, patience):
            break
    return named


def _gone(living: Callable[[], dict[int, bytes]], seconds: float) -> bool:
    """Wait so long until none is left, and say whether that is so."""
    deadline = time.monotonic() + seconds
    while living():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    _reap()
    return True


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _living(*, reap: bool = True) -> dict[int, bytes]:
    """Return the commands of the descendants that live, by process; ``reap`` those that have ended."""
    if reap:
        _reap()
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(folder.name))
    found: dict[int, bytes] = {}
    left = [os.getpid()]
    while left:
        for pid in children.get(left.pop(), []):
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
            left.append(pid)
    return found
