"""The names of Services: ``python -m tests.node.dns ADDRESS KUBECONFIG`` answers for NAME.NAMESPACE.svc.cluster.local.

It knows A records alone. Each other name does not exist.
"""

from __future__ import annotations

import json
import re
import socketserver
import ssl
import struct
import sys
import urllib.request
from pathlib import Path

import yaml

_ANSWER, _NO_SUCH_NAME = 0x8580, 0x8583
_TTL = 1
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Services:
    """Asks the API server for the address of a Service."""

    def __init__(self, kubeconfig: Path) -> None:
        read = yaml.safe_load(kubeconfig.read_text())
        cluster = read["clusters"][0]["cluster"]
        self._url = cluster["server"]
        self._trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._token = read["users"][0]["user"]["token"]

    def address(self, name: str) -> str:
        """Return the address, or nothing where there is no such Service."""
        labels = name.lower().split(".")
        if labels[2:] != ["svc", "cluster", "local"] or not all(_LABEL.fullmatch(each) for each in labels):
            return ""
        url = f"{self._url}/api/v1/namespaces/{labels[1]}/services/{labels[0]}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._token}"})
        try:
            with urllib.request.urlopen(request, context=self._trust, timeout=5) as answer:
                found = str(json.load(answer)["spec"].get("clusterIP", ""))
        except OSError:
            return ""
        return "" if found == "None" else found


class Asked(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        data, sock = self.request
        end, labels = 12, []
        while size := data[end]:
            labels.append(data[end + 1 : end + 1 + size].decode("latin1"))
            end += 1 + size
        (kind,) = struct.unpack(">H", data[end + 1 : end + 3])
        found = self.server.services.address(".".join(labels))
        record = b""
        if found and kind == 1:
            record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, _TTL, 4) + bytes(int(each) for each in found.split("."))
        counts = struct.pack(">HHHHH", _ANSWER if found else _NO_SUCH_NAME, 1, 1 if record else 0, 0, 0)
        sock.sendto(data[:2] + counts + data[12 : end + 5] + record, self.client_address)


class Server(socketserver.ThreadingUDPServer):
    daemon_threads = True

    def __init__(self, address: str, services: Services) -> None:
        self.services = services
        super().__init__((address, 53), Asked)


if __name__ == "__main__":
    Server(sys.argv[1], Services(Path(sys.argv[2]))).serve_forever()
