"""Server: what a test is told of the server it talks to, the sandbox or a real Kubernetes."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

USERS: Final = ("admin", "tester", "creator", "learner", "nobody")
"""admin: system:masters, only to set up (no permission and no fair share of the server is ever denied to it).
tester: may do everything, but by a role. creator: may create, and watch quotas. learner: as creator, but may not
even read quotas. nobody: may do nothing.
"""

_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters:
- name: bed
  cluster:
    server: {url}
{trust}users:
- name: {user}
  user:
    token: {token}
contexts:
- name: bed
  context:
    cluster: bed
    user: {user}
current-context: bed
"""


@dataclass(frozen=True)
class Server:
    """Where a server is, and how its users come in."""

    kind: Literal["sandbox", "kubernetes"]
    minor: int
    """36 for v1.36.x."""
    url: str
    certificate: Path | None
    """Whom to trust; nothing where plain HTTP is spoken."""
    folder: Path
    """Where kubeconfigs are written."""
    tokens: Mapping[str, str]
    compact: Callable[[], object]
    """Let it forget its history, so that lists of old versions are answered 410."""

    def token(self, user: str) -> str:
        """Return the bearer token of one of ``USERS``. Raises ``KeyError`` for anybody else."""
        return self.tokens[user]

    def kubeconfig(self, user: str = "tester") -> Path:
        """Return a kubeconfig of a user: written at the first call, and gone with the server."""
        path = self.folder / f"{user}.kubeconfig"
        trust = f"    certificate-authority: {self.certificate}\n" if self.certificate else ""
        if not path.exists():
            path.write_text(_KUBECONFIG.format(url=self.url, trust=trust, user=user, token=self.token(user)))
        return path

    def ssl(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self.certificate) if self.certificate else None
