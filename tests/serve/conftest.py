"""Fixtures: a sandbox with three namespaces, two gates with creates that wait, and ``serve`` before them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest
from kubernetes import client

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.kit.gated_creates import pod
from tests.serve.serving import serving, until
from tests.status.asking import Crowd, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


class Served(NamedTuple):
    """What is served, and where."""

    url: str
    sandbox: BackgroundSandbox
    gates: tuple[Crowd, Crowd]


@pytest.fixture(scope="module")
def filled() -> Iterator[BackgroundSandbox]:
    """``team`` and ``other`` have a full quota ``q`` of one pod, ``roomy`` one of ten."""
    with running_sandbox() as sandbox:
        core = client.CoreV1Api(client.ApiClient(client.Configuration(host=sandbox.url)))
        for name, pods in (("team", 1), ("other", 1), ("roomy", 10)):
            sandbox.create_namespace(name)
            sandbox.create_quota(name, "q", {"pods": str(pods)})
            core.create_namespaced_pod(name, pod("first"))
        yield sandbox


@pytest.fixture(scope="module")
def served(filled: BackgroundSandbox) -> Iterator[Served]:
    """Two gates: two creates wait in ``team`` at the first, one there and one in ``other`` at the second."""
    hook, threading.excepthook = threading.excepthook, lambda _: None  # creates that are cancelled at the end
    gates = (Crowd(filled), Crowd(filled))
    try:
        for number, namespace, name in ((0, "team", "a"), (0, "team", "b"), (1, "team", "c"), (1, "other", "d")):
            gates[number].wait_with(name, namespace=namespace)
        urls = [word for gate in gates for word in ("--gate", gate.url)]
        with serving("--apiserver", filled.url, *urls) as url:
            until(lambda: ask(url, "/readyz").status == 200)
            until(lambda: [each["waiting"] for each in ask(url, "/v1/namespaces").json["items"][-1:]] == [3])
            yield Served(url, filled, gates)
    finally:
        for gate in gates:
            gate.close()
        threading.excepthook = hook


@pytest.fixture(scope="module")
def alone(filled: BackgroundSandbox) -> Iterator[str]:
    """``serve`` without a gate: where it is."""
    with serving("--apiserver", filled.url) as url:
        until(lambda: ask(url, "/readyz").status == 200)
        yield url
