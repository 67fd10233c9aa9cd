"""``backoff-ctrl uninstall`` against an API server that does not answer: its waits end, and say what to do."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.operating import uninstall
from tests.scripted_server import Seen, scripted_server

EMPTY: Any = (200, {"metadata": {"resourceVersion": "1"}, "items": []})


@pytest.mark.long
def test_letting_tasks_go_ends_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their list is asked for again and again; the pod of a hook would be ended without a word."""
    monkeypatch.setattr(uninstall, "LETS_GO_WITHIN", 1.0)

    def answer(seen: Seen) -> tuple[int, Any]:
        path, _, query = seen.path.partition("?")
        fails = path.endswith("/tasks") and query != "limit=1"
        return (500, {"kind": "Status", "message": "etcd is away"}) if fails else EMPTY

    with scripted_server(answer) as script:
        words = ["--yes", f"--apiserver={script.url}"]
        done = CliRunner().invoke(uninstall.command, words, standalone_mode=False)
    assert done.return_value == 1, done.output
    assert "Tasks: not all of them were let go within 1 s: run it again" in done.output
