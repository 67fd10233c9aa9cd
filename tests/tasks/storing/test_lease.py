"""One manager per store: the lease, its end with its holder, and what a former holder may still do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.sqlite import HeldError, Lease
from backoff_ctrl.k8s.tasks.store import LeaseLostError
from backoff_ctrl.k8s.tasks.tables import Tables, Write
from tests.kit.patience import PATIENCE
from tests.tasks.tasks_written import NAMESPACE, wish

HOLDING = """
import sys, pathlib, time
from backoff_ctrl.k8s.tasks.tables import Tables
from backoff_ctrl.k8s.tasks.sqlite import Lease
lease = Lease(Tables(pathlib.Path(sys.argv[1])), seconds=3600)
lease.acquire()
print("held", flush=True)
sys.stdin.read()
"""


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path / "t.db")


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the lock on the file says nothing: the holder may be on another machine's kernel."""
    monkeypatch.setattr("backoff_ctrl.k8s.tasks.sqlite.fcntl", None)


def lease_of(tables: Tables, clock: Clock, boot: str = "boot") -> Lease:
    return Lease(tables, seconds=10, clock=clock, boot=boot)


@pytest.mark.usefixtures("no_locks")
def test_one_has_it_until_it_lapses(tables: Tables) -> None:
    """Renewed it holds on; not renewed, another takes it, and the former holder hears of it."""
    clock = Clock()
    one, other = lease_of(tables, clock), lease_of(tables, clock)
    one.acquire()
    with pytest.raises(HeldError) as held:
        other.acquire()
    assert f"process {os.getpid()}" in held.value.who
    assert held.value.lapses_in == 10
    clock.now += 9
    one.renew()
    clock.now += 9
    with pytest.raises(HeldError):
        other.acquire()
    clock.now += 1
    other.acquire()
    with pytest.raises(LeaseLostError):
        one.renew()
    other.release()
    one.acquire()


@pytest.mark.usefixtures("no_locks")
def test_an_earlier_boot_holds_nothing(tables: Tables) -> None:
    """Its processes are gone, whatever the clock of that boot said."""
    clock = Clock()
    before = lease_of(tables, clock, "before")
    before.acquire()
    clock.now = 3.0
    lease_of(tables, clock, "after").acquire()
    with pytest.raises(LeaseLostError):
        before.renew()


@pytest.mark.usefixtures("no_locks")
def test_a_lease_from_the_future_is_none(tables: Tables) -> None:
    """A clock that was another: a lease can't hold for longer than it does."""
    clock = Clock()
    clock.now = 10_000.0
    ahead = lease_of(tables, clock)
    ahead.acquire()
    clock.now = 100.0
    lease_of(tables, clock).acquire()
    with pytest.raises(LeaseLostError):
        ahead.renew()


@pytest.mark.usefixtures("no_locks")
def test_who_has_lost_it_writes_nothing_more(tables: Tables) -> None:
    """A manager that was stopped for a minute and goes on would overwrite what the next one found out."""
    clock = Clock()
    one, other = lease_of(tables, clock), lease_of(tables, clock)
    ((task, _),) = tables.create([wish()])
    one.acquire()
    assert list(tables.set_statuses([Write(task.uid, 0, TaskStatus(phase="Running"), True)], one.holder)) == [1]
    clock.now += 11
    other.acquire()
    with pytest.raises(LeaseLostError, match="another manager has"):
        tables.set_statuses([Write(task.uid, 1, TaskStatus(phase="Success"), False)], one.holder)
    assert tables.get(NAMESPACE, "train").status.phase == "Running"


@pytest.mark.long
def test_a_killed_manager_is_followed_at_once(tables: Tables) -> None:
    """Its lease would hold for an hour; but the kernel says that it is dead. One that only stands still is not."""
    command = [sys.executable, "-c", HOLDING, str(tables.file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        heir = Lease(tables, seconds=3600)
        with pytest.raises(HeldError, match=str(holder.pid)):
            heir.acquire()
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(HeldError):
            heir.acquire()
        holder.kill()
        holder.wait(timeout=PATIENCE)
    heir.acquire()
    heir.release()


@pytest.mark.usefixtures("no_locks")
def test_who_can_not_be_sure_of_it_knows_so_without_asking(tables: Tables) -> None:
    """By its clock alone: before the next renewal finds out, a create could be sent that another has aborted."""
    clock = Clock()
    one, other = lease_of(tables, clock), lease_of(tables, clock)
    assert not one.certain
    one.acquire()
    clock.now += 9
    assert one.certain
    one.renew()
    clock.now += 9
    assert one.certain
    clock.now += 2
    assert not one.certain
    other.acquire()
    with pytest.raises(LeaseLostError):
        one.renew()
    assert (one.certain, other.certain) == (False, True)
    other.release()
    assert not other.certain
