"""The audit of what is shipped, by the real pip-audit and a database that the test plays."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FOUND = {"id": "PYSEC-1", "modified": "2026-01-01T00:00:00Z", "affected": [
    {"package": {"name": "yarl", "ecosystem": "PyPI"}, "ranges": [
        {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.25.2"}]}]}]}  # fmt: skip


PINS = "yarl==1.25.1\nidna==3.20\n"


class Database(BaseHTTPRequestHandler):
    """Answers as osv.dev does: one question a distribution."""

    vulnerable: ClassVar[set[str]] = set()
    status: ClassVar[int] = 200
    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        """As osv.dev answers where only POST is known."""
        self.send_response(405)
        self.end_headers()

    def do_POST(self) -> None:
        """Tell of one distribution."""
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = question["package"]["name"]
        self.asked.append(f"{name} {question['version']}")
        body = json.dumps({"vulns": [FOUND]} if name in self.vulnerable else {}).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def database(status: int = 200) -> Iterator[tuple[str, type[Database]]]:
    """Run one; yield its URL, and what it knows and was asked."""
    kind = type("Playing", (Database,), {"vulnerable": set(), "status": status, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query", kind
        server.shutdown()
        thread.join()


def audit(folder: Path, url: str, *options: str, pins: str = PINS) -> tuple[int, str]:
    """Run it; return exit code and what it printed."""
    file = folder / "pins.txt"
    file.write_text(pins)
    command = [sys.executable, "-m", "tools.audit", str(file), f"--url={url}", f"--clean={folder / 'clean'}", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.long
def test_a_known_vulnerability_fails_and_what_is_clean_counts_for_a_day(tmp_path: Path) -> None:
    """Of these pins, in `make check` alone. A vulnerability is named with the version that mends it."""
    with database() as (url, played):
        code, said = audit(tmp_path, url, "--if-reachable")
        assert (code, said) == (0, "audit: no known vulnerability in the 2 distributions that are shipped\n")
        assert played.asked == ["yarl 1.25.1", "idna 3.20"]
        played.vulnerable.add("yarl")
        code, said = audit(tmp_path, url, "--if-reachable")
        assert (code, "(asked 0 h ago)" in said, len(played.asked)) == (0, True, 2)
        for options, pins in (((), PINS), (("--if-reachable",), "yarl==1.25.0\n")):
            code, said = audit(tmp_path, url, *options, pins=pins)
            assert (code, ": PYSEC-1 (fixed in 1.25.2)" in said) == (1, True), said
        (kept,) = (tmp_path / "clean").iterdir()
        yesterday = kept.stat().st_mtime - 86_400
        os.utime(kept, (yesterday, yesterday))
        assert audit(tmp_path, url, "--if-reachable")[0] == 1


@pytest.mark.long
@pytest.mark.parametrize("how", ["refuses", "hangs", "fails", "no name"])
def test_a_database_that_does_not_answer_is_a_line_and_no_success(tmp_path: Path, how: str) -> None:
    """`make check` goes on, soon; `make audit` fails. Nothing of that counts as clean later."""
    with database(status=500) as (failing, _), socket.create_server(("127.0.0.1", 0)) as silent:
        urls = {
            "refuses": "http://127.0.0.1:9/v1/query",
            "hangs": f"http://127.0.0.1:{silent.getsockname()[1]}/v1/query",
            "fails": failing,
            "no name": "http://no.such.host.invalid/v1/query",
        }
        ways = ((("--if-reachable",), 0), ((), 1))
        for options, wanted in ways if how != "fails" else ways[:1]:
            began = time.monotonic()
            code, said = audit(tmp_path, urls[how], *options)
            assert (code, said.count("\n")) == (wanted, 1), said
            assert said.startswith(f"audit: NOTHING WAS AUDITED: {urls[how]} could not be asked (")
            assert time.monotonic() - began < PATIENCE  # it gives up after 1.5 s
    assert not (tmp_path / "clean").exists()


def test_make_check_runs_it() -> None:
    """And `make audit` is the strict one; both on the pins of what is shipped now."""
    text = (ROOT / "Makefile").read_text()
    recipes = {each.partition(":")[0]: each for each in text.split("\n\n")}
    pins = "tools.shipped --check --pins build/shipped.txt\n"
    assert f"{pins}\t@$(BIN)/python -m tools.audit --if-reachable build/shipped.txt" in recipes["check"]
    assert f"{pins}\t@$(BIN)/python -m tools.audit build/shipped.txt" in recipes["audit"]
