"""What listeners of the decision stream cost: creates per second through a gate, alone and with 200 listeners.

A create is answered at once, so the gate decides as often as it can. The listeners read all that comes, in a process of
their own. Rounds with and without them alternate; the median round is printed. On a machine with other work
trust the share of CPU: there the readers take time from the gate that has nothing to do with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any

from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.status.serving import Service

LISTENERS = 200
ROUNDS = 3
SECONDS = 1.0
READER = """
import selectors, socket, sys
selector = selectors.DefaultSelector()
port = int(sys.argv[1])
for _ in range(int(sys.argv[2])):
    each = socket.create_connection(("127.0.0.1", port))
    each.sendall(b"GET /v1/decisions HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
    assert each.recv(1 << 16).startswith(b"HTTP/1.1 200")
    selector.register(each, selectors.EVENT_READ)
print("ready", flush=True)
while selector.get_map():
    for key, _ in selector.select():
        if not key.fileobj.recv(1 << 20):
            selector.unregister(key.fileobj)
"""


class Stored:
    """A transport whose server stores everything at once."""

    def send(self, body: Any) -> Answer:
        """Return the body as the stored object, so that a create costs the gate's own work alone."""
        return Answer(201, {}, json.dumps(body).encode())


def rate(gate: Gate) -> tuple[float, float]:
    """Create for a while; return creates per second, and per second of this process' own time on a core."""
    made = 0
    transport: Any = Stored()
    began, busy = time.perf_counter(), time.process_time()
    while time.perf_counter() < began + SECONDS:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{made}"}, "spec": {"containers": []}}
        gate.create(Creation("http://s", "c", "team", "pods", body), transport)
        made += 1
    return made / (time.perf_counter() - began), made / (time.process_time() - busy)


def cost_of_listeners() -> dict[str, float]:
    """Measure: creates per second, and the share of them that 200 listeners cost."""
    gate, service = Gate(), Service()
    service.add(gate.ledger)
    server = service.serve("127.0.0.1:0")
    rate(gate)  # warm
    shares: list[tuple[float, float]] = []
    alone = []
    for _ in range(ROUNDS):
        before = rate(gate)
        with subprocess.Popen(
            [sys.executable, "-c", READER, str(server.port), str(LISTENERS)], stdout=subprocess.PIPE
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"ready\n", "not all could listen"
            with_them = rate(gate)
            reader.kill()
        while len(server.streams):  # a dead listener is noticed when something is sent to it
            rate(gate)
        after = rate(gate)
        wall, busy = (1 - 2 * with_them[n] / (before[n] + after[n]) for n in (0, 1))
        shares.append((wall, busy))
        alone.append(before[0])
    service.close()
    gate.close()
    return {
        "creates_per_second": round(median(alone)),
        "200_listeners_cost_share": round(median(wall for wall, _ in shares), 3),
        "200_listeners_cost_share_of_cpu": round(median(busy for _, busy in shares), 3),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({**cost_of_listeners(), "cores": os.cpu_count()}, indent=1) + "\n")
