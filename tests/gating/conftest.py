"""A real HTTP server for each test: the sandbox, in a thread of its own, so that clients of any kind may block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from k8s.gate import Gate
from k8s.gated import GatedApiClient
from k8s.sandbox import running_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from k8s.sandbox import BackgroundSandbox


@pytest.fixture
def sandbox() -> Iterator[BackgroundSandbox]:
    """An API server with a namespace ``team`` that has no quota yet."""
    with running_sandbox() as running:
        running.create_namespace("team")
        yield running


@pytest.fixture
def core(sandbox: BackgroundSandbox) -> Iterator[Any]:
    """A ``CoreV1Api`` through a gated client with a gate of its own (it learns; nothing is watched)."""
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=Gate()) as api:
        yield client.CoreV1Api(api)
