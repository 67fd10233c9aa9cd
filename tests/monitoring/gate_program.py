"""A program with a gate of its own, which tests start, order about over stdin, and kill.

``python gate_program.py SETTINGS``: a JSON object with ``server``, ``listen``, ``policy``, ``watch`` and perhaps
``mode``. Each line on stdin is an order: ``{"create": MANIFEST, "namespace": ...}``; ``{"gang": MANIFESTS, "namespace":
...}``, whose first is created once the gang is admitted; or ``{"break": true}``, after which the next create meets an
error inside the engine.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from kubernetes import client

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.clients.gangs import gang
from backoff_ctrl.k8s.gate.observing.hosted import HostedWatch
from backoff_ctrl.k8s.gate.settings import read_settings
from backoff_ctrl.k8s.gate.sharing.process import notify
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.status.serving import SERVICE


class InjectedError(Exception):
    """The bug."""


def create(core: Any, namespace: str, manifest: Any) -> None:
    """Create a pod; what becomes of it, the gate's metrics say."""
    try:
        core.create_namespaced_pod(namespace, manifest)
    except Exception as error:  # noqa: BLE001 - such as a gate that declines
        print(type(error).__name__, file=sys.stderr)  # noqa: T201


def create_first_of(core: Any, namespace: str, members: Any) -> None:
    """Wait for the room of a gang, create its first member, and keep the room of the others for good."""
    with gang(core, members, namespace=namespace, name=members[0]["metadata"]["name"]):
        core.create_namespaced_pod(namespace, members[0])
        threading.Event().wait()


def main() -> None:
    """Obey until stdin ends."""
    settings = json.loads(sys.argv[1])
    configuration = client.Configuration(host=settings["server"])
    gate = Gate(policy=Policy(**settings["policy"]), mode=settings.get("mode"))
    notify(gate.ledger, read_settings())
    watch = HostedWatch(gate.ledger, configuration, everywhere=True) if settings["watch"] else None
    SERVICE.add(gate.ledger, settings["server"], lambda: None if watch is None else watch.record)
    if watch is not None:
        watch.start()
    core: Any = client.CoreV1Api(GatedApiClient(configuration, gate=gate))
    print(SERVICE.serve(settings["listen"]).url, flush=True)  # noqa: T201
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("break"):
            _break(gate)
            continue
        work, what = (create, order["create"]) if "create" in order else (create_first_of, order["gang"])
        threading.Thread(target=work, args=(core, order["namespace"], what), daemon=True).start()
    os._exit(0)  # whoever waits still is not waited for


def _break(gate: Gate) -> None:
    def fail(*_: object) -> None:
        raise InjectedError

    gate.ledger.controller.submit = fail  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    main()
