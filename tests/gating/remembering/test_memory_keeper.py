"""Memory over a restart, from ledger to ledger and from process to process."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kubernetes.client import Configuration

from backoff_ctrl.engine import Controller, Policy, Rejected
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import RuntimeAlarms
from backoff_ctrl.k8s.gate.sharing.memory import MemoryFile, MemoryKeeper, memory_file_of
from backoff_ctrl.k8s.gate.sharing.process import Share
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from backoff_ctrl.engine.look.memory import Memory
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

SERVER = "https://10.0.0.1:6443"
ANYBODY: frozenset[str] = frozenset()
PROGRAM = """
import sys
from kubernetes import client
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient, WaitTimeout, waiting
core = client.CoreV1Api(GatedApiClient(client.Configuration(host=sys.argv[1])))
with waiting(timeout=0.2):
    try:
        spec = {"containers": [{"name": "c", "image": "i"}]}
        core.create_namespaced_pod("team", {"metadata": {"name": "p"}, "spec": spec})
    except WaitTimeout:
        print("waited")
"""


def new_ledger() -> Ledger:
    return Ledger(RuntimeAlarms(), Policy(), "enforce", None)


def learn(ledger: Ledger) -> None:
    full = {"pods": 2 * 10**9}
    ledger.learn("team", ANYBODY, Rejected("q", {"pods": 10**9}, full, full), ledger.now())


def test_the_next_ledger_knows_what_the_last_one_learned(tmp_path: Path) -> None:
    """The ceiling is there again, as learned, with its age."""
    path = tmp_path / "deep" / "gate.json"
    first = new_ledger()
    keeper = MemoryKeeper(first, MemoryFile(path, SERVER))
    learn(first)
    keeper.close()

    second = new_ledger()
    MemoryKeeper(second, MemoryFile(path, SERVER)).close()
    seen = second.snapshot().namespaces["team"].quotas["q"]["pods"]
    assert (seen.limited, seen.used, seen.source) == (2 * 10**9, 2 * 10**9, "learned")


def test_a_killed_process_loses_little(tmp_path: Path) -> None:
    """The memory is saved now and then, not only at the end."""
    path = tmp_path / "gate.json"
    ledger = new_ledger()
    learn(ledger)
    keeper = MemoryKeeper(ledger, MemoryFile(path, SERVER), every=0.01)
    found = None
    for _ in range(1_000_000):
        if (found := MemoryFile(path, SERVER).load()) is not None:
            break
    keeper.close()
    assert found is not None
    assert set(found.quotas) == {"team"}


def test_a_gate_that_learned_nothing_writes_no_file(tmp_path: Path) -> None:
    """A gate that met no quota leaves no file."""
    MemoryKeeper(new_ledger(), MemoryFile(tmp_path / "gate.json", SERVER)).close()
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_fails_to_remember_counts_the_error_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails open: an internal error is counted, and no incomplete file is written."""
    ledger = new_ledger()
    learn(ledger)
    monkeypatch.setattr(Controller, "remember_page", lambda *_: 1 / 0)  # a bug of ours
    MemoryKeeper(ledger, MemoryFile(tmp_path / "gate.json", SERVER)).close()
    assert ledger.counts.failed_open == 1
    assert not (tmp_path / "gate.json").exists()


def test_servers_have_files_of_their_own(tmp_path: Path) -> None:
    """One directory serves many clusters."""
    paths = [memory_file_of(str(tmp_path), server).path for server in (SERVER, "https://other", SERVER)]
    assert paths[0] == paths[2] != paths[1]
    assert all(path.parent == tmp_path for path in paths)


def test_a_tilde_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell expands the value in a unit file or an env file. If the home is unknown, the name is taken literally."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert memory_file_of("~/memory", SERVER).path.parent == tmp_path / "memory"
    assert memory_file_of("~nobody-at-all/memory", SERVER).path.parent == Path("~nobody-at-all/memory")


def test_the_last_save_is_the_newest(tmp_path: Path) -> None:
    """A save in progress when the ledger closes ends first."""
    ledger, begun, go = new_ledger(), threading.Event(), threading.Event()
    learn(ledger)
    written: list[int] = []

    class Slow(MemoryFile):
        def save(self, memory: Memory) -> bool:
            if not begun.is_set():
                begun.set()
                go.wait(PATIENCE)
            written.append(len(memory.quotas))
            return super().save(memory)

    keeper = MemoryKeeper(ledger, Slow(tmp_path / "gate.json", SERVER), every=0.01)
    assert begun.wait(PATIENCE)
    full = {"pods": 2 * 10**9}
    ledger.learn("other", ANYBODY, Rejected("q", {"pods": 10**9}, full, full), ledger.now())
    closing = threading.Thread(target=keeper.close)
    closing.start()
    closing.join(0.3)  # enough time to overtake it
    assert closing.is_alive()
    go.set()
    closing.join(PATIENCE)
    assert written[-1] == 2
    assert sorted(written) == written


def test_a_slow_disk_delays_no_client_of_another_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the last client of a server waits for the save; opening a client of another server does not."""
    saving, go = threading.Event(), threading.Event()

    def slow(_: int) -> None:
        saving.set()
        go.wait(PATIENCE)

    monkeypatch.setenv("BACKOFF_CTRL_MEMORY", str(tmp_path))
    share = Share(Configuration(host="http://one"), None)
    learn(share.ledger)
    monkeypatch.setattr("os.fsync", slow)
    closing = threading.Thread(target=share.release)
    closing.start()
    assert saving.wait(PATIENCE)
    other = threading.Thread(target=lambda: Share(Configuration(host="http://other"), None).release())
    other.start()
    other.join(PATIENCE)
    assert not other.is_alive()
    go.set()
    closing.join(PATIENCE)


def test_an_unexpected_error_does_not_stop_later_saves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fails open: the error is counted and logged, and the next save is tried."""
    ledger, saved = new_ledger(), threading.Semaphore(0)
    learn(ledger)

    class Failing(MemoryFile):
        def save(self, memory: Memory) -> bool:
            saved.release()
            raise RuntimeError("not today")

    keeper = MemoryKeeper(ledger, Failing(tmp_path / "gate.json", SERVER), every=0.01)
    assert all(saved.acquire(timeout=45) for _ in range(3))
    keeper.close()
    assert ledger.counts.failed_open >= 3
    assert len([message for message in caplog.messages if "internal error" in message]) == 1


@pytest.mark.long
def test_the_environment_makes_a_program_remember(sandbox: BackgroundSandbox, tmp_path: Path) -> None:
    """With the variable set, a program that never closes its client leaves the file, and the next program reads it."""
    sandbox.create_quota("team", "q", {"pods": "0"})
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, sandbox.url],
            env={"BACKOFF_CTRL_MEMORY": str(tmp_path), "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert (done.stdout, done.stderr) == ("waited\n", "")
    [path] = tmp_path.iterdir()
    found = MemoryFile(path, sandbox.url).load()
    assert found is not None
    assert set(found.quotas["team"]) == {"q"}
