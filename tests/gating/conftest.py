"""Fixtures: a real HTTP server in a background thread for the tests of clients, and conversations for the others."""

from __future__ import annotations

import asyncio
import queue
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from backoff_ctrl.k8s.gate.aio import Gate
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.runtime.host import RUNTIME
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.kit.conversing import conversation
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backoff_ctrl.k8s.gate.creates.conversation import Conversation
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


@pytest.fixture
def sandbox() -> Iterator[BackgroundSandbox]:
    """An API server with a namespace ``team`` that has no quota yet."""
    with running_sandbox() as running:
        running.create_namespace("team")
        yield running


@pytest.fixture
def core(sandbox: BackgroundSandbox) -> Iterator[Any]:
    """A ``CoreV1Api`` on a gated client with its own gate, which learns from refusals and watches nothing."""
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=Gate()) as api:
        yield client.CoreV1Api(api)


@pytest.fixture
def at_work() -> Callable[[], int]:
    """Count what runs beside the creates."""

    def count() -> int:
        counted: queue.SimpleQueue[int] = queue.SimpleQueue()
        RUNTIME.post(lambda: counted.put(len(asyncio.all_tasks())))
        return counted.get(timeout=PATIENCE)

    return count


@pytest.fixture
def callers() -> Conversation:
    """A create under a name that its caller chose, and that another client may use."""
    return conversation()


@pytest.fixture
def minted() -> Conversation:
    """A create under a name that the gate drew, so that no other client can use it."""
    return conversation(prefix="web-")
