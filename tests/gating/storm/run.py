"""A storm: 64 threads and 64 tasks create pods in one line while all that can go wrong does.

``python -m tests.gating.storm.run --seeds 20 --creates 2500`` prints an account of each seed, and exits with 1 if
anything is wrong. In each, one process makes all calls. Its quota is full most of the time. Calls have time limits that
they reach, are cancelled before, while and after they are sent, are made twice at once with one key, and are gangs. The
server loses answers. The engine raises. The process forks, and another one is ended by a Ctrl-C.

In the end the server is asked: each create is stored once, or its caller got an error and it is stored at most once,
with its create's id; nothing else is stored; the line is empty, nothing is held, and no thread or event loop is left.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from tests.gating.storm.plans import ROW
from tests.gating.storm.process import Asked, Call, Told
from tests.gating.storm.server import NAMESPACE
from tests.kit.patience import PATIENCE

JSON = dict[str, Any]
HARD: Final = 24
"""Pods at a time, for 128 callers."""
LONGEST: Final = 600.0
"""Seconds until a storm hangs."""


@dataclass
class Account:
    """What the callers of one seed were told, and what the server has."""

    seed: int
    told: Told
    stored: list[JSON]
    counters: JSON
    books: list[Call]
    seconds: float
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Compare the two."""
        self.wrong += self.told.wrong
        self.by_row: dict[str, list[JSON]] = {}
        if not self.told.calls:  # the process did not end by itself
            return
        for pod in self.stored:
            self.by_row.setdefault(pod["metadata"]["labels"].get(ROW, "?"), []).append(pod["metadata"])
        undone = set(self.told.undone)
        calls: dict[str, list[Call]] = {}
        for call in [*self.told.calls, *self.books]:
            self.errors[call.end] += len(call.rows)
            for row in call.rows:
                calls.setdefault(row, []).append(call)
        for row, of_row in calls.items():
            self._judge(row, of_row)
        for row, pods in self.by_row.items():
            if row not in calls:
                self.wrong.append(f"{row} is stored, and nobody asked for it: {pods}")
        self.wrong += [f"{pod['name']} was to be deleted with its gang" for pod in self._all() if pod["name"] in undone]
        made = self.counters["created"]
        if not len(self.stored) <= made <= len(self.stored) + self._may_be_gone():
            self.wrong.append(f"{made} pods were created, {len(self.stored)} are stored")

    def _all(self) -> list[JSON]:
        return [pod["metadata"] for pod in self.stored]

    def _may_be_gone(self) -> int:
        """How many members of gangs may have been deleted again."""
        return sum(len(call.rows) for call in self.told.calls if len(call.rows) > 1 and call.end != "in")

    def _judge(self, row: str, calls: Sequence[Call]) -> None:
        """Say what is wrong with one create."""
        stored = self.by_row.get(row, [])
        ends = [f"{call.way}: {call.end}" for call in calls]
        names = {call.names[call.rows.index(row)] for call in calls if call.names}
        came = any(call.end == "in" for call in calls)
        if len(stored) > 1:
            self.wrong.append(f"{row} is stored {len(stored)} times, {ends}: {stored}")
        elif came and not stored:
            self.wrong.append(f"{row} was returned, {ends}, and is not stored")
        elif names and names != {stored[0]["name"]}:
            self.wrong.append(f"{row} was returned as {names}, {ends}, and is stored as {stored[0]['name']}")
        if not all(call.end for call in calls):
            self.wrong.append(f"{row}: a caller was told nothing, {ends}")
        known = self.told.ids.get(row)
        if stored and known is not None and stored[0]["annotations"].get(CREATE_ID) not in known:
            self.wrong.append(f"{row} is stored with {stored[0]['annotations']}, sent were {known}, {ends}")
        if stored and known is None and calls[0] in self.told.calls:
            self.wrong.append(f"{row} is stored, and was no create, {ends}")

    @property
    def creates(self) -> int:
        """How many creates callers asked for."""
        return sum(len(call.rows) for call in [*self.told.calls, *self.books])

    def __str__(self) -> str:
        told = self.told
        errors = ", ".join(f"{count} {kind}" for kind, count in self.errors.most_common() if kind != "in")
        return (
            f"seed {self.seed}: {self.creates} creates, {self.errors['in']} returned, {len(self.stored)} stored, "
            f"{told.waited} waits, {self.counters['refused']} refused by quota; {errors}; {told.forks} forks, "
            f"{told.bugs} engine errors, 1 Ctrl-C; {self.seconds:.0f} s"
        )


