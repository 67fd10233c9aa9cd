"""Write kubeconfigs with one context, for tests of commands that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_kubeconfig(
    path: Path, server: str, user: Mapping[str, Any] | None = None, *, namespace: str = "default", **cluster: str
) -> str:
    """Write a kubeconfig for ``user``, by default one with a token; return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else dict(user)}],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)
