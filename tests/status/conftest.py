"""Fixtures: a crowd that waits at a full quota, and the status of its gate."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.status.asking import Crowd

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    """A namespace ``team`` whose quota ``q`` of one pod is full, with the pod ``first``."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # creates that are cancelled at the end
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "1"})
        made = Crowd(sandbox)
        try:
            made.core.create_namespaced_pod("team", _pod("first"))
            yield made
        finally:
            made.close()


def _pod(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