def storm(seed: int, creates: int, *, forks: int = 3, bugs: int = 6) -> Account:
    """Let one storm go over a process, and return the account of it. Even seeds observe quotas, odd ones learn."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, serving(seed) as url:
        folder = Path(name)
        asked = Asked(url, seed, creates, forks, bugs, seed % 2 == 0, name)
        command = [sys.executable, "-m", "tests.gating.storm.process", json.dumps(asdict(asked))]
        told = Told(wrong=["the process did not end by itself"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            interrupted = interrupt(url, folder / "interrupted")
            try:
                out, _ = process.communicate(timeout=LONGEST)
            finally:
                process.kill()
        if process.returncode == 0:
            said = json.loads(out)
            told = Told(**{**said, "calls": [Call(**call) for call in said["calls"]]})
            told.wrong += interrupted
        books = [call for path in sorted(folder.iterdir()) for call in read_book(path)]
        stored: JSON = ask(url, f"/api/v1/namespaces/{NAMESPACE}/pods")
        counters = ask(url, "/sandbox/counters")["by_namespace"][NAMESPACE]
    return Account(seed, told, stored["items"], counters, books, time.monotonic() - began)


@contextmanager
def serving(seed: int) -> Iterator[str]:
    """Run the server in a process of its own; yield its URL."""
    command = [sys.executable, "-m", "tests.gating.storm.server", str(seed), str(HARD)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.communicate(timeout=PATIENCE)


def interrupt(url: str, book: Path) -> list[str]:
    """Run a program that joins an executor in which creates wait, and press Ctrl-C; return what is wrong with that."""
    command = [sys.executable, "-m", "tests.gating.storm.interrupted", url, str(book)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        program.stdout.readline()
        for _ in range(2):  # Python may miss one
            program.send_signal(signal.SIGINT)
            try:
                _, errors = program.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                continue
            return [] if "KeyboardInterrupt" in errors else [f"Ctrl-C ended a program with {errors!r}"]
        program.kill()
    return ["a program does not end after Ctrl-C"]


def read_book(path: Path) -> list[Call]:
    """Return the calls of another process: an end that is not written is that process's end."""
    calls: dict[str, Call] = {}
    for line in path.read_text("utf-8").splitlines():
        end, row = line.rsplit(" ", 1)
        calls[row] = Call(path.name, (row,), "ended with its process" if end == "begun" else end)
    return list(calls.values())


def ask(url: str, path: str) -> Any:
    """Read from the server."""
    with urllib.request.urlopen(f"{url}{path}", timeout=PATIENCE) as answer:
        return json.load(answer)


def _main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gating.storm.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--creates", type=int, default=2500, help="creates of each seed")
    asked = parser.parse_args(arguments)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's `&` has it ignored, by what is started here, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    accounts = []
    for seed in range(asked.first, asked.first + asked.seeds):
        accounts.append(account := storm(seed, asked.creates))
        sys.stdout.write("\n  WRONG: ".join([str(account), *account.wrong]) + "\n")
        sys.stdout.flush()
    creates, wrong = sum(each.creates for each in accounts), sum(len(each.wrong) for each in accounts)
    sys.stdout.write(f"{len(accounts)} seeds, {creates} creates: {wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(_main())
