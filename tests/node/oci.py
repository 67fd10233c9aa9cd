"""Images as folders of static files (the layout of the Open Container Initiative), made without a container engine."""

from __future__ import annotations

import gzip
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(
    layout: Path,
    root: Path,
    *,
    environment: Mapping[str, str],
    program: Sequence[str] = (),
    arguments: Sequence[str] = (),
) -> None:
    """Write an image of one layer, the tree ``root``, into the folder ``layout``: for machines like this one.

    ``program`` begins each command of its containers, ``arguments`` follow where a container has none.
    """
    plain = layout / "layer.tar"
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    with tarfile.open(plain, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(root, arcname=".", recursive=True)
    packed = layout / "layer.tar.gz"
    with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        while part := source.read(1 << 20):
            target.write(part)
    difference = _digest(plain)
    plain.unlink()
    layer = _kept(packed, blobs)
    config = _described(
        {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {
                "Env": [f"{name}={value}" for name, value in environment.items()],
                "Entrypoint": [*program],
                "Cmd": [*arguments],
            },
            "rootfs": {"type": "layers", "diff_ids": [difference]},
        },
        blobs,
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **layer}],
    }
    reference = {"mediaType": _MANIFEST, **_described(manifest, blobs)}
    reference["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [reference]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def _described(document: Mapping[str, Any], blobs: Path) -> dict[str, Any]:
    path = blobs / "document"
    path.write_text(json.dumps(document))
    return _kept(path, blobs)


def _kept(path: Path, blobs: Path) -> dict[str, Any]:
    """Move a file to where its digest says; return what a manifest says of it."""
    digest, size = _digest(path), path.stat().st_size
    path.rename(blobs / digest.removeprefix("sha256:"))
    return {"digest": digest, "size": size}


def _digest(path: Path) -> str:
    found = sha256()
    with path.open("rb") as source:
        while part := source.read(1 << 20):
            found.update(part)
    return f"sha256:{found.hexdigest()}"
