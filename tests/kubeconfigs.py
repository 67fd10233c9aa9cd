"""Kubeconfigs with one context, for tests of what is found by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_kubeconfig(
    path: Path, server: str, user: Mapping[str, Any] | None = None, *, namespace: str = "default", **cluster: str
) -> str:
    """Write one for a user with a token, or this one; return where."""
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
