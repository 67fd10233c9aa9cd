"""A registry of static files: ``python -m tests.node.registry ADDRESS PORT REPOSITORY:TAG=FOLDER...``.

Each folder holds one image in the layout of the Open Container Initiative. Nothing can be pushed.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_PATH = re.compile(r"/v2/(?P<repository>.+)/(?P<kind>manifests|blobs)/(?P<reference>[^/]+)")


class Registry(ThreadingHTTPServer):
    """Serves images by their names; the host in a name does not count."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], images: dict[str, Path]) -> None:
        self._manifests: dict[str, dict[str, Any]] = {}
        self._blobs: dict[str, Path] = {}
        for name, folder in images.items():
            (manifest,) = json.loads((folder / "index.json").read_text())["manifests"]
            self._manifests[name] = manifest
            for blob in (folder / "blobs" / "sha256").iterdir():
                self._blobs[f"sha256:{blob.name}"] = blob
        super().__init__(address, Asked)

    def find(self, repository: str, reference: str) -> tuple[str, str, Path] | None:
        """Return the digest, the media type and the file of a manifest (by tag or digest) or a blob."""
        tagged = self._manifests.get(f"{repository}:{reference}")
        digest = tagged["digest"] if tagged else reference
        kinds = {each["digest"]: each["mediaType"] for each in self._manifests.values()}
        file = self._blobs.get(digest)
        return (digest, kinds.get(digest, "application/octet-stream"), file) if file else None


class Asked(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        file = self._answer()
        if file:
            with file.open("rb") as source:
                shutil.copyfileobj(source, self.wfile)

    def _answer(self) -> Path | None:
        """Send the headers; return the file that follows, if one does."""
        path = self.path.partition("?")[0]
        asked = _PATH.fullmatch(path)
        found = self.server.find(asked["repository"], asked["reference"]) if asked else None
        if not found:
            self.send_response(200 if path == "/v2/" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        digest, kind, file = found
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(file.stat().st_size))
        self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        return file


def main() -> None:
    address, port, *named = sys.argv[1:]
    images = {name: Path(folder) for name, _, folder in (each.partition("=") for each in named)}
    Registry((address, int(port)), images).serve_forever()


if __name__ == "__main__":
    main()
