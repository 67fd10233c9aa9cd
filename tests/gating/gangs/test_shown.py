"""Gangs as the status shows them: one that waits is one entry, what is reserved has its own amount."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from kubernetes import client

from backoff_ctrl import Gate, GatedApiClient, create_gang, gang
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.status.counters import Counters
from backoff_ctrl.k8s.status.documents import Documents
from backoff_ctrl.k8s.status.endpoints import OfCeilings, OfNamespace, OfRequest
from backoff_ctrl.k8s.status.sources import Source
from tests.kit.gated_creates import pod
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


def test_reserved_room_and_a_gang_that_waits_are_shown(sandbox: BackgroundSandbox) -> None:
    """The ceiling says what is reserved beside what is held, and the waiting list names the gang."""
    sandbox.create_quota("team", "q", {"pods": "10"})
    gate = Gate(policy=Policy(base=0.05, cap=0.2))
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=gate) as api:
        core: Any = client.CoreV1Api(api)
        ledger = gate.ledger
        documents = Documents([Source(ledger, Counters(ledger.now, ledger.explain), name="g")], "1")
        members = [pod(f"m-{number}") for number in range(6)]
        with gang(core, members, namespace="team", name="first"):
            core.create_namespaced_pod("team", members[0])
            (ceiling,) = documents.ceilings(OfCeilings("team")).items
            assert (ceiling.limited, ceiling.reserved) == ("10", "5")
            others = [pod(f"o-{number}") for number in range(8)]
            second = threading.Thread(
                target=lambda: create_gang(core, others, namespace="team", name="second", timeout=60)
            )
            second.start()
            while not (found := documents.waiting(OfNamespace("team")).items):
                second.join(0.01)
            assert [(each.gang, each.name, each.kind) for each in found] == [("second", "second", "pods")]
            assert found[0].blockers[0].asked == "8"
            assert documents.request(OfRequest(found[0].id)).state == "waiting"
        second.join(PATIENCE)
        assert not documents.waiting(OfNamespace("team")).items
